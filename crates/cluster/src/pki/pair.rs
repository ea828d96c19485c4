//! A certificate and its key: what it should say, whether a kept one still does, and making a new one.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PublicKeyData as _,
};
use time::{Duration, OffsetDateTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;

use super::{Authority, Error};
use crate::files::{self, Access};
use crate::process::ClientIdentity;

/// Certificates are valid a little into the past: the clocks of a host and its VMs differ.
pub(super) const BACKDATED: Duration = Duration::hours(1);
const LIFETIME: Duration = Duration::days(365);
/// Renewed when less than this is left. A run that lasts longer than this without a restart is not what this crate is for.
const RENEW_BEFORE: Duration = Duration::days(60);

/// What a certificate should say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Common name: the user, for a client.
    pub common_name: String,
    /// Organisation: the group, for a client.
    pub group: Option<String>,
    /// What it may be used for.
    pub usage: Usage,
}

/// What a certificate may be used for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Usage {
    /// To authenticate to a server.
    Client,
    /// To serve under these host names and addresses.
    Server {
        /// Host names and addresses.
        names: Vec<String>,
    },
    /// Both.
    Both {
        /// Host names and addresses.
        names: Vec<String>,
    },
}

impl Profile {
    /// A client called `user`, in `group`.
    pub fn client(user: impl Into<String>, group: Option<&str>) -> Self {
        Self {
            common_name: user.into(),
            group: group.map(str::to_owned),
            usage: Usage::Client,
        }
    }

    /// A server with these host names and addresses.
    pub fn server(names: Vec<String>) -> Self {
        let common_name = names.first().cloned().unwrap_or_default();
        Self {
            common_name,
            group: None,
            usage: Usage::Server { names },
        }
    }

    fn names(&self) -> &[String] {
        match &self.usage {
            Usage::Client => &[],
            Usage::Server { names } | Usage::Both { names } => names,
        }
    }

    fn params(&self, now: OffsetDateTime) -> Result<CertificateParams, rcgen::Error> {
        let mut params = CertificateParams::new(self.names())?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, &self.common_name);
        if let Some(group) = &self.group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match self.usage {
            Usage::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
            Usage::Server { .. } => vec![ExtendedKeyUsagePurpose::ServerAuth],
            Usage::Both { .. } => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        };
        params.not_before = now - BACKDATED;
        params.not_after = now + LIFETIME;
        Ok(params)
    }
}

/// A certificate and key that are not on disk.
pub struct Issued {
    /// The certificate.
    pub cert_pem: String,
    /// Its private key.
    pub key_pem: String,
}

impl std::fmt::Debug for Issued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issued").finish_non_exhaustive()
    }
}

impl Authority {
    /// Makes a certificate that is not kept.
    pub fn issue(&self, profile: &Profile) -> Result<Issued, Error> {
        issue(self, profile, OffsetDateTime::now_utc())
    }
}

fn issue(authority: &Authority, profile: &Profile, now: OffsetDateTime) -> Result<Issued, Error> {
    let made = || {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let cert = profile.params(now)?.signed_by(&key, authority.issuer())?;
        Ok(Issued {
            cert_pem: cert.pem(),
            key_pem: key.serialize_pem(),
        })
    };
    made().map_err(|source| Error::Certificate {
        name: profile.common_name.clone(),
        source,
    })
}

/// The files of a certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The certificate.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl Pair {
    pub(super) fn at(dir: &Path, name: &str) -> Self {
        Self {
            cert: dir.join(format!("{name}.crt")),
            key: dir.join(format!("{name}.key")),
        }
    }

    /// As a probe wants it.
    pub fn identity(&self) -> ClientIdentity {
        ClientIdentity {
            cert: self.cert.clone(),
            key: self.key.clone(),
        }
    }

    pub(super) fn ensure(
        dir: &Path,
        name: &str,
        authority: &Authority,
        profile: &Profile,
        now: OffsetDateTime,
    ) -> Result<Self, Error> {
        let pair = Self::at(dir, name);
        if let (Some(cert), Some(key)) = (files::read_text(&pair.cert)?, files::read_text(&pair.key)?) {
            match judge(&cert, &key, authority.pem(), profile, now) {
                Ok(()) => return Ok(pair),
                Err(flaw) => tracing::info!(cert = %pair.cert.display(), ?flaw, "replacing a certificate"),
            }
        }
        let issued = issue(authority, profile, now)?;
        // Key first: should we be killed in between, the old certificate does not match it and is replaced next time.
        files::write(&pair.key, issued.key_pem.as_bytes(), Access::Private)?;
        files::write(&pair.cert, issued.cert_pem.as_bytes(), Access::Public)?;
        Ok(pair)
    }
}

/// Why a kept certificate cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flaw {
    /// Not a certificate, or not a key.
    Unreadable,
    /// The key is of another certificate.
    OtherKey,
    /// Signed by an authority we do not have any more.
    OtherAuthority,
    /// Not valid any more, or not for long.
    Expiring,
    /// For another user, group, name or address.
    OtherSubject,
}

/// Whether a kept certificate can be used. Pure.
pub(super) fn judge(
    cert_pem: &str,
    key_pem: &str,
    authority_pem: &str,
    profile: &Profile,
    now: OffsetDateTime,
) -> Result<(), Flaw> {
    let pem = parse_pem(cert_pem)?;
    let cert = pem.parse_x509().map_err(|_| Flaw::Unreadable)?;
    let authority_pem = parse_pem(authority_pem)?;
    let authority = authority_pem.parse_x509().map_err(|_| Flaw::Unreadable)?;
    belongs(&cert, key_pem)?;
    lasts(&cert, now)?;
    cert.verify_signature(Some(authority.public_key()))
        .map_err(|_| Flaw::OtherAuthority)?;
    let subject = (
        first(cert.subject().iter_common_name()),
        first(cert.subject().iter_organization()),
    );
    if subject != (Some(profile.common_name.clone()), profile.group.clone()) || names(&cert) != wanted_names(profile) {
        return Err(Flaw::OtherSubject);
    }
    Ok(())
}

/// Whether a kept authority can be used. Pure.
pub(super) fn judge_authority(cert_pem: &str, key_pem: &str, now: OffsetDateTime) -> Result<(), Flaw> {
    let pem = parse_pem(cert_pem)?;
    let cert = pem.parse_x509().map_err(|_| Flaw::Unreadable)?;
    belongs(&cert, key_pem)?;
    lasts(&cert, now)?;
    cert.verify_signature(None).map_err(|_| Flaw::OtherAuthority)
}

fn parse_pem(text: &str) -> Result<Pem, Flaw> {
    x509_parser::pem::parse_x509_pem(text.as_bytes())
        .map(|(_, pem)| pem)
        .map_err(|_| Flaw::Unreadable)
}

fn belongs(cert: &X509Certificate<'_>, key_pem: &str) -> Result<(), Flaw> {
    let key = KeyPair::from_pem(key_pem).map_err(|_| Flaw::Unreadable)?;
    if key.subject_public_key_info() == cert.public_key().raw {
        Ok(())
    } else {
        Err(Flaw::OtherKey)
    }
}

fn lasts(cert: &X509Certificate<'_>, now: OffsetDateTime) -> Result<(), Flaw> {
    let validity = cert.validity();
    let good = validity.not_before.to_datetime() <= now && now + RENEW_BEFORE <= validity.not_after.to_datetime();
    if good { Ok(()) } else { Err(Flaw::Expiring) }
}

fn first<'a>(mut attributes: impl Iterator<Item = &'a x509_parser::x509::AttributeTypeAndValue<'a>>) -> Option<String> {
    attributes
        .next()
        .and_then(|attribute| attribute.as_str().ok())
        .map(str::to_owned)
}

fn wanted_names(profile: &Profile) -> BTreeSet<String> {
    profile.names().iter().cloned().collect()
}

fn names(cert: &X509Certificate<'_>) -> BTreeSet<String> {
    let Ok(Some(extension)) = cert.subject_alternative_name() else {
        return BTreeSet::new();
    };
    extension.value.general_names.iter().filter_map(name).collect()
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let four = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let address = four.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
            address.ok().map(|address| address.to_string())
        }
        _ => None,
    }
}
