//! Whether an action result is worth anything: all it refers to must be there.
//!
//! This serves every protocol that hands action results out: gRPC, and the HTTP routes of Bazel and moon.

use super::LEASE;
use crate::blob::{Blobs, Error, Kind, Vouch};
use russet_reapi::result::{Node, Reference, of_action, of_directory, of_tree};
use russet_reapi::{Digest, Function};
use std::collections::HashSet;

/// Largest tree or directory that is looked into. Real ones are a thousand times smaller.
const MAX_TREE: u64 = 64 << 20;
/// Most directories below one output.
const MAX_DIRECTORIES: usize = 1 << 17;

/// What became of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Everything is there, and is kept for a while.
    Whole,
    /// Something is missing.
    Incomplete,
    /// It is no action result.
    Malformed,
}

/// What has to be read from disk before a check is over.
#[derive(Debug, Default)]
struct Nested {
    trees: Vec<Digest>,
    directories: Vec<Digest>,
}

impl Nested {
    fn is_empty(&self) -> bool {
        self.trees.is_empty() && self.directories.is_empty()
    }
}

/// Checks a stored action result of that key. Its direct outputs are looked up in memory; trees are read by another thread.
pub async fn is_whole(blobs: &Blobs, namespace: &str, key: &[u8; 33], result: &[u8]) -> Result<Verdict, Error> {
    let (verdict, nested) = look(blobs, namespace, key, result)?;
    if nested.is_empty() {
        return Ok(verdict);
    }
    let (blobs, namespace, function) = (blobs.clone(), Box::<str>::from(namespace), function_of(key));
    let task = tokio::task::spawn_blocking(move || below(&blobs, &namespace, function, &nested));
    task.await.map_err(|_| Error::Unanswered)?
}

/// The same for who may block.
pub fn is_whole_on_disk(blobs: &Blobs, namespace: &str, key: &[u8; 33], result: &[u8]) -> Result<Verdict, Error> {
    let (verdict, nested) = look(blobs, namespace, key, result)?;
    if nested.is_empty() {
        return Ok(verdict);
    }
    below(blobs, namespace, function_of(key), &nested)
}

/// The same for who must not; `None` if trees have to be read.
pub fn is_whole_in_memory(
    blobs: &Blobs,
    namespace: &str,
    key: &[u8; 33],
    result: &[u8],
) -> Result<Option<Verdict>, Error> {
    let (verdict, nested) = look(blobs, namespace, key, result)?;
    Ok(nested.is_empty().then_some(verdict))
}

fn function_of(key: &[u8; 33]) -> Function {
    let code = key.first().and_then(|code| Function::of_code(*code));
    code.unwrap_or(Function::Sha256)
}

/// Looks up what a result names, and keeps what is there. What comes with [`Verdict::Whole`] has to be looked into.
fn look(blobs: &Blobs, namespace: &str, key: &[u8; 33], result: &[u8]) -> Result<(Verdict, Nested), Error> {
    for _ in 0..3 {
        let mut vouch = blobs.vouch(namespace);
        let mut nested = Nested::default();
        let verdict = direct(&mut vouch, function_of(key), result, &mut nested)?;
        if verdict != Verdict::Whole {
            return Ok((verdict, Nested::default()));
        }
        vouch.keep(Kind::Action, key);
        // What goes between look and lease is looked at again.
        if vouch.settle(LEASE) {
            return Ok((Verdict::Whole, nested));
        }
    }
    Ok((Verdict::Incomplete, Nested::default()))
}

fn direct(vouch: &mut Vouch<'_>, function: Function, result: &[u8], nested: &mut Nested) -> Result<Verdict, Error> {
    let (mut failed, mut malformed) = (None, false);
    let all = of_action(result, |reference| {
        let raw = match reference {
            Reference::Blob(raw) | Reference::Tree(raw) | Reference::Directory(raw) => raw,
        };
        let Ok(digest) = raw.digest(function) else {
            malformed = true;
            return false;
        };
        match reference {
            Reference::Tree(_) => nested.trees.push(digest),
            Reference::Directory(_) => nested.directories.push(digest),
            Reference::Blob(_) => {}
        }
        vouch.has(&digest).unwrap_or_else(|error| {
            failed = Some(error);
            false
        })
    });
    match (all, failed) {
        (_, Some(error)) => Err(error),
        (Err(_), None) => Ok(Verdict::Malformed),
        (Ok(_), None) if malformed => Ok(Verdict::Malformed),
        (Ok(true), None) => Ok(Verdict::Whole),
        (Ok(false), None) => Ok(Verdict::Incomplete),
    }
}

/// Whether everything in these trees and below these directories is there, and kept. Blocks.
fn below(blobs: &Blobs, namespace: &str, function: Function, nested: &Nested) -> Result<Verdict, Error> {
    Ok(if is_there(blobs, namespace, function, nested)? {
        Verdict::Whole
    } else {
        Verdict::Incomplete
    })
}

fn is_there(blobs: &Blobs, namespace: &str, function: Function, nested: &Nested) -> Result<bool, Error> {
    let mut vouch = blobs.vouch(namespace);
    for tree in &nested.trees {
        let Some(bytes) = read(blobs, namespace, tree)? else {
            return Ok(false);
        };
        let mut failed = None;
        let whole = of_tree(&bytes, |raw| {
            match raw.digest(function).map(|digest| vouch.has(&digest)) {
                Ok(Ok(there)) => there,
                Ok(Err(error)) => {
                    failed = Some(error);
                    false
                }
                Err(_) => false,
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        if whole != Ok(true) {
            return Ok(false);
        }
    }
    let mut seen: HashSet<Digest> = HashSet::new();
    let mut queue = nested.directories.clone();
    while let Some(directory) = queue.pop() {
        if !seen.insert(directory) {
            continue;
        }
        if seen.len() > MAX_DIRECTORIES {
            return Ok(false);
        }
        let Some(bytes) = read(blobs, namespace, &directory)? else {
            return Ok(false);
        };
        vouch.has(&directory)?;
        let (mut files, mut wrong) = (Vec::new(), false);
        let read = of_directory(&bytes, |node| {
            let (Node::File(raw) | Node::Directory(raw)) = node;
            match (node, raw.digest(function)) {
                (Node::File(_), Ok(digest)) => files.push(digest),
                (Node::Directory(_), Ok(digest)) => queue.push(digest),
                (_, Err(_)) => wrong = true,
            }
        });
        if read.is_err() || wrong {
            return Ok(false);
        }
        for file in files {
            if !vouch.has(&file)? {
                return Ok(false);
            }
        }
    }
    Ok(vouch.settle(LEASE))
}

/// A small blob, whole. Blocks.
pub(super) fn read(blobs: &Blobs, namespace: &str, digest: &Digest) -> Result<Option<Vec<u8>>, Error> {
    if digest.is_empty_blob() {
        return Ok(Some(Vec::new()));
    }
    if digest.size > MAX_TREE {
        return Ok(None);
    }
    match blobs.content(namespace, digest)? {
        Some(hit) => hit.read_all(),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob::Target;
    use crate::config::Durability;
    use prost::Message as _;
    use russet_reapi::proto::reapi;

    async fn store(blobs: &Blobs, content: &[u8]) -> Option<reapi::Digest> {
        let digest = Function::Sha256.digest(content);
        let target = Target {
            kind: Kind::Cas,
            namespace: "x".into(),
            key: digest.key().into(),
        };
        blobs.put(&target, content.to_vec()).await.unwrap();
        name(content)
    }

    #[expect(clippy::unnecessary_wraps, reason = "messages are made of options")]
    fn name(content: &[u8]) -> Option<reapi::Digest> {
        let digest = Function::Sha256.digest(content);
        Some(reapi::Digest {
            hash: digest.hex(),
            size_bytes: i64::try_from(digest.size).unwrap(),
        })
    }

    fn directory(digest: Option<reapi::Digest>) -> reapi::Directory {
        reapi::Directory {
            files: vec![reapi::FileNode {
                name: "f".to_owned(),
                digest,
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    #[tokio::test]
    async fn a_hole_anywhere_makes_a_result_worthless() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path(), Some(256 << 20), Durability::ProcessCrash).unwrap();
        let there = store(&blobs, b"there").await;
        let good_tree = reapi::Tree {
            root: Some(directory(there.clone())),
            children: vec![],
        };
        let bad_tree = reapi::Tree {
            root: Some(directory(there.clone())),
            children: vec![directory(name(b"gone"))],
        };
        let good = store(&blobs, &good_tree.encode_to_vec()).await;
        let bad = store(&blobs, &bad_tree.encode_to_vec()).await;
        let leaf = store(&blobs, &directory(there.clone()).encode_to_vec()).await;
        let above = |digest| reapi::Directory {
            directories: vec![reapi::DirectoryNode {
                name: "d".to_owned(),
                digest,
            }],
            ..Default::default()
        };
        let good_root = store(&blobs, &above(leaf).encode_to_vec()).await;
        let bad_root = store(&blobs, &above(name(b"gone")).encode_to_vec()).await;
        let result = |file, tree, root, stdout| reapi::ActionResult {
            output_files: vec![reapi::OutputFile {
                path: "a".to_owned(),
                digest: file,
                ..Default::default()
            }],
            output_directories: vec![reapi::OutputDirectory {
                path: "d".to_owned(),
                tree_digest: tree,
                root_directory_digest: root,
                ..Default::default()
            }],
            stdout_digest: stdout,
            ..Default::default()
        };
        let cases = [
            (
                result(there.clone(), good.clone(), good_root.clone(), name(b"")),
                Verdict::Whole,
            ),
            (result(name(b"gone"), good.clone(), None, None), Verdict::Incomplete),
            (result(there.clone(), bad, None, None), Verdict::Incomplete),
            (result(there.clone(), name(b"no tree"), None, None), Verdict::Incomplete),
            (result(there.clone(), good.clone(), bad_root, None), Verdict::Incomplete),
            (result(there, good, good_root, name(b"gone")), Verdict::Incomplete),
        ];
        let key = Function::Sha256.digest(b"action").key();
        for (number, (result, expected)) in cases.into_iter().enumerate() {
            let verdict = is_whole(&blobs, "x", &key, &result.encode_to_vec()).await.unwrap();
            assert_eq!(verdict, expected, "case {number}");
        }
        assert_eq!(is_whole(&blobs, "x", &key, b"\xff").await.unwrap(), Verdict::Malformed);
        assert_eq!(is_whole(&blobs, "x", &key, b"").await.unwrap(), Verdict::Whole);
    }
}
