//! The two ways in for HTTP/1.1: the plain port and the TLS port of one node. What holds for one holds for the other.

use crate::node::Node;
use crate::wire::Client;
use rustls::pki_types::CertificateDer;
use std::path::Path;
use std::sync::Arc;

pub(crate) struct Doors {
    pub(crate) node: Node,
    trust: Arc<rustls::ClientConfig>,
    _dir: tempfile::TempDir,
}

/// One way in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    Plain,
    Tls,
}

pub(crate) const BOTH: [Door; 2] = [Door::Plain, Door::Tls];

/// Writes a fresh self-signed certificate; its DER.
pub(crate) fn certify(dir: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(dir.join("tls.crt"), made.cert.pem()).unwrap();
    std::fs::write(dir.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    made.cert.der().clone()
}

/// A client's side of TLS that trusts only that certificate.
pub(crate) fn trusting(certificate: &CertificateDer<'static>, alpn: &[u8]) -> Arc<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.to_vec()];
    Arc::new(config)
}

impl Doors {
    pub(crate) fn open(args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let certificate = certify(dir.path());
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let (cert, key) = (path("tls.crt"), path("tls.key"));
        let secure = ["--public-tls-cert-path", cert.as_str(), "--public-tls-key-path", &key];
        Self {
            node: Node::start(&[&secure, args].concat()),
            trust: trusting(&certificate, b"http/1.1"),
            _dir: dir,
        }
    }

    pub(crate) fn enter(&self, door: Door) -> Client {
        match door {
            Door::Plain => self.node.client(),
            Door::Tls => Client::connect_securely(self.node.secure.unwrap(), Arc::clone(&self.trust)),
        }
    }
}
