//! Uploads under way, and those that were interrupted and may be resumed.
//!
//! An upload is known by its resource name. While it lasts its bytes go to their final place on disk; when its connection is
//! lost they stay there for a while, invisible, and whoever comes with the same name goes on where they end. A second stream
//! of the same name takes the upload over: its client knows better than we do that the first one is dead.

mod partial;
#[cfg(test)]
mod tests;

pub(super) use partial::{Partial, SMALL};

use super::status::{Code, Status};
use crate::blob::{Blobs, Put};
use bytes::{Buf as _, Bytes};
use partial::Taken;
use russet_reapi::Digest;
use russet_reapi::name::Encoding;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// While another thread writes, so many bytes are handed to it at a time: each time costs two changes of threads.
pub(super) const BATCH: u64 = 448 * 1024;
/// Interrupted uploads that are kept, and for how long. Each holds at most [`partial::GATHER`] bytes of memory.
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
            .filter(|partial| self.upload.is_owned_by(self.owner) && partial.committed() == self.position);
        let partial = mine.ok_or_else(taken_over)?;
        while let Some(mut piece) = self.waiting.pop_front() {
            let Taken { count, done } = partial.write(&self.blobs, &piece)?;
            self.position = partial.committed();
            self.upload.committed.store(partial.committed(), Ordering::SeqCst);
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
        let whole = partial.filter(|partial| partial.committed() == self.position);
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
