//! Group commit of small records.
//!
//! Callers encode their record straight into the open batch of the log lane, under its lock, which fixes place and
//! sequence. One caller at a time leads: it writes the whole batch, syncs once if anybody asked for it, publishes the
//! entries, answers everybody. Batches that gather meanwhile are the next round.
//!
//! ```text
//! put ─> claim fingerprint ─> encode into batch ─┐            ┌─> publish ─> answer, release fingerprint
//! put ─> claim ───────────────> encode ──────────┼─> write+sync┤
//! put ─> parked behind the claim ... ────────────┘            └─> parked ones take their turn
//! ```
//!
//! Invariants:
//! 1. A fingerprint is claimed by at most one commit at a time, so sequence order is publish order per key.
//! 2. Nothing is visible before it is as durable as its writer asked for.
//! 3. Every claim is released, whatever happens to the write.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::core::{Core, Urgency};
use crate::error::Error;
use crate::format::{self, Class, FooterEntry, HeadParts, Trailer, encode_head, encode_trailer};
use crate::index::Slot;
use crate::key::{Durability, Kind, Outcome};
use crate::segment::{Phase, Segment};
use crate::sync::{lock, read};

/// Told once, when a write is durable or has failed.
pub(crate) type Done = Box<dyn FnOnce(Result<Outcome, Error>) + Send>;

/// A small record on its way in.
pub(crate) struct Request<'a> {
    pub(crate) class: Class,
    pub(crate) kind: Kind,
    pub(crate) fingerprint: u128,
    pub(crate) namespace: Cow<'a, [u8]>,
    pub(crate) namespace_number: u32,
    pub(crate) key: Cow<'a, [u8]>,
    pub(crate) references: Box<[u128]>,
    pub(crate) body: Cow<'a, [u8]>,
    pub(crate) body_crc: u32,
    pub(crate) version: Option<u64>,
    pub(crate) durability: Durability,
    pub(crate) done: Done,
}

impl Request<'_> {
    fn urgency(&self) -> Urgency {
        urgency(self.class)
    }

    /// Takes copies of what was borrowed, to wait.
    fn owned(self) -> Request<'static> {
        Request {
            class: self.class,
            kind: self.kind,
            fingerprint: self.fingerprint,
            namespace: Cow::Owned(self.namespace.into_owned()),
            namespace_number: self.namespace_number,
            key: Cow::Owned(self.key.into_owned()),
            references: self.references,
            body: Cow::Owned(self.body.into_owned()),
            body_crc: self.body_crc,
            version: self.version,
            durability: self.durability,
            done: self.done,
        }
    }
}

impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("class", &self.class)
            .field("body", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// What is gone frees space, so noting it is worth the last of it.
fn urgency(class: Class) -> Urgency {
    match class {
        Class::Put | Class::Floor => Urgency::Ordinary,
        Class::Delete | Class::DeleteNamespace | Class::Evict => Urgency::FreesSpace,
    }
}

/// Somebody waiting for a claimed fingerprint.
#[derive(Debug)]
pub(crate) enum Waiting {
    Small(Box<Request<'static>>),
    Stream(Arc<Signal>),
}

/// Wakes a thread once.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    set: Mutex<bool>,
    wake: Condvar,
}

impl Signal {
    pub(crate) fn set(&self) {
        *lock(&self.set) = true;
        self.wake.notify_all();
    }

    pub(crate) fn wait(&self) {
        let mut set = lock(&self.set);
        while !*set {
            set = self.wake.wait(set).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

/// The result of asking for a fingerprint.
pub(crate) enum Claim {
    /// Ours; must be released by [`Core::release`].
    Taken,
    /// Nothing to write.
    Settled(Outcome, Option<Arc<Segment>>),
    /// Somebody else's; the waiter was queued.
    Parked,
}

/// A record that has its place and sequence.
pub(crate) struct Placed {
    pub(crate) entry: FooterEntry,
    pub(crate) namespace_number: u32,
    pub(crate) done: Option<Done>,
}

/// Records that will be written together.
pub(crate) struct Batch {
    segment: Arc<Segment>,
    start: u64,
    buf: Vec<u8>,
    records: Vec<Placed>,
    durability: Durability,
}

/// The log: where small records go.
#[derive(Default)]
pub(crate) struct Lane {
    state: Mutex<LaneState>,
    pub(crate) changed: Condvar,
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane").finish_non_exhaustive()
    }
}

#[derive(Default)]
pub(crate) struct LaneState {
    pub(crate) segment: Option<Arc<Segment>>,
    open: Option<Batch>,
    ready: VecDeque<Batch>,
    leading: bool,
    queued: u64,
    spare: Vec<u8>,
    pub(crate) stop: bool,
}

impl LaneState {
    fn idle(&self) -> bool {
        self.open.is_none() && self.ready.is_empty()
    }
}

impl Lane {
    pub(crate) fn state(&self) -> MutexGuard<'_, LaneState> {
        lock(&self.state)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, LaneState>) -> MutexGuard<'a, LaneState> {
        self.changed
            .wait(state)
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn queued(&self) -> u64 {
        self.state().queued
    }
}

impl Core {
    /// Asks for the right to write this fingerprint; `waiting` is queued when somebody else has it.
    pub(crate) fn claim(&self, class: Class, kind: Kind, fp: u128, waiting: impl FnOnce() -> Waiting) -> Claim {
        let mut shard = self.index.shard(fp);
        if let Some(queue) = shard.in_flight.get_mut(&fp) {
            queue.push(waiting());
            return Claim::Parked;
        }
        match (class, shard.get(fp)) {
            (Class::Put, Some(slot)) if !kind.is_mutable() => {
                return Claim::Settled(Outcome::Exists, self.segment(slot.segment));
            }
            (Class::Delete, None) | (Class::Evict, Some(_)) => return Claim::Settled(Outcome::Absent, None),
            _ => {}
        }
        shard.in_flight.insert(fp, Vec::new());
        Claim::Taken
    }

    /// Gives the fingerprint back and lets the waiting ones go on.
    pub(crate) fn release(&self, fp: u128) {
        let waiting = self.index.shard(fp).in_flight.remove(&fp).unwrap_or_default();
        for waiter in waiting {
            match waiter {
                Waiting::Small(request) => self.enqueue(*request),
                Waiting::Stream(signal) => signal.set(),
            }
        }
    }

    /// Takes a small record in. `done` is called exactly once, now or later.
    pub(crate) fn enqueue(&self, request: Request<'_>) {
        if request.class == Class::DeleteNamespace || request.class == Class::Floor {
            return self.place(request);
        }
        let (class, kind, fp, durability) = (request.class, request.kind, request.fingerprint, request.durability);
        let mut parcel = Some(request);
        let claim = self.claim(class, kind, fp, || match parcel.take() {
            Some(request) => Waiting::Small(Box::new(request.owned())),
            None => Waiting::Stream(Arc::default()),
        });
        let Some(request) = parcel else { return };
        match claim {
            Claim::Taken => self.place(request),
            Claim::Settled(outcome, segment) => {
                let durable = match segment {
                    Some(segment) if durability == Durability::Power => self.sync_segment(&segment),
                    _ => Ok(()),
                };
                (request.done)(durable.map(|()| outcome));
            }
            Claim::Parked => {}
        }
    }

    /// Encodes a claimed record into the open batch.
    fn place(&self, request: Request<'_>) {
        let mut lane = self.log.state();
        if let Err(error) = self.ensure_log_segment(&mut lane, request.urgency()) {
            drop(lane);
            self.refuse(request, error);
            return;
        }
        let Some(segment) = lane.segment.clone() else { return };
        let parts = HeadParts {
            kind: request.kind.code(),
            class: request.class,
            namespace: &request.namespace,
            key: &request.key,
            references: &request.references,
            body_len: request.body.len() as u64,
            fingerprint: request.fingerprint,
        };
        let extent = parts.extent();
        let at = {
            let mut state = segment.state();
            let at = state.end;
            state.end += extent;
            if lane.open.is_none() {
                state.writers += 1;
            }
            at
        };
        let (sequence, version) = self.sequencer.begin(self.options.clock.wall_ms(), request.version);
        let mut batch = match lane.open.take() {
            Some(batch) => batch,
            None => Batch {
                segment: Arc::clone(&segment),
                start: at,
                buf: std::mem::take(&mut lane.spare),
                records: Vec::new(),
                durability: Durability::Process,
            },
        };
        let head_crc = encode_head(&mut batch.buf, segment.tag, at, &parts);
        batch.buf.extend_from_slice(&request.body);
        batch.buf.resize(batch.buf.len().next_multiple_of(8), 0);
        let trailer = Trailer {
            sequence,
            version,
            body_crc: request.body_crc,
        };
        batch
            .buf
            .extend_from_slice(&encode_trailer(segment.tag, at, head_crc, trailer));
        batch.durability = batch.durability.max(request.durability);
        let entry = footer_entry(&parts, at, sequence, version);
        batch.records.push(Placed {
            entry,
            namespace_number: request.namespace_number,
            done: Some(request.done),
        });
        lane.queued += extent;
        lane.open = Some(batch);
        drop(lane);
        self.books.appended(extent);
        self.log.changed.notify_all();
    }

    /// Answers with an error and releases the claim.
    fn refuse(&self, request: Request<'_>, error: Error) {
        if request.class != Class::DeleteNamespace && request.class != Class::Floor {
            self.release(request.fingerprint);
        }
        (request.done)(Err(error));
    }

    fn ensure_log_segment(&self, lane: &mut LaneState, urgency: Urgency) -> Result<(), Error> {
        if lane.segment.is_none() {
            lane.segment = Some(self.create_segment(0, urgency)?);
        }
        Ok(())
    }

    /// Commits until nothing waits, unless somebody else is at it; then returns at once.
    pub(crate) fn commit_all(&self) {
        while self.lead_once() {}
    }

    /// Commits until nothing waits and nobody leads.
    pub(crate) fn commit_until_idle(&self) {
        loop {
            self.commit_all();
            let lane = self.log.state();
            if !lane.leading && lane.idle() {
                return;
            }
            if lane.leading {
                drop(self.log.wait(lane));
            }
        }
    }

    /// Waits until `finished`, leading when nobody else does.
    pub(crate) fn commit_until(&self, finished: impl Fn() -> bool) {
        let mut lane = self.log.state();
        while !finished() {
            if lane.leading || lane.idle() {
                lane = self.log.wait(lane);
                continue;
            }
            drop(lane);
            self.lead_once();
            lane = self.log.state();
        }
    }

    /// The committing thread: leads whenever there is work, until told to stop.
    pub(crate) fn commit_forever(&self) {
        let mut lane = self.log.state();
        while !lane.stop {
            if lane.leading || lane.idle() {
                lane = self.log.wait(lane);
                continue;
            }
            drop(lane);
            self.lead_once();
            lane = self.log.state();
        }
    }

    /// Commits one batch. False when there was none, or another thread leads.
    fn lead_once(&self) -> bool {
        let mut lane = self.log.state();
        if lane.leading {
            return false;
        }
        let Some(batch) = lane.ready.pop_front().or_else(|| lane.open.take()) else {
            return false;
        };
        lane.leading = true;
        drop(lane);
        let (buf, bytes) = self.commit_batch(batch);
        let mut lane = self.log.state();
        lane.leading = false;
        lane.queued = lane.queued.saturating_sub(bytes);
        if lane.spare.capacity() < buf.capacity() && buf.capacity() <= 4 << 20 {
            lane.spare = buf;
        }
        drop(lane);
        self.log.changed.notify_all();
        true
    }

    /// Wakes callers whose answer came from outside the group commit.
    pub(crate) fn wake_log(&self) {
        drop(self.log.state());
        self.log.changed.notify_all();
    }

    /// Writes, syncs, publishes and answers. Returns the emptied buffer for the next batch, and how much was in it.
    fn commit_batch(&self, mut batch: Batch) -> (Vec<u8>, u64) {
        let segment = Arc::clone(&batch.segment);
        let frees = batch
            .records
            .iter()
            .any(|r| urgency(r.entry.class) == Urgency::FreesSpace);
        let written = if frees {
            self.write_freeing(&segment, &batch.buf, batch.start)
        } else {
            self.write_segment(&segment, &batch.buf, batch.start)
        };
        let result = written.and_then(|()| {
            if batch.durability == Durability::Power {
                self.sync_segment(&segment)
            } else {
                Ok(())
            }
        });
        self.counters
            .batch(batch.records.len() as u64, batch.durability == Durability::Power);
        if result.is_ok() {
            for placed in &batch.records {
                self.publish(&segment, placed, true);
            }
        }
        self.leave_segment(&segment);
        for placed in &mut batch.records {
            self.sequencer.end(placed.entry.sequence);
            if matches!(placed.entry.class, Class::Put | Class::Delete | Class::Evict) {
                self.release(placed.entry.fingerprint);
            }
        }
        for mut placed in batch.records {
            let outcome = result.clone().map(|()| match placed.entry.class {
                Class::Put => Outcome::Created {
                    sequence: placed.entry.sequence,
                    version: placed.entry.version,
                },
                _ => Outcome::Deleted {
                    sequence: placed.entry.sequence,
                },
            });
            if let Some(done) = placed.done.take() {
                done(outcome);
            }
        }
        self.rotate_log(&segment);
        let bytes = batch.buf.len() as u64;
        batch.buf.clear();
        (batch.buf, bytes)
    }

    /// Opens the next log segment when this one is full. Whoever appends meanwhile still goes to the old one.
    fn rotate_log(&self, current: &Arc<Segment>) {
        if current.state().end < self.options.segment_size {
            return;
        }
        // Without a new segment the old one grows on; the next commit tries again.
        if let Ok(next) = self.create_segment(0, Urgency::Ordinary) {
            self.switch_log(current, Some(next));
        }
    }

    /// Ends the log segment, so that it can be sealed. The next record opens another.
    pub(crate) fn close_log(&self) {
        let current = self.log.state().segment.clone();
        if let Some(current) = current {
            self.switch_log(&current, None);
        }
    }

    fn switch_log(&self, current: &Arc<Segment>, next: Option<Arc<Segment>>) {
        let mut lane = self.log.state();
        if lane.segment.as_ref().is_some_and(|s| s.id == current.id) {
            if let Some(batch) = lane.open.take() {
                lane.ready.push_back(batch);
            }
            lane.segment = next;
            current.state().phase = Phase::Closing;
        } else if let Some(unused) = next {
            unused.state().phase = Phase::Closing;
        }
        drop(lane);
        self.wake_maintenance();
    }

    /// Notes that a mutable entry, already dropped from memory, is gone, unless it is written again first.
    pub(crate) fn enqueue_eviction(&self, slot: &Slot, durability: Durability) {
        self.enqueue(Request {
            class: Class::Evict,
            kind: Kind::from_code(slot.kind),
            fingerprint: slot.fingerprint,
            namespace: Cow::Borrowed(&[]),
            namespace_number: slot.namespace,
            key: Cow::Borrowed(&[]),
            references: Box::default(),
            body: Cow::Borrowed(&[]),
            body_crc: 0,
            version: None,
            durability,
            done: Box::new(|_| {}),
        });
    }

    /// Lists a record for its segment's footer.
    pub(crate) fn list(&self, segment: &Segment, namespace: u32, entry: FooterEntry) {
        let names = read(&self.names);
        let bare = matches!(entry.class, Class::Evict | Class::Floor);
        segment.list(names.name(namespace).filter(|_| !bare).unwrap_or_default(), entry);
    }

    /// Makes a durable record visible. Called in sequence order per fingerprint.
    pub(crate) fn publish(&self, segment: &Arc<Segment>, placed: &Placed, verified: bool) {
        let entry = &placed.entry;
        self.list(segment, placed.namespace_number, *entry);
        match entry.class {
            Class::Put => {
                let slot = slot_of(entry, segment.handle, placed.namespace_number, verified);
                let mut shard = self.index.shard(entry.fingerprint);
                // A delete of the namespace that was ordered after this record but finished before it.
                if self.deleted_at(placed.namespace_number) > entry.sequence {
                    return;
                }
                segment.gain(&slot);
                if let Some(before) = shard.insert(&slot) {
                    self.lose(&before);
                }
            }
            Class::Delete | Class::Evict => {
                let mut shard = self.index.shard(entry.fingerprint);
                if let Some(before) = shard.remove(entry.fingerprint) {
                    self.lose(&before);
                }
            }
            Class::DeleteNamespace => self.forget_namespace(placed.namespace_number, entry.sequence),
            Class::Floor => {}
        }
        self.remember_change(segment, entry);
    }
}

pub(crate) fn footer_entry(parts: &HeadParts<'_>, at: u64, sequence: u64, version: u64) -> FooterEntry {
    FooterEntry {
        fingerprint: parts.fingerprint,
        sequence,
        version,
        body_len: parts.body_len,
        offset: at,
        namespace: None,
        kind: parts.kind,
        class: parts.class,
        head_len: u32::try_from(parts.head_len()).unwrap_or(u32::MAX),
        references: u32::try_from(parts.references.len()).unwrap_or(u32::MAX),
    }
}

pub(crate) fn slot_of(entry: &FooterEntry, segment: u32, namespace: u32, verified: bool) -> Slot {
    Slot {
        fingerprint: entry.fingerprint,
        segment,
        offset: entry.offset,
        body_len: u32::try_from(entry.body_len).unwrap_or(u32::MAX),
        sequence: entry.sequence.min(format::MAX_SEQUENCE),
        namespace,
        kind: entry.kind,
        access: 0,
        verified,
        references: entry.references > 0,
    }
}
