//! Numbers for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::core::Core;
use crate::segment::Phase;
use crate::sync::{lock, read};

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) batched: AtomicU64,
    pub(crate) group_syncs: AtomicU64,
    pub(crate) streamed: AtomicU64,
    pub(crate) damaged: AtomicU64,
    pub(crate) dangling: AtomicU64,
    pub(crate) collisions: AtomicU64,
    pub(crate) evicted_segments: AtomicU64,
    pub(crate) evicted_entries: AtomicU64,
    pub(crate) kept_entries: AtomicU64,
    pub(crate) kept_bytes: AtomicU64,
    pub(crate) punched_bytes: AtomicU64,
    pub(crate) disk_full: AtomicU64,
    pub(crate) scrubbed_bytes: AtomicU64,
}

impl Counters {
    pub(crate) fn batch(&self, records: u64, synced: bool) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.batched.fetch_add(records, Ordering::Relaxed);
        self.group_syncs.fetch_add(u64::from(synced), Ordering::Relaxed);
    }
}

/// Whether writes are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Writable,
    /// The disk is full; reads go on.
    DiskFull,
    /// A sync failed; reads go on, the process must restart.
    Poisoned,
    Closed,
}

/// A snapshot; counters run since the store was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    pub state: State,
    pub entries: u64,
    pub index_bytes: u64,
    pub capacity: u64,
    pub disk_bytes: u64,
    pub live_bytes: u64,
    pub segments: u64,
    pub sealed_segments: u64,
    pub namespaces: u64,
    pub sequence: u64,
    pub queued_bytes: u64,
    pub leases: u64,
    pub leased_bytes: u64,
    pub hits: u64,
    pub misses: u64,
    pub batches: u64,
    pub batched_records: u64,
    pub group_syncs: u64,
    pub streamed_records: u64,
    pub damaged_entries: u64,
    pub dangling_entries: u64,
    pub fingerprint_collisions: u64,
    pub evicted_segments: u64,
    pub evicted_entries: u64,
    pub kept_entries: u64,
    pub kept_bytes: u64,
    pub punched_bytes: u64,
    pub disk_full_events: u64,
    pub scrubbed_bytes: u64,
}

impl Core {
    pub(crate) fn state(&self) -> State {
        if self.closed.load(Ordering::Relaxed) {
            State::Closed
        } else if self.health.poisoned().is_some() {
            State::Poisoned
        } else if self.health.is_full() {
            State::DiskFull
        } else {
            State::Writable
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        let (leases, leased_bytes) = lock(&self.leases).held();
        let (mut segments, mut sealed, mut live) = (0, 0, 0);
        for segment in read(&self.segments).iter() {
            segments += 1;
            sealed += u64::from(segment.state().phase == Phase::Sealed);
            live += get(&segment.live_bytes);
        }
        Stats {
            state: self.state(),
            entries: self.index.len(),
            index_bytes: self.index.allocated(),
            capacity: self.options.capacity,
            disk_bytes: self.books.used(),
            live_bytes: live,
            segments,
            sealed_segments: sealed,
            namespaces: read(&self.names).len(),
            sequence: self.sequencer.stable(),
            queued_bytes: self.log.queued(),
            leases,
            leased_bytes,
            hits: get(&counters.hits),
            misses: get(&counters.misses),
            batches: get(&counters.batches),
            batched_records: get(&counters.batched),
            group_syncs: get(&counters.group_syncs),
            streamed_records: get(&counters.streamed),
            damaged_entries: get(&counters.damaged),
            dangling_entries: get(&counters.dangling),
            fingerprint_collisions: get(&counters.collisions),
            evicted_segments: get(&counters.evicted_segments),
            evicted_entries: get(&counters.evicted_entries),
            kept_entries: get(&counters.kept_entries),
            kept_bytes: get(&counters.kept_bytes),
            punched_bytes: get(&counters.punched_bytes),
            disk_full_events: get(&counters.disk_full),
            scrubbed_bytes: get(&counters.scrubbed_bytes),
        }
    }
}
