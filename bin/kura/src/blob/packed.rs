//! Content that is stored compressed, because it was sent so.
//!
//! It lies beside uncompressed content under a key of its own (the first byte has its highest bit set) and a kind of its own on
//! disk, as eight bytes of length and then zstd frames as the client sent them. Whoever asks for the content gets it decompressed on the way out;
//! whoever asks for zstd gets the stored bytes. [`super::Blobs::find`] looks under both keys, so that no protocol has to know.

use super::{Error, Hit, Kind};
use russet_reapi::pack::Inflate;
use russet_segstore as segstore;
use std::sync::{Mutex, PoisonError};

/// Bytes before the frames: the length of the content.
pub(super) const HEADER: u64 = 8;
/// The bit that tells the two keys apart.
const MARK: u8 = 0x80;
/// The kind on disk. This number never changes.
pub(super) const STORED: segstore::Kind = segstore::Kind::immutable(7);
/// Compressed bytes read at a time.
const PIECE: u64 = 64 * 1024;
/// Content that may be decompressed on the way to what is wanted by a thread that has others to serve.
const NEAR: u64 = 1 << 20;

/// The key under which the compressed form of a blob is stored.
pub fn packed_key(key: &[u8]) -> Option<Vec<u8>> {
    let (first, rest) = key.split_first().filter(|(first, _)| **first & MARK == 0)?;
    let mut packed = Vec::with_capacity(key.len());
    packed.push(first | MARK);
    packed.extend_from_slice(rest);
    Some(packed)
}

/// The full name of a blob in the store, whichever form its key asks for.
pub(super) fn stored_key<'a>(kind: Kind, namespace: &'a str, key: &'a [u8]) -> segstore::Key<'a> {
    let packed = kind == Kind::Cas && key.first().is_some_and(|first| first & MARK != 0);
    let kind = if packed { STORED } else { kind.stored() };
    segstore::Key::new(kind, namespace.as_bytes(), key)
}

/// Turns the key of a blob into that of its compressed form.
pub(super) fn mark(key: &mut [u8]) {
    if let Some(first) = key.first_mut() {
        *first |= MARK;
    }
}

/// A compressed blob, seen as its content.
#[derive(Debug)]
pub(super) struct Packed {
    pub(super) stored: Box<Hit>,
    size: u64,
    cursor: Mutex<Cursor>,
}

/// How far the content has been decompressed. Readers go forward; one that goes back starts over.
#[derive(Debug, Default)]
struct Cursor {
    decoder: Option<Inflate>,
    /// Stored bytes taken so far.
    taken: u64,
    /// Stored bytes read but not taken yet.
    pending: Vec<u8>,
    /// Where in the content the window begins.
    base: u64,
    window: Vec<u8>,
}

fn damaged() -> Error {
    Error::Store(segstore::Error::Damaged)
}

impl Packed {
    /// The stored form must be verified.
    pub(super) fn open(stored: Hit) -> Result<Self, Error> {
        let mut length = [0; 8];
        if stored.length() < HEADER {
            return Err(damaged());
        }
        stored.read_at(0, &mut length)?;
        Ok(Self {
            stored: Box::new(stored),
            size: u64::from_le_bytes(length),
            cursor: Mutex::default(),
        })
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn read_at(&self, start: u64, into: &mut [u8]) -> Result<(), Error> {
        self.read(start, into, Waiting::Fine).map(drop)
    }

    /// The same if it takes neither the disk nor long.
    pub(super) fn read_now(&self, start: u64, into: &mut [u8]) -> Result<bool, Error> {
        self.read(start, into, Waiting::Refused)
    }

    fn read(&self, start: u64, into: &mut [u8], waiting: Waiting) -> Result<bool, Error> {
        let mut cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
        if start < cursor.base {
            *cursor = Cursor::default();
        }
        let end = start + into.len() as u64;
        if waiting == Waiting::Refused && end.saturating_sub(cursor.base) > NEAR + into.len() as u64 {
            return Ok(false);
        }
        loop {
            cursor.forget(start);
            if cursor.base + cursor.window.len() as u64 >= end {
                break;
            }
            if !cursor.advance(&self.stored, self.size, waiting)? {
                return Ok(false);
            }
        }
        let from = usize::try_from(start - cursor.base)
            .ok()
            .and_then(|from| cursor.window.get(from..)?.get(..into.len()))
            .ok_or_else(damaged)?;
        into.copy_from_slice(from);
        Ok(true)
    }
}

/// Whether a reader may wait for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Fine,
    Refused,
}

impl Cursor {
    /// Drops what lies before `start`: whoever comes back comes back to the start of what was read last, at most.
    fn forget(&mut self, start: u64) {
        let before = usize::try_from(start.saturating_sub(self.base)).unwrap_or(usize::MAX);
        let count = before.min(self.window.len());
        if count > 0 {
            self.window.drain(..count);
            self.base += count as u64;
        }
    }

    /// Decompresses a little more; `false` if that had to wait for the disk.
    fn advance(&mut self, stored: &Hit, size: u64, waiting: Waiting) -> Result<bool, Error> {
        let left = stored.length() - HEADER - self.taken - self.pending.len() as u64;
        if self.pending.is_empty() && left > 0 {
            let count = usize::try_from(left.min(PIECE)).unwrap_or_default();
            self.pending.resize(count, 0);
            let read = match waiting {
                Waiting::Fine => stored.read_at(HEADER + self.taken, &mut self.pending).map(|()| true),
                Waiting::Refused => stored.read_now(HEADER + self.taken, &mut self.pending),
            };
            if !matches!(read, Ok(true)) {
                self.pending.clear();
                return read;
            }
        }
        let decoder = match &mut self.decoder {
            Some(decoder) => decoder,
            none => none.insert(Inflate::new(size).map_err(|_| damaged())?),
        };
        let mut input = &self.pending[..];
        let before = input.len();
        // What was verified when it was stored does not fail now, unless the store is broken.
        let piece = decoder.step(&mut input).map_err(|_| damaged())?;
        let taken = before - input.len();
        if piece.is_empty() && taken == 0 {
            return Err(damaged());
        }
        self.window.extend_from_slice(piece);
        self.pending.drain(..taken);
        self.taken += taken as u64;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob::{Blobs, Target};
    use crate::config::Durability;
    use russet_reapi::{Function, pack};

    fn blobs() -> (tempfile::TempDir, Blobs) {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path(), Some(256 << 20), Durability::ProcessCrash).unwrap();
        (dir, blobs)
    }

    async fn store(blobs: &Blobs, content: &[u8]) -> [u8; 33] {
        let key = Function::Sha256.digest(content).key();
        let mut body = (content.len() as u64).to_le_bytes().to_vec();
        body.extend_from_slice(&pack::deflate(content, 3).unwrap());
        let target = Target {
            kind: Kind::Cas,
            namespace: "x".into(),
            key: packed_key(&key).unwrap().into(),
        };
        let mut writer = blobs.writer(&target, Some(body.len() as u64)).unwrap();
        writer.write(&body).unwrap();
        Blobs::commit(writer).await.unwrap();
        key
    }

    #[tokio::test]
    async fn compressed_content_is_read_like_any_other() {
        let (_dir, blobs) = blobs();
        let content: Vec<u8> = (0..300_000_u32).flat_map(|number| (number / 7).to_le_bytes()).collect();
        let key = store(&blobs, &content).await;
        let hit = blobs.find(Kind::Cas, "x", &key).unwrap().unwrap();
        assert_eq!(hit.length(), content.len() as u64);
        assert!(hit.file().is_none() && blobs.contains(Kind::Cas, "x", &key));
        let mut into = vec![0; 1000];
        for start in [0, 500, 500, 130_000, 1_100_000, 3] {
            hit.read_at(start, &mut into).unwrap();
            let from = usize::try_from(start).unwrap();
            assert_eq!(into, content[from..from + 1000], "{start}");
        }
        let mut whole = vec![0; content.len()];
        hit.read_at(0, &mut whole).unwrap();
        assert_eq!(whole, content);
        let beyond = hit.read_at(content.len() as u64 - 10, &mut into).is_err();
        assert!(beyond, "beyond the end");
        assert!(blobs.find(Kind::Cas, "y", &key).unwrap().is_none());
    }

    #[tokio::test]
    async fn compressed_content_is_found_after_a_restart() {
        let (dir, blobs) = blobs();
        let key = store(&blobs, b"content content content").await;
        blobs.close().unwrap();
        drop(blobs);
        let blobs = Blobs::open(dir.path(), Some(256 << 20), Durability::ProcessCrash).unwrap();
        assert_eq!(blobs.find(Kind::Cas, "x", &key).unwrap().unwrap().length(), 23);
        assert_eq!(Kind::of_stored(STORED), Some(Kind::Cas));
    }

    #[test]
    fn the_keys_of_both_forms_differ() {
        assert_eq!(packed_key(&[1, 2, 3]).unwrap(), [0x81, 2, 3]);
        assert_eq!(packed_key(&[0x81, 2, 3]), None);
        assert_eq!(packed_key(&[]), None);
    }
}
