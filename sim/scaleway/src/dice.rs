//! Reproducible randomness: ids, passwords, MAC addresses and host keys that are the same in every run with the same seed.
//!
//! A hash of the seed and a counter is all it takes, and both numbers survive in a snapshot, so an emulator that was
//! stopped and started again never hands out an id twice.

use crate::ids::Id;
use sha2::{Digest as _, Sha256};

/// The source of everything that looks random.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Dice {
    seed: u64,
    thrown: u64,
}

const ALPHANUMERIC: &[u8] = b"ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789";
/// What breaks shells, URLs and naive parsers.
const AWKWARD: &[u8] = b"%@:/?#&+ '\"$\\";

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, thrown: 0 }
    }

    /// 32 fresh bytes.
    pub(crate) fn bytes(&mut self) -> [u8; 32] {
        self.thrown = self.thrown.wrapping_add(1);
        let mut hash = Sha256::new();
        hash.update(self.seed.to_be_bytes());
        hash.update(self.thrown.to_be_bytes());
        hash.finalize().into()
    }

    /// 64 fresh bits.
    pub(crate) fn number(&mut self) -> u64 {
        self.bytes()
            .iter()
            .take(8)
            .fold(0, |number, byte| (number << 8) | u64::from(*byte))
    }

    /// A number below `bound`, which must not be 0.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        u32::try_from(self.number() % u64::from(bound.max(1))).unwrap_or(0)
    }

    /// A random UUID.
    pub(crate) fn id(&mut self) -> Id {
        Id::from_random(self.bytes())
    }

    /// Twelve characters, as the real one makes them.
    pub(crate) fn password(&mut self, awkward: bool) -> String {
        let mut password: Vec<u8> = self
            .bytes()
            .iter()
            .take(12)
            .map(|byte| pick(ALPHANUMERIC, *byte))
            .collect();
        if awkward {
            password.extend(self.bytes().iter().take(4).map(|byte| pick(AWKWARD, *byte)));
        }
        String::from_utf8_lossy(&password).into_owned()
    }

    /// A MAC address, upper case as IPAM stores it.
    pub(crate) fn mac(&mut self) -> String {
        let [a, b, c, ..] = self.bytes();
        format!("18:4A:53:{a:02X}:{b:02X}:{c:02X}")
    }
}

fn pick(alphabet: &[u8], byte: u8) -> u8 {
    let index = usize::from(byte).checked_rem(alphabet.len()).unwrap_or(0);
    alphabet.get(index).copied().unwrap_or(b'x')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_throws_the_same_and_never_twice() {
        let (mut one, mut two) = (Dice::new(7), Dice::new(7));
        let ids: Vec<Id> = (0..100).map(|_| one.id()).collect();
        assert_eq!(ids, (0..100).map(|_| two.id()).collect::<Vec<_>>());
        assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), 100);
    }
}
