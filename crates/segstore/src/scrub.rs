//! Looking for damage before a client does, and telling what is in the store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::backend::read_exact_at;
use crate::core::Core;
use crate::error::Error;
use crate::format::{Class, FooterEntry, SEGMENT_HEADER_LEN, SegmentHeader};
use crate::index::Slot;
use crate::key::{Key, Kind};
use crate::reader::{body_crc, read_head, read_trailer};
use crate::segment::{Phase, Segment};
use crate::sync::{lock, read};

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    pub segments: u64,
    pub records: u64,
    pub bytes: u64,
    /// Live entries whose bytes were wrong; they were dropped.
    pub damaged: u64,
    /// Sealed segments whose header or footer is wrong. Their entries are served from memory and found again by a scan.
    pub damaged_tables: u64,
    /// A scrub came to the end and will begin anew.
    pub finished: bool,
}

impl Checked {
    pub fn is_sound(&self) -> bool {
        self.damaged == 0 && self.damaged_tables == 0
    }
}

/// Entries of one kind in one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub namespace: Vec<u8>,
    pub kind: Kind,
    pub entries: u64,
    pub bytes: u64,
}

/// One segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    pub id: u64,
    pub sealed: bool,
    pub disk_bytes: u64,
    pub live_bytes: u64,
    pub live_entries: u64,
}

/// What is in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    pub groups: Vec<Group>,
    pub segments: Vec<SegmentInfo>,
}

impl Core {
    /// Checks everything.
    pub(crate) fn verify(&self) -> Result<Checked, Error> {
        let mut checked = Checked::default();
        let segments: Vec<_> = read(&self.segments).iter().cloned().collect();
        for segment in segments {
            self.check_segment(&segment, 0, u64::MAX, &mut checked)?;
        }
        checked.finished = true;
        Ok(checked)
    }

    /// Checks about `budget` bytes, from where the last call ended.
    pub(crate) fn scrub(&self, budget: u64) -> Result<Checked, Error> {
        let mut checked = Checked::default();
        let (from_id, mut from) = lock(&self.maintenance).scrub_at;
        let mut segments: Vec<_> = read(&self.segments)
            .iter()
            .filter(|s| s.id >= from_id)
            .cloned()
            .collect();
        segments.sort_by_key(|s| s.id);
        for segment in segments {
            if segment.id != from_id {
                from = 0;
            }
            let left = budget.saturating_sub(checked.bytes);
            if let Some(stopped) = self.check_segment(&segment, from, left, &mut checked)? {
                lock(&self.maintenance).scrub_at = (segment.id, stopped);
                return Ok(checked);
            }
        }
        lock(&self.maintenance).scrub_at = (0, 0);
        checked.finished = true;
        Ok(checked)
    }

    /// Checks records from an offset on; returns where it stopped if the budget ran out.
    fn check_segment(
        &self,
        segment: &Arc<Segment>,
        from: u64,
        budget: u64,
        checked: &mut Checked,
    ) -> Result<Option<u64>, Error> {
        let reading = |e| Error::io("reading a segment")(e);
        if from == 0 {
            checked.segments += 1;
            let header = read_exact_at(&*segment.file, 0, 2 * SEGMENT_HEADER_LEN).map_err(reading)?;
            if header
                .and_then(|h| SegmentHeader::decode(&h))
                .is_none_or(|h| h.tag != segment.tag)
            {
                checked.damaged_tables += 1;
            }
        }
        let Some(mut table) = segment.table().map_err(reading)? else {
            checked.damaged_tables += 1;
            return Ok(None);
        };
        table.entries.sort_by_key(|e| e.offset);
        let start = checked.bytes;
        for entry in table.entries.iter().filter(|e| e.offset >= from) {
            if checked.bytes - start >= budget {
                return Ok(Some(entry.offset));
            }
            let slot = self.index.shard(entry.fingerprint).get(entry.fingerprint);
            let slot = slot.filter(|s| s.segment == segment.handle && s.offset == entry.offset);
            // Dead records may have been punched out.
            if entry.class == Class::Put && slot.is_none() {
                continue;
            }
            checked.records += 1;
            checked.bytes += entry.end() - entry.offset;
            self.counters
                .scrubbed_bytes
                .fetch_add(entry.end() - entry.offset, Ordering::Relaxed);
            let sound = self.record_is_sound(segment, entry).map_err(reading)?;
            match slot {
                Some(slot) if !sound => self.lose_damaged(&slot, checked),
                Some(slot) => self.mark_verified(&slot),
                None if !sound => checked.damaged_tables += 1,
                None => {}
            }
        }
        Ok(None)
    }

    fn lose_damaged(&self, slot: &Slot, checked: &mut Checked) {
        // Deleted or moved while we looked: then there was nothing wrong.
        let current = self.index.shard(slot.fingerprint).get(slot.fingerprint);
        if current.is_some_and(|s| s.same_place(slot)) {
            checked.damaged += 1;
            self.drop_damaged(slot);
        }
    }

    fn record_is_sound(&self, segment: &Segment, entry: &FooterEntry) -> std::io::Result<bool> {
        let at = entry.offset;
        let Some((head, names)) = read_head(&*segment.file, segment.tag, at, 512)? else {
            return Ok(false);
        };
        let Some(trailer) = read_trailer(&*segment.file, segment.tag, at, &head)? else {
            return Ok(false);
        };
        let key = Key {
            kind: Kind::from_code(head.kind),
            namespace: head.namespace(&names).unwrap_or_default(),
            key: head.key(&names).unwrap_or_default(),
        };
        let right_name = entry.class != Class::Put || key.fingerprint(self.header.hash_key).0 == entry.fingerprint;
        let sum = body_crc(&*segment.file, at + head.len() as u64, head.body_len)?;
        Ok(right_name && trailer.sequence == entry.sequence && sum == Some(trailer.body_crc))
    }

    pub(crate) fn inspect(&self) -> Inspection {
        let mut groups: BTreeMap<(u32, u8), (u64, u64)> = BTreeMap::new();
        for shard in self.index.each() {
            for slot in shard.slots() {
                let group = groups.entry((slot.namespace, slot.kind)).or_default();
                group.0 += 1;
                group.1 += u64::from(slot.body_len);
            }
        }
        let names = read(&self.names);
        let mut groups: Vec<Group> = groups
            .into_iter()
            .map(|((namespace, kind), (entries, bytes))| Group {
                namespace: names.name(namespace).unwrap_or_default().to_vec(),
                kind: Kind::from_code(kind),
                entries,
                bytes,
            })
            .collect();
        groups.sort_by(|a, b| (&a.namespace, a.kind).cmp(&(&b.namespace, b.kind)));
        let segments = read(&self.segments)
            .iter()
            .map(|s| {
                // A guard in the literal below would live as long as the literal, and `disk_bytes` locks too.
                let sealed = s.state().phase == Phase::Sealed;
                SegmentInfo {
                    id: s.id,
                    sealed,
                    disk_bytes: s.disk_bytes(),
                    live_bytes: s.live_bytes.load(Ordering::Relaxed),
                    live_entries: s.live_count.load(Ordering::Relaxed),
                }
            })
            .collect();
        Inspection { groups, segments }
    }
}
