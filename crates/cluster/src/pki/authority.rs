//! Certificate authorities.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256,
};
use time::{Duration, OffsetDateTime};

use super::Error;
use super::pair::{self, Pair};
use crate::files::{self, Access};

const LIFETIME: Duration = Duration::days(3650);

/// A certificate authority: its certificate, and the key that signs.
pub struct Authority {
    files: Pair,
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

impl Authority {
    /// Loads `<name>.crt` and `<name>.key`, or makes a new authority. A new one makes all certificates of the old one
    /// invalid; they are noticed and replaced when next looked at.
    pub(super) fn ensure(dir: &Path, name: &str, common_name: &str, now: OffsetDateTime) -> Result<Self, Error> {
        let files = Pair::at(dir, name);
        if let Some(kept) = Self::load(&files, now)? {
            return Ok(kept);
        }
        let failed = |source| Error::Certificate {
            name: name.to_owned(),
            source,
        };
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::CrlSign,
        ];
        params.not_before = now - pair::BACKDATED;
        params.not_after = now + LIFETIME;
        let certificate = params.self_signed(&key).map_err(failed)?;
        let pem = certificate.pem();
        files::write(&files.key, key.serialize_pem().as_bytes(), Access::Private)?;
        files::write(&files.cert, pem.as_bytes(), Access::Public)?;
        Ok(Self {
            files,
            pem,
            issuer: Issuer::new(params, key),
        })
    }

    fn load(files: &Pair, now: OffsetDateTime) -> Result<Option<Self>, Error> {
        let (Some(pem), Some(key)) = (files::read_text(&files.cert)?, files::read_text(&files.key)?) else {
            return Ok(None);
        };
        if let Err(flaw) = pair::judge_authority(&pem, &key, now) {
            tracing::info!(cert = %files.cert.display(), ?flaw, "replacing a certificate authority");
            return Ok(None);
        }
        let issuer = KeyPair::from_pem(&key)
            .and_then(|key| Issuer::from_ca_cert_pem(&pem, key))
            .ok();
        Ok(issuer.map(|issuer| Self {
            files: files.clone(),
            pem,
            issuer,
        }))
    }

    /// The certificate's file.
    pub fn cert(&self) -> &Path {
        &self.files.cert
    }

    /// The key's file.
    pub fn key(&self) -> PathBuf {
        self.files.key.clone()
    }

    /// The certificate as PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    pub(super) fn issuer(&self) -> &Issuer<'static, KeyPair> {
        &self.issuer
    }
}
