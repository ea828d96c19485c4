//! Names and bytes of what is stored: deterministic, so that two systems get the same; incompressible, so that none gains by
//! compressing.

use super::zipf::Random;
use std::fmt::Write as _;
use std::ops::Range;

/// 64 hexadecimal digits, which every cache accepts as a key.
pub(crate) fn key(space: &str, number: u64) -> String {
    // FNV-1a: keys of different spaces differ.
    let seed = space.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut random = Random::new(seed ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93));
    let mut key = String::with_capacity(64);
    for _ in 0..4 {
        // Writing into a string cannot fail.
        let _ = write!(key, "{:016x}", random.next());
    }
    key
}

/// Random bytes from which bodies are cut, each at another place.
#[derive(Debug)]
pub(crate) struct Bodies {
    bytes: bytes::Bytes,
}

/// Places differ by a cache line, so that bodies differ too.
const STEP: usize = 64;
const PLACES: usize = 4096;

impl Bodies {
    /// Enough for bodies of that size.
    pub(crate) fn new(largest: usize) -> Self {
        let length = (largest + STEP * PLACES).next_multiple_of(8);
        let mut random = Random::new(1);
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            bytes.extend_from_slice(&random.next().to_le_bytes());
        }
        Self { bytes: bytes.into() }
    }

    /// The body of an entry.
    pub(crate) fn place(number: u64, size: usize) -> Range<usize> {
        let place = usize::try_from(number % PLACES as u64).unwrap_or(0) * STEP;
        place..place + size
    }

    /// The same without a borrow, and without a copy.
    pub(crate) fn shared(&self, range: Range<usize>) -> bytes::Bytes {
        if range.end > self.bytes.len() || range.start > range.end {
            return bytes::Bytes::new();
        }
        self.bytes.slice(range)
    }

    pub(crate) fn bytes(&self, range: &Range<usize>) -> &[u8] {
        self.bytes.get(range.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_hexadecimal_stable_and_different() {
        assert_eq!(key("a", 1).len(), 64);
        assert_eq!(key("a", 1), key("a", 1));
        assert_ne!(key("a", 1), key("a", 2));
        assert_ne!(key("a", 1), key("b", 1));
        assert!(key("put-4k", u64::MAX).bytes().all(|byte| byte.is_ascii_hexdigit()));
    }

    #[test]
    fn bodies_have_their_size_and_differ() {
        let bodies = Bodies::new(100);
        let body = |number| bodies.bytes(&Bodies::place(number, 100)).to_vec();
        assert_eq!(body(4095).len(), 100);
        assert_ne!(body(0), body(1));
    }
}
