//! Eviction by segment.
//!
//! Eviction takes the oldest sealed segment, or one of the oldest quarter with clearly less in it worth keeping. What
//! was read since the hand last came by is copied forward within a budget, most-read first, and what is leased always.
//! So a scan passes through without leaving a mark, and what builds share stays.
//!
//! Invariants:
//! 1. A segment's file is removed, and the removal synced, only after everything worth keeping is durable elsewhere.
//! 2. A tombstone is dropped only when no other segment holds a record older than it; else it is copied forward.
//! 3. What superseded a record is durable before the record's bytes go, even if its writer asked for less.
//! 4. Evicting a mutable entry leaves a tombstone while any other segment may hold an older version of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::backend::read_exact_at;
use crate::bytes::align8;
use crate::commit::{footer_entry, slot_of};
use crate::core::{Core, Maintenance, Urgency};
use crate::error::Error;
use crate::format::{Class, FooterEntry, HeadParts, SOLO, SURVIVORS, Table, Trailer, encode_head, encode_trailer};
use crate::index::Slot;
use crate::key::Kind;
use crate::reader::{read_head, read_trailer};
use crate::segment::{Phase, Segment};
use crate::sync::{lock, read};

const COPY: usize = 1 << 20;
/// Notes that may be copied on a full disk.
const NOTES: u64 = 16 << 10;
/// What to keep of a segment that goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// What was read lately, within the budget, and what is leased.
    Hot,
    /// All that is alive: the segment is mostly dead and cannot be punched.
    Live,
    /// All that is alive: many small segments become one.
    Merge,
    /// The disk is full: only a few notes of what is gone.
    Nothing,
}

/// What happened to a candidate.
pub(crate) enum Verdict {
    Gone,
    Spared,
}

impl Core {
    /// Evicts until the store fits again.
    pub(crate) fn shrink(&self, chores: &mut Maintenance) {
        let capacity = self.options.capacity;
        let goal = capacity - self.options.segment_size.min(capacity / 4);
        if self.books.used() <= goal {
            return;
        }
        let mut attempts = 4 * self.sealed().len() + 4;
        while self.books.used() > goal && attempts > 0 && self.health.poisoned().is_none() {
            attempts -= 1;
            let Some(victim) = self.choose_victim() else { return };
            let keep = if self.health.is_full() {
                Keep::Nothing
            } else {
                Keep::Hot
            };
            match self.evict(chores, &victim, keep) {
                Ok(Verdict::Gone) => {
                    self.counters.evicted_segments.fetch_add(1, Ordering::Relaxed);
                }
                Ok(Verdict::Spared) => {
                    victim.state().age = self.next_age.fetch_add(1, Ordering::Relaxed);
                }
                Err(_) if self.health.is_full() => {}
                Err(_) => return,
            }
            self.seal_closing();
        }
    }

    /// The oldest, or among the oldest quarter one less alive and less read.
    fn choose_victim(&self) -> Option<Arc<Segment>> {
        let sealed = self.sealed();
        let window = (sealed.len() / 4).max(1);
        let score = |s: &Arc<Segment>| {
            let live = s.live_bytes.load(Ordering::Relaxed);
            let count = s.live_count.load(Ordering::Relaxed).max(1);
            let heat = s.heat.load(Ordering::Relaxed).min(4 * count);
            live.saturating_add(live.saturating_mul(heat) / count)
        };
        let candidates = sealed.get(..window)?;
        // The oldest goes, unless another is clearly cheaper: a small difference must not spare it for ever.
        let oldest = candidates.first()?;
        let cheapest = candidates.iter().min_by_key(|s| score(s))?;
        let victim = if score(cheapest) < score(oldest) / 4 * 3 {
            cheapest
        } else {
            oldest
        };
        let victim = Some(Arc::clone(victim));
        // Heat fades each time the hand looks, so that what was hot once cannot stay for ever.
        for segment in candidates {
            let _ = segment
                .heat
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |heat| Some(heat / 4 * 3));
        }
        victim
    }

    /// The lowest sequence on disk outside this segment.
    fn oldest_elsewhere(&self, segment: &Segment) -> u64 {
        let others = read(&self.segments);
        others
            .iter()
            .filter(|s| s.id != segment.id)
            .filter_map(|s| s.state().min_seq)
            .min()
            .unwrap_or(u64::MAX)
    }

    pub(crate) fn live_slot(&self, segment: &Segment, entry: &FooterEntry) -> Option<Slot> {
        let slot = self.index.shard(entry.fingerprint).get(entry.fingerprint)?;
        (slot.segment == segment.handle && slot.offset == entry.offset).then_some(slot)
    }

    /// Removes a sealed segment, keeping what is to be kept.
    pub(crate) fn evict(&self, chores: &mut Maintenance, segment: &Arc<Segment>, keep: Keep) -> Result<Verdict, Error> {
        let now = self.options.clock.steady();
        let table = match segment.table().map_err(Error::io("reading a footer"))? {
            Some(table) => table,
            // Damaged since it was opened. What it says is lost, but its records can still be found one by one.
            None => {
                crate::scan::scan(&*segment.file, segment.tag, segment.flags)
                    .map_err(Error::io("scanning a segment"))?
                    .table
            }
        };
        let older = self.oldest_elsewhere(segment);
        let plan = self.plan(segment, &table, keep, older, now);
        if keep == Keep::Nothing && !plan.is_affordable() {
            return Ok(Verdict::Spared);
        }
        if segment.flags & SOLO != 0 && keep == Keep::Hot && plan.copies.iter().any(|(e, _)| e.class == Class::Put) {
            self.cool(&plan);
            return Ok(Verdict::Spared);
        }
        // Copying nearly all of it would free nothing; its turn comes again.
        let share = match keep {
            Keep::Live => 50,
            Keep::Merge => 100,
            Keep::Hot | Keep::Nothing => 90,
        };
        if plan.copied_bytes() > segment.disk_bytes() / 100 * share && keep != Keep::Merge {
            return Ok(Verdict::Spared);
        }
        let mut claimed = Vec::new();
        let done = self.carry_out(chores, segment, &plan, keep, &mut claimed);
        for (fp, sequence) in claimed {
            self.sequencer.end(sequence);
            self.release(fp);
        }
        self.wake_log();
        done?;
        if !self.drop_rest(chores, segment, &table, keep)? {
            return Ok(Verdict::Spared);
        }
        if segment.live_count.load(Ordering::Relaxed) > 0 {
            for mut shard in self.index.each() {
                for slot in shard.remove_where(|s| s.segment == segment.handle) {
                    self.lose(&slot);
                }
            }
        }
        self.sync_all()?;
        self.remove_segment(segment)?;
        Ok(Verdict::Gone)
    }

    /// Drops what was not copied. What somebody has leased since the plan was made is copied after all; `false` when that
    /// cannot be done because the disk is full.
    fn drop_rest(
        &self,
        chores: &mut Maintenance,
        segment: &Arc<Segment>,
        table: &Table,
        keep: Keep,
    ) -> Result<bool, Error> {
        self.evictions.fetch_add(1, Ordering::SeqCst);
        let mut late = Plan::default();
        for entry in table.entries.iter().filter(|e| e.class == Class::Put) {
            if let Some(slot) = self.live_slot(segment, entry)
                && self.drop_unless_leased(&slot)
            {
                late.copies.push((*entry, Some(slot)));
            }
        }
        self.evictions.fetch_add(1, Ordering::SeqCst);
        if late.copies.is_empty() {
            return Ok(true);
        }
        if keep == Keep::Nothing {
            return Ok(false);
        }
        self.carry_out(chores, segment, &late, keep, &mut Vec::new())?;
        Ok(true)
    }

    fn plan(&self, segment: &Segment, table: &Table, keep: Keep, older: u64, now: Duration) -> Plan {
        let mut plan = Plan::default();
        let mut hot = Vec::new();
        for entry in &table.entries {
            if entry.class != Class::Put {
                let tombstone = entry.class != Class::Floor;
                if tombstone && entry.sequence > older {
                    plan.copies.push((*entry, None));
                } else if tombstone {
                    plan.forgets = true;
                }
                continue;
            }
            let Some(slot) = self.live_slot(segment, entry) else {
                continue;
            };
            let leased = lock(&self.leases).holds(entry.fingerprint, now);
            if leased || matches!(keep, Keep::Live | Keep::Merge) {
                plan.copies.push((*entry, Some(slot)));
            } else if slot.access > 0 && keep == Keep::Hot {
                hot.push((*entry, slot));
            } else {
                plan.drop(entry, slot, older);
            }
        }
        hot.sort_by_key(|(entry, slot)| (std::cmp::Reverse(slot.access), std::cmp::Reverse(entry.sequence)));
        let mut budget = segment.state().end / 100 * u64::from(self.options.keep_percent.min(90));
        for (entry, slot) in hot {
            let cost = entry.end() - entry.offset;
            if cost <= budget {
                budget -= cost;
                plan.copies.push((entry, Some(slot)));
            } else {
                plan.drop(&entry, slot, older);
            }
        }
        plan
    }

    /// A solo segment that is still wanted is left where it is; next time its reads count anew.
    fn cool(&self, plan: &Plan) {
        for (entry, _) in &plan.copies {
            let mut shard = self.index.shard(entry.fingerprint);
            if let Some(mut slot) = shard.get(entry.fingerprint) {
                slot.access = slot.access.saturating_sub(1);
                shard.insert(&slot);
            }
        }
    }

    fn carry_out(
        &self,
        chores: &mut Maintenance,
        segment: &Arc<Segment>,
        plan: &Plan,
        keep: Keep,
        claimed: &mut Vec<(u128, u64)>,
    ) -> Result<(), Error> {
        let mut copied = Vec::new();
        let mut touched: Vec<Arc<Segment>> = Vec::new();
        let mut note = |made: &Arc<Segment>| {
            if touched.last().is_none_or(|t| t.id != made.id) {
                touched.push(Arc::clone(made));
            }
        };
        for (entry, slot) in &plan.copies {
            if let Some((made, at)) = self.copy(chores, segment, entry)? {
                note(&made);
                copied.push((made, at, *slot));
            }
        }
        for slot in &plan.tombstones {
            // The claim keeps a newer version from getting a lower sequence than the tombstone.
            match self.claim_eviction(slot) {
                Claimed::Taken => {}
                Claimed::Moved => continue,
                Claimed::Busy => {
                    // Somebody is writing it right now: keep the old one, so that a failed write loses nothing.
                    let entry = plan.entries.iter().find(|e| e.fingerprint == slot.fingerprint);
                    if let Some((made, at)) = entry.map(|e| self.copy(chores, segment, e)).transpose()?.flatten() {
                        note(&made);
                        copied.push((made, at, Some(*slot)));
                    }
                    continue;
                }
            }
            let (sequence, version) = self.sequencer.begin(self.options.clock.wall_ms(), None);
            claimed.push((slot.fingerprint, sequence));
            let parts = HeadParts {
                kind: slot.kind,
                class: Class::Evict,
                namespace: &[],
                key: &[],
                references: &[],
                body_len: 0,
                fingerprint: slot.fingerprint,
            };
            note(&self.append_note(chores, &parts, &[], sequence, version)?);
        }
        if plan.forgets || !plan.dropped.is_empty() || !plan.tombstones.is_empty() {
            let floor = segment.state().max_seq;
            let raised = {
                let mut history = lock(&self.history);
                let raised = history.floor < floor;
                history.floor = history.floor.max(floor);
                raised
            };
            // On a full disk the floor is kept in memory only; the next segment header or footer carries it.
            if raised && keep != Keep::Nothing {
                let (sequence, version) = self.sequencer.begin(self.options.clock.wall_ms(), None);
                let parts = HeadParts {
                    kind: 0,
                    class: Class::Floor,
                    namespace: &[],
                    key: &[],
                    references: &[],
                    body_len: 8,
                    fingerprint: 0,
                };
                let made = self.append_note(chores, &parts, &floor.to_le_bytes(), sequence, version);
                self.sequencer.end(sequence);
                note(&made?);
            }
        }
        for made in &touched {
            self.sync_segment(made)?;
        }
        for (made, entry, slot) in copied {
            if let Some(old) = slot {
                self.repoint(&old, &made, &entry);
            }
        }
        for slot in &plan.tombstones {
            if claimed.iter().any(|(fp, _)| *fp == slot.fingerprint) && self.drop_slot(slot) {
                self.counters.evicted_entries.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Claims a fingerprint if nobody has it and the entry is still where it was.
    fn claim_eviction(&self, slot: &Slot) -> Claimed {
        let mut shard = self.index.shard(slot.fingerprint);
        if shard.in_flight.contains_key(&slot.fingerprint) {
            return Claimed::Busy;
        }
        if !shard.get(slot.fingerprint).is_some_and(|s| s.same_place(slot)) {
            return Claimed::Moved;
        }
        shard.in_flight.insert(slot.fingerprint, Vec::new());
        Claimed::Taken
    }

    fn repoint(&self, old: &Slot, made: &Arc<Segment>, entry: &FooterEntry) {
        let mut shard = self.index.shard(old.fingerprint);
        let Some(current) = shard.get(old.fingerprint).filter(|s| s.same_place(old)) else {
            return;
        };
        let mut slot = slot_of(entry, made.handle, current.namespace, true);
        slot.access = current.access.saturating_sub(1);
        made.gain(&slot);
        shard.insert(&slot);
        self.lose(&current);
        drop(shard);
        self.counters.kept_entries.fetch_add(1, Ordering::Relaxed);
        self.counters
            .kept_bytes
            .fetch_add(u64::from(slot.body_len), Ordering::Relaxed);
    }

    /// Room for a record among the survivors.
    fn survivor(&self, chores: &mut Maintenance, extent: u64) -> Result<(Arc<Segment>, u64), Error> {
        let full = chores
            .survivors
            .as_ref()
            .is_some_and(|s| s.state().end + extent > self.options.segment_size);
        if full && let Some(old) = chores.survivors.take() {
            old.state().phase = Phase::Closing;
        }
        let segment = if let Some(segment) = &chores.survivors {
            Arc::clone(segment)
        } else {
            // On a full disk nothing but notes of what is gone comes here.
            let urgency = if self.health.is_full() {
                Urgency::FreesSpace
            } else {
                Urgency::Ordinary
            };
            let made = self.create_segment(SURVIVORS, urgency)?;
            chores.survivors = Some(Arc::clone(&made));
            made
        };
        let mut state = segment.state();
        let at = state.end;
        state.end += extent;
        drop(state);
        self.books.appended(extent);
        Ok((segment, at))
    }

    /// Lets the survivors be sealed.
    pub(crate) fn close_survivors(&self) {
        if let Some(segment) = lock(&self.maintenance).survivors.take() {
            segment.state().phase = Phase::Closing;
        }
    }

    fn append_note(
        &self,
        chores: &mut Maintenance,
        parts: &HeadParts<'_>,
        body: &[u8],
        sequence: u64,
        version: u64,
    ) -> Result<Arc<Segment>, Error> {
        let (made, at) = self.survivor(chores, parts.extent())?;
        let mut buf = Vec::new();
        let head_crc = encode_head(&mut buf, made.tag, at, parts);
        buf.extend_from_slice(body);
        buf.resize(buf.len().next_multiple_of(8), 0);
        let trailer = Trailer {
            sequence,
            version,
            body_crc: crate::bytes::crc(body),
        };
        buf.extend_from_slice(&encode_trailer(made.tag, at, head_crc, trailer));
        self.write_freeing(&made, &buf, at)?;
        self.list(&made, 0, footer_entry(parts, at, sequence, version));
        Ok(made)
    }

    /// Copies a record, sequence and all, checking its bytes on the way. `None` when they are wrong: the entry is lost.
    fn copy(
        &self,
        chores: &mut Maintenance,
        from: &Segment,
        entry: &FooterEntry,
    ) -> Result<Option<(Arc<Segment>, FooterEntry)>, Error> {
        let reading = |e| Error::io("reading a record")(e);
        let Some((head, names)) = read_head(&*from.file, from.tag, entry.offset, 512).map_err(reading)? else {
            self.counters.damaged.fetch_add(1, Ordering::Relaxed);
            return Ok(None);
        };
        let Some(trailer) = read_trailer(&*from.file, from.tag, entry.offset, &head).map_err(reading)? else {
            self.counters.damaged.fetch_add(1, Ordering::Relaxed);
            return Ok(None);
        };
        let references: Vec<u128> = head.references(&names).map(Iterator::collect).unwrap_or_default();
        let parts = HeadParts {
            kind: head.kind,
            class: head.class,
            namespace: head.namespace(&names).unwrap_or_default(),
            key: head.key(&names).unwrap_or_default(),
            references: &references,
            body_len: head.body_len,
            fingerprint: head.fingerprint,
        };
        let (made, at) = self.survivor(chores, parts.extent())?;
        let mut buf = Vec::new();
        let head_crc = encode_head(&mut buf, made.tag, at, &parts);
        let mut to = at;
        let mut crc = crc32fast::Hasher::new();
        let mut done = 0;
        while done < head.body_len {
            let n = usize::try_from(head.body_len - done).unwrap_or(COPY).min(COPY);
            let piece = read_exact_at(&*from.file, entry.offset + head.len() as u64 + done, n).map_err(reading)?;
            let Some(piece) = piece else { return Ok(None) };
            crc.update(&piece);
            buf.extend_from_slice(&piece);
            done += n as u64;
            if buf.len() >= COPY {
                self.write_segment(&made, &buf, to)?;
                to += buf.len() as u64;
                buf.clear();
            }
        }
        if crc.finalize() != trailer.body_crc {
            self.counters.damaged.fetch_add(1, Ordering::Relaxed);
            return Ok(None);
        }
        let padding = usize::try_from(align8(head.body_len) - head.body_len).unwrap_or(0);
        buf.resize(buf.len() + padding, 0);
        buf.extend_from_slice(&encode_trailer(made.tag, at, head_crc, trailer));
        if head.class == Class::Put {
            self.write_segment(&made, &buf, to)?;
        } else {
            self.write_freeing(&made, &buf, to)?;
        }
        let new = footer_entry(&parts, at, trailer.sequence, trailer.version);
        let namespace = self.namespace_number(parts.namespace)?;
        self.list(&made, namespace, new);
        Ok(Some((made, new)))
    }
}

/// Whether an entry may be evicted with a tombstone.
enum Claimed {
    Taken,
    /// A write of it is under way.
    Busy,
    /// It was written, deleted or moved since.
    Moved,
}

#[derive(Default)]
struct Plan {
    /// Records to copy; those of live entries with their slot.
    copies: Vec<(FooterEntry, Option<Slot>)>,
    /// Mutable entries that go and may have older versions elsewhere.
    tombstones: Vec<Slot>,
    /// Entries behind `tombstones`.
    entries: Vec<FooterEntry>,
    dropped: Vec<u128>,
    /// Tombstones go that followers may not have seen.
    forgets: bool,
}

impl Plan {
    fn copied_bytes(&self) -> u64 {
        self.copies.iter().map(|(e, _)| e.end() - e.offset).sum()
    }

    /// Whether there is room for it on a full disk: for a few notes there is, with the ballast.
    fn is_affordable(&self) -> bool {
        let notes = self.copies.iter().all(|(entry, _)| entry.class != Class::Put);
        notes && self.tombstones.is_empty() && self.copied_bytes() <= NOTES
    }

    fn drop(&mut self, entry: &FooterEntry, slot: Slot, older: u64) {
        if Kind::from_code(entry.kind).is_mutable() && entry.sequence > older {
            self.tombstones.push(slot);
            self.entries.push(*entry);
        } else {
            self.dropped.push(entry.fingerprint);
        }
    }
}
