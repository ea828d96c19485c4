//! Uploads in parts: kept as files beside the store until they are complete.
//!
//! ```text
//! <dir>/<upload id>/upload.json      scope and key; written first
//! <dir>/<upload id>/<number>.part    one file per part; appears whole, by rename
//! ```
//! Parts are copied once more when they are complete: a blob is one consecutive, checksummed record, and neither its length
//! nor the order of its parts is known before the end. A restart finds open uploads again. An upload is forgotten when its time is over. Nothing here is synced: what a client has
//! not completed it has not been promised.

mod id;

pub use id::Id;

use crate::blob::{self, Pace, Writer};
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Highest part number.
pub const MAX_PARTS: u16 = 10_000;
/// Largest part.
pub const MAX_PART: u64 = 10 * 1024 * 1024;
/// Largest upload.
pub const MAX_TOTAL: u64 = 2 * 1024 * 1024 * 1024;
/// What is copied at a time when parts become a blob.
const COPY: usize = 1024 * 1024;

/// Why a step of an upload failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such upload, or not in this scope.
    #[error("upload not found")]
    Unknown,
    /// The limit of open uploads is reached.
    #[error("too many open uploads")]
    TooMany,
    /// The limit of stored bytes is reached.
    #[error("no room for more parts")]
    NoRoom,
    /// More than [`MAX_PART`].
    #[error("part too large")]
    PartTooLarge,
    /// More than [`MAX_TOTAL`].
    #[error("upload too large")]
    TotalTooLarge,
    /// The list of parts is not what was uploaded.
    #[error("parts mismatch")]
    Mismatch,
    /// The store refused the blob.
    #[error(transparent)]
    Store(#[from] blob::Error),
    /// The file system failed.
    #[error("failed to {action}")]
    Io {
        /// What was attempted.
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

fn io(action: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Io { action, source }
}

/// Limits and place.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where parts are kept.
    pub dir: PathBuf,
    /// Open uploads.
    pub max_active: usize,
    /// Bytes of all parts.
    pub max_bytes: u64,
    /// When an upload is forgotten.
    pub ttl: Duration,
}

/// One open upload.
#[derive(Debug)]
pub struct Upload {
    id: Id,
    /// The namespace it belongs to.
    pub namespace: String,
    /// The key it will be stored under.
    pub key: String,
    started_ms: u64,
    /// Length of each finished part.
    parts: Mutex<BTreeMap<u16, u64>>,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Record {
    namespace: String,
    key: String,
    started_ms: u64,
}

/// All open uploads.
#[derive(Debug)]
pub struct Uploads {
    options: Options,
    active: Mutex<HashMap<Id, Arc<Upload>>>,
    bytes: AtomicU64,
    kept: AtomicU64,
    lost: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // What is guarded is changed in single steps, so a panic elsewhere leaves it whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Uploads {
    /// Finds what an earlier process left open.
    pub fn open(options: Options) -> Result<Self, Error> {
        fs::create_dir_all(&options.dir).map_err(io("create the folder for uploads in parts"))?;
        let mut active = HashMap::new();
        let mut bytes = 0;
        for entry in fs::read_dir(&options.dir).map_err(io("list uploads in parts"))? {
            let path = entry.map_err(io("list uploads in parts"))?.path();
            let Some(id) = path.file_name().and_then(|name| name.to_str()).and_then(Id::parse) else {
                continue;
            };
            if let Some(upload) = recover(id, &path) {
                bytes += lock(&upload.parts).values().sum::<u64>();
                active.insert(id, Arc::new(upload));
            } else {
                // Begun and never recorded: no client knows its id.
                let _ = fs::remove_dir_all(&path);
            }
        }
        Ok(Self {
            options,
            active: Mutex::new(active),
            bytes: AtomicU64::new(bytes),
            kept: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        })
    }

    /// Begins an upload.
    pub fn start(&self, namespace: &str, key: &str) -> Result<Id, Error> {
        let now_ms = unix_ms();
        let id = Id::new(now_ms, rand::random());
        let upload = Upload {
            id,
            namespace: namespace.to_owned(),
            key: key.to_owned(),
            started_ms: now_ms,
            parts: Mutex::default(),
        };
        let mut active = lock(&self.active);
        if active.len() >= self.options.max_active {
            return Err(Error::TooMany);
        }
        let dir = self.dir(id);
        fs::create_dir(&dir).map_err(io("create the folder of an upload"))?;
        let record = Record {
            namespace: upload.namespace.clone(),
            key: upload.key.clone(),
            started_ms: now_ms,
        };
        let text = serde_json::to_vec(&record).map_err(|error| Error::Io {
            action: "record an upload",
            source: error.into(),
        })?;
        fs::write(dir.join("upload.json"), text).map_err(io("record an upload"))?;
        active.insert(id, Arc::new(upload));
        Ok(id)
    }

    /// The open upload of that id, if it belongs to the namespace.
    pub fn find(&self, id: &str, namespace: &str) -> Result<Arc<Upload>, Error> {
        let id = Id::parse(id).ok_or(Error::Unknown)?;
        let found = lock(&self.active).get(&id).cloned();
        found
            .filter(|upload| upload.namespace == namespace)
            .ok_or(Error::Unknown)
    }

    /// Begins a part. It counts when it is finished; a part sent twice counts as sent last.
    pub fn part<'a>(&'a self, upload: &'a Upload, number: u16) -> Result<Part<'a>, Error> {
        let dir = self.dir(upload.id);
        let draft = dir.join(format!("{number}.{:016x}.draft", rand::random::<u64>()));
        let file = File::create_new(&draft).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => Error::Unknown,
            _ => Error::Io {
                action: "create a part",
                source,
            },
        })?;
        Ok(Part {
            uploads: self,
            upload,
            number,
            whole: dir.join(format!("{number}.part")),
            draft,
            file: Arc::new(file),
            length: 0,
            kept: false,
        })
    }

    /// Takes an upload out of the open ones, to make a blob of it. Exactly one caller gets it.
    pub fn assemble(self: &Uploads, upload: &Arc<Upload>, listed: &[u16]) -> Result<Assembly, Error> {
        let parts: Vec<(u16, u64)> = lock(&upload.parts)
            .iter()
            .map(|(number, length)| (*number, *length))
            .collect();
        if listed.is_empty() || !parts.iter().map(|(number, _)| number).eq(listed) {
            return Err(Error::Mismatch);
        }
        if lock(&self.active).remove(&upload.id).is_none() {
            return Err(Error::Unknown);
        }
        Ok(Assembly {
            dir: self.dir(upload.id),
            parts,
        })
    }

    /// Puts an upload back whose assembly failed, so that the client may try again.
    pub fn restore(&self, upload: &Arc<Upload>) {
        lock(&self.active).insert(upload.id, Arc::clone(upload));
    }

    /// Gives back the room of an upload that is gone.
    pub fn freed(&self, bytes: u64) {
        let _ = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
            Some(held.saturating_sub(bytes))
        });
    }

    /// Forgets uploads that are too old; how many.
    pub fn sweep(&self, now_ms: u64) -> usize {
        let ttl = u64::try_from(self.options.ttl.as_millis()).unwrap_or(u64::MAX);
        let old: Vec<Arc<Upload>> = {
            let mut active = lock(&self.active);
            let ids: Vec<Id> = active
                .iter()
                .filter(|(_, upload)| now_ms.saturating_sub(upload.started_ms) > ttl)
                .map(|(id, _)| *id)
                .collect();
            ids.iter().filter_map(|id| active.remove(id)).collect()
        };
        for upload in &old {
            self.freed(lock(&upload.parts).values().sum());
            let _ = fs::remove_dir_all(self.dir(upload.id));
        }
        old.len()
    }

    /// Open uploads.
    pub fn count(&self) -> usize {
        lock(&self.active).len()
    }

    /// How many parts were kept, and how many were not, since the start.
    pub fn parts(&self) -> [(&'static str, u64); 2] {
        [
            ("ok", self.kept.load(Ordering::Relaxed)),
            ("error", self.lost.load(Ordering::Relaxed)),
        ]
    }

    /// Bytes of all parts.
    pub fn stored(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn dir(&self, id: Id) -> PathBuf {
        self.options.dir.join(id.to_string())
    }
}

fn recover(id: Id, dir: &Path) -> Option<Upload> {
    let record: Record = serde_json::from_slice(&fs::read(dir.join("upload.json")).ok()?).ok()?;
    let mut parts = BTreeMap::new();
    for entry in fs::read_dir(dir).ok()?.flatten() {
        let path = entry.path();
        let name = path.file_name()?.to_str()?;
        if let Some(number) = name.strip_suffix(".part").and_then(|number| number.parse().ok()) {
            parts.insert(number, entry.metadata().ok()?.len());
        } else if path.extension().is_some_and(|extension| extension == "draft") {
            let _ = fs::remove_file(&path);
        }
    }
    Some(Upload {
        id,
        namespace: record.namespace,
        key: record.key,
        started_ms: record.started_ms,
        parts: Mutex::new(parts),
    })
}

/// Milliseconds since 1970.
pub fn unix_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// A part being written. Dropped before it is finished, it leaves nothing.
#[derive(Debug)]
pub struct Part<'a> {
    uploads: &'a Uploads,
    upload: &'a Upload,
    number: u16,
    draft: PathBuf,
    whole: PathBuf,
    file: Arc<File>,
    length: u64,
    kept: bool,
}

impl Part<'_> {
    /// Appends bytes.
    pub async fn write(&mut self, bytes: &[u8], pace: &Pace) -> Result<(), Error> {
        let count = bytes.len() as u64;
        if self.length + count > MAX_PART {
            return Err(Error::PartTooLarge);
        }
        let room = self.uploads.options.max_bytes;
        let taken = self
            .uploads
            .bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
                Some(held + count).filter(|sum| *sum <= room)
            });
        if taken.is_err() {
            return Err(Error::NoRoom);
        }
        self.length += count;
        let written = pace.append(Arc::clone(&self.file), bytes).await;
        written.map(drop).map_err(io("write a part"))
    }

    /// Makes the part count.
    pub fn finish(mut self) -> Result<(), Error> {
        let mut parts = lock(&self.upload.parts);
        let others: u64 = parts
            .iter()
            .filter(|(number, _)| **number != self.number)
            .map(|(_, length)| *length)
            .sum();
        if others + self.length > MAX_TOTAL {
            return Err(Error::TotalTooLarge);
        }
        fs::rename(&self.draft, &self.whole).map_err(io("keep a part"))?;
        let before = parts.insert(self.number, self.length);
        self.uploads.freed(before.unwrap_or(0));
        self.kept = true;
        self.uploads.kept.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.uploads.lost.fetch_add(1, Ordering::Relaxed);
            self.uploads.freed(self.length);
            let _ = fs::remove_file(&self.draft);
        }
    }
}

/// The parts of an upload, about to become a blob.
#[derive(Debug)]
pub struct Assembly {
    dir: PathBuf,
    parts: Vec<(u16, u64)>,
}

impl Assembly {
    /// Length of the blob.
    pub fn length(&self) -> u64 {
        self.parts.iter().map(|(_, length)| length).sum()
    }

    /// Copies all parts, in order. Blocks.
    pub fn copy_into(&self, writer: &mut Writer) -> Result<(), Error> {
        let mut buffer = vec![0; COPY];
        for (number, length) in &self.parts {
            let mut file = File::open(self.dir.join(format!("{number}.part"))).map_err(io("open a part"))?;
            let mut left = *length;
            while left > 0 {
                let want = usize::try_from(left).unwrap_or(COPY).min(COPY);
                let piece = buffer.get_mut(..want).unwrap_or_default();
                file.read_exact(piece).map_err(io("read a part"))?;
                writer.write(piece)?;
                left -= want as u64;
            }
        }
        Ok(())
    }

    /// Removes the parts.
    pub fn remove(&self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uploads(dir: &Path) -> Uploads {
        Uploads::open(Options {
            dir: dir.to_owned(),
            max_active: 2,
            max_bytes: 64,
            ttl: Duration::from_mins(1),
        })
        .unwrap()
    }

    fn put(uploads: &Uploads, upload: &Upload, number: u16, bytes: &[u8]) -> Result<(), Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut part = uploads.part(upload, number)?;
        runtime.block_on(part.write(bytes, &Pace::default()))?;
        part.finish()
    }

    #[test]
    fn open_uploads_survive_a_restart_and_drafts_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let first = uploads(dir.path());
        let id = first.start("ios", "k").unwrap().to_string();
        let upload = first.find(&id, "ios").unwrap();
        put(&first, &upload, 2, b"two").unwrap();
        std::mem::forget(first.part(&upload, 3).unwrap());
        let second = uploads(dir.path());
        assert_eq!((second.count(), second.stored()), (1, 3));
        let upload = second.find(&id, "ios").unwrap();
        assert!(matches!(second.assemble(&upload, &[2, 3]), Err(Error::Mismatch)));
        assert_eq!(second.assemble(&upload, &[2]).unwrap().length(), 3);
        assert!(matches!(second.assemble(&upload, &[2]), Err(Error::Unknown)));
    }

    #[test]
    fn an_upload_does_not_exist_for_another_namespace() {
        let dir = tempfile::tempdir().unwrap();
        let uploads = uploads(dir.path());
        let id = uploads.start("ios", "k").unwrap().to_string();
        assert!(matches!(uploads.find(&id, "android"), Err(Error::Unknown)));
        assert!(matches!(uploads.find("nonsense", "ios"), Err(Error::Unknown)));
    }

    #[test]
    fn limits_hold_and_room_is_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let uploads = uploads(dir.path());
        let id = uploads.start("", "a").unwrap().to_string();
        uploads.start("", "b").unwrap();
        assert!(matches!(uploads.start("", "c"), Err(Error::TooMany)));
        let upload = uploads.find(&id, "").unwrap();
        put(&uploads, &upload, 1, &[0; 60]).unwrap();
        assert!(matches!(put(&uploads, &upload, 2, &[0; 10]), Err(Error::NoRoom)));
        assert_eq!(uploads.stored(), 60);
        assert_eq!(uploads.sweep(unix_ms() + 61_000), 2);
        assert_eq!((uploads.count(), uploads.stored()), (0, 0));
    }
}
