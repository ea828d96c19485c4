//! Bootstrap tokens, as Kubernetes keeps them: a Secret whose name holds the token's id.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::ResourceExt as _;
use kube::api::ObjectMeta;
use rand::Rng as _;
use russet_api::labels::{APP_COMPONENT, COMPONENT_TART_KUBELET, MACHINE, MANAGED_BY, MANAGED_BY_CAPI, OWNER_UID};
use russet_telemetry::Secret;
use sha2::{Digest as _, Sha256};

use super::Error;
use crate::machine_ref::MachineRef;

/// Group of every token of ours; the chart lets it create signing requests.
pub const BOOTSTRAP_GROUP: &str = "system:bootstrappers:tuist-applesilicon";

const TYPE: &str = "bootstrap.kubernetes.io/token";
const ALPHABET: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;

/// Ids to try for one machine. At a thousand machines one in four thousand meets a taken id; four in a row do not happen.
pub(super) const ATTEMPTS: u32 = 4;

/// Group of the token of one machine. Only who may write Secrets in kube-system can put somebody into it, so a request
/// that bears it comes from that machine's token.
pub fn machine_group(uid: &str) -> String {
    format!("{BOOTSTRAP_GROUP}:{uid}")
}

/// The uid in the group of a machine's token.
pub(super) fn uid_of(group: &str) -> Option<&str> {
    group.strip_prefix(BOOTSTRAP_GROUP)?.strip_prefix(':')
}

/// Kubernetes ignores a token with a group it does not like, so it is refused here.
pub(super) fn check(machine: &MachineRef) -> Result<(), Error> {
    let uid = machine.uid.as_bytes();
    let edge = |c: &u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let good = uid.first().is_some_and(edge)
        && uid.last().is_some_and(edge)
        && uid.len() <= 63
        && uid.iter().all(|c| edge(c) || *c == b'-');
    if good {
        Ok(())
    } else {
        Err(Error::Uid {
            machine: machine.clone(),
            uid: machine.uid.clone(),
        })
    }
}

/// The id of a machine's token. It follows from the uid, so that two callers meet in the same Secret and nothing has to
/// be listed to find it.
pub(super) fn id(uid: &str, attempt: u32) -> String {
    let digest = Sha256::digest(format!("{uid}:{attempt}"));
    digest
        .iter()
        .take(ID_LENGTH)
        .map(|byte| letter(usize::from(*byte)))
        .collect()
}

fn letter(number: usize) -> char {
    ALPHABET
        .get(number % ALPHABET.len())
        .map_or('0', |byte| char::from(*byte))
}

/// The name of the Secret, which Kubernetes dictates.
pub(super) fn secret_name(id: &str) -> String {
    format!("bootstrap-token-{id}")
}

/// Whether a Secret is the token of this machine.
pub(super) fn belongs<K: kube::Resource>(secret: &K, machine: &MachineRef) -> bool {
    secret.labels().get(MANAGED_BY).is_some_and(|by| by == MANAGED_BY_CAPI)
        && secret.labels().get(OWNER_UID).is_some_and(|uid| *uid == machine.uid)
}

/// A token.
#[derive(Debug)]
pub(super) struct Token {
    id: String,
    secret: Secret<String>,
    pub(super) expires: Timestamp,
}

impl Token {
    /// A new one.
    pub(super) fn generate(id: &str, lifetime: Duration, now: Timestamp) -> Self {
        let mut rng = rand::rng();
        let secret = (0..SECRET_LENGTH)
            .map(|_| letter(rng.random_range(0..ALPHABET.len())))
            .collect();
        let seconds = i64::try_from(lifetime.as_secs()).unwrap_or(i64::MAX);
        Self {
            id: id.to_owned(),
            secret: Secret::new(secret),
            // Whole seconds, as Kubernetes writes them.
            expires: Timestamp::from_second(now.as_second().saturating_add(seconds)).unwrap_or(Timestamp::MAX),
        }
    }

    /// The one in a Secret, unless it could not be used.
    pub(super) fn read(secret: &KubeSecret) -> Option<Self> {
        let data = secret.data.as_ref()?;
        let text = |key: &str| str::from_utf8(&data.get(key)?.0).ok();
        let (id, value) = (text("token-id")?, text("token-secret")?);
        let made_of_letters = |text: &str, length| text.len() == length && text.bytes().all(|c| ALPHABET.contains(&c));
        let whole = secret.type_.as_deref() == Some(TYPE)
            && made_of_letters(id, ID_LENGTH)
            && made_of_letters(value, SECRET_LENGTH)
            && secret.name_any() == secret_name(id)
            && text("usage-bootstrap-authentication") == Some("true")
            && secret
                .labels()
                .get(OWNER_UID)
                .is_some_and(|uid| text("auth-extra-groups") == Some(&groups(uid)));
        whole.then_some(())?;
        Some(Self {
            id: id.to_owned(),
            secret: Secret::from(value),
            expires: text("expiration")?.parse().ok()?,
        })
    }

    /// Whether it is good for longer than this.
    pub(super) fn lasts(&self, margin: Duration, now: Timestamp) -> bool {
        let left = self.expires.as_second().saturating_sub(now.as_second());
        u64::try_from(left).is_ok_and(|left| left > margin.as_secs())
    }

    /// What is sent to authenticate.
    pub(super) fn bearer(&self) -> Secret<String> {
        self.secret.map(|secret| format!("{}.{secret}", self.id))
    }

    /// The Secret of this token.
    pub(super) fn secret(&self, machine: &MachineRef) -> KubeSecret {
        let mut labels = BTreeMap::from([
            (MANAGED_BY.to_owned(), MANAGED_BY_CAPI.to_owned()),
            (APP_COMPONENT.to_owned(), COMPONENT_TART_KUBELET.to_owned()),
            (OWNER_UID.to_owned(), machine.uid.clone()),
        ]);
        if machine.name.len() <= 63 {
            labels.insert(MACHINE.to_owned(), machine.name.clone());
        }
        let data = [
            ("token-id", self.id.clone()),
            ("token-secret", self.secret.expose().clone()),
            ("expiration", self.expires.to_string()),
            ("usage-bootstrap-authentication", "true".to_owned()),
            ("auth-extra-groups", groups(&machine.uid)),
            ("description", format!("Joins the host of machine {machine}.")),
        ];
        KubeSecret {
            metadata: ObjectMeta {
                name: Some(secret_name(&self.id)),
                labels: Some(labels),
                ..ObjectMeta::default()
            },
            type_: Some(TYPE.to_owned()),
            string_data: Some(data.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
            ..KubeSecret::default()
        }
    }
}

fn groups(uid: &str) -> String {
    format!("{BOOTSTRAP_GROUP},{}", machine_group(uid))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use proptest::prelude::*;

    use super::*;

    fn machine(uid: &str) -> MachineRef {
        MachineRef {
            namespace: "fleet".into(),
            name: "mac-1".into(),
            uid: uid.into(),
        }
    }

    /// As the API server stores it.
    fn stored(mut secret: KubeSecret) -> KubeSecret {
        let plain = secret.string_data.take().unwrap();
        secret.data = Some(
            plain
                .into_iter()
                .map(|(k, v)| (k, ByteString(v.into_bytes())))
                .collect(),
        );
        secret
    }

    #[test]
    fn a_token_reads_back_from_its_secret_and_from_no_other() {
        let now: Timestamp = "2026-11-15T12:00:00Z".parse().unwrap();
        let token = Token::generate(&id("u1", 0), Duration::from_hours(24), now);
        let secret = stored(token.secret(&machine("u1")));
        let read = Token::read(&secret).unwrap();
        assert_eq!(read.bearer().expose(), token.bearer().expose());
        assert_eq!(read.expires.to_string(), "2026-11-16T12:00:00Z");
        assert!(belongs(&secret, &machine("u1")) && !belongs(&secret, &machine("u2")));
        assert!(!format!("{token:?}").contains(token.secret.expose()));

        for key in [
            "token-id",
            "token-secret",
            "expiration",
            "auth-extra-groups",
            "usage-bootstrap-authentication",
        ] {
            let mut broken = secret.clone();
            broken
                .data
                .as_mut()
                .unwrap()
                .insert(key.into(), ByteString(b"x".to_vec()));
            assert!(Token::read(&broken).is_none(), "{key}");
        }
    }

    #[test]
    fn a_token_is_renewed_an_hour_before_its_end() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let token = Token::generate("abcdef", Duration::from_hours(24), at("2026-11-15T12:00:00Z"));
        let hour = Duration::from_hours(1);
        assert!(token.lasts(hour, at("2026-11-16T10:59:59Z")));
        assert!(!token.lasts(hour, at("2026-11-16T11:00:00Z")));
        assert!(!token.lasts(hour, at("2026-12-01T00:00:00Z")));
    }

    #[test]
    fn a_uid_that_kubernetes_would_not_take_as_a_group_is_refused() {
        check(&machine("2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b")).unwrap();
        for bad in ["", "A", "a,b", "a:b", "-a", "a-", &"a".repeat(64)] {
            assert!(matches!(check(&machine(bad)), Err(Error::Uid { .. })), "{bad}");
        }
    }

    #[test]
    fn a_group_names_one_machine() {
        assert_eq!(uid_of(&machine_group("u1")), Some("u1"));
        assert_eq!(uid_of(BOOTSTRAP_GROUP), None);
        assert_eq!(uid_of("system:bootstrappers:tuist-applesilicon-other:u1"), None);
    }

    proptest! {
        #[test]
        fn ids_have_the_form_kubernetes_wants(uid in "[0-9a-f-]{36}", attempt in 0..ATTEMPTS) {
            let id = id(&uid, attempt);
            prop_assert!(id.len() == 6 && id.bytes().all(|c| ALPHABET.contains(&c)));
        }
    }
}
