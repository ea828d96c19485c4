//! Finds the whole records of a segment that has no footer.

use std::io;
use std::sync::Mutex;

use crate::backend::File;
use crate::bytes::u64_at;
use crate::format::{Class, FIRST_RECORD, FooterEntry, Head, RECORD_HEAD_LEN, SOLO, Table};
use crate::reader::{body_crc, read_head, read_trailer};
use crate::sync::lock;

const WINDOW: usize = 1 << 20;

/// What a scan found.
#[derive(Debug, Default)]
pub(crate) struct Scanned {
    pub(crate) table: Table,
    /// Values of history floor records.
    pub(crate) floor: u64,
}

/// Reads every record whose head, body and trailer are right; skips everything else.
pub(crate) fn scan(file: &dyn File, tag: u64, flags: u32) -> io::Result<Scanned> {
    let len = file.len()?;
    let mut found = Scanned::default();
    let size = WINDOW.min(usize::try_from(len).unwrap_or(WINDOW)).max(4096);
    let window = Window {
        file,
        size,
        held: Mutex::default(),
    };
    let mut at = FIRST_RECORD;
    while at + (RECORD_HEAD_LEN as u64) <= len {
        let mut word = [0; 8];
        window.read_at(&mut word, at)?;
        let end = if u64::from_le_bytes(word) == tag {
            whole_record(&window, tag, at, &mut found)?
        } else {
            None
        };
        if let Some(end) = end {
            at = end;
        } else if flags & SOLO != 0 {
            break;
        } else {
            at += 8;
        }
    }
    Ok(found)
}

/// Lists the record at `at` and returns where it ends; `None` when it is not whole.
fn whole_record(file: &dyn File, tag: u64, at: u64, found: &mut Scanned) -> io::Result<Option<u64>> {
    let Some((head, buf)) = read_head(file, tag, at, 512)? else {
        return Ok(None);
    };
    let Some(trailer) = read_trailer(file, tag, at, &head)? else {
        return Ok(None);
    };
    if body_crc(file, at + head.len() as u64, head.body_len)? != Some(trailer.body_crc) {
        return Ok(None);
    }
    if head.class == Class::Floor {
        let body = crate::backend::read_exact_at(file, at + head.len() as u64, 8)?;
        found.floor = found.floor.max(body.and_then(|b| u64_at(&b, 0)).unwrap_or(0));
    }
    let namespace = head.namespace(&buf).unwrap_or_default();
    let namespace = if namespace.is_empty() {
        None
    } else {
        found.table.intern(namespace)
    };
    found
        .table
        .entries
        .push(entry(&head, at, trailer.sequence, trailer.version, namespace));
    Ok(Some(at + head.extent()))
}

fn entry(head: &Head, at: u64, sequence: u64, version: u64, namespace: Option<u32>) -> FooterEntry {
    FooterEntry {
        fingerprint: head.fingerprint,
        sequence,
        version,
        body_len: head.body_len,
        offset: at,
        namespace,
        kind: head.kind,
        class: head.class,
        head_len: u32::try_from(head.len()).unwrap_or(u32::MAX),
        references: head.references,
    }
}

/// A sliding buffer over the file, so that looking for tags and reading small records costs one read per mebibyte.
#[derive(Debug)]
struct Window<'a> {
    file: &'a dyn File,
    size: usize,
    held: Mutex<(u64, Vec<u8>)>,
}

impl File for Window<'_> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut held = lock(&self.held);
        let (start, bytes) = &mut *held;
        let inside = offset >= *start && offset + buf.len() as u64 <= *start + bytes.len() as u64;
        if !inside {
            if buf.len() > self.size / 4 {
                return self.file.read_at(buf, offset);
            }
            bytes.resize(self.size, 0);
            let got = self.file.read_at(bytes, offset)?;
            bytes.truncate(got);
            *start = offset;
        }
        let from = usize::try_from(offset - *start).unwrap_or(usize::MAX);
        let rest = bytes.get(from..).unwrap_or_default();
        let n = rest.len().min(buf.len());
        if let (Some(into), Some(from)) = (buf.get_mut(..n), rest.get(..n)) {
            into.copy_from_slice(from);
        }
        Ok(n)
    }

    fn write_at(&self, _buf: &[u8], _offset: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn punch(&self, _offset: u64, _len: u64) -> io::Result<bool> {
        Ok(false)
    }
}
