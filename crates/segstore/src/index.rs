//! Where every live entry is, in memory: 256 shards of open-addressing tables with 36-byte slots.
//!
//! Robin Hood order keeps lookups short at a load of 0.9, and a table grows by a sixteenth instead of doubling, so that an
//! entry costs at most 36 / 0.9 × 17/16 ≈ 42.5 bytes, spare included. A shard that grows moves only itself.
//!
//! Invariants, under the lock of the shard:
//! 1. Slots are sorted by home position with no empty slot between a slot and its home.
//! 2. `used <= capacity * 9 / 10`.
//! 3. A slot's segment handle is valid: eviction empties the slots before it frees the handle.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use crate::commit::Waiting;
use crate::sync::lock;

pub(crate) const SHARDS: usize = 256;
/// Segment handles and namespaces have 20 bits in a slot.
pub(crate) const MAX_HANDLES: u32 = (1 << 20) - 1;

/// One entry as the index knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) fingerprint: u128,
    /// Handle in the segment table, from 1.
    pub(crate) segment: u32,
    pub(crate) offset: u64,
    pub(crate) body_len: u32,
    pub(crate) sequence: u64,
    pub(crate) namespace: u32,
    pub(crate) kind: u8,
    /// Reads since the eviction hand last passed, up to 3.
    pub(crate) access: u8,
    /// The body's checksum was seen right in this process.
    pub(crate) verified: bool,
    pub(crate) references: bool,
}

impl Slot {
    /// What an entry weighs in the books of its segment. The exact length of its head is on disk only.
    pub(crate) fn weight(&self) -> u64 {
        u64::from(self.body_len) + 160
    }

    pub(crate) fn same_place(&self, other: &Self) -> bool {
        self.segment == other.segment && self.offset == other.offset
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "fields are cut to the widths of the packed slot on purpose"
    )]
    fn pack(&self) -> Packed {
        let fp = self.fingerprint;
        Packed([
            fp as u32,
            (fp >> 32) as u32,
            (fp >> 64) as u32,
            (fp >> 96) as u32,
            (self.offset / 8) as u32,
            self.body_len,
            self.sequence as u32,
            // 15 bits of sequence, 1 references, 8 high bits of the segment, 5 kind, 2 access, 1 verified
            ((self.sequence >> 32) as u32 & 0x7fff)
                | (u32::from(self.references) << 15)
                | ((self.segment >> 12) << 16)
                | (u32::from(self.kind & 31) << 24)
                | (u32::from(self.access & 3) << 29)
                | (u32::from(self.verified) << 31),
            (self.namespace & MAX_HANDLES) | ((self.segment & 0xfff) << 20),
        ])
    }
}

#[derive(Clone, Copy, Debug)]
struct Packed([u32; 9]);

impl Packed {
    const EMPTY: Self = Self([0; 9]);

    fn is_empty(&self) -> bool {
        let [.., mixed, low] = self.0;
        mixed & 0x00ff_0000 == 0 && low >> 20 == 0
    }

    fn fingerprint(&self) -> u128 {
        let [a, b, c, d, ..] = self.0;
        u128::from(a) | (u128::from(b) << 32) | (u128::from(c) << 64) | (u128::from(d) << 96)
    }

    fn unpack(&self) -> Slot {
        let [.., offset, body_len, seq, mixed, low] = self.0;
        Slot {
            fingerprint: self.fingerprint(),
            segment: (((mixed >> 16) & 0xff) << 12) | (low >> 20),
            offset: u64::from(offset) * 8,
            body_len,
            sequence: u64::from(seq) | (u64::from(mixed & 0x7fff) << 32),
            namespace: low & MAX_HANDLES,
            kind: (mixed >> 24) as u8 & 31,
            access: (mixed >> 29) as u8 & 3,
            verified: mixed >> 31 == 1,
            references: (mixed >> 15) & 1 == 1,
        }
    }
}

/// Where a fingerprint is, or belongs.
#[derive(Clone, Copy, Debug)]
enum Probe {
    Found(usize),
    Vacant { at: usize, walked: usize },
}

/// What came of offering a slot that may be old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Newer {
    Added,
    Replaced(Slot),
    /// There was one as new; nothing changed.
    Older,
}

/// One shard: its slots, and what is on its way to disk for keys of this shard.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    slots: Vec<Packed>,
    used: usize,
    /// Commits under way: at most one per fingerprint; others wait here for their turn.
    pub(crate) in_flight: HashMap<u128, Vec<Waiting>>,
}

impl Shard {
    fn home(&self, fp: u128) -> usize {
        // The high bits choose the position, the low byte the shard; multiply-shift needs no power of two.
        #[expect(clippy::cast_possible_truncation, reason = "result is below the number of slots")]
        let at = (((fp >> 64) * self.slots.len() as u128) >> 64) as usize;
        at
    }

    fn at(&self, i: usize) -> Packed {
        self.slots.get(i).copied().unwrap_or(Packed::EMPTY)
    }

    fn set(&mut self, i: usize, value: Packed) {
        if let Some(slot) = self.slots.get_mut(i) {
            *slot = value;
        }
    }

    fn next(&self, i: usize) -> usize {
        if i + 1 >= self.slots.len() { 0 } else { i + 1 }
    }

    fn distance(&self, i: usize, packed: &Packed) -> usize {
        let home = self.home(packed.fingerprint());
        if i >= home {
            i - home
        } else {
            i + self.slots.len() - home
        }
    }

    /// Where the fingerprint is, or where it would have to go.
    fn probe(&self, fp: u128) -> Probe {
        let mut i = if self.slots.is_empty() { 0 } else { self.home(fp) };
        let mut walked = 0;
        while walked < self.slots.len() {
            let here = self.at(i);
            if here.is_empty() {
                break;
            }
            if here.fingerprint() == fp {
                return Probe::Found(i);
            }
            if self.distance(i, &here) < walked {
                break;
            }
            i = self.next(i);
            walked += 1;
        }
        Probe::Vacant { at: i, walked }
    }

    fn position(&self, fp: u128) -> Option<usize> {
        match self.probe(fp) {
            Probe::Found(i) => Some(i),
            Probe::Vacant { .. } => None,
        }
    }

    pub(crate) fn get(&self, fp: u128) -> Option<Slot> {
        self.position(fp).map(|i| self.at(i).unpack())
    }

    /// Stores the slot and returns what was there before.
    pub(crate) fn insert(&mut self, slot: &Slot) -> Option<Slot> {
        match self.probe(slot.fingerprint) {
            Probe::Found(i) => {
                let before = self.at(i).unpack();
                self.set(i, slot.pack());
                Some(before)
            }
            vacant @ Probe::Vacant { .. } => {
                self.add(slot.pack(), vacant);
                None
            }
        }
    }

    /// Stores the slot unless one as new is there. With one look at the table: recovery does this for every entry.
    pub(crate) fn insert_newer(&mut self, slot: &Slot) -> Newer {
        match self.probe(slot.fingerprint) {
            Probe::Found(i) => {
                let before = self.at(i).unpack();
                if before.sequence >= slot.sequence {
                    return Newer::Older;
                }
                self.set(i, slot.pack());
                Newer::Replaced(before)
            }
            vacant @ Probe::Vacant { .. } => {
                self.add(slot.pack(), vacant);
                Newer::Added
            }
        }
    }

    /// Adds what is not there, at the place a probe has found, unless the table must grow first.
    fn add(&mut self, packed: Packed, place: Probe) {
        match place {
            Probe::Vacant { at, walked } if (self.used + 1) * 10 <= self.slots.len() * 9 => {
                self.place_from(packed, at, walked);
            }
            _ => {
                self.grow((self.slots.len() + self.slots.len() / 16).max(self.slots.len() + 8));
                self.place(packed);
            }
        }
    }

    fn place(&mut self, packed: Packed) {
        let home = self.home(packed.fingerprint());
        self.place_from(packed, home, 0);
    }

    fn place_from(&mut self, mut carry: Packed, mut i: usize, mut walked: usize) {
        self.used += 1;
        loop {
            let here = self.at(i);
            if here.is_empty() {
                self.set(i, carry);
                return;
            }
            let theirs = self.distance(i, &here);
            if theirs < walked {
                self.set(i, carry);
                (carry, walked) = (here, theirs);
            }
            i = self.next(i);
            walked += 1;
        }
    }

    fn grow(&mut self, slots: usize) {
        let old = std::mem::take(&mut self.slots);
        self.slots.reserve_exact(slots);
        self.slots.resize(slots, Packed::EMPTY);
        self.used = 0;
        for packed in old.into_iter().filter(|p| !p.is_empty()) {
            self.place(packed);
        }
    }

    pub(crate) fn remove(&mut self, fp: u128) -> Option<Slot> {
        let mut i = self.position(fp)?;
        let gone = self.at(i).unpack();
        self.used -= 1;
        // Backward shift: no tombstones, so a table never degrades.
        loop {
            let after = self.next(i);
            let moved = self.at(after);
            if moved.is_empty() || self.distance(after, &moved) == 0 {
                self.set(i, Packed::EMPTY);
                return Some(gone);
            }
            self.set(i, moved);
            i = after;
        }
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.slots.iter().filter(|p| !p.is_empty()).map(Packed::unpack)
    }

    /// Removes every slot that matches and returns them.
    pub(crate) fn remove_where(&mut self, gone: impl Fn(&Slot) -> bool) -> Vec<Slot> {
        let doomed: Vec<Slot> = self.slots().filter(|s| gone(s)).collect();
        for slot in &doomed {
            self.remove(slot.fingerprint);
        }
        doomed
    }
}

/// All shards.
#[derive(Debug)]
pub(crate) struct Index {
    shards: Box<[Mutex<Shard>]>,
    fallback: Mutex<Shard>,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            fallback: Mutex::default(),
        }
    }
}

impl Index {
    /// Locks the shard of a fingerprint. Order: shard before segment table before segment; never two shards at once.
    pub(crate) fn shard(&self, fp: u128) -> MutexGuard<'_, Shard> {
        lock(self.shards.get(Self::shard_of(fp)).unwrap_or(&self.fallback))
    }

    /// The shard a fingerprint belongs to.
    pub(crate) fn shard_of(fp: u128) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "the low byte is what is wanted")]
        let shard = fp as u8;
        usize::from(shard)
    }

    /// Each shard in turn.
    pub(crate) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, Shard>> {
        self.shards.iter().map(|s| lock(s))
    }

    /// Makes room for so many entries at once: recovery knows the number beforehand.
    pub(crate) fn reserve(&self, entries: u64) {
        let per_shard = usize::try_from(entries).unwrap_or(0) / SHARDS;
        // Shards are not equally full; a twentieth more spares most of them a second move.
        let slots = (per_shard + per_shard / 20) * 10 / 9;
        for mut shard in self.each() {
            if slots > shard.slots.len() {
                shard.grow(slots);
            }
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.each().map(|s| s.used as u64).sum()
    }

    /// Bytes allocated for slots.
    pub(crate) fn allocated(&self) -> u64 {
        let slots: usize = self.each().map(|s| s.slots.capacity() * size_of::<Packed>()).sum();
        (slots + SHARDS * size_of::<Mutex<Shard>>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(n: u64) -> Slot {
        let fp = crate::hash::siphash128(7, &[&n.to_le_bytes()]);
        Slot {
            fingerprint: fp,
            segment: u32::try_from(n % 1_000_000).unwrap() + 1,
            offset: (n * 8) & 0x7_ffff_fff8,
            body_len: u32::try_from(n & 0xffff_ffff).unwrap(),
            sequence: n & ((1 << 47) - 1),
            namespace: u32::try_from(n % 1_048_575).unwrap(),
            kind: u8::try_from(n % 32).unwrap(),
            access: u8::try_from(n % 4).unwrap(),
            verified: n.is_multiple_of(2),
            references: n.is_multiple_of(3),
        }
    }

    #[test]
    fn a_packed_slot_keeps_every_field() {
        for n in [0, 1, 5, 4095, 4096, 999_999, u64::from(u32::MAX), (1 << 47) - 1] {
            assert_eq!(slot(n).pack().unpack(), slot(n));
        }
        assert_eq!(size_of::<Packed>(), 36);
    }

    #[test]
    fn a_million_entries_cost_less_than_48_bytes_each() {
        for (entries, reserved) in [
            (1_000_000_u64, 0),
            (1_000_000, 1_000_000),
            (10_000, 0),
            (300_000, 250_000),
        ] {
            let index = Index::default();
            index.reserve(reserved);
            for n in 0..entries {
                let s = slot(n);
                index.shard(s.fingerprint).insert(&s);
            }
            assert_eq!(index.len(), entries);
            let each = index.allocated() / entries;
            assert!(index.allocated() <= 48 * entries, "{each} bytes per entry at {entries}");
        }
    }

    #[test]
    fn behaves_like_a_map_under_random_inserts_and_removes() {
        let mut shard = Shard::default();
        let mut model = HashMap::new();
        let mut x = 1_u64;
        for _ in 0..20_000 {
            x = x
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let s = slot((x >> 40) % 700);
            if (x >> 33).is_multiple_of(3) {
                assert_eq!(shard.remove(s.fingerprint), model.remove(&s.fingerprint));
            } else {
                assert_eq!(shard.insert(&s), model.insert(s.fingerprint, s));
            }
            let probe = slot((x >> 20) % 700).fingerprint;
            assert_eq!(shard.get(probe), model.get(&probe).copied());
            assert_eq!(shard.used, model.len());
        }
    }

    #[test]
    fn of_two_slots_for_one_fingerprint_the_newer_stays() {
        let mut shard = Shard::default();
        let mut model: HashMap<u128, Slot> = HashMap::new();
        for n in 0..5000_u64 {
            let mut s = slot(n % 900);
            s.sequence = n.wrapping_mul(7919) % 5000;
            let before = model.get(&s.fingerprint).copied();
            let outcome = shard.insert_newer(&s);
            match before {
                Some(before) if before.sequence >= s.sequence => assert_eq!(outcome, Newer::Older),
                Some(before) => assert_eq!(outcome, Newer::Replaced(before)),
                None => assert_eq!(outcome, Newer::Added),
            }
            if outcome != Newer::Older {
                model.insert(s.fingerprint, s);
            }
        }
        for (fp, s) in &model {
            assert_eq!(shard.get(*fp), Some(*s));
        }
        assert_eq!(shard.used, model.len());
    }
}
