//! Uploads under way, and those that were interrupted and may be resumed.
//!
//! An upload is known by its resource name. While it lasts its bytes go to their final place on disk; when its connection is
//! lost they stay there for a while, invisible, and whoever comes with the same name goes on where they end. A second stream
//! of the same name takes the upload over: its client knows better than we do that the first one is dead.

use super::batch::target;
use super::status::{Code, Status};
use crate::blob::{Blobs, Put, Target, Writer};
use russet_reapi::Digest;
use russet_reapi::digest::Hasher;
use russet_reapi::name::Encoding;
use russet_reapi::pack::Inflate;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bodies up to this size wait in memory for a group commit, and are not resumed: they are sent again as fast.
pub(super) const SMALL: u64 = 128 * 1024;
/// Compressed bodies, whose length nobody announces, are gathered up to this size before they get a place of their own.
const GATHER: usize = 2 << 20;
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

#[derive(Debug)]
struct Upload {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Which stream may write.
    owner: u64,
    /// Since when no stream does.
    idle: Option<Instant>,
    /// None once it is being committed.
    partial: Option<Partial>,
}

impl State {
    fn committed(&self) -> u64 {
        self.partial.as_ref().map_or(0, Partial::committed)
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

    /// Takes more bytes.
    pub(super) fn write(&mut self, blobs: &Blobs, bytes: &[u8]) -> Result<(), Status> {
        let hasher = &mut self.hasher;
        match &mut self.inflate {
            Some(inflate) => inflate.push(bytes, |piece| {
                hasher.update(piece);
                Ok::<_, Status>(())
            })?,
            None if self.committed + bytes.len() as u64 > self.digest.size => {
                return Err(Status::invalid("more bytes were sent than the resource name says"));
            }
            None => hasher.update(bytes),
        }
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
        Ok(())
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
            Sink::Memory(gathered) => {
                let mut writer = blobs.writer(&self.target, Some(gathered.len() as u64))?;
                writer.write(&gathered)?;
                Blobs::commit(writer).await?
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
            let mut state = lock(&upload.state);
            if state.committed() != offset && offset != 0 {
                return Err(elsewhere());
            }
            if state.committed() != offset || state.partial.is_none() {
                state.partial = Some(begin(&name)?);
            }
            state.owner += 1;
            state.idle = None;
            let owner = state.owner;
            drop(state);
            return Ok(Claim {
                uploads: self,
                name,
                upload,
                owner,
            });
        }
        if offset != 0 {
            return Err(elsewhere());
        }
        let upload = Arc::new(Upload {
            state: Mutex::new(State {
                owner: 0,
                idle: None,
                partial: Some(begin(&name)?),
            }),
        });
        lock(&self.table).insert(name.clone(), Arc::clone(&upload));
        Ok(Claim {
            uploads: self,
            name,
            upload,
            owner: 0,
        })
    }

    /// How far an upload came.
    pub(super) fn committed(&self, name: &Name) -> Option<u64> {
        let upload = lock(&self.table).get(name).cloned()?;
        let committed = lock(&upload.state).committed();
        Some(committed)
    }

    /// Forgets interrupted uploads that are too old, and the oldest of too many.
    pub(super) fn forget(&self, now: Instant) {
        let mut table = lock(&self.table);
        let mut idle: Vec<(Instant, Name)> = table
            .iter()
            .filter_map(|(name, upload)| Some((lock(&upload.state).idle?, name.clone())))
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

impl Claim<'_> {
    /// Bytes taken so far.
    pub(super) fn committed(&self) -> u64 {
        lock(&self.upload.state).committed()
    }

    /// Takes more bytes. What is wrong with them ends the upload for good.
    pub(super) fn write(&self, blobs: &Blobs, bytes: &[u8]) -> Result<(), Status> {
        let mut state = lock(&self.upload.state);
        if state.owner != self.owner {
            return Err(taken_over());
        }
        let written = match &mut state.partial {
            Some(partial) => partial.write(blobs, bytes),
            None => Err(taken_over()),
        };
        drop(state);
        if written.is_err() {
            self.remove();
        }
        written
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
        let partial = {
            let mut state = lock(&self.upload.state);
            Some(state.owner)
                .filter(|owner| *owner == self.owner)
                .and_then(|_| state.partial.take())
        };
        let partial = partial.ok_or_else(taken_over)?;
        partial.commit(blobs).await
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        {
            let mut state = lock(&self.upload.state);
            if state.owner != self.owner {
                return;
            }
            state.idle = Some(now);
        }
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

    #[tokio::test]
    async fn an_interrupted_upload_goes_on_where_it_ended() {
        let (_dir, blobs, content, name) = world();
        let uploads = Uploads::default();
        let begin = |name: &Name| Partial::begin(&blobs, name);
        let first = uploads.claim(name.clone(), 0, begin).unwrap();
        first.write(&blobs, &content[..150_000]).unwrap();
        drop(first);
        assert_eq!(uploads.committed(&name), Some(150_000));
        assert_eq!(
            uploads.claim(name.clone(), 7, begin).unwrap_err().code,
            Code::InvalidArgument
        );
        let second = uploads.claim(name.clone(), 150_000, begin).unwrap();
        second.write(&blobs, &content[150_000..]).unwrap();
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
        let first = uploads.claim(name.clone(), 0, begin).unwrap();
        first.write(&blobs, &content[..10]).unwrap();
        let second = uploads.claim(name.clone(), 10, begin).unwrap();
        assert_eq!(first.write(&blobs, &content[10..]).unwrap_err().code, Code::Aborted);
        drop(first);
        second.write(&blobs, &content[10..]).unwrap();
        assert_eq!(second.commit(&blobs).await.unwrap().1, content.len() as u64);
    }

    #[tokio::test]
    async fn wrong_content_is_forgotten_at_once() {
        let (_dir, blobs, mut content, name) = world();
        let uploads = Uploads::default();
        let begin = |name: &Name| Partial::begin(&blobs, name);
        content[77] ^= 1;
        let claim = uploads.claim(name.clone(), 0, begin).unwrap();
        claim.write(&blobs, &content).unwrap();
        assert_eq!(claim.commit(&blobs).await.unwrap_err().code, Code::InvalidArgument);
        assert_eq!(uploads.committed(&name), None);
        assert!(!blobs.has("x", &name.digest).unwrap());
        let claim = uploads.claim(name.clone(), 0, begin).unwrap();
        content.push(0);
        assert_eq!(claim.write(&blobs, &content).unwrap_err().code, Code::InvalidArgument);
        drop(claim);
        assert_eq!(uploads.committed(&name), None);
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
