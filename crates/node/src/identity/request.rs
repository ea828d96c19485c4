//! Asking for a certificate.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData as _, SanType};
use russet_telemetry::Secret;
use sha2::{Digest as _, Sha256};

use super::{Identity, ServingIdentity};
use crate::error::Error;

const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING: &str = "kubernetes.io/kubelet-serving";
/// Asking for the certificate: quickly at first, since a controller approves at once; a person takes longer.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const SLOWEST_LOOK: Duration = Duration::from_secs(5);

/// What a certificate is for.
enum Purpose<'a> {
    /// To be the node towards the API server.
    Client,
    /// To be shown to those who call the node at these addresses.
    Serving(&'a [IpAddr]),
}

/// The request for a key. Named after it, so that a machine that lost count finds its request again.
fn request(
    node_name: &str,
    key_pem: &Secret<String>,
    purpose: &Purpose<'_>,
) -> Result<CertificateSigningRequest, Error> {
    let key = KeyPair::from_pem(key_pem.expose())?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params
        .distinguished_name
        .push(DnType::CommonName, format!("system:node:{node_name}"));
    let (signer, usage) = match purpose {
        Purpose::Client => (CLIENT, "client auth"),
        Purpose::Serving(addresses) => {
            params.subject_alt_names = addresses.iter().copied().map(SanType::IpAddress).collect();
            (SERVING, "server auth")
        }
    };
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
            signer_name: signer.to_owned(),
            usages: Some(vec!["digital signature".to_owned(), usage.to_owned()]),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    })
}

/// Asks for a certificate and waits for it, for as long as it takes.
pub(crate) async fn ask(client: Client, identity: &Identity) -> Result<String, Error> {
    granted(
        client,
        request(&identity.node_name, &identity.key_pem, &Purpose::Client)?,
    )
    .await
}

/// The same for what a node shows to those who call it.
pub(super) async fn ask_serving(client: Client, identity: &ServingIdentity) -> Result<String, Error> {
    let purpose = Purpose::Serving(&identity.addresses);
    granted(client, request(&identity.node_name, &identity.key_pem, &purpose)?).await
}

async fn granted(client: Client, wanted: CertificateSigningRequest) -> Result<String, Error> {
    let requests: Api<CertificateSigningRequest> = Api::all(client);
    let name = wanted.metadata.name.clone().unwrap_or_default();
    let mut pause = FIRST_LOOK;
    loop {
        let found = requests
            .get_opt(&name)
            .await
            .map_err(Error::api("read the certificate request"))?;
        let Some(found) = found else {
            // Not asked yet, or swept away while nobody approved it.
            match requests.create(&PostParams::default(), &wanted).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                Err(error) => return Err(Error::api("ask for a certificate")(error)),
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
                "Denied" => return Err(Error::Denied { name, reason: reason() }),
                "Failed" => return Err(Error::Unsigned { name, reason: reason() }),
                _ => {}
            }
        }
        if let Some(certificate) = status.certificate.filter(|bytes| !bytes.0.is_empty()) {
            return String::from_utf8(certificate.0).map_err(|_| Error::Unsigned {
                name,
                reason: "the certificate is no PEM".to_owned(),
            });
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(SLOWEST_LOOK);
    }
}
