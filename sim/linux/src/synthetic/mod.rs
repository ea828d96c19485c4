//! Servers without root: no machine, but a Node that is real to the cluster and says that it is synthetic.
//!
//! The join program in the user data is read, not run. With its bootstrap kubeconfig a certificate is asked for, as a kubelet
//! does, and with that the Node is registered and kept alive under the Node authorizer. Pods that are sent there never run.

mod node;
mod orders;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use russet_telemetry::Secret;
use serde_json::json;
use tokio::sync::{Mutex, watch};

use crate::habits::Habits;
use crate::inside::protocol::CloudInit;
use crate::row::Row;
use crate::server::{Phase, State};
pub(crate) use orders::Orders;

const LEASE_EVERY: Duration = Duration::from_secs(10);
const STATUS_EVERY: u32 = 30;
const AGAIN: Duration = Duration::from_secs(1);

/// What survives a reboot and not a wipe.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) identity: Option<(Secret<String>, String)>,
    pub(crate) orders: Option<Orders>,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Boots, joins and stays, until it is dropped.
pub(crate) async fn run(row: Row, habits: Arc<Habits>, memory: Arc<Mutex<Memory>>, state: watch::Sender<State>) {
    let mut memory = memory.lock().await;
    if memory.orders.is_none()
        && let Some(kept) = habits.recall(&row)
    {
        *memory = kept;
    }
    state.send_modify(|state| state.phase = Phase::Booted);
    let told = memory.orders.is_some();
    if !told {
        match Orders::read(row.user_data.as_deref()) {
            Ok(orders) => memory.orders = Some(orders),
            Err(why) => {
                let outcome = match row.user_data {
                    None => CloudInit::Nothing,
                    Some(_) => CloudInit::Failed(why.to_string()),
                };
                state.send_modify(|state| state.cloud_init = Some(outcome));
                return;
            }
        }
    }
    let booted = Timestamp::now();
    loop {
        if let Err(error) = live(&row, &habits, &mut memory, booted, told, &state).await {
            tracing::debug!(server = row.name, %error, "a synthetic node will try again");
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn live(
    row: &Row,
    habits: &Habits,
    memory: &mut Memory,
    booted: Timestamp,
    told: bool,
    state: &watch::Sender<State>,
) -> Result<(), Failure> {
    let Some(orders) = memory.orders.clone() else {
        return Ok(());
    };
    let known = memory.identity.is_some();
    let client = identify(&orders, &mut memory.identity, habits.api_server().as_deref()).await?;
    if !known {
        habits.keep(row, memory)?;
    }
    let (nodes, leases): (Api<Node>, Api<Lease>) = (Api::all(client.clone()), Api::namespaced(client, node::LEASES));
    register(&nodes, &leases, row, &orders, booted).await?;
    let outcome = if told { CloudInit::Nothing } else { CloudInit::Done };
    state.send_modify(|state| state.cloud_init = Some(outcome));
    let mut beats = 0;
    loop {
        tokio::time::sleep(LEASE_EVERY).await;
        let now = Timestamp::now();
        let (name, params) = (&orders.node_name, PatchParams::default());
        leases.patch(name, &params, &Patch::Merge(node::renewal(now))).await?;
        beats += 1;
        if beats % STATUS_EVERY == 0 {
            let status = json!({"status": node::status(row, &orders, booted, now)});
            nodes.patch_status(name, &params, &Patch::Strategic(status)).await?;
        }
    }
}

/// Who a server with this user data is to the cluster, once its certificate was granted: for those who want to see what its
/// kubelet may do. Waits as long as nobody decides.
pub async fn node_client(user_data: &Secret<String>) -> Result<Client, Failure> {
    let orders = Orders::read(Some(user_data.expose()))?;
    identify(&orders, &mut None, None).await
}

/// The same under the name of another node, which its token is not for.
pub async fn another_nodes_client(user_data: &Secret<String>, node: &str) -> Result<Client, Failure> {
    let mut orders = Orders::read(Some(user_data.expose()))?;
    node.clone_into(&mut orders.node_name);
    identify(&orders, &mut None, None).await
}

/// With the identity it has, or one that it asks for by its token.
async fn identify(
    orders: &Orders,
    identity: &mut Option<(Secret<String>, String)>,
    moved: Option<&str>,
) -> Result<Client, Failure> {
    let kubeconfig = Kubeconfig::from_yaml(orders.kubeconfig.expose())?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    if let Some(server) = moved {
        config.cluster_url = server.parse()?;
    }
    let (key, certificate) = match identity {
        Some(known) => known.clone(),
        None => ask(Client::try_from(config.clone())?, &orders.node_name).await?,
    };
    *identity = Some((key.clone(), certificate.clone()));
    config.auth_info = serde_json::from_value::<AuthInfo>(json!({
        "client-certificate-data": BASE64.encode(&certificate),
        "client-key-data": BASE64.encode(key.expose()),
    }))?;
    Ok(Client::try_from(config)?)
}

/// The Node and its Lease as they should be; a Node that is there already keeps its taints, as NodeRestriction wants it.
async fn register(
    nodes: &Api<Node>,
    leases: &Api<Lease>,
    row: &Row,
    orders: &Orders,
    booted: Timestamp,
) -> Result<(), Failure> {
    let now = Timestamp::now();
    let wanted: Node = serde_json::from_value(node::node(row, orders, booted, now))?;
    let made = match nodes.create(&PostParams::default(), &wanted).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            let status = json!({"status": node::status(row, orders, booted, now)});
            let params = PatchParams::default();
            nodes
                .patch_status(&orders.node_name, &params, &Patch::Strategic(status))
                .await?
        }
        made => made?,
    };
    let lease: Lease = serde_json::from_value(node::lease(&made, now))?;
    match leases.create(&PostParams::default(), &lease).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            let patch = Patch::Merge(node::renewal(now));
            leases.patch(&orders.node_name, &PatchParams::default(), &patch).await?;
        }
        made => drop(made?),
    }
    Ok(())
}

/// A key and the certificate somebody approved for it.
async fn ask(client: Client, node: &str) -> Result<(Secret<String>, String), Failure> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params
        .distinguished_name
        .push(DnType::CommonName, format!("system:node:{node}"));
    let request = CertificateSigningRequest {
        metadata: ObjectMeta {
            generate_name: Some("node-csr-".to_owned()),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(params.serialize_request(&key)?.pem()?.into_bytes()),
            signer_name: "kubernetes.io/kube-apiserver-client-kubelet".to_owned(),
            usages: Some(vec!["digital signature".to_owned(), "client auth".to_owned()]),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let requests: Api<CertificateSigningRequest> = Api::all(client);
    let made = requests.create(&PostParams::default(), &request).await?;
    let name = made.metadata.name.unwrap_or_default();
    loop {
        let status = requests.get(&name).await?.status.unwrap_or_default();
        let refused = status
            .conditions
            .unwrap_or_default()
            .into_iter()
            .find(|condition| condition.type_ != "Approved");
        if let Some(condition) = refused {
            return Err(format!("the certificate was refused: {}", condition.type_).into());
        }
        if let Some(certificate) = status.certificate.filter(|bytes| !bytes.0.is_empty()) {
            return Ok((Secret::new(key.serialize_pem()), String::from_utf8(certificate.0)?));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
