//! Streams: a body goes to its final place as it arrives. No temporary file, no second copy.
//!
//! A known length reserves its extent in a shared segment, so several writers run side by side. An unknown or very long one
//! gets a segment of its own. Short bodies are gathered and go through the group commit. A writer that is dropped leaves
//! nothing behind but a hole.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::bytes::align8;
use crate::commit::{Claim, Placed, Request, Signal, Waiting, footer_entry};
use crate::core::{Core, Urgency};
use crate::error::Error;
use crate::format::{Class, FIRST_RECORD, HeadParts, SOLO, Trailer, encode_head, encode_trailer};
use crate::key::{Durability, Key, Kind, Outcome, check_body, check_references};
use crate::segment::{Phase, Segment, file_name};
use crate::store::{Put, Ticket};
use crate::sync::{lock, write};

const BUFFER: usize = 256 << 10;
const DIRECT: usize = 64 << 10;

/// How a stream begins.
#[derive(Debug)]
pub enum Begin {
    /// An immutable entry of this name is there; the body is not needed.
    Exists,
    Writer(Box<Writer>),
}

#[derive(Debug)]
enum Place {
    /// Not decided yet, or short enough for the group commit.
    Gathering,
    /// A reserved extent of a shared segment.
    Extent { segment: Arc<Segment>, at: u64 },
    /// The only record of its segment; its head is written last.
    Solo { segment: Arc<Segment> },
}

/// A body on its way to disk.
#[derive(Debug)]
pub struct Writer {
    core: Arc<Core>,
    kind: Kind,
    fingerprint: u128,
    namespace: Box<[u8]>,
    namespace_number: u32,
    key: Box<[u8]>,
    references: Box<[u128]>,
    version: Option<u64>,
    durability: Durability,
    expected: Option<u64>,
    written: u64,
    crc: crc32fast::Hasher,
    place: Place,
    head_crc: u32,
    /// Where the buffer's first byte goes.
    flushed_to: u64,
    buffer: Vec<u8>,
}

impl Core {
    /// Starts a stream; `put.body` is ignored.
    pub(crate) fn writer(self: &Arc<Self>, put: &Put<'_>, length: Option<u64>) -> Result<Begin, Error> {
        self.check_writable(Urgency::Ordinary)?;
        put.key.check()?;
        check_references(put.references.len())?;
        if let Some(len) = length {
            check_body(len)?;
            self.check_fits(len)?;
        }
        let fingerprint = put.key.fingerprint(self.header.hash_key).0;
        let durability = put.durability.unwrap_or(self.options.durability);
        if !put.key.kind.is_mutable() {
            let slot = self.index.shard(fingerprint).get(fingerprint);
            if let Some(segment) = slot.and_then(|s| self.segment(s.segment)) {
                if durability == Durability::Power {
                    self.sync_segment(&segment)?;
                }
                return Ok(Begin::Exists);
            }
        }
        let mut writer = Writer {
            core: Arc::clone(self),
            kind: put.key.kind,
            fingerprint,
            namespace: put.key.namespace.into(),
            namespace_number: self.namespace_number(put.key.namespace)?,
            key: put.key.key.into(),
            references: self.fingerprints(put.references),
            version: put.version,
            durability,
            expected: length,
            written: 0,
            crc: crc32fast::Hasher::new(),
            place: Place::Gathering,
            head_crc: 0,
            flushed_to: 0,
            buffer: Vec::new(),
        };
        if length.is_some_and(|len| len > self.options.small_limit as u64) {
            writer.settle()?;
        }
        Ok(Begin::Writer(Box::new(writer)))
    }

    pub(crate) fn check_fits(&self, len: u64) -> Result<(), Error> {
        let capacity = self.options.capacity;
        if len > capacity / 2 {
            Err(Error::OverCapacity { len, capacity })
        } else {
            Ok(())
        }
    }

    pub(crate) fn fingerprints(&self, keys: &[Key<'_>]) -> Box<[u128]> {
        keys.iter().map(|k| k.fingerprint(self.header.hash_key).0).collect()
    }

    /// Reserves an extent in one of the stream segments.
    fn reserve(&self, extent: u64) -> Result<(Arc<Segment>, u64), Error> {
        let lanes = self.streams.len().max(1) as u64;
        let turn = usize::try_from(self.next_stream.fetch_add(1, Ordering::Relaxed) % lanes).unwrap_or(0);
        let Some(lane) = self.streams.get(turn) else {
            return Err(Error::Closed);
        };
        let mut lane = lock(lane);
        let full = lane
            .as_ref()
            .is_some_and(|s| s.state().end + extent > self.options.segment_size);
        if full && let Some(old) = lane.take() {
            old.state().phase = Phase::Closing;
            self.wake_maintenance();
        }
        let segment = if let Some(segment) = &*lane {
            Arc::clone(segment)
        } else {
            let made = self.create_segment(0, Urgency::Ordinary)?;
            *lane = Some(Arc::clone(&made));
            made
        };
        let mut state = segment.state();
        let at = state.end;
        state.end += extent;
        state.writers += 1;
        drop(state);
        self.books.appended(extent);
        Ok((segment, at))
    }

    /// Ends the stream segments, so that they can be sealed once their writers are done.
    pub(crate) fn close_streams(&self) {
        for lane in &self.streams {
            if let Some(segment) = lock(lane).take() {
                segment.state().phase = Phase::Closing;
                self.wake_maintenance();
            }
        }
    }
}

impl Writer {
    fn parts(&self, body_len: u64) -> HeadParts<'_> {
        HeadParts {
            kind: self.kind.code(),
            class: Class::Put,
            namespace: &self.namespace,
            key: &self.key,
            references: &self.references,
            body_len,
            fingerprint: self.fingerprint,
        }
    }

    /// Decides where the body goes. Called once, when it is known not to be small.
    fn settle(&mut self) -> Result<(), Error> {
        let head_len = self.parts(0).head_len() as u64;
        let shared = self
            .expected
            .filter(|&len| self.parts(len).extent() <= self.core.options.segment_size / 2);
        if let Some(len) = shared {
            let (segment, at) = self.core.reserve(self.parts(len).extent())?;
            let gathered = std::mem::take(&mut self.buffer);
            let mut buffer = Vec::with_capacity(BUFFER.min(usize::try_from(len).unwrap_or(BUFFER)) + 1024);
            self.head_crc = encode_head(&mut buffer, segment.tag, at, &self.parts(len));
            buffer.extend_from_slice(&gathered);
            self.buffer = buffer;
            self.flushed_to = at;
            self.place = Place::Extent { segment, at };
        } else {
            let segment = self.core.create_segment(SOLO, Urgency::Ordinary)?;
            let mut state = segment.state();
            state.writers += 1;
            state.end += head_len;
            drop(state);
            self.core.books.appended(head_len);
            self.flushed_to = FIRST_RECORD + head_len;
            self.place = Place::Solo { segment };
        }
        Ok(())
    }

    /// Takes the next bytes of the body. The caller may hash the same slice: no second pass is needed to verify a digest.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = self.written + bytes.len() as u64;
        check_body(written)?;
        if let Some(expected) = self.expected.filter(|&e| written > e) {
            return Err(Error::TooLarge {
                what: "body",
                len: written,
                limit: expected,
            });
        }
        if self.expected.is_none() {
            self.core.check_fits(written)?;
        }
        self.crc.update(bytes);
        self.written = written;
        if matches!(self.place, Place::Gathering) {
            self.buffer.extend_from_slice(bytes);
            if self.buffer.len() <= self.core.options.small_limit {
                return Ok(());
            }
            self.settle()?;
            return self.flush();
        }
        if bytes.len() >= DIRECT {
            self.flush()?;
            return self.append(bytes);
        }
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> Result<(), Error> {
        let buffer = std::mem::take(&mut self.buffer);
        let result = if buffer.is_empty() {
            Ok(())
        } else {
            self.append(&buffer)
        };
        self.buffer = buffer;
        self.buffer.clear();
        result
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let segment = match &self.place {
            Place::Extent { segment, .. } => segment,
            Place::Solo { segment } => {
                // The books follow the file, so that a body of unknown length is counted while it grows.
                segment.state().end += bytes.len() as u64;
                self.core.books.appended(bytes.len() as u64);
                segment
            }
            Place::Gathering => return Ok(()),
        };
        self.core.write_segment(segment, bytes, self.flushed_to)?;
        self.flushed_to += bytes.len() as u64;
        Ok(())
    }

    /// Bytes taken so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Commits the body. When this returns `Created`, it is visible and as durable as was asked for.
    pub fn finish(mut self) -> Result<Outcome, Error> {
        if let Some(expected) = self.expected.filter(|&e| e != self.written) {
            return Err(Error::ShortBody {
                written: self.written,
                expected,
            });
        }
        let core = Arc::clone(&self.core);
        let outcome = match self.place {
            Place::Gathering => self.finish_small(),
            Place::Extent { .. } | Place::Solo { .. } => self.finish_stream(),
        };
        drop(self);
        core.after_call();
        outcome
    }

    fn finish_small(&mut self) -> Result<Outcome, Error> {
        self.core.check_writable(Urgency::Ordinary)?;
        let (ticket, done) = Ticket::new(&self.core);
        self.core.enqueue(Request {
            class: Class::Put,
            kind: self.kind,
            fingerprint: self.fingerprint,
            namespace: Cow::Borrowed(&self.namespace),
            namespace_number: self.namespace_number,
            key: Cow::Borrowed(&self.key),
            references: std::mem::take(&mut self.references),
            body: Cow::Borrowed(&self.buffer),
            body_crc: self.crc.clone().finalize(),
            version: self.version,
            durability: self.durability,
            done,
        });
        ticket.wait()
    }

    fn finish_stream(&mut self) -> Result<Outcome, Error> {
        self.flush()?;
        loop {
            let signal = Arc::<Signal>::default();
            let waiting = || Waiting::Stream(Arc::clone(&signal));
            match self.core.claim(Class::Put, self.kind, self.fingerprint, waiting) {
                Claim::Taken => break,
                Claim::Parked => {
                    // The one before us may be in a batch nobody leads yet.
                    self.core.commit_all();
                    signal.wait();
                }
                Claim::Settled(outcome, segment) => {
                    if let Some(segment) = segment.filter(|_| self.durability == Durability::Power) {
                        self.core.sync_segment(&segment)?;
                    }
                    return Ok(outcome);
                }
            }
        }
        let (sequence, version) = self
            .core
            .sequencer
            .begin(self.core.options.clock.wall_ms(), self.version);
        let result = self.commit(sequence, version);
        self.core.sequencer.end(sequence);
        self.core.release(self.fingerprint);
        self.core.wake_log();
        self.core.counters.streamed.fetch_add(1, Ordering::Relaxed);
        result.map(|()| Outcome::Created { sequence, version })
    }

    /// Writes what makes the record count, syncs, publishes. The fingerprint is claimed.
    fn commit(&mut self, sequence: u64, version: u64) -> Result<(), Error> {
        let (segment, at) = match &self.place {
            Place::Extent { segment, at } => (Arc::clone(segment), *at),
            Place::Solo { segment } => {
                let mut head = Vec::new();
                let head_crc = encode_head(&mut head, segment.tag, FIRST_RECORD, &self.parts(self.written));
                let segment = Arc::clone(segment);
                self.core.write_segment(&segment, &head, FIRST_RECORD)?;
                self.head_crc = head_crc;
                (segment, FIRST_RECORD)
            }
            Place::Gathering => return Ok(()),
        };
        let padding = usize::try_from(align8(self.written) - self.written).unwrap_or(0);
        let mut tail = vec![0; padding];
        let trailer = Trailer {
            sequence,
            version,
            body_crc: self.crc.clone().finalize(),
        };
        tail.extend_from_slice(&encode_trailer(segment.tag, at, self.head_crc, trailer));
        self.append(&tail)?;
        if self.durability == Durability::Power {
            self.core.sync_segment(&segment)?;
        }
        let placed = Placed {
            entry: footer_entry(&self.parts(self.written), at, sequence, version),
            namespace_number: self.namespace_number,
            done: None,
        };
        self.core.publish(&segment, &placed, true);
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.place, Place::Gathering) {
            Place::Gathering => {}
            Place::Extent { segment, .. } => self.core.leave_segment(&segment),
            Place::Solo { segment } => {
                let unused = segment.state().table.as_ref().is_some_and(|t| t.entries.is_empty());
                if unused {
                    // Nothing in it ever counted; recovery would remove it as well.
                    let bytes = segment.disk_bytes();
                    segment.state().phase = Phase::Gone;
                    let _ = self.core.backend.remove(&file_name(segment.id));
                    write(&self.core.segments).remove(&segment);
                    self.core.books.freed(bytes);
                } else {
                    segment.state().phase = Phase::Closing;
                    self.core.leave_segment(&segment);
                }
            }
        }
    }
}
