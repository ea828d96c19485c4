//! The key pair in a fleet's Secret.

use std::collections::BTreeMap;
use std::str;

use k8s_openapi::api::core::v1::Secret as KubeSecret;
use russet_scaleway::SshKeyId;
use russet_telemetry::Secret;
use ssh_key::rand_core::OsRng;
use ssh_key::{Algorithm, LineEnding, PrivateKey, PublicKey};

use super::FleetKey;

const PRIVATE: &str = "id_ed25519";
const PUBLIC: &str = "id_ed25519.pub";
const SUDO_PASSWORD: &str = "sudo-password";

/// What is wrong with a Secret. Never says anything of what is in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A key is absent or empty.
    #[error("it has no {PRIVATE}")]
    Absent,
    /// Not a private key in the form we use.
    #[error("{PRIVATE} is not a private key in OpenSSH form")]
    Private,
    /// It needs a passphrase.
    #[error("{PRIVATE} is protected by a passphrase, which nobody could type")]
    Encrypted,
    /// Another kind of key.
    #[error("{PRIVATE} is a key of kind {0}, not ssh-ed25519")]
    Algorithm(String),
    /// Not a public key.
    #[error("{PUBLIC} is not a public key in OpenSSH form")]
    Public,
    /// The halves do not belong together.
    #[error("{PUBLIC} is not the public half of {PRIVATE}")]
    Mismatch,
    /// Not text.
    #[error("{SUDO_PASSWORD} is not UTF-8")]
    Password,
}

/// What a fleet's Secret holds.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) private: Secret<String>,
    pub(super) public: String,
    pub(super) sudo_password: Option<Secret<String>>,
}

impl Stored {
    /// A new pair.
    pub(super) fn generate(fleet: &str) -> Result<Self, ssh_key::Error> {
        let mut key = PrivateKey::random(&mut OsRng, Algorithm::Ed25519)?;
        key.set_comment(format!("tuist-capi-{fleet}"));
        Ok(Self {
            private: Secret::new(key.to_openssh(LineEnding::LF)?.to_string()),
            public: key.public_key().to_openssh()?,
            sudo_password: None,
        })
    }

    /// The pair as it is written.
    pub(super) fn string_data(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            (PRIVATE.to_owned(), self.private.expose().clone()),
            (PUBLIC.to_owned(), format!("{}\n", self.public)),
        ])
    }

    /// What a Secret holds, checked: a key that only fails on the host would cost an adoption.
    pub(super) fn read(secret: &KubeSecret) -> Result<Self, Malformed> {
        let data = secret.data.as_ref();
        let bytes = |key: &str| data.and_then(|data| data.get(key)).map(|value| value.0.as_slice());
        let private = bytes(PRIVATE).filter(|bytes| !bytes.trim_ascii().is_empty());
        // A pasted key may have lost its last line break or found others; SSH clients insist.
        let text = str::from_utf8(private.ok_or(Malformed::Absent)?).map_err(|_| Malformed::Private)?;
        let text = Secret::new(format!("{}\n", text.trim().replace("\r\n", "\n")));
        let key = PrivateKey::from_openssh(text.expose()).map_err(|_| Malformed::Private)?;
        if key.is_encrypted() {
            return Err(Malformed::Encrypted);
        }
        if key.algorithm() != Algorithm::Ed25519 {
            return Err(Malformed::Algorithm(key.algorithm().to_string()));
        }
        let public = match bytes(PUBLIC).map(<[u8]>::trim_ascii).filter(|line| !line.is_empty()) {
            None => key.public_key().to_openssh().map_err(|_| Malformed::Private)?,
            Some(line) => {
                let line = str::from_utf8(line).map_err(|_| Malformed::Public)?;
                let public = PublicKey::from_openssh(line).map_err(|_| Malformed::Public)?;
                if public.key_data() != key.public_key().key_data() {
                    return Err(Malformed::Mismatch);
                }
                line.to_owned()
            }
        };
        let password = bytes(SUDO_PASSWORD)
            .map(<[u8]>::trim_ascii_end)
            .filter(|bytes| !bytes.is_empty());
        let sudo_password = password
            .map(|bytes| str::from_utf8(bytes).map(Secret::from).map_err(|_| Malformed::Password))
            .transpose()?;
        Ok(Self {
            private: text,
            public,
            sudo_password,
        })
    }

    /// The key, once IAM knows it.
    pub(super) fn registered(self, key_id: SshKeyId) -> FleetKey {
        let Self {
            private,
            public,
            sudo_password,
        } = self;
        FleetKey {
            private,
            public,
            sudo_password,
            key_id,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    fn secret(entries: &[(&str, &[u8])]) -> KubeSecret {
        let data = entries
            .iter()
            .map(|(key, value)| ((*key).to_owned(), ByteString(value.to_vec())));
        KubeSecret {
            data: Some(data.collect()),
            ..KubeSecret::default()
        }
    }

    #[test]
    fn a_made_pair_reads_back_and_carries_its_fleet_in_the_comment() {
        let made = Stored::generate("macs").unwrap();
        let private = made.private.expose().clone();
        let read = Stored::read(&secret(&[
            (PRIVATE, private.as_bytes()),
            (PUBLIC, format!("{}\n", made.public).as_bytes()),
            (SUDO_PASSWORD, b"hunter2\n"),
        ]))
        .unwrap();
        assert_eq!(read.public, made.public);
        assert!(read.public.starts_with("ssh-ed25519 ") && read.public.ends_with(" tuist-capi-macs"));
        assert_eq!(read.sudo_password.unwrap().expose(), "hunter2");
        assert_eq!(read.private.expose(), &private);
        assert!(!format!("{made:?}").contains("PRIVATE KEY"));
    }

    #[test]
    fn a_pasted_key_with_odd_line_breaks_and_no_public_half_is_understood() {
        let made = Stored::generate("macs").unwrap();
        let pasted = made.private.expose().trim_end().replace('\n', "\r\n");
        let read = Stored::read(&secret(&[(PRIVATE, pasted.as_bytes())])).unwrap();
        assert_eq!(read.public, made.public);
        assert_eq!(read.private.expose(), made.private.expose());
    }

    #[test]
    fn what_could_not_work_is_refused_without_being_repeated() {
        let made = Stored::generate("macs").unwrap();
        let other = Stored::generate("macs").unwrap();
        let private = made.private.expose().as_bytes();
        for (entries, problem) in [
            (vec![], Malformed::Absent),
            (vec![(PRIVATE, b"  \n".as_slice())], Malformed::Absent),
            (vec![(PRIVATE, b"canary".as_slice())], Malformed::Private),
            (vec![(PRIVATE, b"\xff\xfe".as_slice())], Malformed::Private),
            (
                vec![(PRIVATE, private), (PUBLIC, b"canary".as_slice())],
                Malformed::Public,
            ),
            (
                vec![(PRIVATE, private), (PUBLIC, other.public.as_bytes())],
                Malformed::Mismatch,
            ),
            (
                vec![(PRIVATE, private), (SUDO_PASSWORD, b"\xff".as_slice())],
                Malformed::Password,
            ),
        ] {
            let error = Stored::read(&secret(&entries)).unwrap_err();
            assert_eq!(error, problem);
            assert!(!error.to_string().contains("canary"));
        }
    }
}
