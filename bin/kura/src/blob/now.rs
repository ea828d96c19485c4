//! Reading without waiting for the disk.
//!
//! What the page cache holds is copied in microseconds, by the thread that serves; what it does not hold takes the disk's time,
//! and everybody the thread serves would wait with it. The kernel knows the difference: asked not to wait, it says so.

use super::{Blobs, Error, Hit, Place};
use russet_segstore as segstore;
use std::fs::File;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::task::JoinHandle;

impl Hit {
    /// Fills `into` as [`Hit::read_at`] does if that takes no waiting. `false`: it does, and what is in `into` means nothing.
    pub fn read_now(&self, start: u64, into: &mut [u8]) -> Result<bool, Error> {
        match &self.place {
            Place::File(range) => match range.file() {
                Some(file) => in_memory(file, range.offset + self.skip + start, into),
                None => self.read_at(start, into).map(|()| true),
            },
            Place::Packed(packed) => packed.read_now(self.skip + start, into),
            _ => self.read_at(start, into).map(|()| true),
        }
    }
}

/// Memory a piece of a blob is read into.
pub trait Room: Send + 'static {
    /// Where that many bytes go.
    fn room(&mut self, length: usize) -> &mut [u8];
}

impl Room for Vec<u8> {
    fn room(&mut self, length: usize) -> &mut [u8] {
        self.resize(length, 0);
        self
    }
}

/// A blob that is read piece by piece: by the thread that asks while that takes no waiting, by another one where it does.
#[derive(Debug)]
pub struct Reader<R> {
    blobs: Blobs,
    place: Whereabouts<R>,
}

/// Who has the blob.
#[derive(Debug)]
enum Whereabouts<R> {
    Here(Hit),
    /// Another thread, which reads the next piece from the disk.
    Away(JoinHandle<(Hit, R, Result<(), Error>)>),
    /// That thread did not come back.
    Lost,
}

impl<R: Room> Reader<R> {
    /// Of a blob that is verified.
    pub fn new(blobs: &Blobs, hit: Hit) -> Self {
        Self {
            blobs: blobs.clone(),
            place: Whereabouts::Here(hit),
        }
    }

    /// Reads `length` bytes from `start` on into what `take` gives. Who is told to wait asks for the same bytes again.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        start: u64,
        length: usize,
        take: impl FnOnce() -> R,
    ) -> Poll<Result<R, Error>> {
        let mut task = match std::mem::replace(&mut self.place, Whereabouts::Lost) {
            Whereabouts::Lost => return Poll::Ready(Err(Error::Unanswered)),
            Whereabouts::Away(task) => task,
            Whereabouts::Here(hit) => {
                let mut piece = take();
                if hit.read_now(start, piece.room(length))? {
                    self.place = Whereabouts::Here(hit);
                    return Poll::Ready(Ok(piece));
                }
                self.blobs.count_cold();
                tokio::task::spawn_blocking(move || {
                    let read = hit.read_at(start, piece.room(length));
                    (hit, piece, read)
                })
            }
        };
        match Pin::new(&mut task).poll(cx) {
            Poll::Pending => {
                self.place = Whereabouts::Away(task);
                Poll::Pending
            }
            Poll::Ready(done) => {
                let (hit, piece, read) = done.map_err(|_| Error::Unanswered)?;
                self.place = Whereabouts::Here(hit);
                Poll::Ready(read.map(|()| piece))
            }
        }
    }
}

/// Reads what the page cache has.
#[cfg(target_os = "linux")]
fn in_memory(file: &File, mut position: u64, mut into: &mut [u8]) -> Result<bool, Error> {
    use rustix::io::{Errno, ReadWriteFlags, preadv2};
    use std::io::IoSliceMut;
    use std::os::unix::fs::FileExt as _;
    while !into.is_empty() {
        match preadv2(file, &mut [IoSliceMut::new(into)], position, ReadWriteFlags::NOWAIT) {
            Ok(0) => return Err(segstore::Error::Damaged.into()),
            Ok(count) => {
                position += count as u64;
                into = into.get_mut(count..).unwrap_or_default();
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(false),
            // This file system cannot tell. Those that live in memory are among them, and they never wait.
            Err(_) => {
                let read = file.read_exact_at(into, position);
                return read.map(|()| true).map_err(|_| segstore::Error::Damaged.into());
            }
        }
    }
    Ok(true)
}

/// Elsewhere nobody can tell.
#[cfg(not(target_os = "linux"))]
fn in_memory(file: &File, position: u64, into: &mut [u8]) -> Result<bool, Error> {
    use std::os::unix::fs::FileExt as _;
    let read = file.read_exact_at(into, position);
    read.map(|()| true).map_err(|_| segstore::Error::Damaged.into())
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use crate::blob::{Blobs, Hit, Kind, Target, packed_key};
    use crate::config::Durability;
    use rustix::fs::Advice;
    use std::path::Path;

    /// Pages of a file system that lives in memory cannot be dropped.
    fn is_on_disk(path: &Path) -> bool {
        const TMPFS: i64 = 0x0102_1994;
        rustix::fs::statfs(path).unwrap().f_type != TMPFS
    }

    /// Stores a blob, forgets that it was verified, and finds it.
    async fn stored(dir: &Path, key: &[u8], body: &[u8]) -> (Blobs, Hit) {
        let open = || Blobs::open(dir, Some(256 << 20), Durability::ProcessCrash).unwrap();
        let target = Target {
            kind: Kind::Cas,
            namespace: "x".into(),
            key: key.into(),
        };
        let blobs = open();
        let mut writer = blobs.writer(&target, Some(body.len() as u64)).unwrap();
        writer.write(body).unwrap();
        Blobs::commit(writer).await.unwrap();
        blobs.close().unwrap();
        drop(blobs);
        let blobs = open();
        let hit = blobs.find(Kind::Cas, "x", key).unwrap().unwrap();
        (blobs, hit)
    }

    fn drop_pages(file: &std::fs::File) {
        file.sync_data().unwrap();
        rustix::fs::fadvise(file, 0, None, Advice::DontNeed).unwrap();
    }

    fn noise(length: usize) -> Vec<u8> {
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_le_bytes()[3]
        };
        (0..length).map(|_| next()).collect()
    }

    #[tokio::test]
    async fn what_only_the_disk_has_is_not_read_now() {
        let dir = tempfile::tempdir().unwrap();
        let body = noise(3_000_000);
        let (_blobs, hit) = stored(dir.path(), b"\x01key", &body).await;
        let hit = hit.verify().unwrap().unwrap();
        let mut piece = vec![0; 100_000];
        assert!(hit.read_now(1_000_000, &mut piece).unwrap(), "it was just verified");
        assert!(piece == body[1_000_000..1_100_000]);
        if is_on_disk(dir.path()) {
            drop_pages(hit.file().unwrap().0);
            assert!(!hit.read_now(1_000_000, &mut piece).unwrap());
        }
        hit.read_at(1_000_000, &mut piece).unwrap();
        assert!(hit.read_now(1_000_000, &mut piece).unwrap(), "it was just read");
        assert!(piece == body[1_000_000..1_100_000]);
    }

    /// The first read of a compressed blob after a start compared all of it on the thread that serves, and so did the question
    /// whether it is there.
    #[tokio::test]
    async fn a_compressed_blob_is_found_before_it_is_verified() {
        let dir = tempfile::tempdir().unwrap();
        let content = noise(5_000_000);
        let digest = russet_reapi::Function::Sha256.digest(&content);
        let mut body = (content.len() as u64).to_le_bytes().to_vec();
        body.extend(russet_reapi::pack::deflate(&content, 1).unwrap());
        let (blobs, _) = stored(dir.path(), &packed_key(&digest.key()).unwrap(), &body).await;
        assert!(blobs.has("x", &digest).unwrap());
        let frames = blobs.frames("x", &digest).unwrap().unwrap();
        let hit = blobs.content("x", &digest).unwrap().unwrap();
        let unread = frames.hit.is_unverified() && hit.is_unverified();
        assert!(unread, "it was not read yet");
        assert_eq!((frames.size, hit.length()), (5_000_000, 5_000_000));
        let hit = hit.verify().unwrap().unwrap();
        assert!(hit.is_packed() && hit.length() == 5_000_000);
        let mut piece = vec![0; 100_000];
        assert!(hit.read_now(0, &mut piece).unwrap());
        // Decompressing all that lies before takes too long.
        assert!(!hit.read_now(4_000_000, &mut piece).unwrap());
        hit.read_at(4_000_000, &mut piece).unwrap();
        assert!(piece == content[4_000_000..4_100_000]);
    }

    #[tokio::test]
    async fn a_damaged_compressed_blob_is_gone_once_it_was_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let content = noise(400_000);
        let digest = russet_reapi::Function::Sha256.digest(&content);
        let key = packed_key(&digest.key()).unwrap();
        let mut body = (content.len() as u64).to_le_bytes().to_vec();
        body.extend(russet_reapi::pack::deflate(&content, 1).unwrap());
        let (blobs, _) = stored(dir.path(), &key, &body).await;
        drop(blobs);
        for file in std::fs::read_dir(dir.path().join("store/segments")).unwrap() {
            let path = file.unwrap().path();
            let mut bytes = std::fs::read(&path).unwrap();
            // What it says about its own length is what rots.
            if let Some(at) = bytes.windows(64).position(|window| *window == body[..64]) {
                bytes[at] ^= 1;
                std::fs::write(&path, bytes).unwrap();
            }
        }
        let blobs = Blobs::open(dir.path(), Some(256 << 20), Durability::ProcessCrash).unwrap();
        assert!(!blobs.has("x", &digest).unwrap());
        let found = blobs.find(Kind::Cas, "x", &digest.key()).unwrap();
        assert!(found.is_none(), "and it can be stored again");
    }
}
