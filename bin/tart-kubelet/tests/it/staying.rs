//! What may happen to a Node, and to its certificate.

use crate::harness::Host;
use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use rcgen::{CertificateParams, DistinguishedName, DnType, Issuer, KeyPair};
use russet_e2e::wait::{self, PATIENCE};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};

/// A Node that somebody deleted never came back, and its Machine was replaced. (incidents node-never-comes-back, provider-id)
#[tokio::test]
async fn a_node_that_is_deleted_comes_back_as_the_same_machine() -> Result<()> {
    let host = Host::invited("again2").await?;
    let mut agent = host.start(&[])?;
    let before = host.registered().await?;
    host.nodes().delete(&host.node, &DeleteParams::default()).await?;
    wait::until_true("another Node", PATIENCE, || async {
        let node = host.nodes().get_opt(&host.node).await?;
        Ok(node.is_some_and(|node| node.uid() != before.uid()))
    })
    .await?;
    let node = host.nodes().get(&host.node).await?;
    ensure!(node.spec.and_then(|spec| spec.provider_id) == Some(host.provider_id()));
    ensure!(agent.is_running(), "{}", host.log());
    Ok(())
}

/// The status a node wrote once stayed as others had changed it: what counts is what the node sees now.
#[tokio::test]
async fn a_node_that_was_declared_lost_says_that_it_lives_after_a_restart() -> Result<()> {
    let host = Host::invited("lost22").await?;
    let agent = host.start(&["--runtime=synthetic"])?;
    host.registered().await?;
    drop(agent);
    let lost = json!({"status": {"conditions": [{
        "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "nobody heard of it",
    }]}});
    host.nodes()
        .patch_status(&host.node, &PatchParams::default(), &Patch::Strategic(lost))
        .await?;
    let _agent = host.start(&["--runtime=synthetic"])?;
    wait::until_true("Ready", PATIENCE, || async {
        let node = host.nodes().get(&host.node).await?;
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        Ok(conditions
            .iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True"))
    })
    .await
}

#[tokio::test]
async fn a_certificate_near_its_end_is_renewed_by_the_node_itself() -> Result<()> {
    let host = Host::invited("renew2").await?;
    // A certificate of the cluster's own authority that has lived most of its life.
    let pki = host.cluster.control_plane().pki();
    let authority = KeyPair::from_pem(&std::fs::read_to_string(pki.ca().key())?)?;
    let issuer = Issuer::from_ca_cert_pem(pki.ca().pem(), authority)?;
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, host.node_user());
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    params.not_before = (SystemTime::now() - Duration::from_hours(24 * 99)).into();
    params.not_after = (SystemTime::now() + Duration::from_hours(24)).into();
    let old = params.signed_by(&key, &issuer)?.pem();
    let state = host.path("state");
    std::fs::create_dir_all(&state)?;
    // As the connection spells it.
    let server = format!("{}/", host.cluster.control_plane().server().trim_end_matches('/'));
    let memory = json!({
        "identity": {
            "node_name": host.node, "server": server,
            "key_pem": key.serialize_pem(), "certificate_pem": old,
        },
        "next": null, "labels": [],
    });
    std::fs::write(state.join("node.json"), memory.to_string())?;

    let mut agent = host.start(&[])?;
    let before = host.registered().await?;
    let kept = || -> Result<Value> { Ok(serde_json::from_slice(&std::fs::read(state.join("node.json"))?)?) };
    wait::until_true("another certificate", PATIENCE, || async {
        let now = kept()?;
        let certificate = now["identity"]["certificate_pem"].as_str().context("a certificate")?;
        Ok(certificate != old)
    })
    .await?;
    let asked = host.requests_of(&host.node_user()).await?;
    ensure!(asked.len() == 1, "the node asked {} times", asked.len());
    ensure!(
        host.requests_of(&host.bootstrap_user()?).await?.is_empty(),
        "it used its token, which may be long gone"
    );
    let first = host
        .leases()
        .get(&host.node)
        .await?
        .spec
        .and_then(|spec| spec.renew_time);
    wait::until_true("a renewal with the new certificate", PATIENCE, || async {
        let now = host
            .leases()
            .get(&host.node)
            .await?
            .spec
            .and_then(|spec| spec.renew_time);
        Ok(now > first)
    })
    .await?;
    ensure!(agent.is_running(), "{}", host.log());
    ensure!(host.nodes().get(&host.node).await?.uid() == before.uid());
    Ok(())
}

/// Hosts kept the address they were told when they joined, and were lost when the API server moved. What they are told later wins, and
/// who they are does not depend on it.
#[tokio::test]
async fn a_node_follows_an_api_server_that_moved_and_stays_who_it_is() -> Result<()> {
    let host = Host::invited("moved2").await?;
    // Nobody listens there any more.
    host.write_kubeconfig_for("https://127.0.0.1:9")?;
    host.write_cluster_info()?;
    let flag = format!("--cluster-info={}", host.path("cluster-info").display());
    let agent = host.start(&[&flag])?;
    let node = host.registered().await?;
    ensure!(agent.terminated().await?.success(), "{}", host.log());

    let mut agent = host.start(&[&flag])?;
    let lease = || async {
        let lease = host.leases().get_opt(&host.node).await?;
        anyhow::Ok(lease.and_then(|lease| lease.spec).and_then(|spec| spec.renew_time))
    };
    let first = lease().await?;
    wait::until_true("a renewal", PATIENCE, || async { Ok(lease().await? > first) }).await?;
    ensure!(host.nodes().get(&host.node).await?.uid() == node.uid());
    let asked = host.requests_of(&host.bootstrap_user()?).await?.len();
    ensure!(asked == 1, "it asked {asked} times who it is");
    ensure!(agent.is_running(), "{}", host.log());
    Ok(())
}
