//! The Remote Execution API of one node: `russet_conformance::reapi` has what is true of any.

mod calls;
mod snapshots;
mod streams;
mod trust;

use crate::node::{Node, Options};
use bytes::Bytes;
use russet_conformance::reapi::Target;
use russet_conformance::reapi::target::Told;
use russet_reapi::client::tonic::Code;
use russet_reapi::proto::reapi;
use russet_reapi::{Digest, Function};
use std::fmt::Debug;
use std::ops::Deref;

/// A node and a connection to it.
pub(crate) struct World {
    pub(crate) node: Node,
    target: Target,
}

impl Deref for World {
    type Target = Target;

    fn deref(&self) -> &Target {
        &self.target
    }
}

/// A connection of its own.
pub(crate) fn connect(node: &Node) -> Target {
    Target::new(&format!("grpc://{}", node.address)).unwrap()
}

impl World {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::with(Node::start_with(&Options { args, env: &[] }))
    }

    pub(crate) fn with(node: Node) -> Self {
        let target = connect(&node);
        Self { node, target }
    }

    pub(crate) async fn store(&self, content: &[u8]) -> Digest {
        let digest = Function::Sha256.digest(content);
        let name = format!("uploads/u/blobs/{digest}");
        let size = self.write(&name, &Bytes::copy_from_slice(content)).await.unwrap();
        assert_eq!(size, i64::try_from(content.len()).unwrap());
        digest
    }
}

pub(crate) fn wire(digest: &Digest) -> reapi::Digest {
    reapi::Digest {
        hash: digest.hex(),
        size_bytes: i64::try_from(digest.size).unwrap(),
    }
}

pub(crate) fn code<T: Debug>(answer: Result<T, impl Into<Told> + Debug>) -> Code {
    answer.unwrap_err().into().0.code()
}

/// Bytes that do not compress and are different for every seed.
pub(crate) fn noise(seed: u64, length: usize) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes.into()
}
