//! The server's certificate, which changes while it runs, and whose client certificates are believed.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// What is wrong with a certificate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// Not PEM, or nothing in it.
    #[error("{what} is not PEM, or holds none")]
    Pem {
        /// Which one.
        what: &'static str,
    },
    /// The library refused it.
    #[error("{what} cannot be used: {source}")]
    Refused {
        /// Which one.
        what: &'static str,
        /// Why.
        source: rustls::Error,
    },
    /// The authorities.
    #[error("the client CA cannot be used: {0}")]
    ClientCa(#[from] rustls::server::VerifierBuilderError),
}

/// The certificate the server shows. Cheap to clone; all clones show the same. Handshakes fail while it is empty, as they do on a
/// stock kubelet whose serving certificate has not been approved yet.
#[derive(Debug, Clone, Default)]
pub struct Serving(Arc<Held>);

#[derive(Debug, Default)]
struct Held(RwLock<Option<Arc<CertifiedKey>>>);

impl Serving {
    /// Without a certificate so far.
    pub fn empty() -> Self {
        Self::default()
    }

    /// From now on this certificate is shown. What cannot be used changes nothing.
    pub fn replace(&self, chain_pem: &str, key_pem: &str) -> Result<(), TlsError> {
        let certificate = "the serving certificate";
        let chain = certificates(chain_pem, certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(|_| TlsError::Pem {
            what: "the key of the serving certificate",
        })?;
        let held = CertifiedKey::from_der(chain, key, &default_provider()).map_err(|source| TlsError::Refused {
            what: certificate,
            source,
        })?;
        *self.0.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(held));
        Ok(())
    }
}

impl ResolvesServerCert for Held {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn certificates(pem: &str, what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    all.ok().filter(|all| !all.is_empty()).ok_or(TlsError::Pem { what })
}

pub(super) fn config(client_ca: &str, serving: Serving) -> Result<ServerConfig, TlsError> {
    let refused = |what| move |source| TlsError::Refused { what, source };
    let provider: Arc<CryptoProvider> = Arc::new(default_provider());
    let mut roots = RootCertStore::empty();
    for authority in certificates(client_ca, "the client CA")? {
        roots.add(authority).map_err(refused("the client CA"))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        // Tokens are as good.
        .allow_unauthenticated()
        .build()?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(refused("the TLS versions"))?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(serving.0);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertifiedKey, generate_simple_self_signed};

    use super::*;

    #[test]
    fn a_certificate_that_cannot_be_used_leaves_the_old_one() {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["mac1".to_owned()]).unwrap();
        let serving = Serving::empty();
        serving.replace(&cert.pem(), &signing_key.serialize_pem()).unwrap();
        let error = serving.replace(&cert.pem(), "no key").unwrap_err();
        let found = error.to_string();
        assert_eq!(found, "the key of the serving certificate is not PEM, or holds none");
        assert!(!error.to_string().contains("no key"));
        let other = generate_simple_self_signed(["mac2".to_owned()]).unwrap();
        let error = serving
            .replace(&cert.pem(), &other.signing_key.serialize_pem())
            .unwrap_err();
        assert!(matches!(error, TlsError::Refused { .. }), "{error}");
        assert!(serving.0.0.read().unwrap().is_some());
    }

    #[test]
    fn a_client_ca_without_a_certificate_is_refused() {
        let error = config("# nothing here\n", Serving::empty()).unwrap_err();
        assert_eq!(error.to_string(), "the client CA is not PEM, or holds none");
    }
}
