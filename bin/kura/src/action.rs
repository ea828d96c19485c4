//! What an action result refers to, as Bazel's HTTP protocol and moon's send it.
//!
//! A client that is told of a hit will ask for every blob the result names, so a result is stored together with references to
//! those blobs: the store answers a miss as soon as one of them is gone. The trees of output directories are read when the
//! result is stored, since their leaves count too. Results are decoded where those of gRPC are, in [`russet_reapi::result`].

mod json;

pub use russet_reapi::result::Outline;

use crate::blob::{Blobs, Error, Kind, Target};
use russet_reapi::{Digest, Function, result};

/// Largest action result, and largest tree that is read for its leaves.
pub const MAX_RESULT: usize = 4 * 1024 * 1024;
/// Key byte of action results kept as the JSON that moon sends over HTTP, which only moon asks for.
pub const SHA256_JSON: u8 = 0x11;

/// Not an action result, or one that says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Body is not an action result")]
pub struct Invalid;

/// Where a blob is stored.
pub fn target(namespace: &str, digest: &Digest) -> Target {
    Target {
        kind: Kind::Cas,
        namespace: namespace.into(),
        key: digest.key().into(),
    }
}

/// What a result refers to.
pub fn outline(bytes: &[u8]) -> Result<Outline, Invalid> {
    result::outline(bytes, Function::Sha256).map_err(|_| Invalid)
}

/// The files of a tree.
pub fn leaves(bytes: &[u8]) -> Result<Vec<Digest>, Invalid> {
    result::leaves(bytes, Function::Sha256).map_err(|_| Invalid)
}

/// What a result in moon's JSON refers to.
pub fn outline_json(bytes: &[u8]) -> Result<Outline, Invalid> {
    json::outline(bytes)
}

/// Where all that must be there for the result to be worth anything is stored. Reads trees from disk.
pub fn references(blobs: &Blobs, namespace: &str, outline: &Outline) -> Result<Vec<Target>, Error> {
    let mut digests = [&outline.blobs[..], &outline.trees, &outline.directories].concat();
    for tree in &outline.trees {
        // A tree that is not there is a hole of its own; one that is no tree will be found out by whoever reads it.
        let body = match blobs.content(namespace, tree)? {
            Some(hit) if hit.length() <= MAX_RESULT as u64 => hit.read_all()?,
            _ => None,
        };
        if let Some(found) = body.and_then(|body| leaves(&body).ok()) {
            digests.extend(found);
        }
    }
    digests.retain(|digest| !digest.is_empty_blob());
    digests.sort_unstable();
    digests.dedup_by_key(|digest| digest.hash);
    let targets = digests.iter().map(|digest| target(namespace, digest));
    Ok(targets.map(|target| blobs.as_stored(target)).collect())
}
