//! A provider that issues and approves, and hosts that ask.

use anyhow::{Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, ResourceExt as _};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use russet_capi_provider::identity::{Identities, IdentityArgs, JoinCredentials, ServingNames, Settings, approver};
use russet_capi_provider::machine_ref::MachineRef;
use russet_stages::macs::rights::{self, client_of};
use russet_testkit::identity::Granted;
use russet_testkit::wait::{self, Look, PATIENCE};
use russet_testkit::{Sandbox, TestCluster, object};
use serde_json::{Value, json};

use crate::support::{self, Running};

pub(crate) const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub(crate) const SERVING: &str = "kubernetes.io/kubelet-serving";

/// The provider's identity, its credentials and its approver.
pub(crate) struct Provider {
    pub(crate) admin: Client,
    pub(crate) who: Granted,
    pub(crate) identities: Identities,
    _approver: Running,
}

pub(crate) async fn provider(sandbox: &Sandbox<'_>) -> Result<Provider> {
    let who = rights::provider(sandbox).await?.grant().await?;
    let settings = Settings::new(&IdentityArgs::default(), sandbox.namespace().to_owned());
    let identities = Identities::new(client_of(&who).await?, settings);
    let requests = identities.requests();
    let names = ServingNames {
        tailnet: vec!["100.64.0.0/10".parse()?],
        ..ServingNames::default()
    };
    Ok(Provider {
        admin: sandbox.client().await?,
        identities,
        _approver: support::run(sandbox, &who, |manager| vec![approver(manager, names, requests)]).await?,
        who,
    })
}

pub(crate) async fn joined(credentials: &JoinCredentials) -> Result<Client> {
    let config = Kubeconfig::from_yaml(credentials.kubeconfig.expose())?;
    Ok(
        kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
            .await?
            .try_into()?,
    )
}

/// What is asked for, and with which key.
pub(crate) struct Ask {
    pub(crate) key: KeyPair,
    pub(crate) pem: String,
}

pub(crate) fn ask(organization: &str, common_name: &str, names: Vec<SanType>) -> Result<Ask> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, organization);
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.subject_alt_names = names;
    let key = KeyPair::generate()?;
    let pem = params.serialize_request(&key)?.pem()?;
    Ok(Ask { key, pem })
}

pub(crate) fn ask_node(name: &str) -> Result<Ask> {
    ask("system:nodes", &format!("system:node:{name}"), Vec::new())
}

pub(crate) async fn request(client: &Client, signer: &str, ask: &Ask) -> Result<String> {
    let usage = if signer == SERVING {
        "server auth"
    } else {
        "client auth"
    };
    let csr = CertificateSigningRequest {
        metadata: ObjectMeta {
            generate_name: Some("node-csr-".into()),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(ask.pem.clone().into_bytes()),
            signer_name: signer.to_owned(),
            usages: Some(vec!["digital signature".into(), usage.into()]),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    Ok(requests.create(&PostParams::default(), &csr).await?.name_any())
}

/// The signed certificate, or the reason of the denial.
pub(crate) async fn outcome(admin: &Client, name: &str) -> Result<Result<Vec<u8>, String>> {
    let requests: Api<CertificateSigningRequest> = Api::all(admin.clone());
    wait::until(&format!("a decision about {name}"), PATIENCE, || async {
        let status = requests.get(name).await?.status.unwrap_or_default();
        if let Some(certificate) = status.certificate {
            return Ok(Look::Done(Ok(certificate.0)));
        }
        let denied = status.conditions.iter().flatten().find(|c| c.type_ == "Denied");
        Ok(match denied {
            Some(denied) => Look::Done(Err(denied.reason.clone().unwrap_or_default())),
            None => Look::not_yet(status.conditions),
        })
    })
    .await
}

pub(crate) async fn denied(admin: &Client, name: &str, reason: &str) -> Result<()> {
    match outcome(admin, name).await? {
        Ok(_) => bail!("{name} was granted"),
        Err(found) => ensure!(found == reason, "{name} was denied for {found}, not {reason}"),
    }
    Ok(())
}

/// A client that is the node.
pub(crate) async fn node_client(cluster: &TestCluster, certificate: Vec<u8>, key: &KeyPair) -> Result<Client> {
    let plane = cluster.control_plane();
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": plane.server(), "certificate-authority-data": STANDARD.encode(plane.ca_pem())}}],
        "users": [{"name": "n", "user": {
            "client-certificate-data": STANDARD.encode(certificate),
            "client-key-data": STANDARD.encode(key.serialize_pem()),
        }}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "n"}}],
    });
    let config = Kubeconfig::from_yaml(&serde_yaml_ng::to_string(&config)?)?;
    Ok(
        kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
            .await?
            .try_into()?,
    )
}

/// From token to node.
pub(crate) async fn join(provider: &Provider, cluster: &TestCluster, machine: &MachineRef) -> Result<Client> {
    let token = joined(&provider.identities.issue(machine).await?).await?;
    let ask = ask_node(&machine.name)?;
    let name = request(&token, CLIENT, &ask).await?;
    let certificate = outcome(&provider.admin, &name).await?.map_err(anyhow::Error::msg)?;
    node_client(cluster, certificate, &ask.key).await
}

pub(crate) fn node(name: &str, provider_id: &str) -> Result<Node> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/os": "darwin", "tuist.dev/fleet": "macs"}},
        "spec": {"providerID": provider_id},
    }))?)
}

#[track_caller]
pub(crate) fn forbidden<T: std::fmt::Debug>(result: Result<T, kube::Error>) {
    match result {
        Err(kube::Error::Api(status)) if status.is_forbidden() => {}
        other => panic!("not forbidden: {other:?}"),
    }
}

pub(crate) fn addressed(address: &str) -> Value {
    json!({"status": {"addresses": [{"type": "ExternalIP", "address": address}]}})
}

pub(crate) async fn set_status(client: &Client, machine: &MachineRef, status: Value) -> Result<()> {
    let (version, kind) = (
        "infrastructure.cluster.x-k8s.io/v1alpha1",
        "ScalewayAppleSiliconMachine",
    );
    let api = object::api(client, Some(&machine.namespace), version, kind);
    api.patch_status(&machine.name, &PatchParams::default(), &Patch::Merge(status))
        .await?;
    Ok(())
}
