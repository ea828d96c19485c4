//! The user a client certificate names. Its chain was verified in the handshake.

use std::time::SystemTime;

use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{AUTHENTICATED, User};

/// A user and how long the certificate that says so is good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Presented {
    user: User,
    /// Seconds since 1970.
    until: i64,
}

impl Presented {
    /// Common name and organisations are user and groups. A certificate without a name names nobody.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let subject = certificate.subject();
        let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
        if name.is_empty() {
            return None;
        }
        let groups = subject.iter_organization().filter_map(|group| group.as_str().ok());
        let groups = groups.chain([AUTHENTICATED]).map(str::to_owned).collect();
        Some(Self {
            user: User {
                name,
                groups,
                ..User::default()
            },
            until: certificate.validity().not_after.timestamp(),
        })
    }

    /// A connection may outlive the certificate it began with.
    pub(crate) fn user(&self, now: SystemTime) -> Option<&User> {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
        (i64::try_from(now).ok()? <= self.until).then_some(&self.user)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    #[test]
    fn the_subject_is_user_and_groups_until_the_certificate_expires() {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver-kubelet-client");
        params
            .distinguished_name
            .push(DnType::OrganizationName, "system:masters");
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let presented = Presented::of(certificate.der()).unwrap();
        let user = presented.user(SystemTime::now()).unwrap();
        assert_eq!(user.name, "kube-apiserver-kubelet-client");
        assert_eq!(user.groups, ["system:masters", AUTHENTICATED]);
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(presented.until).unwrap());
        assert!(presented.user(end + Duration::from_secs(1)).is_none());
    }

    #[test]
    fn a_certificate_without_a_name_names_nobody() {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationName, "system:masters");
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        assert_eq!(Presented::of(certificate.der()), None);
    }
}
