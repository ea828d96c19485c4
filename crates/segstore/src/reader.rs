//! Reads. Memory says where; one `pread` brings head, key and a small body together; the full key is compared, and a body
//! not yet checked in this process is checked before a byte of it is given out.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::backend::{File, read_exact_at};
use crate::core::{Core, Urgency};
use crate::error::Error;
use crate::format::{Class, Head, MAX_HEAD, RECORD_HEAD_LEN, RECORD_TRAILER_LEN, Trailer};
use crate::index::Slot;
use crate::key::{Durability, Key, Kind};
use crate::segment::Segment;

/// Bodies up to this length come with the lookup.
const INLINE: u32 = 64 << 10;
const CHUNK: usize = 256 << 10;

/// What memory knows about an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Presence {
    pub len: u64,
    pub sequence: u64,
}

/// An entry that was found. It keeps its segment's file open: eviction may unlink it meanwhile.
#[derive(Debug)]
pub struct Entry {
    core: Arc<Core>,
    segment: Arc<Segment>,
    slot: Slot,
    head: Head,
    trailer: Trailer,
    /// Head and body, when the body is small.
    inline: Option<Vec<u8>>,
}

/// A range of a file, for `sendfile`. Valid as long as it is held.
#[derive(Clone, Debug)]
pub struct FileRange {
    file: Arc<dyn File>,
    pub offset: u64,
    pub len: u64,
}

impl FileRange {
    /// The operating system's file; `None` for stores in memory.
    pub fn file(&self) -> Option<&std::fs::File> {
        self.file.as_std()
    }
}

/// A small body read into the caller's buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Where in the buffer the body is.
    pub body: Range<usize>,
    pub sequence: u64,
    pub version: u64,
}

/// What [`crate::Store::read_into`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Small {
    Hit(Hit),
    Miss,
    /// The body is longer than the limit; use `get`.
    Large(Presence),
}

impl Entry {
    pub fn len(&self) -> u64 {
        self.head.body_len
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn sequence(&self) -> u64 {
        self.trailer.sequence
    }

    pub fn version(&self) -> u64 {
        self.trailer.version
    }

    /// CRC-32 of the body, as stored.
    pub fn checksum(&self) -> u32 {
        self.trailer.body_crc
    }

    /// False when the next access has to read the whole body once to check it: better not on an event loop.
    pub fn is_verified(&self) -> bool {
        self.slot.verified
    }

    fn body_at(&self) -> u64 {
        self.slot.offset + self.head.len() as u64
    }

    /// Checks the body if nobody has yet. Damage drops the entry: the next lookup is a miss.
    pub fn verify(&mut self) -> Result<(), Error> {
        if self.slot.verified {
            return Ok(());
        }
        let sum = match &self.inline {
            Some(buf) => crate::bytes::crc(buf.get(self.head.len()..).unwrap_or_default()),
            None => body_crc(&*self.segment.file, self.body_at(), self.head.body_len)
                .map_err(Error::io("reading a body"))?
                .ok_or(Error::Damaged)
                .inspect_err(|_| self.core.drop_damaged(&self.slot))?,
        };
        if sum != self.trailer.body_crc {
            self.core.drop_damaged(&self.slot);
            return Err(Error::Damaged);
        }
        self.slot.verified = true;
        self.core.mark_verified(&self.slot);
        Ok(())
    }

    /// Reads part of the body; fewer bytes than asked only at its end.
    pub fn read_at(&mut self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        self.verify()?;
        let rest = self.len().saturating_sub(offset);
        let n = usize::try_from(rest).unwrap_or(usize::MAX).min(buf.len());
        let Some(into) = buf.get_mut(..n) else { return Ok(0) };
        if let Some(inline) = &self.inline {
            let start = self.head.len() + usize::try_from(offset).unwrap_or(usize::MAX).min(inline.len());
            if let Some(from) = inline.get(start..start.saturating_add(n)) {
                into.copy_from_slice(from);
                return Ok(n);
            }
        }
        let read = self
            .segment
            .file
            .read_at(into, self.body_at() + offset)
            .map_err(Error::io("reading a body"))?;
        if read == n { Ok(n) } else { Err(Error::Damaged) }
    }

    /// The same without checking: for a hint that is worth nothing unless the body is checked later. Checking a large body
    /// takes a while.
    pub fn peek_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        let rest = self.len().saturating_sub(offset);
        let n = usize::try_from(rest).unwrap_or(usize::MAX).min(buf.len());
        let Some(into) = buf.get_mut(..n) else { return Ok(0) };
        self.segment
            .file
            .read_at(into, self.body_at() + offset)
            .map_err(Error::io("reading a body"))
    }

    /// The whole body.
    pub fn read_all(mut self) -> Result<Vec<u8>, Error> {
        self.verify()?;
        if let Some(mut inline) = self.inline.take() {
            inline.drain(..self.head.len());
            return Ok(inline);
        }
        let len = usize::try_from(self.len()).unwrap_or(usize::MAX);
        read_exact_at(&*self.segment.file, self.body_at(), len)
            .map_err(Error::io("reading a body"))?
            .ok_or(Error::Damaged)
    }

    /// The body when it came with the lookup; no further system call is needed.
    pub fn inline(&mut self) -> Result<Option<&[u8]>, Error> {
        self.verify()?;
        Ok(self.inline.as_ref().and_then(|b| b.get(self.head.len()..)))
    }

    /// Where the body lies, checked, for `sendfile`.
    pub fn file_range(&mut self) -> Result<FileRange, Error> {
        self.verify()?;
        Ok(FileRange {
            file: Arc::clone(&self.segment.file),
            offset: self.body_at(),
            len: self.len(),
        })
    }
}

/// CRC of a stored body; `None` when the file is too short.
pub(crate) fn body_crc(file: &dyn File, at: u64, len: u64) -> io::Result<Option<u32>> {
    let mut hasher = crc32fast::Hasher::new();
    let mut buf = vec![0; CHUNK.min(usize::try_from(len).unwrap_or(CHUNK))];
    let mut done = 0;
    while done < len {
        let n = usize::try_from(len - done).unwrap_or(CHUNK).min(CHUNK);
        let Some(into) = buf.get_mut(..n) else { return Ok(None) };
        if file.read_at(into, at + done)? != n {
            return Ok(None);
        }
        hasher.update(into);
        done += n as u64;
    }
    Ok(Some(hasher.finalize()))
}

/// A record's head with namespace, key and references; `None` when it is damaged.
pub(crate) fn read_head(file: &dyn File, tag: u64, at: u64, guess: usize) -> io::Result<Option<(Head, Vec<u8>)>> {
    let mut buf = vec![0; guess.max(RECORD_HEAD_LEN)];
    let got = file.read_at(&mut buf, at)?;
    buf.truncate(got);
    let Some(fixed) = Head::decode_fixed(&buf, tag) else {
        return Ok(None);
    };
    let len = fixed.len();
    if len > MAX_HEAD {
        return Ok(None);
    }
    if buf.len() < len {
        match read_exact_at(file, at, len)? {
            Some(whole) => buf = whole,
            None => return Ok(None),
        }
    }
    Ok(Head::decode(&buf, tag, at).map(|head| (head, buf)))
}

/// A record's trailer; `None` when it is damaged.
pub(crate) fn read_trailer(file: &dyn File, tag: u64, at: u64, head: &Head) -> io::Result<Option<Trailer>> {
    let buf = read_exact_at(file, at + head.trailer_at(), RECORD_TRAILER_LEN)?;
    Ok(buf.and_then(|b| Trailer::decode(&b, tag, at, head.crc)))
}

impl Core {
    /// Looks an entry up and counts the access.
    pub(crate) fn touch(&self, fp: u128) -> Option<(Slot, Arc<Segment>)> {
        let mut shard = self.index.shard(fp);
        let mut slot = shard.get(fp)?;
        if slot.access < 3 {
            slot.access += 1;
            shard.insert(&slot);
        }
        let segment = self.segment(slot.segment)?;
        drop(shard);
        segment.heat.fetch_add(1, Ordering::Relaxed);
        Some((slot, segment))
    }

    pub(crate) fn contains(&self, key: &Key<'_>) -> Option<Presence> {
        let fp = key.fingerprint(self.header.hash_key).0;
        let (slot, _) = self.touch(fp)?;
        Some(Presence {
            len: u64::from(slot.body_len),
            sequence: slot.sequence,
        })
    }

    pub(crate) fn mark_verified(&self, seen: &Slot) {
        let mut shard = self.index.shard(seen.fingerprint);
        if let Some(mut slot) = shard.get(seen.fingerprint).filter(|s| s.same_place(seen)) {
            slot.verified = true;
            shard.insert(&slot);
        }
    }

    /// Forgets an entry whose bytes are wrong.
    pub(crate) fn drop_damaged(&self, seen: &Slot) {
        self.counters.damaged.fetch_add(1, Ordering::Relaxed);
        self.drop_slot(seen);
    }

    pub(crate) fn drop_slot(&self, seen: &Slot) -> bool {
        let mut shard = self.index.shard(seen.fingerprint);
        let same = shard.get(seen.fingerprint).is_some_and(|s| s.same_place(seen));
        if same {
            shard.remove(seen.fingerprint);
            self.lose(seen);
        }
        same
    }

    /// The references of an entry; `None` when its head is damaged.
    pub(crate) fn read_references(&self, segment: &Segment, slot: &Slot) -> Result<Option<Vec<u128>>, Error> {
        let read = read_head(&*segment.file, segment.tag, slot.offset, 1024).map_err(Error::io("reading a record"))?;
        let Some((head, buf)) = read else {
            self.drop_damaged(slot);
            return Ok(None);
        };
        Ok(head.references(&buf).map(Iterator::collect))
    }

    /// Whether all references are there. Counts an access for each: who vouches for them keeps them.
    fn references_hold(&self, head: &Head, buf: &[u8]) -> bool {
        head.references(buf)
            .is_some_and(|mut refs| refs.all(|fp| self.touch(fp).is_some()))
    }

    /// Removes an entry whose references are gone, durably enough that it does not come back with them.
    fn drop_dangling(&self, slot: &Slot) {
        self.counters.dangling.fetch_add(1, Ordering::Relaxed);
        if self.drop_slot(slot)
            && Kind::from_code(slot.kind).is_mutable()
            && self.check_writable(Urgency::Ordinary).is_ok()
        {
            self.enqueue_eviction(slot, Durability::Process);
        }
    }

    /// Looks up, reads and checks what precedes the body.
    pub(crate) fn get(self: &Arc<Self>, key: &Key<'_>) -> Result<Option<Entry>, Error> {
        let fp = key.fingerprint(self.header.hash_key).0;
        let found = self.touch(fp);
        let Some((slot, segment)) = found else {
            self.counters.misses.fetch_add(1, Ordering::Relaxed);
            return Ok(None);
        };
        let small = slot.body_len <= INLINE;
        let names = (RECORD_HEAD_LEN + key.namespace.len() + key.key.len()).next_multiple_of(8);
        let body = if small {
            (slot.body_len as usize).next_multiple_of(8) + RECORD_TRAILER_LEN
        } else {
            0
        };
        let spare = if slot.references { 1024 } else { 0 };
        let read = read_head(&*segment.file, segment.tag, slot.offset, names + spare + body)
            .map_err(Error::io("reading a record"))?;
        let Some((head, mut buf)) = read else {
            self.drop_damaged(&slot);
            self.counters.misses.fetch_add(1, Ordering::Relaxed);
            return Ok(None);
        };
        if !self.is_same(&head, &buf, key, &slot) || !self.vouched(&head, &buf, &slot) {
            self.counters.misses.fetch_add(1, Ordering::Relaxed);
            return Ok(None);
        }
        let trailer_at = usize::try_from(head.trailer_at()).unwrap_or(usize::MAX);
        let trailer = match buf.get(trailer_at..) {
            Some(rest) if rest.len() >= RECORD_TRAILER_LEN => Trailer::decode(rest, segment.tag, slot.offset, head.crc),
            _ => {
                read_trailer(&*segment.file, segment.tag, slot.offset, &head).map_err(Error::io("reading a record"))?
            }
        };
        let Some(trailer) = trailer else {
            self.drop_damaged(&slot);
            self.counters.misses.fetch_add(1, Ordering::Relaxed);
            return Ok(None);
        };
        self.counters.hits.fetch_add(1, Ordering::Relaxed);
        let end = head.len() + slot.body_len as usize;
        let inline = (small && buf.len() >= end).then(|| {
            buf.truncate(end);
            buf
        });
        Ok(Some(Entry {
            core: Arc::clone(self),
            segment,
            slot,
            head,
            trailer,
            inline,
        }))
    }

    /// Whether the record is the one asked for: a fingerprint is not a name.
    fn is_same(&self, head: &Head, buf: &[u8], key: &Key<'_>, slot: &Slot) -> bool {
        let same = head.class == Class::Put
            && head.kind == key.kind.code()
            && head.body_len == u64::from(slot.body_len)
            && head.namespace(buf) == Some(key.namespace)
            && head.key(buf) == Some(key.key);
        if !same {
            self.counters.collisions.fetch_add(1, Ordering::Relaxed);
        }
        same
    }

    fn vouched(&self, head: &Head, buf: &[u8], slot: &Slot) -> bool {
        if head.references == 0 || self.references_hold(head, buf) {
            return true;
        }
        self.drop_dangling(slot);
        false
    }

    /// Appends a small entry to `buf` in one read, without any allocation of its own.
    pub(crate) fn read_into(&self, key: &Key<'_>, limit: u32, buf: &mut Vec<u8>) -> Result<Small, Error> {
        let fp = key.fingerprint(self.header.hash_key).0;
        let miss = || {
            self.counters.misses.fetch_add(1, Ordering::Relaxed);
            Ok(Small::Miss)
        };
        let Some((slot, segment)) = self.touch(fp) else {
            return miss();
        };
        if slot.body_len > limit {
            return Ok(Small::Large(Presence {
                len: u64::from(slot.body_len),
                sequence: slot.sequence,
            }));
        }
        let start = buf.len();
        let names = (RECORD_HEAD_LEN + key.namespace.len() + key.key.len()).next_multiple_of(8);
        let mut want = names + (slot.body_len as usize).next_multiple_of(8) + RECORD_TRAILER_LEN;
        if slot.references {
            match self.read_references(&segment, &slot)? {
                Some(references) => want += 16 * references.len(),
                None => return miss(),
            }
        }
        buf.resize(start + want, 0);
        let Some(record) = buf.get_mut(start..) else {
            return miss();
        };
        let got = segment
            .file
            .read_at(record, slot.offset)
            .map_err(Error::io("reading a record"))?;
        let head = Head::decode(record, segment.tag, slot.offset).filter(|_| got == want);
        let Some(head) = head else {
            self.drop_damaged(&slot);
            buf.truncate(start);
            return miss();
        };
        if !self.is_same(&head, record, key, &slot) || !self.vouched(&head, record, &slot) {
            buf.truncate(start);
            return miss();
        }
        let body = head.len()..head.len() + slot.body_len as usize;
        let trailer = record
            .get(usize::try_from(head.trailer_at()).unwrap_or(usize::MAX)..)
            .and_then(|t| Trailer::decode(t, segment.tag, slot.offset, head.crc));
        let sound = trailer.filter(|t| {
            slot.verified
                || record
                    .get(body.clone())
                    .is_some_and(|b| crate::bytes::crc(b) == t.body_crc)
        });
        let Some(trailer) = sound else {
            self.drop_damaged(&slot);
            buf.truncate(start);
            return miss();
        };
        if !slot.verified {
            self.mark_verified(&slot);
        }
        self.counters.hits.fetch_add(1, Ordering::Relaxed);
        let hit = Hit {
            body: start + body.start..start + body.end,
            sequence: trailer.sequence,
            version: trailer.version,
        };
        Ok(Small::Hit(hit))
    }
}
