//! The TLS port: certificates that are read again when their files change, and handshakes that cannot hang.

use crate::config::Tls;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

/// A client must finish its handshake within this time.
pub const HANDSHAKE: Duration = Duration::from_secs(10);
/// How often files are looked at.
pub const RELOAD_EVERY: Duration = Duration::from_secs(2);

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read as PEM.
    #[error("cannot read {what} from {}; it must be a PEM file this user can read", path.display())]
    Pem {
        /// What was looked for.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        source: rustls::pki_types::pem::Error,
    },
    /// Certificate and key do not belong together, or are of an unknown kind.
    #[error("certificate {} and key {} cannot be used together", certificate.display(), key.display())]
    Pair {
        /// The certificate.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
        /// Why not.
        source: rustls::Error,
    },
    /// No usable TLS version.
    #[error("TLS cannot be set up")]
    Versions(#[source] rustls::Error),
}

/// The certificate in use.
#[derive(Debug)]
pub struct Certificate {
    files: Tls,
    current: RwLock<(Arc<CertifiedKey>, Stamp)>,
}

/// When the files were last changed.
type Stamp = [Option<SystemTime>; 2];

fn stamp(files: &Tls) -> Stamp {
    let changed = |path: &Path| std::fs::metadata(path).and_then(|data| data.modified()).ok();
    [changed(&files.certificate), changed(&files.key)]
}

fn load(files: &Tls) -> Result<Arc<CertifiedKey>, Error> {
    let pem = |what: &'static str, path: &Path| {
        let path = path.to_owned();
        move |source| Error::Pem { what, path, source }
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(&files.certificate)
        .map_err(pem("a certificate chain", &files.certificate))?
        .collect();
    let chain = chain.map_err(pem("a certificate chain", &files.certificate))?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(pem("a private key", &files.key))?;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    CertifiedKey::from_der(chain, key, &provider)
        .map(Arc::new)
        .map_err(|source| Error::Pair {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
            source,
        })
}

impl Certificate {
    /// Reads the files.
    pub fn new(files: Tls) -> Result<Self, Error> {
        let seen = stamp(&files);
        let current = RwLock::new((load(&files)?, seen));
        Ok(Self { files, current })
    }

    /// Reads the files again if they changed. What cannot be used leaves the old certificate in force.
    pub fn refresh(&self) -> Result<bool, Error> {
        let seen = stamp(&self.files);
        if self.current.read().unwrap_or_else(PoisonError::into_inner).1 == seen {
            return Ok(false);
        }
        let fresh = load(&self.files)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = (fresh, seen);
        Ok(true)
    }

    /// The server's side of TLS, with this certificate whatever it becomes.
    pub fn server(self: &Arc<Self>) -> Result<ServerConfig, Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(Error::Versions)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Resolver(Arc::clone(self))));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

#[derive(Debug)]
struct Resolver(Arc<Certificate>);

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(
            &self.0.current.read().unwrap_or_else(PoisonError::into_inner).0,
        ))
    }
}
