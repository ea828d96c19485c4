//! What a node shows to those who call it.

use std::net::IpAddr;

use jiff::Timestamp;
use kube::Client;
use rcgen::KeyPair;
use russet_telemetry::Secret;

use super::request;
use crate::error::Error;

/// A key and a certificate for a node's own server. Somebody has to approve it: kube-controller-manager never does.
#[derive(Clone, Debug)]
pub struct ServingIdentity {
    /// Whose it is.
    pub node_name: String,
    /// Where the node is called.
    pub addresses: Vec<IpAddr>,
    /// The private key.
    pub key_pem: Secret<String>,
    /// The certificate, once there is one.
    pub certificate_pem: Option<String>,
}

impl ServingIdentity {
    /// A fresh key.
    pub fn generate(node_name: &str, addresses: Vec<IpAddr>) -> Result<Self, Error> {
        Ok(Self {
            node_name: node_name.to_owned(),
            addresses,
            key_pem: Secret::new(KeyPair::generate()?.serialize_pem()),
            certificate_pem: None,
        })
    }

    /// Asks for the certificate as the node itself, and waits for it, for as long as it takes. The key should be kept first.
    pub async fn ask(&self, client: Client) -> Result<String, Error> {
        request::ask_serving(client, self).await
    }

    /// When to ask for another one; none without a certificate that can be read.
    pub fn renew_at(&self) -> Option<Timestamp> {
        super::renew_at(self.certificate_pem.as_ref()?)
    }
}
