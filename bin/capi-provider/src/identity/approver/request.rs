//! What a PKCS#10 request asks for, as far as it matters here.

use std::net::IpAddr;

use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::FromDer as _;

/// Not a request, or one that its own key did not sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not one PEM block with a certificate request that is signed by its own key")]
pub(super) struct Unreadable;

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    /// The common name, if there is exactly one.
    pub(super) common_name: Option<String>,
    /// The organisations.
    pub(super) organizations: Vec<String>,
    /// Whether the subject says anything else.
    pub(super) more_subject: bool,
    /// Names it is to be valid for.
    pub(super) dns: Vec<String>,
    /// Addresses it is to be valid for.
    pub(super) ips: Vec<IpAddr>,
    /// Whether it asks for anything else: other names, other extensions, attributes.
    pub(super) more: bool,
}

impl Request {
    /// Reads a request and checks that whoever made it has the key.
    pub(super) fn read(pem: &[u8]) -> Result<Self, Unreadable> {
        let (rest, pem) = parse_x509_pem(pem).map_err(|_| Unreadable)?;
        if pem.label != "CERTIFICATE REQUEST" || !rest.trim_ascii().is_empty() {
            return Err(Unreadable);
        }
        let (rest, request) = X509CertificationRequest::from_der(&pem.contents).map_err(|_| Unreadable)?;
        if !rest.is_empty() || request.verify_signature().is_err() {
            return Err(Unreadable);
        }
        let info = &request.certification_request_info;
        let mut read = Self::default();
        let mut common_names = Vec::new();
        for attribute in info.subject.iter_attributes() {
            let text = attribute.as_str().map_err(|_| Unreadable)?.to_owned();
            if *attribute.attr_type() == OID_X509_COMMON_NAME {
                common_names.push(text);
            } else if *attribute.attr_type() == OID_X509_ORGANIZATION_NAME {
                read.organizations.push(text);
            } else {
                read.more_subject = true;
            }
        }
        read.more_subject |= common_names.len() > 1;
        read.common_name = common_names.into_iter().next();
        for attribute in info.iter_attributes() {
            // Every attribute is looked at: a second list of extensions must not slip through behind the first.
            let ParsedCriAttribute::ExtensionRequest(requested) = attribute.parsed_attribute() else {
                read.more = true;
                continue;
            };
            for extension in &requested.extensions {
                read.extension(extension.parsed_extension());
            }
        }
        Ok(read)
    }

    fn extension(&mut self, extension: &ParsedExtension<'_>) {
        let ParsedExtension::SubjectAlternativeName(names) = extension else {
            self.more = true;
            return;
        };
        for name in &names.general_names {
            match name {
                GeneralName::DNSName(name) => self.dns.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => match address(bytes) {
                    Some(ip) => self.ips.push(ip),
                    None => self.more = true,
                },
                _ => self.more = true,
            }
        }
    }

    /// The node whose certificate this is to be.
    pub(super) fn node(&self) -> Option<&str> {
        self.common_name.as_deref()?.strip_prefix("system:node:")
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(bytes)
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, CustomExtension, DnType, KeyPair, SanType};

    use super::*;

    fn pem(change: impl FnOnce(&mut CertificateParams)) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, "system:node:mac-1");
        change(&mut params);
        params
            .serialize_request(&KeyPair::generate().unwrap())
            .unwrap()
            .pem()
            .unwrap()
    }

    #[test]
    fn a_node_request_is_read() {
        let plain = Request::read(pem(|_| {}).as_bytes()).unwrap();
        assert_eq!(plain.node(), Some("mac-1"));
        assert_eq!(plain.organizations, ["system:nodes"]);
        assert!(!plain.more && !plain.more_subject && plain.dns.is_empty() && plain.ips.is_empty());

        let named = Request::read(
            pem(|params| {
                params.subject_alt_names = vec![
                    SanType::DnsName("mac-1".try_into().unwrap()),
                    SanType::IpAddress("100.64.0.7".parse().unwrap()),
                    SanType::IpAddress("2001:db8::1".parse().unwrap()),
                ];
            })
            .as_bytes(),
        )
        .unwrap();
        assert_eq!(named.dns, ["mac-1"]);
        assert_eq!(named.ips.len(), 2);
        assert!(!named.more);
    }

    #[test]
    fn anything_beyond_names_and_addresses_is_noticed() {
        let mail = pem(|params| {
            params.subject_alt_names = vec![SanType::Rfc822Name("a@b.c".try_into().unwrap())];
        });
        assert!(Request::read(mail.as_bytes()).unwrap().more);
        let extension = pem(|params| {
            params.custom_extensions = vec![CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0])];
        });
        assert!(Request::read(extension.as_bytes()).unwrap().more);
        let country = pem(|params| params.distinguished_name.push(DnType::CountryName, "FR"));
        assert!(Request::read(country.as_bytes()).unwrap().more_subject);
    }

    #[test]
    fn what_is_not_a_signed_request_is_not_read() {
        let good = pem(|_| {});
        assert!(
            Request::read(format!("{good}{good}").as_bytes()).is_err(),
            "two requests"
        );
        assert!(Request::read(good.replace("CERTIFICATE REQUEST", "CERTIFICATE").as_bytes()).is_err());
        assert!(Request::read(b"").is_err());
        // One byte of the signature is turned over.
        let mut der = pem::parse(&good);
        let last = der.len() - 1;
        der[last] ^= 1;
        assert!(Request::read(pem::encode(&der).as_bytes()).is_err());
    }

    /// As much of PEM as the test needs.
    mod pem {
        use base64::Engine as _;
        use base64::engine::general_purpose::STANDARD;

        pub(super) fn parse(text: &str) -> Vec<u8> {
            let body: String = text.lines().filter(|line| !line.starts_with("-----")).collect();
            STANDARD.decode(body).unwrap()
        }

        pub(super) fn encode(der: &[u8]) -> String {
            let body = STANDARD.encode(der);
            let lines: Vec<&str> = body
                .as_bytes()
                .chunks(64)
                .map(|c| std::str::from_utf8(c).unwrap())
                .collect();
            format!(
                "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
                lines.join("\n")
            )
        }
    }
}
