//! What has arrived of an upload, and where it waits until all of it is there: in memory while it is small, at its final place
//! on disk otherwise.

use super::Name;
use crate::blob::{Blobs, Error, Put, Target, Writer};
use crate::reapi::batch::target;
use crate::reapi::status::Status;
use russet_reapi::Digest;
use russet_reapi::digest::Hasher;
use russet_reapi::pack::Inflate;

/// Bodies up to this size wait in memory for a group commit, and are not resumed: they are sent again as fast.
pub(in crate::reapi) const SMALL: u64 = 128 * 1024;
/// Compressed bodies, whose length nobody announces, are gathered up to this size before they get a place of their own.
pub(super) const GATHER: usize = 2 << 20;
/// Content that is decompressed and hashed before other calls get their turn.
const TURN: u64 = 4 << 20;

/// What has arrived of an upload.
#[derive(Debug)]
pub(in crate::reapi) struct Partial {
    target: Target,
    digest: Digest,
    sink: Sink,
    hasher: Hasher,
    inflate: Option<Inflate>,
    committed: u64,
}

/// What became of bytes that were offered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    pub(super) count: usize,
    pub(super) done: bool,
}

#[derive(Debug)]
enum Sink {
    Memory(Vec<u8>),
    Disk(Writer),
}

impl Partial {
    pub(in crate::reapi) fn begin(blobs: &Blobs, name: &Name) -> Result<Self, Status> {
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
    pub(in crate::reapi) fn committed(&self) -> u64 {
        self.committed
    }

    /// Takes bytes; how many, and whether all that came out of them was looked at. Of compressed bytes only so many are taken at
    /// a time that a thread with others to serve may do it.
    pub(super) fn write(&mut self, blobs: &Blobs, bytes: &[u8]) -> Result<Taken, Status> {
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
    pub(in crate::reapi) fn write_all(&mut self, blobs: &Blobs, bytes: &[u8]) -> Result<(), Status> {
        self.write(blobs, bytes).map(drop)
    }

    /// Verifies all of it and makes it visible; bytes stored.
    pub(in crate::reapi) async fn commit(self, blobs: &Blobs) -> Result<(Put, u64), Status> {
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
