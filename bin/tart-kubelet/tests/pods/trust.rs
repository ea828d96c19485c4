//! Trust anchors of a cluster in the files of a Pod. API servers serve them only when asked to, so they have one of their own.

use crate::harness::Host;
use crate::lives::WAITS;
use crate::stage::Mac;
use anyhow::{Result, ensure};
use k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use russet_testkit::{Extras, TestCluster};
use serde_json::json;
use tokio::sync::OnceCell;

static CLUSTER: OnceCell<TestCluster> = OnceCell::const_new();

/// A certificate that an API server accepts as an anchor.
fn anchor(name: &str) -> Result<String> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Ok(params.self_signed(&KeyPair::generate()?)?.pem())
}

/// How many certificates the Pod sees, all together.
async fn until_anchors(mac: &Mac, pod: &Pod, count: usize) -> Result<String> {
    let uid = pod.uid().unwrap_or_default();
    let file = mac.host.path("state/pods").join(uid).join("volumes/trust/ca.pem");
    let text = async || Ok(std::fs::read_to_string(&file)?);
    let found = mac.host.until(format!("{count} anchors"), text, |text| {
        text.matches("BEGIN CERTIFICATE").count() == count
    });
    found.await
}

pub(crate) async fn the_trust_anchors_of_a_cluster_are_files_that_follow_them() -> Result<()> {
    let extras = Extras {
        trust_bundles: true,
        ..Extras::CONTROLLERS
    };
    let cluster = CLUSTER.get_or_try_init(|| TestCluster::start(extras)).await?;
    let mac = Mac::on(Host::invited_to(cluster, "trust1").await?, "trust1").await?;
    let bundles: Api<ClusterTrustBundle> = Api::all(mac.host.client.clone());
    let apply = async |name: &str, signer: Option<&str>, anchors: &[&String]| {
        let text: String = anchors.iter().map(|anchor| anchor.as_str()).collect();
        let object = json!({
            "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
            "metadata": {"name": name, "labels": {"ring": "live"}}, "spec": {"signerName": signer, "trustBundle": text},
        });
        let params = PatchParams::apply("test").force();
        bundles.patch(name, &params, &Patch::Apply(object)).await
    };
    let (one, two, three) = (anchor("one")?, anchor("two")?, anchor("three")?);
    let _agent = mac.start()?;

    // It is missing: the Pod waits, says so, and runs once it is there.
    let more = |source| {
        json!({"spec": {
            "containers": [{"volumeMounts": [{}, {"name": "trust", "mountPath": "/etc/trust"}]}],
            "volumes": [{}, {"name": "trust", "projected": {"sources": [{"clusterTrustBundle": source}]}}],
        }})
    };
    let script = format!("grep -q BEGIN /etc/trust/ca.pem || exit 9; {WAITS} 0");
    let by_name = json!({"name": "corporate", "path": "ca.pem"});
    let named = mac.run("named", &script, more(by_name)).await?;
    let says = |pod: &Pod| {
        let status = json!(pod.status).to_string();
        status.contains("clustertrustbundle.certificates.k8s.io") && status.contains("not found")
    };
    mac.until("named", "a Pod that says what it lacks", says).await?;
    apply("corporate", None, &[&one]).await?;
    mac.until_running("named").await?;
    ensure!(until_anchors(&mac, &named, 1).await? == one, "another certificate");

    // All of a signer, whatever else it has; one that comes later is there as well, and none comes twice.
    apply("acme.com:ca:1", Some("acme.com/ca"), &[&one, &two]).await?;
    let by_signer = json!({
        "signerName": "acme.com/ca", "labelSelector": {"matchLabels": {"ring": "live"}}, "path": "ca.pem",
    });
    let signed = mac.run("signed", &script, more(by_signer)).await?;
    mac.until_running("signed").await?;
    until_anchors(&mac, &signed, 2).await?;
    apply("acme.com:ca:2", Some("acme.com/ca"), &[&two, &three]).await?;
    let text = until_anchors(&mac, &signed, 3).await?;
    ensure!([&one, &two, &three].iter().all(|anchor| text.contains(anchor.as_str())));
    apply("corporate", None, &[&two, &three]).await?;
    until_anchors(&mac, &named, 2).await?;

    for pod in [&named, &signed] {
        mac.go(pod)?;
        let (_, ended) = mac.until_ended(&pod.name_any()).await?;
        ensure!(ended.exit_code == 0, "{ended:?}");
    }
    mac.stayed_within_its_rights()
}
