//! Chores: sealing, giving dead space back, merging what is small. Eviction proper is in `evict`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::bytes::align8;
use crate::core::{Core, Maintenance};
use crate::error::Error;
use crate::evict::Keep;
use crate::format::{Class, FooterEntry, SOLO};
use crate::segment::{DIR, Phase, Segment, file_name};
use crate::sync::{lock, read, write};

/// Holes smaller than a page free nothing.
const PAGE: u64 = 4096;

/// So many small segments are worth one copy.
const MANY_SMALL: usize = 16;

/// How much to free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Free {
    /// What is worth a system call.
    Usual,
    /// Every dead page, now.
    Everything,
}

enum Punched {
    Yes,
    /// Somebody reads from it; later.
    InUse,
    /// The file system has no holes.
    Impossible,
}

impl Core {
    /// Does what is due, unless another thread is at it.
    pub(crate) fn maintain(&self) {
        if let Ok(mut chores) = self.maintenance.try_lock() {
            self.do_chores(&mut chores, Free::Usual);
        }
    }

    pub(crate) fn maintain_now(&self, free: Free) {
        self.do_chores(&mut lock(&self.maintenance), free);
    }

    fn do_chores(&self, chores: &mut Maintenance, free: Free) {
        lock(&self.leases).prune(self.options.clock.steady());
        if self.health.poisoned().is_some() {
            return;
        }
        // What is dead needs no footer, for which a full disk would have no room.
        self.drop_dead(chores);
        self.seal_closing();
        self.shrink(chores);
        self.merge_small(chores);
        self.punch(chores, free);
        self.hold_ballast();
    }

    fn all_segments(&self) -> Vec<Arc<Segment>> {
        read(&self.segments).iter().cloned().collect()
    }

    pub(crate) fn seal_closing(&self) {
        for segment in self.all_segments() {
            let ready = {
                let state = segment.state();
                state.phase == Phase::Closing && state.writers == 0
            };
            // Failures leave the segment as it is: it can be scanned, and sealed another time.
            if ready && self.seal(&segment).is_err() {
                return;
            }
        }
    }

    /// Writes the footer: first everything before it is made durable.
    fn seal(&self, segment: &Arc<Segment>) -> Result<(), Error> {
        let floor = lock(&self.history).floor;
        let (footer, at) = {
            let mut state = segment.state();
            let at = align8(state.end);
            let (id, tag, flags) = (segment.id, segment.tag, segment.flags);
            let footer = state
                .table
                .as_mut()
                .filter(|t| !t.entries.is_empty())
                .map(|t| t.encode(id, tag, flags, at, floor));
            (footer, at)
        };
        let Some(footer) = footer else {
            return self.remove_segment(segment);
        };
        self.sync_segment(segment)?;
        self.write_segment(segment, &footer, at)?;
        self.sync_segment(segment)?;
        let mut state = segment.state();
        let end = at + footer.len() as u64;
        self.books.appended(end - state.end);
        state.end = end;
        state.phase = Phase::Sealed;
        state.table = None;
        Ok(())
    }

    /// Removes the file of a segment no slot points to.
    pub(crate) fn remove_segment(&self, segment: &Arc<Segment>) -> Result<(), Error> {
        let name = file_name(segment.id);
        match self.backend.remove(&name) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(self.write_failed("removing a segment", e));
            }
            _ => {}
        }
        // Until the removal is durable the segment may come back, and the tombstones against it are still needed.
        self.backend
            .sync_dir(DIR)
            .map_err(|e| self.health.poison(&Arc::new(e)))?;
        let bytes = segment.disk_bytes();
        segment.state().phase = Phase::Gone;
        write(&self.segments).remove(segment);
        self.books.freed(bytes);
        Ok(())
    }

    pub(crate) fn sealed(&self) -> Vec<Arc<Segment>> {
        let mut sealed: Vec<(u64, Arc<Segment>)> = read(&self.segments)
            .iter()
            .filter_map(|s| {
                let state = s.state();
                (state.phase == Phase::Sealed).then(|| (state.age, Arc::clone(s)))
            })
            .collect();
        sealed.sort_by_key(|(age, _)| *age);
        sealed.into_iter().map(|(_, s)| s).collect()
    }

    /// Segments that wait for their footer, and that nobody writes to any more.
    fn unsealed(&self) -> Vec<Arc<Segment>> {
        let idle = |segment: &Arc<Segment>| {
            let state = segment.state();
            state.phase == Phase::Closing && state.writers == 0
        };
        read(&self.segments).iter().filter(|s| idle(s)).cloned().collect()
    }

    fn drop_dead(&self, chores: &mut Maintenance) {
        for segment in self.sealed().into_iter().chain(self.unsealed()) {
            if segment.live_count.load(Ordering::Relaxed) == 0 {
                let keep = if self.health.is_full() {
                    Keep::Nothing
                } else {
                    Keep::Live
                };
                let _ = self.evict(chores, &segment, keep);
            }
        }
    }

    /// Restarts and namespace deletes end segments early; when many small ones have gathered, they become one.
    fn merge_small(&self, chores: &mut Maintenance) {
        let small: Vec<_> = self
            .sealed()
            .into_iter()
            .filter(|s| s.flags & SOLO == 0 && s.state().end < self.options.segment_size / 16)
            .collect();
        if small.len() < MANY_SMALL || self.health.is_full() {
            return;
        }
        for segment in small {
            if self.evict(chores, &segment, Keep::Merge).is_err() {
                return;
            }
        }
    }

    /// Gives dead pages of sealed segments back to the file system, or compacts where it cannot.
    fn punch(&self, chores: &mut Maintenance, free: Free) {
        let mut segments = self.sealed();
        if free == Free::Everything {
            // They are here because the disk had no room for their footers; a scan does not miss what is dead.
            segments.extend(self.unsealed());
        }
        for segment in segments {
            let live = segment.live_bytes.load(Ordering::Relaxed);
            let (end, before) = {
                let state = segment.state();
                (state.end, state.live_when_punched)
            };
            let dead = before.map_or(end.saturating_sub(live), |b| b.saturating_sub(live));
            let worth = if free == Free::Everything { PAGE } else { end / 4 };
            if dead < worth.max(1) || before == Some(live) {
                continue;
            }
            match self.punch_segment(&segment, free) {
                Ok(Punched::Yes) => {
                    segment.state().live_when_punched = Some(live);
                    // What is left lies so scattered that the holes between are smaller than pages.
                    if live < segment.disk_bytes() / 2 && !self.health.is_full() {
                        let _ = self.evict(chores, &segment, Keep::Live);
                    }
                }
                Ok(Punched::Impossible) if live < end / 2 && !self.health.is_full() => {
                    let _ = self.evict(chores, &segment, Keep::Live);
                }
                Ok(_) | Err(_) => {}
            }
        }
        self.seal_closing();
    }

    fn punch_segment(&self, segment: &Arc<Segment>, free: Free) -> Result<Punched, Error> {
        let Some(mut table) = segment.table().map_err(Error::io("reading a footer"))? else {
            return Ok(Punched::Yes);
        };
        table.entries.sort_by_key(|e| e.offset);
        let mut freed = 0;
        let mut dead_from = crate::format::FIRST_RECORD;
        let data_end = table.entries.iter().map(FooterEntry::end).max().unwrap_or(dead_from);
        let mut holes = Vec::new();
        for entry in &table.entries {
            // Tombstones stay: a scan must find them should the footer be damaged.
            let alive = entry.class != Class::Put || self.live_slot(segment, entry).is_some();
            if alive {
                holes.push((dead_from, entry.offset));
                dead_from = entry.end();
            }
        }
        holes.push((dead_from, data_end));
        // Whoever still reads an entry that died meanwhile holds the segment; its bytes must not turn to zeros under it.
        // Readers take their hold under the shard's lock, which was taken above for every entry.
        let in_use = || Arc::strong_count(segment) > 2 || Arc::strong_count(&segment.file) > 1;
        for _ in 0..if free == Free::Everything { 1000 } else { 0 } {
            if !in_use() {
                break;
            }
            std::thread::yield_now();
        }
        if in_use() {
            return Ok(Punched::InUse);
        }
        self.sync_all()?;
        for (from, to) in holes {
            let (from, to) = (from.next_multiple_of(PAGE), to / PAGE * PAGE);
            if to <= from {
                continue;
            }
            match segment.file.punch(from, to - from) {
                Ok(true) => freed += to - from,
                Ok(false) => return Ok(Punched::Impossible),
                Err(e) => return Err(self.write_failed("punching a hole", e)),
            }
        }
        let mut state = segment.state();
        let more = freed.saturating_sub(state.freed);
        state.freed += more;
        drop(state);
        self.books.freed(more);
        self.counters.punched_bytes.fetch_add(more, Ordering::Relaxed);
        Ok(Punched::Yes)
    }
}
