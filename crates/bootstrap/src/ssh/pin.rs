//! Host keys that were seen before.

use std::fmt;
use std::str::FromStr;

use russh::keys::{Algorithm, EcdsaCurve, HashAlg, PublicKey};

/// What is remembered of a host key. Written as `SHA256:<base64>`, after the algorithm where that is known.
///
/// A host has one key per algorithm, and which of them is seen depends on who asks: Go's client asks for
/// `ecdsa-sha2-nistp256` first, most others for `ssh-ed25519`. So a pin of unknown algorithm is compared with each of the
/// host's keys, and new pins say which one they are of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostKeyPin(Box<Key>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    /// `SHA256:<base64 without padding>`.
    fingerprint: String,
    /// Such as `ssh-ed25519`. Unknown in pins that others made.
    algorithm: Option<String>,
}

/// A pin that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no pin of a host key; use SHA256:<43 characters of base64>, with the key's algorithm before it if you know it"
)]
pub struct BadPin {
    text: String,
}

impl HostKeyPin {
    /// The pin of a key.
    pub fn of(key: &PublicKey) -> Self {
        Self(Box::new(Key {
            fingerprint: key.fingerprint(HashAlg::Sha256).to_string(),
            algorithm: Some(key.algorithm().to_string()),
        }))
    }

    /// `SHA256:<base64>`.
    pub fn fingerprint(&self) -> &str {
        &self.0.fingerprint
    }

    /// Such as `ssh-ed25519`, if it is known.
    pub fn algorithm(&self) -> Option<&str> {
        self.0.algorithm.as_deref()
    }

    /// Whether this is the key that was pinned.
    pub(super) fn matches(&self, seen: &Self) -> bool {
        self.0.fingerprint == seen.0.fingerprint
    }
}

impl fmt::Display for HostKeyPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.algorithm {
            Some(algorithm) => write!(f, "{algorithm} {}", self.0.fingerprint),
            None => f.write_str(&self.0.fingerprint),
        }
    }
}

impl FromStr for HostKeyPin {
    type Err = BadPin;

    fn from_str(text: &str) -> Result<Self, BadPin> {
        let bad = || BadPin { text: text.to_owned() };
        let (algorithm, fingerprint) = match text.trim().split_once(' ') {
            Some((algorithm, fingerprint)) => (Some(algorithm), fingerprint),
            None => (None, text.trim()),
        };
        let base64 = fingerprint
            .strip_prefix("SHA256:")
            .ok_or_else(bad)?
            .trim_end_matches('=');
        let known = |name: &str| algorithms().iter().any(|algorithm| algorithm.to_string() == name);
        if base64.len() != 43
            || !base64
                .bytes()
                .all(|c| c.is_ascii_alphanumeric() || c == b'+' || c == b'/')
            || !algorithm.is_none_or(known)
        {
            return Err(bad());
        }
        Ok(Self(Box::new(Key {
            fingerprint: format!("SHA256:{base64}"),
            algorithm: algorithm.map(str::to_owned),
        })))
    }
}

/// The host key algorithms we speak, those of old pins first.
fn algorithms() -> [Algorithm; 4] {
    let ecdsa = |curve| Algorithm::Ecdsa { curve };
    [
        ecdsa(EcdsaCurve::NistP256),
        Algorithm::Ed25519,
        ecdsa(EcdsaCurve::NistP384),
        ecdsa(EcdsaCurve::NistP521),
    ]
}

/// What to ask a host for, attempt by attempt; a later one is made only if an earlier one showed another key.
pub(super) fn attempts(pin: Option<&HostKeyPin>) -> Vec<Vec<Algorithm>> {
    let mut all = algorithms();
    match pin.map(HostKeyPin::algorithm) {
        // New hosts are best known by their ed25519 key.
        None => {
            all.sort_by_key(|algorithm| *algorithm != Algorithm::Ed25519);
            vec![all.to_vec()]
        }
        Some(Some(name)) => {
            all.sort_by_key(|algorithm| algorithm.to_string() != name);
            vec![all.to_vec()]
        }
        Some(None) => {
            let [first, rest @ ..] = all.clone();
            // The first attempt is content with any key, so that a host without an ecdsa key costs no attempt.
            let mut attempts = vec![all.to_vec()];
            attempts.extend(rest.into_iter().chain([first]).map(|algorithm| vec![algorithm]));
            attempts
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINGERPRINT: &str = "SHA256:nThbg6kXUpJWGl7E1IGOCspRomTxdCARLviKw6E5SY8";

    #[test]
    fn a_pin_survives_being_written_down() {
        for text in [FINGERPRINT.to_owned(), format!("ecdsa-sha2-nistp256 {FINGERPRINT}")] {
            let pin: HostKeyPin = text.parse().unwrap();
            assert_eq!(pin.to_string(), text);
            assert_eq!(pin.fingerprint(), FINGERPRINT);
        }
        let padded: HostKeyPin = format!(" {FINGERPRINT}= \n").parse().unwrap();
        assert_eq!(padded.to_string(), FINGERPRINT);
    }

    #[test]
    fn what_is_no_pin_is_refused_with_a_way_out() {
        for text in [
            "",
            "MD5:00:11",
            "SHA256:short",
            "ssh-dss SHA256:nThbg6kXUpJWGl7E1IGOCspRomTxdCARLviKw6E5SY8",
        ] {
            let error = text.parse::<HostKeyPin>().unwrap_err().to_string();
            assert!(error.contains("SHA256:<43 characters of base64>"), "{error}");
        }
    }

    #[test]
    fn a_pin_of_unknown_algorithm_is_looked_for_among_all_keys_beginning_with_ecdsa() {
        let pin: HostKeyPin = FINGERPRINT.parse().unwrap();
        let first: Vec<_> = attempts(Some(&pin)).iter().map(|list| list[0].to_string()).collect();
        assert_eq!(
            first,
            [
                "ecdsa-sha2-nistp256",
                "ssh-ed25519",
                "ecdsa-sha2-nistp384",
                "ecdsa-sha2-nistp521",
                "ecdsa-sha2-nistp256"
            ]
        );
    }

    #[test]
    fn without_a_pin_ed25519_is_asked_for_and_with_one_its_own_algorithm() {
        assert_eq!(attempts(None)[0][0].to_string(), "ssh-ed25519");
        let pin: HostKeyPin = format!("ecdsa-sha2-nistp384 {FINGERPRINT}").parse().unwrap();
        assert_eq!(attempts(Some(&pin)).len(), 1);
        assert_eq!(attempts(Some(&pin))[0][0].to_string(), "ecdsa-sha2-nistp384");
    }
}
