//! Digests: a function, a hash of 32 bytes, and the size of what was hashed.

use sha2::Digest as _;
use std::fmt;

/// Length of a hash.
pub const HASH: usize = 32;
/// Length of a hash in hexadecimal.
pub const HEX: usize = 2 * HASH;

/// A digest function whose hashes have 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Function {
    /// SHA-256, and what an unset function means.
    Sha256,
    /// BLAKE3.
    Blake3,
}

impl Function {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Sha256, Self::Blake3];

    /// The function of a `DigestFunction.Value`; unset means SHA-256, whose hashes are told by their length.
    pub fn of_value(value: u64) -> Option<Self> {
        match value {
            0 | 1 => Some(Self::Sha256),
            9 => Some(Self::Blake3),
            _ => None,
        }
    }

    /// Its `DigestFunction.Value`.
    pub const fn value(self) -> i32 {
        match self {
            Self::Sha256 => 1,
            Self::Blake3 => 9,
        }
    }

    /// Its name in resource names, which leave SHA-256 out.
    pub const fn segment(self) -> Option<&'static str> {
        match self {
            Self::Sha256 => None,
            Self::Blake3 => Some("blake3"),
        }
    }

    /// The first byte of keys.
    pub const fn code(self) -> u8 {
        match self {
            Self::Sha256 => 1,
            Self::Blake3 => 2,
        }
    }

    /// The function of a first byte.
    pub fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|function| function.code() == code)
    }

    /// The hash of nothing.
    pub fn of_nothing(self) -> [u8; HASH] {
        Hasher::new(self).finish()
    }

    /// The digest of these bytes.
    pub fn digest(self, bytes: &[u8]) -> Digest {
        let mut hasher = Hasher::new(self);
        hasher.update(bytes);
        Digest {
            function: self,
            hash: hasher.finish(),
            size: bytes.len() as u64,
        }
    }
}

/// The name of some content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest {
    /// How it was hashed.
    pub function: Function,
    /// The hash.
    pub hash: [u8; HASH],
    /// Bytes of content.
    pub size: u64,
}

impl Digest {
    /// The name of the content in a store: function and hash.
    pub fn key(&self) -> [u8; HASH + 1] {
        key(self.function, &self.hash)
    }

    /// Whether this names the empty content, which is always there.
    pub fn is_empty_blob(&self) -> bool {
        self.size == 0 && self.hash == self.function.of_nothing()
    }

    /// The hash in hexadecimal.
    pub fn hex(&self) -> String {
        hex(&self.hash)
    }
}

/// As in resource names: `hash/size`.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.hex(), self.size)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}:{self}", self.function)
    }
}

/// Function and hash as a key.
pub fn key(function: Function, hash: &[u8; HASH]) -> [u8; HASH + 1] {
    let mut key = [function.code(); HASH + 1];
    if let Some(rest) = key.get_mut(1..) {
        rest.copy_from_slice(hash);
    }
    key
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'0'));
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

/// Value of each hexadecimal digit in lower case, 255 for everything else.
const VALUES: [u8; 256] = values();

#[expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "evaluated by the compiler, which would complain"
)]
const fn values() -> [u8; 256] {
    let mut table = [255; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte as u8 {
            digit @ b'0'..=b'9' => digit - b'0',
            digit @ b'a'..=b'f' => digit - b'a' + 10,
            _ => 255,
        };
        byte += 1;
    }
    table
}

/// The hash that 64 hexadecimal digits in lower case stand for. Other spellings of the same hash are none: a blob has one name.
pub fn hash_of_hex(text: &[u8]) -> Option<[u8; HASH]> {
    if text.len() != HEX {
        return None;
    }
    let mut hash = [0; HASH];
    let mut seen = 0;
    for (byte, pair) in hash.iter_mut().zip(text.as_chunks::<2>().0) {
        let [high, low] = pair.map(|digit| VALUES.get(usize::from(digit)).copied().unwrap_or(255));
        seen |= high | low;
        *byte = high << 4 | (low & 15);
    }
    (seen < 16).then_some(hash)
}

/// A hash on its way.
#[derive(Clone)]
pub enum Hasher {
    /// SHA-256.
    Sha256(sha2::Sha256),
    /// BLAKE3.
    Blake3(Box<blake3::Hasher>),
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hasher")
    }
}

impl Hasher {
    /// Nothing hashed yet.
    pub fn new(function: Function) -> Self {
        match function {
            Function::Sha256 => Self::Sha256(sha2::Sha256::new()),
            Function::Blake3 => Self::Blake3(Box::default()),
        }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Blake3(hasher) => {
                hasher.update(bytes);
            }
        }
    }

    /// The hash of all bytes.
    pub fn finish(self) -> [u8; HASH] {
        match self {
            Self::Sha256(hasher) => hasher.finalize().into(),
            Self::Blake3(hasher) => *hasher.finalize().as_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_functions_give_the_published_hashes() {
        let sha256 = Function::Sha256.digest(b"abc").hex();
        assert_eq!(
            sha256,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        let blake3 = Function::Blake3.digest(b"").hex();
        assert_eq!(
            blake3,
            "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
        );
        assert!(Function::Sha256.digest(b"").is_empty_blob() && Function::Blake3.digest(b"").is_empty_blob());
        assert!(!Function::Sha256.digest(b"x").is_empty_blob());
    }

    #[test]
    fn a_hash_has_one_spelling() {
        let text = "0".repeat(62) + "af";
        assert_eq!(hash_of_hex(text.as_bytes()).unwrap()[31], 0xaf);
        for bad in [
            "0".repeat(62) + "aF",
            "0".repeat(62) + "ag",
            "0".repeat(63),
            "0".repeat(65),
            "0".repeat(62) + " a",
            String::new(),
        ] {
            assert_eq!(hash_of_hex(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn functions_have_one_number_each() {
        for function in Function::ALL {
            assert_eq!(Function::of_code(function.code()), Some(function));
            let found = Function::of_value(u64::try_from(function.value()).unwrap());
            assert_eq!(found, Some(function));
        }
        assert_eq!((Function::of_value(2), Function::of_code(0)), (None, None));
    }

    proptest! {
        #[test]
        fn hexadecimal_is_read_back(hash: [u8; 32]) {
            prop_assert_eq!(hash_of_hex(hex(&hash).as_bytes()), Some(hash));
        }

        #[test]
        fn a_hash_does_not_depend_on_how_bytes_arrive(bytes: Vec<u8>, at: usize) {
            for function in Function::ALL {
                let (first, second) = bytes.split_at(at % (bytes.len() + 1));
                let mut hasher = Hasher::new(function);
                hasher.update(first);
                hasher.update(second);
                prop_assert_eq!(hasher.finish(), function.digest(&bytes).hash);
            }
        }
    }
}
