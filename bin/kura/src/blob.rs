//! The store as handlers see it: kinds, hits, writers, and errors with the class an answer is made of.

mod buffer;
mod cas;
mod envelope;
mod error;
mod kind;
mod now;
mod pace;
mod packed;
mod tag;

pub use cas::{Frames, Vouch};
pub use envelope::Envelope;
pub use error::{Class, Error};
pub use kind::Kind;
pub use now::{Reader, Room};
pub use pace::Pace;
pub use packed::packed_key;
pub use tag::Tag;

use crate::config::Durability;
use buffer::Buffer;
use packed::{Packed, stored_key};
use russet_segstore as segstore;
use segstore::{Entry, FileRange, Key, Outcome, Small, Store};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::oneshot;

/// Bodies up to this size are read together with the lookup and sent from memory; larger ones go by `sendfile`.
pub const IN_MEMORY: u32 = 128 * 1024 - 1;

/// Where a blob is to go.
#[derive(Debug, Clone)]
pub struct Target {
    /// What it is.
    pub kind: Kind,
    /// Whose it is.
    pub namespace: Box<str>,
    /// Its name.
    pub key: Box<[u8]>,
}

impl Target {
    fn key(&self) -> Key<'_> {
        stored_key(self.kind, &self.namespace, &self.key)
    }
}

/// What a write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// It is stored; of an immutable kind this was the first.
    Created,
    /// An immutable blob of that name was there.
    Existing,
}

impl From<Outcome> for Put {
    fn from(outcome: Outcome) -> Self {
        if outcome.is_created() {
            Self::Created
        } else {
            Self::Existing
        }
    }
}

#[derive(Debug)]
enum Place {
    Memory(Buffer),
    File(FileRange),
    Unverified(Box<Entry>),
    /// Unverified, and compressed.
    Sealed(Box<Entry>),
    Packed(Box<Packed>),
}

/// A blob that was found. It stays readable while this is held, whatever happens to the store's index.
#[derive(Debug)]
pub struct Hit {
    length: u64,
    version: u64,
    tag: Tag,
    /// Bytes of an envelope in front of the body.
    skip: u64,
    place: Place,
}

impl Hit {
    /// Its length.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// When it was written, in milliseconds since 1970 or a little later: no two writes have the same.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// All of it, if it is in memory.
    pub fn bytes(&self) -> Option<&[u8]> {
        match &self.place {
            Place::Memory(buffer) => Some(buffer.body()),
            _ => None,
        }
    }

    /// All of it, from wherever it is. Blocks.
    pub fn read_all(self) -> Result<Option<Vec<u8>>, Error> {
        let Some(hit) = self.verify()? else { return Ok(None) };
        let mut all = vec![0; usize::try_from(hit.length).unwrap_or(usize::MAX)];
        hit.read_at(0, &mut all)?;
        Ok(Some(all))
    }

    /// Its entity tag.
    pub fn tag(&self) -> Tag {
        self.tag
    }

    /// Nobody has compared its checksum since the process started: [`Hit::verify`] must be called first.
    pub fn is_unverified(&self) -> bool {
        matches!(self.place, Place::Unverified(_) | Place::Sealed(_))
    }

    /// Reads the whole blob once and compares its checksum. `None`: it is damaged, and gone. Blocks.
    pub fn verify(mut self) -> Result<Option<Self>, Error> {
        let (mut entry, sealed) = match self.place {
            Place::Unverified(entry) => (entry, false),
            Place::Sealed(entry) => (entry, true),
            _ => return Ok(Some(self)),
        };
        match entry.file_range() {
            Ok(range) => self.place = Place::File(range),
            Err(segstore::Error::Damaged) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        if sealed {
            self.length = entry.len();
            return self.unpack().map(Some);
        }
        Ok(Some(self))
    }

    /// A blob that is stored compressed, seen as its content. What is unverified stays so: its length is what its first
    /// bytes claim, and is compared with the rest.
    fn unpack(mut self) -> Result<Self, Error> {
        let mut length = [0; 8];
        if let Place::Unverified(entry) = self.place {
            if entry.peek_at(&mut length, 0)? != length.len() {
                return Err(segstore::Error::Damaged.into());
            }
            self.length = u64::from_le_bytes(length);
            self.place = Place::Sealed(entry);
            return Ok(self);
        }
        let (tag, version) = (self.tag, self.version);
        let packed = Packed::open(self)?;
        Ok(Self {
            length: packed.size(),
            version,
            tag,
            skip: 0,
            place: Place::Packed(Box::new(packed)),
        })
    }

    /// Takes the envelope off the body; `None` if there is none, which means that the entry is not what its kind says.
    /// The bytes must have been verified.
    pub fn open_envelope(&mut self) -> Result<Option<Envelope>, Error> {
        let mut head = [0; envelope::HEAD];
        if self.length < head.len() as u64 {
            return Ok(None);
        }
        self.read_at(0, &mut head)?;
        let Some(length) = Envelope::fields_after(head) else {
            return Ok(None);
        };
        let whole = (envelope::HEAD + length) as u64;
        if self.length < whole {
            return Ok(None);
        }
        let mut fields = vec![0; length];
        self.read_at(envelope::HEAD as u64, &mut fields)?;
        let opened = Envelope::decode(&fields);
        if opened.is_some() {
            self.skip += whole;
            self.length -= whole;
        }
        Ok(opened)
    }

    /// Fills `into` from that position on; the caller stays within the length.
    pub fn read_at(&self, start: u64, into: &mut [u8]) -> Result<(), Error> {
        let start = start + self.skip;
        let read = match &self.place {
            Place::Memory(buffer) => {
                let from = usize::try_from(start)
                    .ok()
                    .and_then(|start| buffer.body().get(start..)?.get(..into.len()));
                from.map(|from| into.copy_from_slice(from))
            }
            Place::File(range) => range
                .file()
                .and_then(|file| file.read_exact_at(into, range.offset + start).ok()),
            Place::Packed(packed) => return packed.read_at(start, into),
            Place::Unverified(_) | Place::Sealed(_) => None,
        };
        read.ok_or(Error::Store(segstore::Error::Damaged))
    }

    /// The first bytes, verified or not.
    fn peek(&self, into: &mut [u8]) -> Result<(), Error> {
        match &self.place {
            Place::Unverified(entry) if entry.peek_at(into, 0)? == into.len() => Ok(()),
            _ => self.read_at(0, into),
        }
    }

    /// All of it. For small blobs: the caller knows the length.
    pub fn to_vec(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; usize::try_from(self.length).unwrap_or_default()];
        self.read_at(0, &mut bytes)?;
        Ok(bytes)
    }

    /// The file and where in it the blob begins, if the kernel can move the bytes.
    pub fn file(&self) -> Option<(&File, u64)> {
        match &self.place {
            Place::File(range) => range.file().map(|file| (file, range.offset + self.skip)),
            _ => None,
        }
    }

    /// The bytes have to be produced piece by piece, by [`Hit::read_at`]: neither a file nor memory has them.
    pub fn is_packed(&self) -> bool {
        matches!(self.place, Place::Packed(_))
    }

    /// `head` followed by that part of the blob, in one piece of memory, if the blob is in memory.
    pub fn behind(&mut self, head: &[u8], start: u64, length: u64) -> Option<&[u8]> {
        match &mut self.place {
            Place::Memory(buffer) => buffer.behind(head, start + self.skip, length),
            _ => None,
        }
    }
}

/// A blob being written.
#[derive(Debug)]
pub struct Writer {
    begin: segstore::Begin,
}

impl Writer {
    /// Appends bytes. Bytes for a blob that turned out to exist are dropped.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        match &mut self.begin {
            segstore::Begin::Exists => Ok(()),
            segstore::Begin::Writer(writer) => Ok(writer.write(bytes)?),
        }
    }

    /// Makes the blob visible, and durable as configured. Blocks for a sync.
    pub fn commit(self) -> Result<Put, Error> {
        match self.begin {
            segstore::Begin::Exists => Ok(Put::Existing),
            segstore::Begin::Writer(writer) => Ok(writer.finish()?.into()),
        }
    }
}

/// The store. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Blobs {
    store: Store,
    pace: Pace,
    /// Reads that were left to another thread.
    cold: Arc<AtomicU64>,
    /// Whether anything was ever stored compressed. Where nothing was, looking for it costs nothing.
    packed: Arc<AtomicBool>,
    largest: u64,
}

impl Blobs {
    /// Opens the store of a data folder, which no other process may have open.
    pub fn open(data_dir: &Path, capacity: Option<u64>, durability: Durability) -> anyhow::Result<Self> {
        let capacity = match capacity {
            Some(capacity) => capacity,
            None => half_of_disk(data_dir)?,
        };
        let options = segstore::Options {
            durability: match durability {
                Durability::PowerLoss => segstore::Durability::Power,
                Durability::ProcessCrash => segstore::Durability::Process,
            },
            ..segstore::Options::new(capacity)
        };
        let store = Store::open(data_dir.join("store"), options).map_err(Error::from)?;
        let packed = !store.list(packed::STORED, None).is_empty();
        Ok(Self {
            store,
            pace: Pace::default(),
            cold: Arc::default(),
            packed: Arc::new(AtomicBool::new(packed)),
            largest: (capacity / 2).min(segstore::format::MAX_BODY),
        })
    }

    /// Looks a blob up. Small ones come with their bytes. Content that is stored compressed is found under its own key.
    pub fn find(&self, kind: Kind, namespace: &str, key: &[u8]) -> Result<Option<Hit>, Error> {
        let found = self.find_as_stored(kind, namespace, key)?;
        if found.is_some() || kind != Kind::Cas || !self.has_packed() {
            return Ok(found);
        }
        let Some(key) = packed_key(key) else { return Ok(None) };
        self.find_as_stored(kind, namespace, &key)?.map(Hit::unpack).transpose()
    }

    fn find_as_stored(&self, kind: Kind, namespace: &str, key: &[u8]) -> Result<Option<Hit>, Error> {
        let key = stored_key(kind, namespace, key);
        let mut buffer = Buffer::take();
        match self.store.read_into(&key, IN_MEMORY, buffer.fill())? {
            Small::Miss => Ok(None),
            Small::Hit(hit) => {
                buffer.set_body(hit.body.clone());
                Ok(Some(Hit {
                    length: hit.body.len() as u64,
                    version: hit.version,
                    tag: Tag::new(hit.version, hit.sequence),
                    skip: 0,
                    place: Place::Memory(buffer),
                }))
            }
            Small::Large(_) => {
                let Some(mut entry) = self.store.get(&key)? else {
                    return Ok(None);
                };
                Ok(Some(Hit {
                    length: entry.len(),
                    version: entry.version(),
                    tag: Tag::new(entry.version(), entry.sequence()),
                    skip: 0,
                    place: if entry.is_verified() {
                        Place::File(entry.file_range()?)
                    } else {
                        Place::Unverified(Box::new(entry))
                    },
                }))
            }
        }
    }

    /// The length of a blob the index knows.
    pub fn length(&self, kind: Kind, namespace: &str, key: &[u8]) -> Option<u64> {
        let key = stored_key(kind, namespace, key);
        self.store.contains(&key).map(|presence| presence.len)
    }

    /// Whether the index knows the blob.
    pub fn contains(&self, kind: Kind, namespace: &str, key: &[u8]) -> bool {
        let there = |key: &[u8]| {
            let key = stored_key(kind, namespace, key);
            self.store.contains(&key).is_some()
        };
        there(key) || (kind == Kind::Cas && self.has_packed() && packed_key(key).is_some_and(|key| there(&key)))
    }

    /// Stores a small blob with others in one group commit. Does not block the thread.
    pub async fn put(&self, target: &Target, body: Vec<u8>) -> Result<Put, Error> {
        self.put_referring(target, body, &[]).await
    }

    /// The same for a blob that is worthless without others: when one of them is gone, so is this one.
    pub async fn put_referring(&self, target: &Target, body: Vec<u8>, references: &[Target]) -> Result<Put, Error> {
        self.expect(target);
        let (answer, answered) = oneshot::channel();
        let references: Vec<Key<'_>> = references.iter().map(Target::key).collect();
        let put = segstore::Put::new(target.key(), body).references(&references);
        self.store.submit_with(put, move |outcome| {
            // Whoever asked may be gone; the blob is stored all the same.
            let _ = answer.send(outcome);
        })?;
        drop(references);
        Ok(answered.await.map_err(|_| Error::Unanswered)??.into())
    }

    /// Begins to store a blob of known or unknown length.
    pub fn writer(&self, target: &Target, length: Option<u64>) -> Result<Writer, Error> {
        self.expect(target);
        let begin = self.store.writer(&segstore::Put::stream(target.key()), length)?;
        Ok(Writer { begin })
    }

    /// Makes a streamed blob visible without blocking the serving thread for the sync.
    pub async fn commit(writer: Writer) -> Result<Put, Error> {
        tokio::task::spawn_blocking(move || writer.commit())
            .await
            .map_err(|_| Error::Unanswered)?
    }

    /// Removes a blob.
    pub async fn remove(&self, target: Target) -> Result<(), Error> {
        let store = self.store.clone();
        let task = tokio::task::spawn_blocking(move || store.delete(&target.key(), segstore::Durability::Process));
        task.await.map_err(|_| Error::Unanswered)??;
        Ok(())
    }

    /// The blobs of a kind, of one namespace or of all, in no order; from memory.
    pub fn list(&self, kind: Kind, namespace: Option<&str>) -> Vec<segstore::Listed> {
        self.store.list(kind.stored(), namespace.map(str::as_bytes))
    }

    /// Reads a listed blob. `None`: it is gone, or was written again. Blocks.
    pub fn open_listed(&self, listed: &segstore::Listed) -> Result<Option<segstore::Opened>, Error> {
        Ok(self.store.open_listed(listed)?)
    }

    /// Removes everything of a namespace.
    pub async fn clean(&self, namespace: &str) -> Result<(), Error> {
        let (store, namespace) = (self.store.clone(), namespace.to_owned());
        let task = tokio::task::spawn_blocking(move || store.delete_namespace(namespace.as_bytes()));
        task.await.map_err(|_| Error::Unanswered)??;
        Ok(())
    }

    /// Compares the checksums of about `budget` bytes, going on where the last call ended; how many entries were damaged.
    pub fn scrub(&self, budget: u64) -> Result<u64, Error> {
        Ok(self.store.scrub(budget)?.damaged)
    }

    /// A read is left to another thread, because it would have waited for the disk.
    pub fn count_cold(&self) {
        self.cold.fetch_add(1, Ordering::Relaxed);
    }

    /// How fast the disk takes streamed bytes.
    pub fn pace(&self) -> &Pace {
        &self.pace
    }

    /// A sync failed: only a restart helps.
    pub fn is_poisoned(&self) -> bool {
        self.store.stats().state == segstore::State::Poisoned
    }

    /// Numbers of the moment, for metrics.
    #[expect(clippy::cast_precision_loss, reason = "gauges are floats on the wire")]
    pub fn gauges(&self) -> Vec<(&'static str, &'static str, f64)> {
        let stats = self.store.stats();
        vec![
            ("manifest_index_entries", "Stored entries.", stats.entries as f64),
            ("store_index_bytes", "Memory of the index.", stats.index_bytes as f64),
            (
                "store_capacity_bytes",
                "Bytes the store may occupy.",
                stats.capacity as f64,
            ),
            ("store_disk_bytes", "Bytes the store occupies.", stats.disk_bytes as f64),
            (
                "store_live_bytes",
                "Bytes of entries that are still wanted.",
                stats.live_bytes as f64,
            ),
            ("segment_handles_cached", "Open segments.", stats.segments as f64),
            (
                "store_leases",
                "Entries kept from eviction for a while.",
                stats.leases as f64,
            ),
            (
                "store_queued_bytes",
                "Bytes waiting for a group commit.",
                stats.queued_bytes as f64,
            ),
            (
                "store_read_only",
                "The disk is full, or a sync failed.",
                f64::from(u8::from(stats.state != segstore::State::Writable)),
            ),
        ]
    }

    /// Numbers since the start, for metrics.
    pub fn counters(&self) -> Vec<(&'static str, &'static str, u64)> {
        let stats = self.store.stats();
        vec![
            (
                "store_moved_writes_total_total",
                "Pieces of streamed bodies written by another thread, because the disk was slow.",
                self.pace.moved(),
            ),
            (
                "store_moved_reads_total_total",
                "Pieces of blobs read by another thread, because the disk had to be waited for.",
                self.cold.load(Ordering::Relaxed),
            ),
            (
                "segment_fsyncs_total_total",
                "Group commits that were synced.",
                stats.group_syncs,
            ),
            (
                "segment_evicted_artifacts_total_total",
                "Entries evicted.",
                stats.evicted_entries,
            ),
            (
                "segment_refreshes_total_total",
                "Entries kept by eviction because they were in use.",
                stats.kept_entries,
            ),
            (
                "segment_refresh_bytes_total_total",
                "Bytes kept by eviction.",
                stats.kept_bytes,
            ),
            (
                "store_damaged_entries_total_total",
                "Entries dropped because their checksum was wrong.",
                stats.damaged_entries,
            ),
            (
                "action_cache_cascade_removed_total_total",
                "Entries dropped because what they refer to was gone.",
                stats.dangling_entries,
            ),
        ]
    }

    /// Ends the store: everything is on disk when this returns.
    pub fn close(&self) -> Result<(), Error> {
        self.store.close()?;
        Ok(())
    }
}

/// Half of the file system the folder is on.
fn half_of_disk(dir: &Path) -> anyhow::Result<u64> {
    let stat = rustix::fs::statvfs(dir)?;
    Ok((stat.f_blocks.saturating_mul(stat.f_frsize) / 2).max(256 * 1024 * 1024))
}
