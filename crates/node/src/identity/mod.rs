//! A node's identity: a key that never leaves the machine, and a certificate somebody else has to approve.
//!
//! A key is kept before anything is asked with it, so a machine that was cut finds its request again instead of making another.

mod kept;
mod request;
mod serving;

use std::collections::BTreeSet;
use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::{Span, Timestamp};
use kube::config::AuthInfo;
use kube::{Client, Config};
use rcgen::KeyPair;
use russet_telemetry::Secret;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::error::Error;

pub use kept::KeptMemory;
pub(crate) use request::ask;
pub use serving::ServingIdentity;

/// What a machine keeps of its identity.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Whose it is: a machine that gets another name needs another identity.
    pub node_name: String,
    /// Where it is worth something: the address in the kubeconfig, which stays the cluster's name wherever it is dialed.
    pub server: String,
    /// The private key.
    pub key_pem: Secret<String>,
    /// The certificate, once there is one.
    pub certificate_pem: Option<String>,
}

/// What a machine remembers over a restart, and not over a reinstallation.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Who it is.
    pub identity: Option<Identity>,
    /// Who it will be when the certificate it asked for is granted. Until then it is who it was.
    pub next: Option<Identity>,
    /// Labels it put on its Node and may therefore take off again.
    pub labels: BTreeSet<String>,
}

/// Where a machine remembers. What is kept holds a key: only its owner may read it.
pub trait Store: Send + Sync {
    /// What was kept; nothing if there is nothing, or nothing that can be understood.
    fn load(&self) -> Memory;

    /// Keeps it, whole or not at all.
    fn save(&self, memory: &Memory) -> io::Result<()>;
}

impl Identity {
    pub(crate) fn generate(node_name: &str, server: &str) -> Result<Self, Error> {
        Ok(Self {
            node_name: node_name.to_owned(),
            server: server.to_owned(),
            key_pem: Secret::new(KeyPair::generate()?.serialize_pem()),
            certificate_pem: None,
        })
    }

    pub(crate) fn is_for(&self, node_name: &str, server: &str) -> bool {
        self.node_name == node_name && self.server == server
    }

    /// From when to when the certificate is good; none without a certificate that can be read.
    pub(crate) fn validity(&self) -> Option<(Timestamp, Timestamp)> {
        validity(self.certificate_pem.as_ref()?)
    }

    /// Whether the certificate has ended.
    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        self.validity().is_some_and(|(_, until)| until <= now)
    }

    /// When to ask for another certificate.
    pub(crate) fn renew_at(&self) -> Option<Timestamp> {
        renew_at(self.certificate_pem.as_ref()?)
    }

    /// A client that is the node; none without a certificate.
    pub(crate) fn client(&self, connection: &Config) -> Result<Option<Client>, Error> {
        let Some(certificate) = &self.certificate_pem else {
            return Ok(None);
        };
        let auth = json!({
            "client-certificate-data": BASE64.encode(certificate),
            "client-key-data": BASE64.encode(self.key_pem.expose()),
        });
        let mut config = connection.clone();
        config.auth_info = serde_json::from_value::<AuthInfo>(auth)
            .map_err(|_| Error::Kubeconfig("the certificate is no text".to_owned()))?;
        client(config).map(Some)
    }
}

fn validity(certificate: &str) -> Option<(Timestamp, Timestamp)> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(certificate.as_bytes()).ok()?;
    let certificate = pem.parse_x509().ok()?;
    let validity = certificate.validity();
    let at = |time: x509_parser::time::ASN1Time| Timestamp::from_second(time.timestamp()).ok();
    Some((at(validity.not_before)?, at(validity.not_after)?))
}

/// After 70 to 90 % of a certificate's life, each at its own moment, so that a fleet that was made at once is not renewed at once.
fn renew_at(certificate: &str) -> Option<Timestamp> {
    let (from, to) = validity(certificate)?;
    let chance = Sha256::digest(certificate.as_bytes()).first().copied().unwrap_or(0);
    let life = to.as_second().saturating_sub(from.as_second());
    let share = 700 + i64::from(chance) * 200 / 255;
    let wait = Span::new().try_seconds(life.saturating_mul(share) / 1000).ok()?;
    from.checked_add(wait).ok()
}

/// A client of this connection.
pub(crate) fn client(config: Config) -> Result<Client, Error> {
    Client::try_from(config).map_err(|error| Error::Kubeconfig(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::CertificateParams;
    use std::time::Duration;

    fn identity(days: u64) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.not_before = std::time::SystemTime::UNIX_EPOCH.into();
        params.not_after = (std::time::SystemTime::UNIX_EPOCH + Duration::from_hours(24 * days)).into();
        let certificate = params.self_signed(&key).unwrap();
        Identity {
            node_name: "mac-1".to_owned(),
            server: "https://a/".to_owned(),
            key_pem: Secret::new(key.serialize_pem()),
            certificate_pem: Some(certificate.pem()),
        }
    }

    #[test]
    fn a_certificate_is_renewed_late_in_its_life_and_not_by_all_nodes_at_once() {
        let mut moments = BTreeSet::new();
        for _ in 0..16 {
            let at = identity(100).renew_at().unwrap().as_second();
            assert!((70 * 86_400..=90 * 86_400).contains(&at), "{at}");
            moments.insert(at);
        }
        assert!(moments.len() > 4, "{moments:?}");
    }

    #[test]
    fn an_identity_belongs_to_one_name_and_one_cluster() {
        let identity = identity(1);
        assert!(identity.is_for("mac-1", "https://a/"));
        assert!(!identity.is_for("mac-2", "https://a/"));
        assert!(!identity.is_for("mac-1", "https://b/"));
        assert!(!format!("{identity:?}").contains("PRIVATE KEY"));
    }
}
