//! The key of an App, as GitHub hands it out once and keeps only its public half.

use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// RSA's PKCS#8 is this much head and then the PKCS#1 form.
const PKCS8_HEAD: usize = 26;

/// Why there is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The machine could not make one.
    #[error("no RSA key could be made")]
    Generate,
    /// Not an RSA private key.
    #[error("this is no RSA private key of 2048 bits or more in PEM")]
    Private,
    /// Not an RSA public key.
    #[error("this is no RSA public key of 2048 bits or more in PEM")]
    Public,
}

/// A private key of an App.
pub struct AppKey {
    pkcs8: Vec<u8>,
    public: Vec<u8>,
}

impl std::fmt::Debug for AppKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AppKey([redacted])")
    }
}

impl AppKey {
    /// A new key of 2048 bits, as GitHub makes them.
    pub fn generate() -> Result<Self, KeyError> {
        Self::of(&KeyPair::generate(KeySize::Rsa2048).map_err(|_| KeyError::Generate)?)
    }

    /// A key from its PKCS#1 text.
    pub fn from_pkcs1_pem(text: &str) -> Result<Self, KeyError> {
        let der = decode(text, "RSA PRIVATE KEY").ok_or(KeyError::Private)?;
        Self::of(&KeyPair::from_der(&der).map_err(|_| KeyError::Private)?)
    }

    fn of(key: &KeyPair) -> Result<Self, KeyError> {
        let pkcs8: Pkcs8V1Der<'_> = key.as_der().map_err(|_| KeyError::Generate)?;
        Ok(Self {
            pkcs8: pkcs8.as_ref().to_vec(),
            public: key.public_key().as_ref().to_vec(),
        })
    }

    /// As GitHub offers it for download.
    pub fn pkcs1_pem(&self) -> String {
        encode("RSA PRIVATE KEY", self.pkcs8.get(PKCS8_HEAD..).unwrap_or_default())
    }

    /// As other tools write the same key.
    pub fn pkcs8_pem(&self) -> String {
        encode("PRIVATE KEY", &self.pkcs8)
    }

    /// What GitHub keeps.
    pub fn public_pem(&self) -> String {
        encode("RSA PUBLIC KEY", &self.public)
    }
}

/// A key that checks signatures.
#[derive(Debug, Clone)]
pub(crate) struct PublicKey(Vec<u8>);

impl PublicKey {
    pub(crate) fn from_pem(text: &str) -> Result<Self, KeyError> {
        let der = decode(text, "RSA PUBLIC KEY").or_else(|| decode(text, "PUBLIC KEY"));
        let der = der.ok_or(KeyError::Public)?;
        ParsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &der).map_err(|_| KeyError::Public)?;
        Ok(Self(der))
    }

    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        ParsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &self.0)
            .is_ok_and(|key| key.verify_sig(message, signature).is_ok())
    }
}

fn encode(label: &str, der: &[u8]) -> String {
    let base64 = STANDARD.encode(der);
    let lines: Vec<_> = base64.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

fn decode(text: &str, label: &str) -> Option<Vec<u8>> {
    let (_, rest) = text.split_once(&format!("-----BEGIN {label}-----"))?;
    let (inside, _) = rest.split_once(&format!("-----END {label}-----"))?;
    let base64: String = inside.split_whitespace().collect();
    STANDARD.decode(base64).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_its_text_and_does_not_print_itself() {
        let key = AppKey::generate().unwrap();
        let again = AppKey::from_pkcs1_pem(&key.pkcs1_pem()).unwrap();
        assert_eq!(key.public_pem(), again.public_pem());
        assert!(PublicKey::from_pem(&key.public_pem()).is_ok());
        assert!(PublicKey::from_pem(&key.pkcs1_pem()).is_err());
        assert_eq!(format!("{key:?}"), "AppKey([redacted])");
    }
}
