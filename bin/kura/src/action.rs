//! What an action result refers to.
//!
//! A client that is told of a hit will ask for every blob the result names, so a result is stored together with references to
//! those blobs: the store answers a miss as soon as one of them is gone. The trees of output directories are read when the
//! result is stored, since their leaves count too.

mod json;
mod wire;

pub use wire::{Invalid, Outline, leaves, outline};

use crate::blob::{Blobs, Error, Kind, Target};

/// Largest action result, and largest tree that is read for its leaves.
pub const MAX_RESULT: usize = 4 * 1024 * 1024;
/// Key byte of SHA-256 digests.
pub const SHA256: u8 = 1;
/// Key byte of action results kept as the JSON that moon sends over HTTP, which only moon asks for.
pub const SHA256_JSON: u8 = 0x11;

/// The digest of a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest {
    /// Its SHA-256.
    pub hash: [u8; 32],
    /// Its length.
    pub size: u64,
}

impl Digest {
    /// A digest as protocols write it: 64 lower-case hexadecimal digits, and a length.
    pub fn parse(hash: &[u8], size: u64) -> Option<Self> {
        Some(Self {
            hash: sha256(hash)?,
            size,
        })
    }

    /// The empty blob exists whether anyone stored it or not.
    pub fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// Where the blob is stored.
    pub fn target(&self, namespace: &str) -> Target {
        Target {
            kind: Kind::Cas,
            namespace: namespace.into(),
            key: key(SHA256, &self.hash).into(),
        }
    }
}

/// 64 lower-case hexadecimal digits.
pub fn sha256(text: &[u8]) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    if text.len() != 64 {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(text.chunks_exact(2)) {
        let &[high, low] = pair else { return None };
        *byte = digit(high)? << 4 | digit(low)?;
    }
    Some(hash)
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

/// A key of the kinds `Cas` and `Action`: the digest function, then the hash.
pub fn key(function: u8, hash: &[u8; 32]) -> [u8; 33] {
    let mut key = [function; 33];
    if let Some(rest) = key.get_mut(1..) {
        rest.copy_from_slice(hash);
    }
    key
}

/// What a result in moon's JSON refers to.
pub fn outline_json(bytes: &[u8]) -> Result<Outline, Invalid> {
    json::outline(bytes)
}

/// Whether all of them are in the index.
pub fn is_whole(blobs: &Blobs, namespace: &str, digests: &[Digest]) -> bool {
    let there = |digest: &Digest| blobs.contains(Kind::Cas, namespace, &key(SHA256, &digest.hash));
    digests.iter().all(|digest| digest.is_empty() || there(digest))
}

/// Where all that must be there for the result to be worth anything is stored. Reads trees from disk.
pub fn references(blobs: &Blobs, namespace: &str, outline: &Outline) -> Result<Vec<Target>, Error> {
    let digests = needed(blobs, namespace, outline)?;
    let targets = digests.iter().map(|digest| digest.target(namespace));
    Ok(targets.map(|target| blobs.as_stored(target)).collect())
}

/// All that must be there. Reads trees from disk.
pub fn needed(blobs: &Blobs, namespace: &str, outline: &Outline) -> Result<Vec<Digest>, Error> {
    let mut digests = outline.blobs.clone();
    for tree in &outline.trees {
        digests.push(*tree);
        // A tree that is not there is a hole of its own; one that is no tree will be found out by whoever reads it.
        let body = match blobs.find(Kind::Cas, namespace, &key(SHA256, &tree.hash))? {
            Some(hit) if hit.length() <= MAX_RESULT as u64 => hit.read_all()?,
            _ => None,
        };
        if let Some(found) = body.and_then(|body| leaves(&body).ok()) {
            digests.extend(found);
        }
    }
    digests.retain(|digest| !digest.is_empty());
    digests.sort_unstable_by_key(|digest| digest.hash);
    digests.dedup_by_key(|digest| digest.hash);
    Ok(digests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_lower_case_hexadecimal_and_nothing_else() {
        let text = "0123456789abcdef".repeat(4);
        assert_eq!(sha256(text.as_bytes()).unwrap()[..4], [0x01, 0x23, 0x45, 0x67]);
        for bad in [
            &text[1..],
            &format!("{text}0"),
            &text.to_uppercase(),
            &text.replace('a', "g"),
        ] {
            assert_eq!(sha256(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn keys_name_their_digest_function() {
        let key = key(SHA256, &[7; 32]);
        assert_eq!((key[0], key[1], key[32]), (1, 7, 7));
    }
}
