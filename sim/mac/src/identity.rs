//! A node's identity: a key that never leaves the machine, and a certificate somebody else has to approve.

use crate::error::AgentError;
use crate::join::Join;
use crate::machine::Machine;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use kube::api::{Api, ObjectMeta, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData as _};
use russet_telemetry::Secret;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::time::Duration;

const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Asking for the certificate: quickly at first, since a test approves at once; a person takes longer.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const SLOWEST_LOOK: Duration = Duration::from_secs(5);
/// Connections and answers that hang would silence the heartbeat.
const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(20);

/// What the machine keeps of its identity.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    /// Whose it is: a machine that gets another name needs another identity.
    pub(crate) node_name: String,
    /// Where it is worth something: the address in the orders, which stays the cluster's name wherever it is dialed.
    pub(crate) server: String,
    pub(crate) key_pem: Secret<String>,
    pub(crate) certificate_pem: Option<String>,
}

/// The connection of the orders, without credentials of its own yet.
async fn config(join: &Join) -> Result<Config, AgentError> {
    // Checked when the orders came; what remains is, for example, a certificate authority that is no PEM.
    let unusable = |error: &dyn std::fmt::Display| AgentError::Kubeconfig(error.to_string());
    let kubeconfig = Kubeconfig::from_yaml(join.kubeconfig.expose())
        .map_err(|_| AgentError::Kubeconfig("it is not a kubeconfig".to_owned()))?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| unusable(&error))?;
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(ANSWER);
    config.write_timeout = Some(ANSWER);
    Ok(config)
}

fn client(config: Config) -> Result<Client, AgentError> {
    Client::try_from(config).map_err(|error| AgentError::Kubeconfig(error.to_string()))
}

/// A client that is the node, after a certificate was asked for and given if there was none.
pub(crate) async fn obtain(machine: &Machine, join: &Join) -> Result<Client, AgentError> {
    let mut config = config(join).await?;
    let identity = kept(machine, join, &config)?;
    if let Some(moved) = &machine.settings.api_server {
        config.cluster_url = moved.clone();
    }
    let certificate = match &identity.certificate_pem {
        Some(certificate) => certificate.clone(),
        None => ask(client(config.clone())?, &identity).await?,
    };
    if let Some(kept) = machine.disk().identity.as_mut() {
        kept.certificate_pem = Some(certificate.clone());
    }
    machine.save();
    let auth = json!({
        "client-certificate-data": BASE64.encode(&certificate),
        "client-key-data": BASE64.encode(identity.key_pem.expose()),
    });
    config.auth_info = serde_json::from_value::<AuthInfo>(auth)
        .map_err(|_| AgentError::Kubeconfig("the certificate is no text".to_owned()))?;
    client(config)
}

/// The identity on the disk if it is for this name and cluster, else a new key, written before anything is asked with it.
fn kept(machine: &Machine, join: &Join, config: &Config) -> Result<Identity, AgentError> {
    let server = config.cluster_url.to_string();
    let mut disk = machine.disk();
    let usable = |identity: &&Identity| identity.node_name == join.node_name && identity.server == server;
    if let Some(identity) = disk.identity.as_ref().filter(usable) {
        return Ok(identity.clone());
    }
    let identity = Identity {
        node_name: join.node_name.clone(),
        server,
        key_pem: Secret::new(KeyPair::generate()?.serialize_pem()),
        certificate_pem: None,
    };
    disk.identity = Some(identity.clone());
    drop(disk);
    machine.save();
    Ok(identity)
}

/// The request for a key. Named after it, so that a machine that lost count finds its request again.
fn request(identity: &Identity) -> Result<CertificateSigningRequest, AgentError> {
    let key = KeyPair::from_pem(identity.key_pem.expose())?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params
        .distinguished_name
        .push(DnType::CommonName, format!("system:node:{}", identity.node_name));
    let pem = params.serialize_request(&key)?.pem()?;
    let mut name = "node-csr-".to_owned();
    for byte in Sha256::digest(key.der_bytes()).iter().take(16) {
        let _ = write!(name, "{byte:02x}");
    }
    Ok(CertificateSigningRequest {
        metadata: ObjectMeta {
            name: Some(name),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(pem.into_bytes()),
            signer_name: SIGNER.to_owned(),
            usages: Some(vec!["digital signature".to_owned(), "client auth".to_owned()]),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    })
}

/// Asks for a certificate and waits for it, for as long as it takes.
async fn ask(client: Client, identity: &Identity) -> Result<String, AgentError> {
    let requests: Api<CertificateSigningRequest> = Api::all(client);
    let wanted = request(identity)?;
    let name = wanted.metadata.name.clone().unwrap_or_default();
    let mut pause = FIRST_LOOK;
    loop {
        let found = requests
            .get_opt(&name)
            .await
            .map_err(AgentError::api("read the certificate request"))?;
        let Some(found) = found else {
            // Not asked yet, or swept away while nobody approved it.
            match requests.create(&PostParams::default(), &wanted).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                Err(error) => return Err(AgentError::api("ask for a certificate")(error)),
            }
            continue;
        };
        let status = found.status.unwrap_or_default();
        for condition in status.conditions.unwrap_or_default() {
            let reason = || {
                condition
                    .message
                    .clone()
                    .or(condition.reason.clone())
                    .unwrap_or_default()
            };
            match condition.type_.as_str() {
                "Denied" => return Err(AgentError::Denied { name, reason: reason() }),
                "Failed" => return Err(AgentError::Unsigned { name, reason: reason() }),
                _ => {}
            }
        }
        if let Some(certificate) = status.certificate.filter(|bytes| !bytes.0.is_empty()) {
            return String::from_utf8(certificate.0).map_err(|_| AgentError::Unsigned {
                name,
                reason: "the certificate is no PEM".to_owned(),
            });
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(SLOWEST_LOOK);
    }
}
