//! What all parts of an open store share: index, segments, sequence, health, books.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::time::Duration;

use crate::backend::Backend;
use crate::ballast::Ballast;
use crate::chores::Free;
use crate::commit::Lane;
use crate::error::{Error, is_full, is_refused};
use crate::format::{FIRST_RECORD, FooterEntry, SegmentHeader, StoreHeader, Table};
use crate::index::{Index, Slot};
use crate::lease::Leases;
use crate::options::{Background, Options};
use crate::segment::{DIR, Namespaces, Phase, Segment, Segments, State, SyncGate, file_name};
use crate::stats::Counters;
use crate::sync::{lock, read, write};

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) options: Options,
    pub(crate) header: StoreHeader,
    pub(crate) index: Index,
    pub(crate) segments: RwLock<Segments>,
    pub(crate) names: RwLock<Namespaces>,
    pub(crate) sequencer: Sequencer,
    pub(crate) log: Lane,
    pub(crate) streams: Vec<Mutex<Option<Arc<Segment>>>>,
    pub(crate) next_stream: AtomicU64,
    pub(crate) books: Books,
    pub(crate) health: Health,
    pub(crate) counters: Counters,
    pub(crate) leases: Mutex<Leases>,
    /// Odd while eviction drops entries, more after each time.
    pub(crate) evictions: AtomicU64,
    pub(crate) history: Mutex<History>,
    pub(crate) next_segment: AtomicU64,
    pub(crate) next_age: AtomicU64,
    /// Held by the one thread that seals, evicts or frees.
    pub(crate) maintenance: Mutex<Maintenance>,
    pub(crate) chores: Chores,
    pub(crate) ballast: Mutex<Ballast>,
    /// No new writes are taken.
    pub(crate) closed: AtomicBool,
    /// The lock of the folder is about to go: not even a write under way may touch a file any more.
    pub(crate) shut: AtomicBool,
}

/// What only maintenance touches.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    /// Where eviction puts what it keeps.
    pub(crate) survivors: Option<Arc<Segment>>,
    /// Where the scrub goes on: segment id and offset.
    pub(crate) scrub_at: (u64, u64),
}

/// Wakes the maintenance thread.
#[derive(Debug, Default)]
pub(crate) struct Chores {
    pub(crate) state: Mutex<ChoreState>,
    pub(crate) wake: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct ChoreState {
    pub(crate) due: bool,
    pub(crate) stop: bool,
}

/// Bytes on disk. `used` counts what was reserved, so it is never below what the files hold.
#[derive(Debug, Default)]
pub(crate) struct Books {
    used: AtomicU64,
}

impl Books {
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn appended(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn freed(&self, bytes: u64) {
        let _ = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            Some(used.saturating_sub(bytes))
        });
    }
}

/// Gives out sequences and versions, and knows which are not yet visible.
#[derive(Debug, Default)]
pub(crate) struct Sequencer {
    state: Mutex<SequencerState>,
}

#[derive(Debug, Default)]
struct SequencerState {
    next: u64,
    last_version: u64,
    in_flight: BTreeSet<u64>,
}

impl Sequencer {
    pub(crate) fn start(&self, next: u64, last_version: u64) {
        let mut state = lock(&self.state);
        state.next = next.max(1);
        state.last_version = last_version;
    }

    /// The next sequence, and a version above every earlier one even if the wall clock stepped back.
    pub(crate) fn begin(&self, wall_ms: u64, version: Option<u64>) -> (u64, u64) {
        let mut state = lock(&self.state);
        let sequence = state.next;
        state.next += 1;
        state.in_flight.insert(sequence);
        let version = version.unwrap_or_else(|| wall_ms.max(state.last_version.saturating_add(1)));
        state.last_version = state.last_version.max(version);
        (sequence, version)
    }

    pub(crate) fn end(&self, sequence: u64) {
        lock(&self.state).in_flight.remove(&sequence);
    }

    pub(crate) fn next(&self) -> u64 {
        lock(&self.state).next
    }

    /// The highest sequence up to which everything is visible.
    pub(crate) fn stable(&self) -> u64 {
        let state = lock(&self.state);
        state.in_flight.first().copied().unwrap_or(state.next) - 1
    }
}

/// Recent changes, newest last, for followers.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) recent: VecDeque<(u64, FooterEntry)>,
    /// Everything above this sequence is in `recent`.
    pub(crate) recent_floor: u64,
    /// Not everything up to this sequence is on disk.
    pub(crate) floor: u64,
}

/// Whether writes are accepted.
#[derive(Debug, Default)]
pub(crate) struct Health {
    full: AtomicBool,
    probed: Mutex<Duration>,
    poison: Mutex<Option<Arc<io::Error>>>,
    poisoned: AtomicBool,
}

/// Whether a call must also work on a full disk: deletes free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    Ordinary,
    FreesSpace,
}

impl Health {
    pub(crate) fn poison(&self, source: &Arc<io::Error>) -> Error {
        let mut poison = lock(&self.poison);
        let source = Arc::clone(poison.get_or_insert_with(|| Arc::clone(source)));
        self.poisoned.store(true, Ordering::SeqCst);
        Error::Poisoned { source }
    }

    pub(crate) fn poisoned(&self) -> Option<Error> {
        if !self.poisoned.load(Ordering::Relaxed) {
            return None;
        }
        lock(&self.poison).as_ref().map(|source| Error::Poisoned {
            source: Arc::clone(source),
        })
    }

    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }
}

impl Core {
    /// Fails when writes are not accepted just now.
    pub(crate) fn check_writable(&self, urgency: Urgency) -> Result<(), Error> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::Closed);
        }
        if let Some(error) = self.health.poisoned() {
            return Err(error);
        }
        if urgency == Urgency::Ordinary && self.health.is_full() && !self.probe_space() {
            return Err(self.disk_full());
        }
        Ok(())
    }

    /// Looks at once whether there is space again: somebody has just freed some.
    pub(crate) fn look_for_space(&self) {
        if self.health.is_full() && self.backend.free_space().is_ok_and(|free| free > self.options.min_free) {
            self.health.full.store(false, Ordering::SeqCst);
        }
    }

    fn disk_full(&self) -> Error {
        Error::DiskFull {
            retry_after: self.options.probe_interval.max(Duration::from_secs(1)),
        }
    }

    /// Looks, at most once per interval, whether there is space again.
    fn probe_space(&self) -> bool {
        let now = self.options.clock.steady();
        {
            let mut probed = lock(&self.health.probed);
            if now.saturating_sub(*probed) < self.options.probe_interval {
                return false;
            }
            *probed = now;
        }
        self.maintain();
        let roomy = self.backend.free_space().is_ok_and(|free| free > self.options.min_free);
        if roomy {
            self.health.full.store(false, Ordering::SeqCst);
        }
        roomy
    }

    /// Turns a failed write into the state and the error it means.
    pub(crate) fn write_failed(&self, action: &'static str, source: io::Error) -> Error {
        if is_full(&source) {
            *lock(&self.health.probed) = self.options.clock.steady();
            self.health.full.store(true, Ordering::SeqCst);
            self.counters.disk_full.fetch_add(1, Ordering::Relaxed);
            return self.disk_full();
        }
        if is_refused(&source) {
            return Error::Io {
                action,
                source: Arc::new(source),
            };
        }
        self.health.poison(&Arc::new(source))
    }

    pub(crate) fn write_segment(&self, segment: &Segment, buf: &[u8], at: u64) -> Result<(), Error> {
        if let Some(error) = self.health.poisoned() {
            return Err(error);
        }
        segment
            .file
            .write_at(buf, at)
            .map_err(|e| self.write_failed("writing to a segment", e))?;
        segment.gate.wrote();
        Ok(())
    }

    pub(crate) fn sync_segment(&self, segment: &Segment) -> Result<(), Error> {
        if segment.gate.is_clean() {
            return Ok(());
        }
        if let Some(error) = self.health.poisoned() {
            return Err(error);
        }
        segment.gate.sync(&*segment.file).map_err(|e| self.health.poison(&e))
    }

    /// Makes everything written so far durable.
    pub(crate) fn sync_all(&self) -> Result<(), Error> {
        let dirty: Vec<_> = read(&self.segments)
            .iter()
            .filter(|s| !s.gate.is_clean())
            .cloned()
            .collect();
        dirty.iter().try_for_each(|segment| self.sync_segment(segment))
    }

    pub(crate) fn segment(&self, handle: u32) -> Option<Arc<Segment>> {
        read(&self.segments).get(handle).cloned()
    }

    /// The entry is no longer the current one of its segment.
    pub(crate) fn lose(&self, slot: &Slot) {
        if let Some(segment) = read(&self.segments).get(slot.segment) {
            segment.lose(slot);
        }
    }

    /// A new, empty segment whose name is durable, with one writer: the lane itself releases it by closing.
    pub(crate) fn create_segment(&self, flags: u32, urgency: Urgency) -> Result<Arc<Segment>, Error> {
        if self.shut.load(Ordering::SeqCst) {
            return Err(Error::Closed);
        }
        let free = self.backend.free_space().map_err(Error::io("asking for free space"))?;
        if free < self.options.min_free && urgency == Urgency::Ordinary {
            return Err(self.write_failed("creating a segment", io::ErrorKind::StorageFull.into()));
        }
        let id = self.next_segment.fetch_add(1, Ordering::SeqCst);
        #[expect(clippy::cast_possible_truncation, reason = "64 random bits are enough for a tag")]
        let tag = self.options.entropy.next() as u64 | 1;
        let header = SegmentHeader {
            store: self.header,
            flags,
            id,
            tag,
            created_ms: self.options.clock.wall_ms(),
            base_seq: self.sequencer.next(),
            history_floor: lock(&self.history).floor,
        };
        let name = file_name(id);
        let attempt = || {
            let file = self.backend.create(&name).and_then(|file| {
                file.write_at(&header.encode(), 0)?;
                Ok(file)
            });
            file.inspect_err(|_| drop(self.backend.remove(&name)))
        };
        let file = match attempt() {
            Err(error) if urgency == Urgency::FreesSpace && is_full(&error) && self.drop_ballast() => attempt(),
            first => first,
        };
        let file = file.map_err(|e| self.write_failed("creating a segment", e))?;
        // The name must be durable before a record in the file is acknowledged.
        self.backend
            .sync_dir(DIR)
            .map_err(|e| self.health.poison(&Arc::new(e)))?;
        let age = self.next_age.fetch_add(1, Ordering::Relaxed);
        let segment = write(&self.segments).add(|handle| Segment {
            handle,
            id,
            tag,
            flags,
            file,
            gate: SyncGate::default(),
            live_count: AtomicU64::new(0),
            live_bytes: AtomicU64::new(0),
            heat: AtomicU64::new(0),
            state: Mutex::new(State {
                phase: Phase::Active,
                end: FIRST_RECORD,
                writers: 0,
                table: Some(Table::default()),
                min_seq: None,
                max_seq: 0,
                freed: 0,
                live_when_punched: None,
                age,
            }),
        })?;
        segment.gate.wrote();
        self.books.appended(FIRST_RECORD);
        Ok(segment)
    }

    /// One batch or writer is done with the segment.
    pub(crate) fn leave_segment(&self, segment: &Segment) {
        let mut state = segment.state();
        state.writers = state.writers.saturating_sub(1);
        if state.writers == 0 && state.phase == Phase::Closing {
            drop(state);
            self.wake_maintenance();
        }
    }

    pub(crate) fn namespace_number(&self, name: &[u8]) -> Result<u32, Error> {
        if let Some(number) = read(&self.names).number(name) {
            return Ok(number);
        }
        write(&self.names).intern(name)
    }

    pub(crate) fn deleted_at(&self, namespace: u32) -> u64 {
        read(&self.names).deleted_at(namespace)
    }

    /// Drops every entry of a namespace that is older than its delete.
    pub(crate) fn forget_namespace(&self, namespace: u32, sequence: u64) {
        // First the mark, then the walk: who publishes after the walk passed its shard has seen the mark.
        read(&self.names).mark_deleted(namespace, sequence);
        for mut shard in self.index.each() {
            // The books change under the shard's lock: a segment is freed only after a pass over these locks.
            for slot in shard.remove_where(|s| s.namespace == namespace && s.sequence < sequence) {
                self.lose(&slot);
            }
        }
    }

    pub(crate) fn remember_change(&self, segment: &Segment, entry: &FooterEntry) {
        let mut history = lock(&self.history);
        history.recent.push_back((segment.id, *entry));
        while history.recent.len() > self.options.history {
            if let Some((_, gone)) = history.recent.pop_front() {
                history.recent_floor = history.recent_floor.max(gone.sequence);
            }
        }
    }

    /// Has the chores done soon: by the thread, or by the caller when there is none.
    pub(crate) fn wake_maintenance(&self) {
        lock(&self.chores.state).due = true;
        self.chores.wake.notify_all();
    }

    /// Does the chores now if the caller is the one to do them.
    pub(crate) fn after_call(&self) {
        let crowded = self.books.used() > self.options.capacity;
        if self.options.background == Background::Threads {
            if self.books.used() > self.options.capacity + 2 * self.options.segment_size {
                // Writers outrun eviction: the caller waits for it, or does it.
                self.maintain_now(Free::Usual);
            } else if crowded {
                self.wake_maintenance();
            }
            return;
        }
        let due = std::mem::take(&mut lock(&self.chores.state).due);
        if due || crowded {
            self.maintain();
        }
    }

    pub(crate) fn maintain_forever(&self) {
        loop {
            let mut state = lock(&self.chores.state);
            while !state.due && !state.stop {
                state = self
                    .chores
                    .wake
                    .wait(state)
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
            }
            if state.stop {
                return;
            }
            state.due = false;
            drop(state);
            self.maintain();
        }
    }
}
