//! The action-cache snapshot: all of a project's action results in one answer, for clients that would otherwise ask a thousand
//! times.
//!
//! ```text
//! envelope  "TSNZ" 1 u64:plain length  zstd of the body
//! body      "TSNP" 2 u64:watermark  u32:nodes  {u8:id length, id, 32:hash, u64:size}*  u32:keys  {32:action, u32:n, u32:node*n}*
//! ```
//! Numbers are little-endian. A client asks for an action whose name nobody else can have ([`is_request`]).

use crate::digest::{Digest, Function, HASH};
use crate::pack;
use std::collections::HashMap;

/// What is hashed to make the name of the action that stands for a snapshot.
const NAME: &[u8] = b"tuist-actioncache-snapshot/v2";
/// Path of the one output file of the answer.
pub const PATH: &str = "tuist-actioncache-snapshot";
/// A client that knows what came before asks for what came after with this prefix among the files to inline.
pub const AFTER: &str = "tuist-snapshot-after:";
/// Most bytes of an envelope.
pub const MAX_WIRE: usize = 48 << 20;
/// Most action results of one namespace.
pub const MAX_ENTRIES: usize = 100_000;
const LEVEL: i32 = 3;
const ENVELOPE: usize = 13;
/// Incompressible bodies grow a little.
const MAX_BODY: usize = MAX_WIRE - (1 << 18);
const EMPTY_BODY: usize = 4 + 1 + 8 + 4 + 4;

/// Whether that action stands for the snapshot.
pub fn is_request(digest: &Digest) -> bool {
    digest.size == NAME.len() as u64 && *digest == Function::Sha256.digest(NAME)
}

/// The watermark among the files to inline.
pub fn after(inline: &[&str]) -> Option<u64> {
    inline.iter().find_map(|path| path.strip_prefix(AFTER)?.parse().ok())
}

/// An output of an action.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// Its name, up to 255 bytes.
    pub id: Box<[u8]>,
    /// Its content.
    pub hash: [u8; HASH],
    /// Bytes of content.
    pub size: u64,
}

impl Node {
    /// The node of an output file, whose path is its name in hexadecimal.
    pub fn of_path(path: &str, digest: &Digest) -> Option<Self> {
        let path = path.as_bytes();
        if path.is_empty() || !path.len().is_multiple_of(2) || path.len() > 510 {
            return None;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let id: Option<Box<[u8]>> = path
            .as_chunks::<2>()
            .0
            .iter()
            .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?))
            .collect();
        Some(Self {
            id: id?,
            hash: digest.hash,
            size: digest.size,
        })
    }

    fn length(&self) -> usize {
        1 + self.id.len() + HASH + 8
    }
}

/// A snapshot being put together; entries that do not fit are left out.
#[derive(Debug, Default)]
pub struct Builder<'a> {
    nodes: Vec<&'a Node>,
    numbers: HashMap<&'a Node, u32>,
    keys: Vec<u8>,
    count: u32,
    length: usize,
}

impl<'a> Builder<'a> {
    /// Adds an action and its outputs. `false`: it does not fit any more, and nothing was added.
    pub fn push(&mut self, action: &[u8; HASH], nodes: &'a [Node]) -> bool {
        let fresh: usize = nodes
            .iter()
            .filter(|node| !self.numbers.contains_key(node))
            .map(Node::length)
            .sum();
        let more = fresh + HASH + 4 + 4 * nodes.len();
        let (Ok(outputs), true) = (
            u32::try_from(nodes.len()),
            EMPTY_BODY + self.length + more <= MAX_BODY && (self.count as usize) < MAX_ENTRIES,
        ) else {
            return false;
        };
        self.length += more;
        self.count += 1;
        self.keys.extend_from_slice(action);
        self.keys.extend_from_slice(&outputs.to_le_bytes());
        for node in nodes {
            // A body holds fewer nodes than its length in bytes, so the number fits.
            let next = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
            let number = *self.numbers.entry(node).or_insert_with(|| {
                self.nodes.push(node);
                next
            });
            self.keys.extend_from_slice(&number.to_le_bytes());
        }
        true
    }

    /// The body.
    pub fn body(&self, watermark: u64) -> Vec<u8> {
        let mut body = Vec::with_capacity(EMPTY_BODY + self.length);
        body.extend_from_slice(b"TSNP\x02");
        body.extend_from_slice(&watermark.to_le_bytes());
        let count = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        body.extend_from_slice(&count.to_le_bytes());
        for node in &self.nodes {
            body.push(u8::try_from(node.id.len()).unwrap_or(u8::MAX));
            body.extend_from_slice(&node.id);
            body.extend_from_slice(&node.hash);
            body.extend_from_slice(&node.size.to_le_bytes());
        }
        body.extend_from_slice(&self.count.to_le_bytes());
        body.extend_from_slice(&self.keys);
        body
    }
}

/// Wraps a body.
pub fn envelope(body: &[u8]) -> Result<Vec<u8>, pack::Error> {
    let mut out = Vec::with_capacity(ENVELOPE + body.len() / 2);
    out.extend_from_slice(b"TSNZ\x01");
    out.extend_from_slice(&(body.len() as u64).to_le_bytes());
    let mut encoder = pack::Deflate::at_level(LEVEL, body.len() as u64)?;
    encoder.push(body, &mut out)?;
    encoder.finish(&mut out)?;
    Ok(out)
}

/// Why a snapshot cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not a snapshot, or of another version.
    #[error("this is not a snapshot of a known version")]
    Unknown,
    /// It ends early, or goes on after its end, or refers to what is not in it.
    #[error("the snapshot is damaged")]
    Damaged,
    /// The compressed part is.
    #[error(transparent)]
    Packed(#[from] pack::Error),
}

/// A snapshot as a client sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Where to go on.
    pub watermark: u64,
    /// Outputs.
    pub nodes: Vec<Node>,
    /// Actions, each with the positions of its outputs.
    pub keys: Vec<([u8; HASH], Vec<u32>)>,
}

/// Unwraps an envelope.
pub fn body_of(envelope: &[u8]) -> Result<Vec<u8>, Error> {
    let rest = envelope.strip_prefix(b"TSNZ\x01").ok_or(Error::Unknown)?;
    let (length, packed) = rest.split_first_chunk().ok_or(Error::Damaged)?;
    let length = u64::from_le_bytes(*length);
    // No server makes one that is larger, and a length is easily claimed.
    if length > MAX_WIRE as u64 {
        return Err(Error::Damaged);
    }
    let body = pack::inflate(packed, length)?;
    if body.len() as u64 == length {
        Ok(body)
    } else {
        Err(Error::Damaged)
    }
}

impl Snapshot {
    /// Reads a body.
    pub fn read(body: &[u8]) -> Result<Self, Error> {
        let mut rest = body.strip_prefix(b"TSNP\x02").ok_or(Error::Unknown)?;
        let rest = &mut rest;
        let mut snapshot = Self {
            watermark: u64::from_le_bytes(take(rest)?),
            ..Self::default()
        };
        for _ in 0..u32::from_le_bytes(take(rest)?) {
            let [length] = take(rest)?;
            let (id, after) = rest.split_at_checked(usize::from(length)).ok_or(Error::Damaged)?;
            *rest = after;
            snapshot.nodes.push(Node {
                id: id.into(),
                hash: take(rest)?,
                size: u64::from_le_bytes(take(rest)?),
            });
        }
        for _ in 0..u32::from_le_bytes(take(rest)?) {
            let action = take(rest)?;
            let mut outputs = Vec::new();
            for _ in 0..u32::from_le_bytes(take(rest)?) {
                let number = u32::from_le_bytes(take(rest)?);
                if number as usize >= snapshot.nodes.len() {
                    return Err(Error::Damaged);
                }
                outputs.push(number);
            }
            snapshot.keys.push((action, outputs));
        }
        if rest.is_empty() {
            Ok(snapshot)
        } else {
            Err(Error::Damaged)
        }
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Error> {
    let (taken, after) = rest.split_first_chunk().ok_or(Error::Damaged)?;
    *rest = after;
    Ok(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn node(id: &[u8], byte: u8) -> Node {
        Node {
            id: id.into(),
            hash: [byte; 32],
            size: u64::from(byte),
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_contract() {
        let nodes = [node(&[0xab, 0xcd], 7)];
        let mut builder = Builder::default();
        assert!(builder.push(&[1; 32], &nodes));
        assert!(builder.push(&[2; 32], &nodes));
        let body = builder.body(0x0102);
        let mut expected = b"TSNP\x02".to_vec();
        expected.extend_from_slice(&[2, 1, 0, 0, 0, 0, 0, 0]);
        expected.extend_from_slice(&[1, 0, 0, 0, 2, 0xab, 0xcd]);
        expected.extend_from_slice(&[7; 32]);
        expected.extend_from_slice(&[7, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend_from_slice(&[2, 0, 0, 0]);
        for action in [1, 2] {
            expected.extend_from_slice(&[action; 32]);
            expected.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
        }
        assert_eq!(body, expected);
        let wrapped = envelope(&body).unwrap();
        assert_eq!(&wrapped[..5], b"TSNZ\x01");
        assert_eq!(wrapped[5..13], (body.len() as u64).to_le_bytes());
        assert_eq!(body_of(&wrapped), Ok(body));
    }

    #[test]
    fn the_request_has_the_contracts_name() {
        let digest = Function::Sha256.digest(b"tuist-actioncache-snapshot/v2");
        assert_eq!(digest.size, 29);
        assert!(is_request(&digest));
        assert!(!is_request(&Function::Blake3.digest(NAME)));
        assert_eq!(after(&["x", "tuist-snapshot-after:17"]), Some(17));
        assert_eq!(after(&["tuist-snapshot-after:-1"]), None);
    }

    #[test]
    fn only_hexadecimal_paths_are_names() {
        let digest = Function::Sha256.digest(b"x");
        assert_eq!(&*Node::of_path("0aFF", &digest).unwrap().id, &[0x0a, 0xff]);
        for bad in ["", "0", "0g", "bazel-out/x", &"00".repeat(256)] {
            assert_eq!(Node::of_path(bad, &digest), None, "{bad}");
        }
    }

    #[test]
    fn what_does_not_fit_is_left_out_whole() {
        let wide: Vec<Node> = (0..100_u8).map(|byte| node(&[byte; 255], byte)).collect();
        let mut builder = Builder::default();
        assert!(builder.push(&[1; 32], &wide));
        // Only the numbers of the outputs are written again.
        builder.length = MAX_BODY - EMPTY_BODY - (HASH + 4 + 400) - 1;
        assert!(builder.push(&[2; 32], &wide));
        assert!(!builder.push(&[3; 32], &wide));
        assert_eq!(Snapshot::read(&builder.body(0)).unwrap().keys.len(), 2);
    }

    /// Fuzzing found that an envelope which claims 2^64 - 1 bytes made the arithmetic of the decoder overflow; one that claims a
    /// little less would have been believed as far as memory goes.
    #[test]
    fn an_envelope_that_claims_too_much_is_refused() {
        for length in [u64::MAX, MAX_WIRE as u64 + 1] {
            let mut wrapped = b"TSNZ\x01".to_vec();
            wrapped.extend_from_slice(&length.to_le_bytes());
            wrapped.extend_from_slice(&pack::deflate(b"TSNP", 1).unwrap());
            assert_eq!(body_of(&wrapped), Err(Error::Damaged), "{length}");
        }
        let packed = pack::deflate(b"x", 1).unwrap();
        assert_eq!(pack::inflate(&packed, u64::MAX).as_deref(), Ok(&b"x"[..]));
    }

    proptest! {
        #[test]
        fn a_snapshot_is_read_back(
            watermark: u64,
            actions in prop::collection::vec((any::<[u8; 32]>(), prop::collection::vec((any::<u8>(), any::<[u8; 3]>()), 0..5)), 0..8),
        ) {
            let owned: Vec<_> = actions
                .into_iter()
                .map(|(hash, nodes)| (hash, nodes.into_iter().map(|(byte, id)| node(&id, byte)).collect::<Vec<_>>()))
                .collect();
            let mut builder = Builder::default();
            for (hash, nodes) in &owned {
                prop_assert!(builder.push(hash, nodes));
            }
            let read = Snapshot::read(&body_of(&envelope(&builder.body(watermark)).unwrap()).unwrap()).unwrap();
            prop_assert_eq!(read.watermark, watermark);
            prop_assert_eq!(read.keys.len(), owned.len());
            for ((hash, numbers), (expected, nodes)) in read.keys.iter().zip(&owned) {
                prop_assert_eq!(hash, expected);
                let found: Vec<_> = numbers.iter().map(|number| read.nodes[*number as usize].clone()).collect();
                prop_assert_eq!(&found, nodes);
            }
        }

        #[test]
        fn hostile_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = Snapshot::read(&bytes);
            let _ = body_of(&bytes);
            let mut marked = b"TSNP\x02".to_vec();
            marked.extend_from_slice(&bytes);
            let _ = Snapshot::read(&marked);
        }
    }
}
