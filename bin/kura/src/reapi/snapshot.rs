//! The action-cache snapshot: an index of a namespace's results, brought up to date whenever someone asks.

use super::action_cache::{LIFE, is_trunk};
use super::body::Body;
use super::call::Call;
use super::message::encode;
use super::status::Status;
use crate::blob::{Blobs, Error, Kind};
use crate::multipart::unix_ms;
use prost::Message as _;
use russet_reapi::digest::{HASH, hash_of_hex};
use russet_reapi::proto::reapi;
use russet_reapi::snapshot::{Builder, MAX_ENTRIES, Node, PATH, envelope};
use russet_reapi::{Digest, Function};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a first look at a namespace may take before the client is told to come back.
const PATIENCE: Duration = Duration::from_secs(15);
/// Namespaces whose index is kept.
const KEPT: usize = 8;
/// The bit that tells tags from results in keys.
const MARK: u8 = 0x80;

/// Indexes, by namespace, the one used last at the end.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    #[expect(clippy::type_complexity, reason = "a short list of named indexes")]
    indexes: Mutex<Vec<(Box<str>, Arc<tokio::sync::Mutex<Index>>)>>,
}

/// What is known of a namespace; results and tags by the sequence of their writes.
#[derive(Debug, Default)]
struct Index {
    /// None: read, but nothing a snapshot could hold.
    known: HashMap<u64, Option<Known>>,
}

#[derive(Debug, Clone)]
enum Known {
    Result {
        action: [u8; HASH],
        version: u64,
        nodes: Arc<[Node]>,
    },
    Trunk {
        action: [u8; HASH],
    },
}

impl Snapshots {
    fn of(&self, namespace: &str) -> Arc<tokio::sync::Mutex<Index>> {
        let mut indexes = self.indexes.lock().unwrap_or_else(PoisonError::into_inner);
        let found = indexes.iter().position(|(name, _)| **name == *namespace);
        let (name, index) = match found {
            Some(at) => indexes.remove(at),
            None => (namespace.into(), Arc::default()),
        };
        if indexes.len() >= KEPT {
            indexes.remove(0);
        }
        indexes.push((name, Arc::clone(&index)));
        index
    }
}

/// Answers with the snapshot of a namespace: the newest results, or the oldest from `after` on.
pub(super) async fn answer(call: &Call<'_>, namespace: &str, after: Option<u64>) -> Result<Body, Status> {
    let shared = &call.service.shared;
    let index = shared.reapi.snapshots.of(namespace);
    let trunk_only = call.branch().trunk.is_some();
    let (blobs, namespace) = (shared.blobs.clone(), Box::<str>::from(namespace));
    let work = async {
        let mut index = index.lock_owned().await;
        // Whoever asked may give up; the index is finished all the same, for the next one.
        let task = tokio::task::spawn_blocking(move || {
            index.refresh(&blobs, &namespace)?;
            index.render(&blobs, &namespace, after, trunk_only)
        });
        task.await.map_err(|_| Status::internal("Storage failed"))?
    };
    let contents = tokio::time::timeout(PATIENCE, work)
        .await
        .map_err(|_| Status::unavailable("the snapshot is being prepared; ask again"))??;
    let digest = Function::Sha256.digest(&contents);
    let result = reapi::ActionResult {
        output_files: vec![reapi::OutputFile {
            path: PATH.to_owned(),
            digest: Some(reapi::Digest {
                hash: digest.hex(),
                size_bytes: i64::try_from(digest.size).unwrap_or(i64::MAX),
            }),
            contents: contents.into(),
            ..Default::default()
        }],
        ..Default::default()
    };
    Ok(Body::message(encode(&result)))
}

impl Index {
    /// Reads what is new and forgets what is gone.
    fn refresh(&mut self, blobs: &Blobs, namespace: &str) -> Result<(), Error> {
        let mut listed = blobs.list(Kind::Action, Some(namespace));
        listed.sort_by_key(|entry| std::cmp::Reverse(entry.sequence()));
        // As many tags as results may be wanted.
        listed.truncate(2 * MAX_ENTRIES);
        let current: HashSet<u64> = listed.iter().map(russet_segstore::Listed::sequence).collect();
        self.known.retain(|sequence, _| current.contains(sequence));
        for entry in &listed {
            if self.known.contains_key(&entry.sequence()) {
                continue;
            }
            if let Some(opened) = blobs.open_listed(entry)? {
                let known = known(&opened.key, opened.version, &opened.body);
                self.known.insert(entry.sequence(), known);
            }
        }
        Ok(())
    }

    fn render(&self, blobs: &Blobs, namespace: &str, after: Option<u64>, trunk_only: bool) -> Result<Vec<u8>, Status> {
        let known = || self.known.values().flatten();
        let trunk: HashSet<[u8; HASH]> = known()
            .filter_map(|known| match known {
                Known::Trunk { action } => Some(*action),
                Known::Result { .. } => None,
            })
            .collect();
        let oldest = unix_ms().saturating_sub(u64::try_from(LIFE.as_millis()).unwrap_or(u64::MAX));
        let mut results: Vec<_> = known()
            .filter_map(|known| match known {
                Known::Result { action, version, nodes } => Some((*version, action, nodes)),
                Known::Trunk { .. } => None,
            })
            .filter(|(version, action, _)| {
                *version >= after.unwrap_or(0).max(oldest) && (!trunk_only || trunk.contains(*action))
            })
            .collect();
        results.sort_by_key(|(version, ..)| *version);
        // Whoever catches up gets the oldest first and asks again; whoever begins gets the newest.
        if after.is_none() {
            results.reverse();
        }
        let mut builder = Builder::default();
        let mut watermark = after.unwrap_or(0);
        for (version, action, nodes) in results {
            if !all_there(blobs, namespace, nodes)? {
                continue;
            }
            if !builder.push(action, nodes) {
                break;
            }
            watermark = watermark.max(version);
        }
        Ok(envelope(&builder.body(watermark))?)
    }
}

/// A hit implies its blobs, here as everywhere.
fn all_there(blobs: &Blobs, namespace: &str, nodes: &[Node]) -> Result<bool, Error> {
    for node in nodes {
        let digest = Digest {
            function: Function::Sha256,
            hash: node.hash,
            size: node.size,
        };
        if !blobs.has(namespace, &digest)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What a stored result or tag is to a snapshot, if anything: only SHA-256, only outputs named in hexadecimal.
fn known(key: &[u8], version: u64, body: &[u8]) -> Option<Known> {
    let (first, hash) = key.split_first()?;
    let action: [u8; HASH] = hash.try_into().ok()?;
    let function = Function::Sha256.code();
    if *first == function | MARK {
        return is_trunk(body).then_some(Known::Trunk { action });
    }
    if *first != function {
        return None;
    }
    let result = reapi::ActionResult::decode(body).ok()?;
    let nodes: Option<Vec<Node>> = result
        .output_files
        .iter()
        .map(|file| {
            let digest = file.digest.as_ref()?;
            let digest = Digest {
                function: Function::Sha256,
                hash: hash_of_hex(digest.hash.as_bytes())?,
                size: u64::try_from(digest.size_bytes).ok()?,
            };
            Node::of_path(&file.path, &digest)
        })
        .collect();
    Some(Known::Result {
        action,
        version,
        nodes: nodes.filter(|nodes| !nodes.is_empty())?.into(),
    })
}
