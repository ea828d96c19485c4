//! The credentials of a GitHub App, as an operator put them into a Secret.
//!
//! What is pasted is seldom clean: numbers end in a line break, a key has CRLF line ends, is indented, or lost its line breaks to a
//! password manager. Tools write the same key as PKCS#1 or PKCS#8. All of that is read. What cannot be read is named by its
//! field, with what to do about it, and never repeated.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use aws_lc_rs::rsa::KeyPair;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use russet_telemetry::Secret;
use zeroize::Zeroize as _;

/// Key of the App's number in the Secret.
pub const APP_ID: &str = "app-id";
/// Key of the installation's number in the Secret.
pub const INSTALLATION_ID: &str = "installation-id";
/// Key of the private key in the Secret.
pub const PRIVATE_KEY: &str = "private-key";

/// Longest key that is looked at. One of 8192 bits has some 6,400 characters.
const MAX_PEM: usize = 64 * 1024;

/// An App installation, and the key to speak for it.
#[derive(Clone)]
pub struct Credentials {
    /// Number of the App.
    pub app: NonZeroU64,
    /// Number of its installation in an organisation.
    pub installation: NonZeroU64,
    pub(crate) key: Arc<KeyPair>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("app", &self.app)
            .field("installation", &self.installation)
            .finish_non_exhaustive()
    }
}

/// A field that cannot be used. The text names the field, never what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// There is no such key, or nothing in it.
    #[error("key {field} is missing or empty: {}", source_of(field))]
    Missing {
        /// Which.
        field: &'static str,
    },
    /// The bytes are no text.
    #[error("key {field} is not text: {}", source_of(field))]
    NotText {
        /// Which.
        field: &'static str,
    },
    /// Not a number.
    #[error("key {field} is not a number: {}", source_of(field))]
    NotANumber {
        /// Which.
        field: &'static str,
    },
    /// No PEM at all.
    #[error(
        "key {PRIVATE_KEY} holds no PEM private key: paste the whole .pem file that GitHub offered when the key was \
         generated, with its BEGIN and END lines"
    )]
    NoPem,
    /// PEM whose inside is damaged.
    #[error(
        "key {PRIVATE_KEY} is a damaged PEM file: a piece of it is missing or was changed; paste the whole file again"
    )]
    Damaged,
    /// PEM of something else.
    #[error(
        "key {PRIVATE_KEY} holds {what} instead of an RSA private key: {}",
        source_of(PRIVATE_KEY)
    )]
    WrongKind {
        /// What it is.
        what: &'static str,
    },
    /// A key that GitHub would not have made.
    #[error(
        "key {PRIVATE_KEY} is not an RSA private key of 2048 bits or more: {}",
        source_of(PRIVATE_KEY)
    )]
    NotRsa,
}

impl Invalid {
    /// The field that has to be corrected.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Missing { field } | Self::NotText { field } | Self::NotANumber { field } => field,
            Self::NoPem | Self::Damaged | Self::WrongKind { .. } | Self::NotRsa => PRIVATE_KEY,
        }
    }
}

fn source_of(field: &str) -> &'static str {
    match field {
        APP_ID => "take the App ID from the settings page of the GitHub App (not the client ID, which begins with Iv)",
        INSTALLATION_ID => {
            "take the number at the end of the address of the App's installation page, \
             https://github.com/organizations/<org>/settings/installations/<number>"
        }
        _ => "generate a private key on the settings page of the GitHub App and paste the whole .pem file",
    }
}

impl Credentials {
    /// Reads the credentials by the names of the Secret's keys.
    pub fn read<'a>(get: impl Fn(&'static str) -> Option<&'a [u8]>) -> Result<Self, Invalid> {
        let text = |field: &'static str| {
            let bytes = get(field).unwrap_or_default();
            let text = std::str::from_utf8(bytes).map_err(|_| Invalid::NotText { field })?;
            // Editors on Windows put a mark before the text.
            let text = text.trim_start_matches('\u{feff}').trim();
            if text.is_empty() {
                Err(Invalid::Missing { field })
            } else {
                Ok(text)
            }
        };
        let number = |field: &'static str| {
            let text = text(field)?;
            if !text.bytes().all(|c| c.is_ascii_digit()) {
                return Err(Invalid::NotANumber { field });
            }
            text.parse().map_err(|_| Invalid::NotANumber { field })
        };
        Ok(Self {
            app: number(APP_ID)?,
            installation: number(INSTALLATION_ID)?,
            key: Arc::new(private_key(text(PRIVATE_KEY)?)?),
        })
    }

    /// Reads the credentials from the data of a Secret.
    pub fn from_data(data: &BTreeMap<String, Vec<u8>>) -> Result<Self, Invalid> {
        Self::read(|field| data.get(field).map(Vec::as_slice))
    }
}

/// The RSA key in a PEM text, however it was pasted.
fn private_key(text: &str) -> Result<KeyPair, Invalid> {
    if text.len() > MAX_PEM {
        return Err(Invalid::NoPem);
    }
    let (_, rest) = text.split_once("-----BEGIN ").ok_or(Invalid::NoPem)?;
    let (label, rest) = rest.split_once("-----").ok_or(Invalid::Damaged)?;
    match label {
        "RSA PRIVATE KEY" | "PRIVATE KEY" => {}
        "ENCRYPTED PRIVATE KEY" => return Err(wrong("a key that is locked with a passphrase")),
        "OPENSSH PRIVATE KEY" => return Err(wrong("an OpenSSH key")),
        "EC PRIVATE KEY" => return Err(wrong("an elliptic-curve key")),
        "PUBLIC KEY" | "RSA PUBLIC KEY" => return Err(wrong("the public half of a key")),
        "CERTIFICATE" | "CERTIFICATE REQUEST" => return Err(wrong("a certificate")),
        _ => return Err(wrong("something else")),
    }
    let (inside, after) = rest.split_once("-----END ").ok_or(Invalid::Damaged)?;
    if !after.starts_with(label) || after.contains("-----BEGIN ") {
        return Err(Invalid::Damaged);
    }
    if inside.contains("Proc-Type:") {
        return Err(wrong("a key that is locked with a passphrase"));
    }
    let mut base64 = inside.replace("\\r", "").replace("\\n", "");
    base64.retain(|c| !c.is_whitespace());
    let der = STANDARD.decode(&base64).map(Secret::new);
    base64.zeroize();
    let der = der.map_err(|_| Invalid::Damaged)?;
    // The label says which of the two it is, and tools have been seen to get it wrong.
    KeyPair::from_pkcs8(der.expose())
        .or_else(|_| KeyPair::from_der(der.expose()))
        .map_err(|_| Invalid::NotRsa)
}

fn wrong(what: &'static str) -> Invalid {
    Invalid::WrongKind { what }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::encoding::AsDer as _;
    use aws_lc_rs::encoding::Pkcs8V1Der;
    use aws_lc_rs::rsa::KeySize;
    use proptest::prelude::*;

    use super::*;

    /// One key in both forms.
    struct Pems {
        pkcs1: String,
        pkcs8: String,
    }

    fn pem(label: &str, der: &[u8]) -> String {
        let base64 = STANDARD.encode(der);
        let lines: Vec<&str> = base64
            .as_bytes()
            .chunks(64)
            .map(|line| std::str::from_utf8(line).unwrap())
            .collect();
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
    }

    fn pems() -> &'static Pems {
        static PEMS: std::sync::OnceLock<Pems> = std::sync::OnceLock::new();
        PEMS.get_or_init(|| {
            let key = KeyPair::generate(KeySize::Rsa2048).unwrap();
            let pkcs8: Pkcs8V1Der<'_> = key.as_der().unwrap();
            let pkcs8 = pkcs8.as_ref();
            // PKCS#8 of RSA is a fixed head of 26 bytes and the PKCS#1 form.
            Pems {
                pkcs1: pem("RSA PRIVATE KEY", &pkcs8[26..]),
                pkcs8: pem("PRIVATE KEY", pkcs8),
            }
        })
    }

    fn read(app: &str, installation: &str, key: &str) -> Result<Credentials, Invalid> {
        let data = [(APP_ID, app), (INSTALLATION_ID, installation), (PRIVATE_KEY, key)];
        let data = data.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
        Credentials::from_data(&data.into())
    }

    /// Incident `pem-and-spaces`: a key in one form and ids with a line break failed in the other tool's hands.
    #[test]
    fn both_forms_of_a_key_and_ids_with_stray_whitespace_are_read() {
        for key in [&pems().pkcs1, &pems().pkcs8] {
            for key in [
                key.clone(),
                key.replace('\n', "\r\n"),
                format!("\n\n  {key}\n\t"),
                format!("\u{feff}{key}"),
                key.replace('\n', "\n    "),
                key.replace('\n', "\n\n"),
                key.replace('\n', " "),
                key.trim().replace('\n', "\\n"),
                key.trim().replace('\n', "\\r\\n"),
            ] {
                let credentials = read(" 123456\n", "\t42\r\n", &key).unwrap();
                assert_eq!((credentials.app.get(), credentials.installation.get()), (123_456, 42));
            }
        }
    }

    #[test]
    fn a_key_under_the_label_of_the_other_form_is_read() {
        let swapped = pems().pkcs8.replace("PRIVATE KEY", "RSA PRIVATE KEY");
        read("1", "2", &swapped).unwrap();
    }

    #[test]
    fn each_bad_field_is_named_with_what_to_do() {
        let good = &pems().pkcs1;
        let cases = [
            (read("", "2", good), APP_ID, "App ID"),
            (read(" \n", "2", good), APP_ID, "App ID"),
            (read("Iv23liABC", "2", good), APP_ID, "client ID"),
            (read("0", "2", good), APP_ID, "App ID"),
            (read("+1", "2", good), APP_ID, "App ID"),
            (read("99999999999999999999999", "2", good), APP_ID, "App ID"),
            (read("1", "two", good), INSTALLATION_ID, "installations/<number>"),
            (read("1", "1 2", good), INSTALLATION_ID, "installations/<number>"),
            (read("1", "2", ""), PRIVATE_KEY, "generate a private key"),
            (read("1", "2", "canary"), PRIVATE_KEY, "BEGIN and END"),
            (
                read("1", "2", &pem("ENCRYPTED PRIVATE KEY", b"canary")),
                PRIVATE_KEY,
                "passphrase",
            ),
            (
                read("1", "2", &pem("OPENSSH PRIVATE KEY", b"canary")),
                PRIVATE_KEY,
                "OpenSSH",
            ),
            (
                read("1", "2", &pem("PUBLIC KEY", b"canary")),
                PRIVATE_KEY,
                "public half",
            ),
            (
                read("1", "2", &pem("CERTIFICATE", b"canary")),
                PRIVATE_KEY,
                "certificate",
            ),
            (read("1", "2", &pem("PRIVATE KEY", b"canary")), PRIVATE_KEY, "2048 bits"),
            (
                read("1", "2", &good[..good.len() - 40]),
                PRIVATE_KEY,
                "paste the whole file",
            ),
            (read("1", "2", &good.replacen('M', "*", 1)), PRIVATE_KEY, "damaged"),
            (read("1", "2", &format!("{good}{good}")), PRIVATE_KEY, "damaged"),
        ];
        for (result, field, what) in cases {
            let error = result.unwrap_err();
            let text = error.to_string();
            assert_eq!(error.field(), field, "{text}");
            assert!(text.contains(field) && text.contains(what), "{field} {what}: {text}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_named() {
        let error = Credentials::read(|_| Some(&[0xff, 0xfe])).unwrap_err();
        assert_eq!(error, Invalid::NotText { field: APP_ID });
        assert!(matches!(
            Credentials::read(|_| None),
            Err(Invalid::Missing { field: APP_ID })
        ));
    }

    #[test]
    fn credentials_do_not_print_their_key() {
        let printed = format!("{:?}", read("7", "8", &pems().pkcs1).unwrap());
        assert_eq!(printed, "Credentials { app: 7, installation: 8, .. }");
    }

    proptest! {
        #[test]
        fn no_field_is_repeated_by_its_error(value in "canary[ -~\n]{0,60}") {
            for (app, installation, key) in [
                (value.as_str(), "2", "x"), ("1", value.as_str(), "x"), ("1", "2", value.as_str()),
            ] {
                let error = read(app, installation, key).unwrap_err();
                let printed = format!("{error} {error:?}");
                prop_assert!(!printed.contains("canary"));
            }
        }

        #[test]
        fn no_key_makes_the_reader_panic(inside in "[ -~\n]{0,80}", label in "(RSA )?PRIVATE KEY") {
            let text = format!("-----BEGIN {label}-----{inside}-----END {label}-----");
            prop_assert!(read("1", "2", &text).is_err());
        }
    }
}
