//! One segment file in memory: its handle, its books, its sync gate.
//!
//! ```text
//! Active ──rotate──> Closing ──last writer leaves, maintenance──> Sealed ──evict──> gone
//!                       ^ recovery of an unsealed file enters here
//! ```
//!
//! Invariants:
//! 1. `live_count` is the number of index slots that point here; a segment is dropped only at 0.
//! 2. Every published record is in `table` until the footer is written; the footer is written with `writers == 0`.
//! 3. The footer is written after a sync that covers every record.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use crate::backend::{File, read_exact_at};
use crate::error::Error;
use crate::format::{FOOTER_TRAILER_LEN, FooterEntry, FooterTrailer, Table};
use crate::index::{MAX_HANDLES, Slot};
use crate::sync::lock;

pub(crate) const DIR: &str = "segments";

pub(crate) fn file_name(id: u64) -> String {
    format!("{DIR}/{id:016x}.seg")
}

pub(crate) fn parse_name(name: &str) -> Option<u64> {
    let hex = name.strip_suffix(".seg").filter(|h| h.len() == 16)?;
    u64::from_str_radix(hex, 16).ok().filter(|&id| id > 0)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Active,
    Closing,
    Sealed,
    Gone,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) phase: Phase,
    /// End of what was reserved, or of the file once sealed.
    pub(crate) end: u64,
    /// Batches and writers that may still write.
    pub(crate) writers: u32,
    /// What the footer will say; `None` once it was written.
    pub(crate) table: Option<Table>,
    pub(crate) min_seq: Option<u64>,
    pub(crate) max_seq: u64,
    /// Bytes given back by punching.
    pub(crate) freed: u64,
    /// Dead bytes when it was punched last, to know when that is worthwhile again.
    pub(crate) live_when_punched: Option<u64>,
    /// Order in which the eviction hand comes by.
    pub(crate) age: u64,
}

#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) handle: u32,
    pub(crate) id: u64,
    pub(crate) tag: u64,
    pub(crate) flags: u32,
    pub(crate) file: Arc<dyn File>,
    pub(crate) gate: SyncGate,
    pub(crate) live_count: AtomicU64,
    pub(crate) live_bytes: AtomicU64,
    /// Reads since the eviction hand last looked.
    pub(crate) heat: AtomicU64,
    pub(crate) state: Mutex<State>,
}

impl Segment {
    pub(crate) fn state(&self) -> std::sync::MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(crate) fn gain(&self, slot: &Slot) {
        self.live_count.fetch_add(1, Ordering::Relaxed);
        self.live_bytes.fetch_add(slot.weight(), Ordering::Relaxed);
    }

    pub(crate) fn lose(&self, slot: &Slot) {
        self.live_count.fetch_sub(1, Ordering::Relaxed);
        self.live_bytes.fetch_sub(slot.weight(), Ordering::Relaxed);
    }

    /// Lists a record for the footer.
    pub(crate) fn list(&self, namespace: &[u8], mut entry: FooterEntry) {
        let mut state = self.state();
        state.min_seq = Some(state.min_seq.map_or(entry.sequence, |m| m.min(entry.sequence)));
        state.max_seq = state.max_seq.max(entry.sequence);
        if let Some(table) = state.table.as_mut() {
            entry.namespace = if namespace.is_empty() {
                None
            } else {
                table.intern(namespace)
            };
            table.entries.push(entry);
        }
    }

    pub(crate) fn disk_bytes(&self) -> u64 {
        let state = self.state();
        if state.phase == Phase::Gone {
            0
        } else {
            state.end.saturating_sub(state.freed)
        }
    }

    /// The table, from memory or from the footer. `None`: the footer is damaged.
    pub(crate) fn table(&self) -> io::Result<Option<Table>> {
        if let Some(table) = self.state().table.as_ref() {
            return Ok(Some(table.clone()));
        }
        Ok(read_footer(&*self.file)?.map(|(_, table)| table))
    }
}

/// Reads the fixed end of a sealed segment.
pub(crate) fn read_footer_trailer(file: &dyn File) -> io::Result<Option<FooterTrailer>> {
    let len = file.len()?;
    let Some(at) = len.checked_sub(FOOTER_TRAILER_LEN as u64) else {
        return Ok(None);
    };
    let end = read_exact_at(file, at, FOOTER_TRAILER_LEN)?;
    Ok(end.and_then(|end| FooterTrailer::decode(&end, len)))
}

/// Reads and checks the whole footer.
pub(crate) fn read_footer(file: &dyn File) -> io::Result<Option<(FooterTrailer, Table)>> {
    let Some(trailer) = read_footer_trailer(file)? else {
        return Ok(None);
    };
    let Ok(len) = usize::try_from(trailer.table_len()) else {
        return Ok(None);
    };
    let table = read_exact_at(file, trailer.footer_at, len)?;
    Ok(table
        .and_then(|buf| Table::decode(&buf, &trailer))
        .map(|table| (trailer, table)))
}

/// Lets many callers share one sync: whoever comes while one runs waits for the next, which covers them all.
#[derive(Debug, Default)]
pub(crate) struct SyncGate {
    state: Mutex<GateState>,
    done: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    written: u64,
    synced: u64,
    running: bool,
    failed: Option<Arc<io::Error>>,
}

impl SyncGate {
    /// A write to the file has returned.
    pub(crate) fn wrote(&self) {
        lock(&self.state).written += 1;
    }

    pub(crate) fn is_clean(&self) -> bool {
        let state = lock(&self.state);
        state.synced >= state.written
    }

    /// Returns when everything written before the call is durable.
    pub(crate) fn sync(&self, file: &dyn File) -> Result<(), Arc<io::Error>> {
        let mut state = lock(&self.state);
        let want = state.written;
        loop {
            if let Some(error) = &state.failed {
                return Err(Arc::clone(error));
            }
            if state.synced >= want {
                return Ok(());
            }
            if state.running {
                state = self.done.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
                continue;
            }
            state.running = true;
            let target = state.written;
            drop(state);
            let result = file.sync();
            state = lock(&self.state);
            state.running = false;
            match result {
                Ok(()) => state.synced = state.synced.max(target),
                // After a failed sync nobody knows what the disk holds, and asking again may wrongly succeed.
                Err(error) => state.failed = Some(Arc::new(error)),
            }
            self.done.notify_all();
        }
    }
}

/// All segments by handle and by id.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    by_handle: Vec<Option<Arc<Segment>>>,
    by_id: BTreeMap<u64, u32>,
    free: Vec<u32>,
}

impl Segments {
    /// Builds a segment around the next free handle.
    pub(crate) fn add(&mut self, make: impl FnOnce(u32) -> Segment) -> Result<Arc<Segment>, Error> {
        let handle = if let Some(handle) = self.free.pop() {
            handle
        } else {
            let next = u32::try_from(self.by_handle.len() + 1).unwrap_or(u32::MAX);
            if next > MAX_HANDLES {
                return Err(Error::TableFull {
                    limit: u64::from(MAX_HANDLES),
                });
            }
            self.by_handle.push(None);
            next
        };
        let segment = Arc::new(make(handle));
        self.by_id.insert(segment.id, handle);
        if let Some(place) = self.by_handle.get_mut(handle as usize - 1) {
            *place = Some(Arc::clone(&segment));
        }
        Ok(segment)
    }

    pub(crate) fn get(&self, handle: u32) -> Option<&Arc<Segment>> {
        self.by_handle.get((handle as usize).checked_sub(1)?)?.as_ref()
    }

    pub(crate) fn by_id(&self, id: u64) -> Option<&Arc<Segment>> {
        self.get(*self.by_id.get(&id)?)
    }

    /// Forgets a segment no slot points to.
    pub(crate) fn remove(&mut self, segment: &Segment) {
        self.by_id.remove(&segment.id);
        if let Some(place) = self.by_handle.get_mut(segment.handle as usize - 1) {
            *place = None;
            self.free.push(segment.handle);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.by_id.values().filter_map(|&h| self.get(h))
    }
}

/// Namespace names and numbers, and when each was last deleted. Numbers live as long as the process.
#[derive(Debug, Default)]
pub(crate) struct Namespaces {
    by_name: HashMap<Box<[u8]>, u32>,
    list: Vec<Namespace>,
}

#[derive(Debug)]
struct Namespace {
    name: Box<[u8]>,
    deleted_at: Arc<AtomicU64>,
}

impl Namespaces {
    pub(crate) fn number(&self, name: &[u8]) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn intern(&mut self, name: &[u8]) -> Result<u32, Error> {
        if let Some(&number) = self.by_name.get(name) {
            return Ok(number);
        }
        let number = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        if number > MAX_HANDLES {
            return Err(Error::TableFull {
                limit: u64::from(MAX_HANDLES),
            });
        }
        self.list.push(Namespace {
            name: name.into(),
            deleted_at: Arc::default(),
        });
        self.by_name.insert(name.into(), number);
        Ok(number)
    }

    pub(crate) fn len(&self) -> u64 {
        self.list.len() as u64
    }

    pub(crate) fn name(&self, number: u32) -> Option<&[u8]> {
        self.list.get(number as usize).map(|n| n.name.as_ref())
    }

    /// The highest sequence of a delete of this namespace; 0 = never.
    pub(crate) fn deleted_at(&self, number: u32) -> u64 {
        self.list
            .get(number as usize)
            .map_or(0, |n| n.deleted_at.load(Ordering::SeqCst))
    }

    pub(crate) fn mark_deleted(&self, number: u32, sequence: u64) {
        if let Some(namespace) = self.list.get(number as usize) {
            namespace.deleted_at.fetch_max(sequence, Ordering::SeqCst);
        }
    }
}
