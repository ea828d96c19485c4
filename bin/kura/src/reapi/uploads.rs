//! Uploads under way, and those that were interrupted and may be resumed.
//!
//! An upload is known by its resource name. While it lasts its bytes go to their final place on disk; when its connection is
//! lost they stay there for a while, invisible, and whoever comes with the same name goes on where they end. A second stream
//! of the same name takes the upload over: its client knows better than we do that the first one is dead.

use super::batch::target;
use super::status::{Code, Status};
use crate::blob::{Blobs, Error, Put, Target, Writer};
use bytes::{Buf as _, Bytes};
use russet_reapi::Digest;
use russet_reapi::digest::Hasher;
use russet_reapi::name::Encoding;
use russet_reapi::pack::Inflate;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bodies up to this size wait in memory for a group commit, and are not resumed: they are sent again as fast.
pub(super) const SMALL: u64 = 128 * 1024;
/// Compressed bodies, whose length nobody announces, are gathered up to this size before they get a place of their own.
const GATHER: usize = 2 << 20;
/// While another thread writes, so many bytes are handed to it at a time: each time costs two changes of threads.
pub(super) const BATCH: u64 = 448 * 1024;
/// Content that is decompressed and hashed before other calls get their turn.
const TURN: u64 = 4 << 20;
/// Interrupted uploads that are kept, and for how long. Each holds at most [`GATHER`] bytes of memory.
const KEPT: usize = 64;
const KEEP: Duration = Duration::from_mins(10);

/// What tells one upload from another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Name {
    pub(super) namespace: Box<str>,
    pub(super) upload: Box<str>,
    pub(super) digest: Digest,
    pub(super) zstd: bool,
}

impl Name {
    pub(super) fn new(namespace: &str, upload: &str, digest: Digest, encoding: Encoding) -> Self {
        Self {
            namespace: namespace.into(),
            upload: upload.into(),
            digest,
            zstd: encoding == Encoding::Zstd,
        }
    }
}

/// The uploads of a node.
#[derive(Debug, Default)]
pub(super) struct Uploads {
    table: Mutex<HashMap<Name, Arc<Upload>>>,
}

/// One upload. Its parts have locks of their own, because the one around the bytes may be held for as long as a slow disk takes,
/// and only by a thread that serves nobody.
#[derive(Debug)]
struct Upload {
    /// Which stream may write.
    owner: AtomicU64,
    /// Bytes taken so far.
    committed: AtomicU64,
    /// Since when no stream does.
    idle: Mutex<Option<Instant>>,
    /// None once it is being committed.
    partial: Mutex<Option<Partial>>,
}

impl Upload {
    fn new(partial: Partial) -> Arc<Self> {
        Arc::new(Self {
            owner: AtomicU64::new(0),
            committed: AtomicU64::new(0),
            idle: Mutex::new(None),
            partial: Mutex::new(Some(partial)),
        })
    }

    fn committed(&self) -> u64 {
        self.committed.load(Ordering::SeqCst)
    }

    fn is_owned_by(&self, owner: u64) -> bool {
        self.owner.load(Ordering::SeqCst) == owner
    }
}

/// What has arrived of an upload.
#[derive(Debug)]
pub(super) struct Partial {
    target: Target,
    digest: Digest,
    sink: Sink,
    hasher: Hasher,
    inflate: Option<Inflate>,
    committed: u64,
}

/// What became of bytes that were offered.
#[derive(Debug, Clone, Copy)]
struct Taken {
    count: usize,
    done: bool,
}

#[derive(Debug)]
enum Sink {
    Memory(Vec<u8>),
    Disk(Writer),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Partial {
    pub(super) fn begin(blobs: &Blobs, name: &Name) -> Result<Self, Status> {
        let target = target(&name.namespace, &name.digest, name.zstd);
        let size = name.digest.size;
        let sink = if name.zstd {
            Sink::Memory(size.to_le_bytes().to_vec())
        } else if size <= SMALL {
            Sink::Memory(Vec::new())
        } else {
            Sink::Disk(blobs.writer(&target, Some(size))?)
        };
        Ok(Self {
            target,
            digest: name.digest,
            sink,
            hasher: Hasher::new(name.digest.function),
            inflate: name.zstd.then(|| Inflate::new(size)).transpose()?,
            committed: 0,
        })
    }

    /// Bytes taken so far, as they were sent.
    pub(super) fn committed(&self) -> u64 {
        self.committed
    }

    /// Takes bytes; how many, and whether all that came out of them was looked at. Of compressed bytes only so many are taken at
    /// a time that a thread with others to serve may do it.
    fn write(&mut self, blobs: &Blobs, bytes: &[u8]) -> Result<Taken, Status> {
        let hasher = &mut self.hasher;
        let mut rest = bytes;
        let done = match &mut self.inflate {
            Some(inflate) => inflate.push_some(&mut rest, TURN, |piece| {
                hasher.update(piece);
                Ok::<_, Status>(())
            })?,
            None if self.committed + bytes.len() as u64 > self.digest.size => {
                return Err(Status::invalid("more bytes were sent than the resource name says"));
            }
            None => {
                hasher.update(bytes);
                rest = &[];
                true
            }
        };
        let bytes = bytes.get(..bytes.len() - rest.len()).unwrap_or_default();
        match &mut self.sink {
            Sink::Disk(writer) => writer.write(bytes)?,
            Sink::Memory(gathered) if gathered.len() + bytes.len() <= GATHER => gathered.extend_from_slice(bytes),
            Sink::Memory(gathered) => {
                let mut writer = blobs.writer(&self.target, None)?;
                writer.write(gathered)?;
                writer.write(bytes)?;
                self.sink = Sink::Disk(writer);
            }
        }
        self.committed += bytes.len() as u64;
        Ok(Taken {
            count: bytes.len(),
            done,
        })
    }

    /// Takes all of these bytes, of a blob so small that they cannot become many.
    pub(super) fn write_all(&mut self, blobs: &Blobs, bytes: &[u8]) -> Result<(), Status> {
        self.write(blobs, bytes).map(drop)
    }

    /// Verifies all of it and makes it visible; bytes stored.
    pub(super) async fn commit(self, blobs: &Blobs) -> Result<(Put, u64), Status> {
        let complete = match &self.inflate {
            Some(inflate) => {
                inflate.finish()?;
                inflate.given()
            }
            None => self.committed,
        };
        if complete != self.digest.size {
            return Err(Status::invalid("fewer bytes were sent than the resource name says"));
        }
        if self.hasher.finish() != self.digest.hash {
            return Err(Status::invalid("the content does not match its digest"));
        }
        let committed = self.committed;
        let put = match self.sink {
            Sink::Memory(gathered) if gathered.len() as u64 <= SMALL => blobs.put(&self.target, gathered).await?,
            // Large enough to be written by another thread.
            Sink::Memory(gathered) => {
                let stored = blobs.put_all(vec![(self.target, gathered.into())]).await;
                stored.into_iter().next().unwrap_or(Err(Error::Unanswered))?
            }
            Sink::Disk(writer) => Blobs::commit(writer).await?,
        };
        Ok((put, committed))
    }
}

/// A stream's hold on an upload. Dropping it leaves the upload for whoever resumes it.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    uploads: &'a Uploads,
    name: Name,
    upload: Arc<Upload>,
    owner: u64,
    /// Where the first byte that waits belongs.
    position: u64,
    /// What waits to be written.
    waiting: VecDeque<Bytes>,
    /// Its length.
    held: u64,
}

impl Uploads {
    /// Takes an upload over, or begins it with what `begin` makes.
    pub(super) fn claim(
        &self,
        name: Name,
        offset: u64,
        begin: impl FnOnce(&Name) -> Result<Partial, Status>,
    ) -> Result<Claim<'_>, Status> {
        let found = lock(&self.table).get(&name).cloned();
        if let Some(upload) = found {
            if upload.committed() == offset {
                let owner = upload.owner.fetch_add(1, Ordering::SeqCst) + 1;
                *lock(&upload.idle) = None;
                return Ok(Claim {
                    uploads: self,
                    name,
                    upload,
                    owner,
                    position: offset,
                    waiting: VecDeque::new(),
                    held: 0,
                });
            }
            if offset != 0 {
                return Err(elsewhere());
            }
            // From the start again: whoever wrote until now is told so.
            upload.owner.fetch_add(1, Ordering::SeqCst);
        }
        if offset != 0 {
            return Err(elsewhere());
        }
        let upload = Upload::new(begin(&name)?);
        lock(&self.table).insert(name.clone(), Arc::clone(&upload));
        Ok(Claim {
            uploads: self,
            name,
            upload,
            owner: 0,
            position: 0,
            waiting: VecDeque::new(),
            held: 0,
        })
    }

    /// How far an upload came.
    pub(super) fn committed(&self, name: &Name) -> Option<u64> {
        lock(&self.table).get(name).map(|upload| upload.committed())
    }

    /// Forgets interrupted uploads that are too old, and the oldest of too many.
    pub(super) fn forget(&self, now: Instant) {
        let mut table = lock(&self.table);
        let mut idle: Vec<(Instant, Name)> = table
            .iter()
            .filter_map(|(name, upload)| Some(((*lock(&upload.idle))?, name.clone())))
            .collect();
        idle.sort_by_key(|(since, _)| std::cmp::Reverse(*since));
        for (index, (since, name)) in idle.iter().enumerate() {
            if index >= KEPT || now.saturating_duration_since(*since) > KEEP {
                table.remove(name);
            }
        }
    }
}

fn taken_over() -> Status {
    Status::new(Code::Aborted, "another stream has taken this upload over")
}

fn elsewhere() -> Status {
    Status::invalid("write_offset is not where the upload ended; ask QueryWriteStatus, or begin again at 0")
}

/// Bytes on their way into an upload.
struct Writing {
    upload: Arc<Upload>,
    owner: u64,
    position: u64,
    blobs: Blobs,
    waiting: VecDeque<Bytes>,
}

impl Writing {
    /// Writes what waits, or so much of it as may be written at a time.
    fn write(&mut self) -> Result<(), Status> {
        let mut partial = lock(&self.upload.partial);
        // Another stream may have taken the upload over, and the last piece of that one may have been on its way when ours
        // was told how far it came.
        let mine = partial
            .as_mut()
            .filter(|partial| self.upload.is_owned_by(self.owner) && partial.committed == self.position);
        let partial = mine.ok_or_else(taken_over)?;
        while let Some(mut piece) = self.waiting.pop_front() {
            let Taken { count, done } = partial.write(&self.blobs, &piece)?;
            self.position = partial.committed;
            self.upload.committed.store(partial.committed, Ordering::SeqCst);
            if !done {
                piece.advance(count);
                self.waiting.push_front(piece);
                break;
            }
        }
        Ok(())
    }
}

impl Claim<'_> {
    /// Bytes taken so far, those that wait to be written among them.
    pub(super) fn taken(&self) -> u64 {
        self.position + self.held
    }

    /// Whether bytes wait to be written.
    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes more bytes: at once, or while the disk is slow together with those that follow. What is wrong with them ends the
    /// upload for good.
    pub(super) async fn take(&mut self, blobs: &Blobs, bytes: Bytes) -> Result<(), Status> {
        self.held += bytes.len() as u64;
        self.waiting.push_back(bytes);
        if self.held < BATCH && blobs.pace().is_slow_now() {
            return Ok(());
        }
        self.flush(blobs).await
    }

    /// Writes what waits, on another thread while the disk is slow.
    pub(super) async fn flush(&mut self, blobs: &Blobs) -> Result<(), Status> {
        let written = self.try_flush(blobs).await;
        if written.as_ref().is_err_and(|status| status.code != Code::Aborted) {
            self.remove();
        }
        written
    }

    async fn try_flush(&mut self, blobs: &Blobs) -> Result<(), Status> {
        while !self.waiting.is_empty() {
            let writing = Writing {
                upload: Arc::clone(&self.upload),
                owner: self.owner,
                position: self.position,
                blobs: blobs.clone(),
                waiting: std::mem::take(&mut self.waiting),
            };
            let lost = || Status::unavailable("the writing thread ended");
            let written = blobs.pace().run(writing, Writing::write, lost).await?;
            self.held -= written.position - self.position;
            self.position = written.position;
            self.waiting = written.waiting;
            if !self.waiting.is_empty() {
                // Much came out of little. Others get their turn.
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    fn remove(&self) {
        let mut table = lock(&self.uploads.table);
        if table
            .get(&self.name)
            .is_some_and(|upload| Arc::ptr_eq(upload, &self.upload))
        {
            table.remove(&self.name);
        }
    }

    /// Verifies and stores it.
    pub(super) async fn commit(self, blobs: &Blobs) -> Result<(Put, u64), Status> {
        // Off the table first: who comes now begins anew, and who came before us is the owner.
        self.remove();
        let partial = match self.upload.partial.try_lock() {
            Ok(mut partial) if self.upload.is_owned_by(self.owner) => partial.take(),
            // A piece of the stream we took it over from is still being written.
            _ => None,
        };
        let whole = partial.filter(|partial| partial.committed == self.position);
        whole.ok_or_else(taken_over)?.commit(blobs).await
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.upload.is_owned_by(self.owner) {
            return;
        }
        let now = Instant::now();
        *lock(&self.upload.idle) = Some(now);
        self.uploads.forget(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Durability;
    use russet_reapi::Function;

    fn world() -> (tempfile::TempDir, Blobs, Vec<u8>, Name) {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path(), Some(256 << 20), Durability::ProcessCrash).unwrap();
        let content: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let name = Name::new("x", "u", Function::Sha256.digest(&content), Encoding::Identity);
        (dir, blobs, content, name)
    }

    async fn write(claim: &mut Claim<'_>, blobs: &Blobs, bytes: &[u8]) -> Result<(), Status> {
        claim.take(blobs, Bytes::copy_from_slice(bytes)).await?;
        claim.flush(blobs).await
    }

    #[tokio::test]
    async fn an_interrupted_upload_goes_on_where_it_ended() {
        let (_dir, blobs, content, name) = world();
        let uploads = Uploads::default();
        let begin = |name: &Name| Partial::begin(&blobs, name);
        let mut first = uploads.claim(name.clone(), 0, begin).unwrap();
        write(&mut first, &blobs, &content[..150_000]).await.unwrap();
        drop(first);
        assert_eq!(uploads.committed(&name), Some(150_000));
        assert_eq!(
            uploads.claim(name.clone(), 7, begin).unwrap_err().code,
            Code::InvalidArgument
        );
        let mut second = uploads.claim(name.clone(), 150_000, begin).unwrap();
        write(&mut second, &blobs, &content[150_000..]).await.unwrap();
        assert!(
            !blobs.has("x", &name.digest).unwrap(),
            "not visible before it is verified"
        );
        assert_eq!(second.commit(&blobs).await.unwrap().0, Put::Created);
        assert!(blobs.has("x", &name.digest).unwrap());
        assert_eq!(uploads.committed(&name), None);
    }

    #[tokio::test]
    async fn a_second_stream_takes_an_upload_over() {
        let (_dir, blobs, content, name) = world();
        let uploads = Uploads::default();
        let begin = |name: &Name| Partial::begin(&blobs, name);
        let mut first = uploads.claim(name.clone(), 0, begin).unwrap();
        write(&mut first, &blobs, &content[..10]).await.unwrap();
        let mut second = uploads.claim(name.clone(), 10, begin).unwrap();
        assert_eq!(
            write(&mut first, &blobs, &content[10..]).await.unwrap_err().code,
            Code::Aborted
        );
        drop(first);
        write(&mut second, &blobs, &content[10..]).await.unwrap();
        assert_eq!(second.commit(&blobs).await.unwrap().1, content.len() as u64);
    }

    #[tokio::test]
    async fn wrong_content_is_forgotten_at_once() {
        let (_dir, blobs, mut content, name) = world();
        let uploads = Uploads::default();
        let begin = |name: &Name| Partial::begin(&blobs, name);
        content[77] ^= 1;
        let mut claim = uploads.claim(name.clone(), 0, begin).unwrap();
        write(&mut claim, &blobs, &content).await.unwrap();
        assert_eq!(claim.commit(&blobs).await.unwrap_err().code, Code::InvalidArgument);
        assert_eq!(uploads.committed(&name), None);
        assert!(!blobs.has("x", &name.digest).unwrap());
        let mut claim = uploads.claim(name.clone(), 0, begin).unwrap();
        content.push(0);
        assert_eq!(
            write(&mut claim, &blobs, &content).await.unwrap_err().code,
            Code::InvalidArgument
        );
        drop(claim);
        assert_eq!(uploads.committed(&name), None);
    }

    /// Writes of gRPC streams waited for a slow disk on the thread that serves, and everybody else of that thread with them.
    #[tokio::test]
    async fn while_the_disk_is_slow_another_thread_writes() {
        let (_dir, blobs, content, name) = world();
        let uploads = Uploads::default();
        let now = Instant::now();
        blobs.pace().took(now, now + Duration::from_secs(1));
        let mut claim = uploads
            .claim(name.clone(), 0, |name| Partial::begin(&blobs, name))
            .unwrap();
        for piece in content.chunks(100_000) {
            write(&mut claim, &blobs, piece).await.unwrap();
        }
        assert_eq!(blobs.pace().moved(), 4);
        assert_eq!(claim.commit(&blobs).await.unwrap().0, Put::Created);
        let hit = blobs.content("x", &name.digest).unwrap().unwrap();
        assert!(hit.read_all().unwrap().unwrap() == content);
    }

    /// Every frame of a stream was handed to the writing thread on its own, and changing threads cost more than writing.
    #[tokio::test]
    async fn pieces_for_another_thread_go_there_together() {
        let (_dir, blobs, content, name) = world();
        let uploads = Uploads::default();
        let now = Instant::now();
        blobs.pace().took(now, now + Duration::from_secs(1));
        let mut claim = uploads
            .claim(name.clone(), 0, |name| Partial::begin(&blobs, name))
            .unwrap();
        for piece in content.chunks(10_000) {
            claim.take(&blobs, Bytes::copy_from_slice(piece)).await.unwrap();
        }
        assert_eq!(claim.taken(), content.len() as u64);
        assert_eq!(
            uploads.committed(&name),
            Some(0),
            "nobody counts on what is not written"
        );
        claim.flush(&blobs).await.unwrap();
        assert_eq!(blobs.pace().moved(), 1);
        assert_eq!(uploads.committed(&name), Some(content.len() as u64));
        assert_eq!(claim.commit(&blobs).await.unwrap().0, Put::Created);
    }

    /// The piece of a stream that is gone may still be on its way to the disk when another stream was told how far the upload
    /// came: what follows would be stored in the wrong place.
    #[tokio::test]
    async fn a_piece_that_comes_late_does_not_shift_what_follows() {
        let (_dir, blobs, content, name) = world();
        let uploads = Uploads::default();
        let begin = |name: &Name| Partial::begin(&blobs, name);
        let first = uploads.claim(name.clone(), 0, begin).unwrap();
        let mut late = Writing {
            upload: Arc::clone(&first.upload),
            owner: first.owner,
            position: 0,
            blobs: blobs.clone(),
            waiting: VecDeque::from([Bytes::copy_from_slice(&content[..10])]),
        };
        let mut second = uploads.claim(name.clone(), 0, begin).unwrap();
        assert_eq!(late.write().unwrap_err().code, Code::Aborted, "it is too late");
        // The same, had it begun before the second stream came.
        late.owner = second.owner;
        late.write().unwrap();
        assert_eq!(
            write(&mut second, &blobs, &content[..50]).await.unwrap_err().code,
            Code::Aborted
        );
        drop(second);
        let mut third = uploads
            .claim(name, uploads.committed(&first.name).unwrap(), begin)
            .unwrap();
        write(&mut third, &blobs, &content[10..]).await.unwrap();
        assert_eq!(third.commit(&blobs).await.unwrap().0, Put::Created);
    }

    /// A gigabyte of zeros is 32 KiB of zstd: one message, and a second of work.
    #[tokio::test]
    async fn much_that_comes_out_of_little_lets_others_have_their_turn() {
        let (_dir, blobs, _, _) = world();
        let zeros = vec![0; 64 << 20];
        let compressed = russet_reapi::pack::deflate(&zeros, 1).unwrap();
        let name = Name::new("x", "u", Function::Sha256.digest(&zeros), Encoding::Zstd);
        let uploads = Uploads::default();
        let mut claim = uploads.claim(name, 0, |name| Partial::begin(&blobs, name)).unwrap();
        let mut turns = 0;
        {
            let mut writing = std::pin::pin!(write(&mut claim, &blobs, &compressed));
            while futures::poll!(&mut writing).is_pending() {
                turns += 1;
                tokio::task::yield_now().await;
            }
        }
        assert!(turns >= 15, "{turns}");
        assert_eq!(claim.commit(&blobs).await.unwrap().0, Put::Created);
    }

    #[test]
    fn the_oldest_of_too_many_interrupted_uploads_is_forgotten() {
        let (_dir, blobs, _, name) = world();
        let uploads = Uploads::default();
        let named = |number: usize| Name {
            upload: number.to_string().into(),
            ..name.clone()
        };
        for number in 0..=KEPT {
            drop(
                uploads
                    .claim(named(number), 0, |name| Partial::begin(&blobs, name))
                    .unwrap(),
            );
        }
        assert_eq!(uploads.committed(&named(0)), None);
        assert_eq!(uploads.committed(&named(1)), Some(0));
        uploads.forget(Instant::now() + KEEP + Duration::from_secs(1));
        assert_eq!(uploads.committed(&named(KEPT)), None);
    }
}
