//! What must be true of a body before it becomes visible, computed while it streams by.

use super::reply::Error;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::{digest, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// A condition on the bytes of a body.
#[derive(Debug, Default)]
pub enum Check {
    /// None.
    #[default]
    Nothing,
    /// They hash to this.
    Sha256([u8; 32]),
    /// Turborepo's signature covers them.
    Signature(Box<Signature>),
}

/// A signature to verify. Two messages are acceptable: Turborepo of 2026 separates the signed fields by their lengths,
/// earlier ones joined them.
pub struct Signature {
    claimed: Vec<u8>,
    contexts: [hmac::Context; 2],
}

impl std::fmt::Debug for Signature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signature")
    }
}

/// First field of what newer signatures cover.
const DOMAIN: &[u8] = b"artifact-signature:v2";

impl Signature {
    /// `tag` is claimed for an artifact under `hash`, of the team with that id.
    pub fn new(key: &hmac::Key, tag: &[u8], team_id: &str, hash: &str) -> Option<Self> {
        let claimed = STANDARD.decode(tag).ok()?;
        let mut separated = hmac::Context::with_key(key);
        for field in [DOMAIN, hash.as_bytes(), team_id.as_bytes()] {
            separated.update(&(field.len() as u64).to_le_bytes());
            separated.update(field);
        }
        let mut joined = hmac::Context::with_key(key);
        joined.update(hash.as_bytes());
        joined.update(team_id.as_bytes());
        Some(Self {
            claimed,
            contexts: [separated, joined],
        })
    }
}

/// A check in progress.
pub(super) enum Checking {
    Nothing,
    Sha256(Box<digest::Context>, [u8; 32]),
    Signature(Box<Signature>),
}

impl Check {
    /// `length` is that of the body, if it is known before it comes.
    pub(super) fn begin(self, length: Option<u64>) -> Result<Checking, Error> {
        Ok(match self {
            Self::Nothing => Checking::Nothing,
            Self::Sha256(expected) => Checking::Sha256(Box::new(digest::Context::new(&digest::SHA256)), expected),
            Self::Signature(mut signature) => {
                // The length is signed in front of the bytes.
                let length = length.ok_or(Error::refused(411, "Content-Length is required for signed artifacts"))?;
                let [separated, _] = &mut signature.contexts;
                separated.update(&length.to_le_bytes());
                Checking::Signature(signature)
            }
        })
    }
}

impl Checking {
    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Nothing => {}
            Self::Sha256(context, _) => context.update(bytes),
            Self::Signature(signature) => signature.contexts.iter_mut().for_each(|context| context.update(bytes)),
        }
    }

    /// Whether the bytes were what they had to be.
    pub(super) fn finish(self) -> Result<(), Error> {
        match self {
            Self::Nothing => Ok(()),
            Self::Sha256(context, expected) => {
                if context.finish().as_ref() == expected {
                    Ok(())
                } else {
                    Err(Error::refused(400, "Body does not match its digest"))
                }
            }
            Self::Signature(signature) => {
                let Signature { claimed, contexts } = *signature;
                let matches =
                    |context: hmac::Context| verify_slices_are_equal(context.sign().as_ref(), &claimed).is_ok();
                if contexts.map(matches).contains(&true) {
                    Ok(())
                } else {
                    Err(Error::refused(403, "Artifact signature does not match"))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(check: Check, pieces: &[&[u8]]) -> bool {
        let length = pieces.iter().map(|piece| piece.len() as u64).sum();
        let mut checking = check.begin(Some(length)).unwrap();
        for piece in pieces {
            checking.update(piece);
        }
        checking.finish().is_ok()
    }

    #[test]
    fn a_digest_covers_every_piece() {
        let expected = digest::digest(&digest::SHA256, b"hello world");
        let expected: [u8; 32] = expected.as_ref().try_into().unwrap();
        assert!(checked(Check::Sha256(expected), &[b"hello", b" ", b"world"]));
        assert!(!checked(Check::Sha256(expected), &[b"hello", b"world"]));
        assert!(checked(Check::Nothing, &[b"anything"]));
    }

    /// As Turborepo 2.11 signs (first) and as versions before June 2026 did (second).
    #[test]
    fn both_forms_of_a_signature_are_accepted_and_no_other() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"topsecretkeytopsecretkey");
        let sign = |message: &[&[u8]]| STANDARD.encode(hmac::sign(&key, &message.concat()));
        let body = b"artifact";
        let lengths = [21_u64, 4, 6, 8].map(u64::to_le_bytes);
        let fields: [&[u8]; 4] = [DOMAIN, b"hash", b"team_a", body];
        let framed = lengths
            .iter()
            .zip(fields)
            .map(|(length, field)| [&length[..], field].concat());
        let separated = sign(&[&framed.collect::<Vec<_>>().concat()]);
        let joined = sign(&[b"hash", b"team_a", body]);
        for tag in [&separated, &joined] {
            let signature =
                |team: &str| Check::Signature(Box::new(Signature::new(&key, tag.as_bytes(), team, "hash").unwrap()));
            assert!(checked(signature("team_a"), &[b"arti", b"fact"]));
            assert!(!checked(signature("team_a"), &[b"artifacT"]));
            assert!(!checked(signature("team_b"), &[b"artifact"]));
        }
        assert!(Signature::new(&key, b"not base64!", "t", "h").is_none());
    }
}
