//! The change log for followers: puts and deletes in sequence order.
//!
//! Recent changes come from memory, older ones from tables and footers. A put that was superseded meanwhile is left out:
//! what superseded it comes later in the log. When eviction has taken history away, the answer says so.

use crate::core::Core;
use crate::error::Error;
use crate::format::{Class, FooterEntry};
use crate::key::Kind;
use crate::reader::read_head;
use crate::sync::{lock, read};

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub sequence: u64,
    pub version: u64,
    pub namespace: Vec<u8>,
    pub action: Action,
}

/// What changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Put { kind: Kind, key: Vec<u8>, len: u64 },
    Delete { kind: Kind, key: Vec<u8> },
    DeleteNamespace,
}

/// A page of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    pub changes: Vec<Change>,
    /// Ask again after this sequence.
    pub next: u64,
    /// Whether everything after the asked sequence is still known.
    pub history: Completeness,
}

/// Whether a follower has to compare in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completeness {
    Whole,
    /// Changes up to this sequence may be missing: start over from 0 and compare.
    Gap {
        up_to: u64,
    },
}

impl Core {
    pub(crate) fn changes(&self, after: u64, limit: usize) -> Result<Changes, Error> {
        let stable = self.sequencer.stable();
        let (floor, mut picked) = {
            let history = lock(&self.history);
            let known = after >= history.recent_floor;
            let recent = known.then(|| {
                let newer = history
                    .recent
                    .iter()
                    .filter(|(_, e)| e.sequence > after && e.sequence <= stable);
                newer.copied().collect::<Vec<_>>()
            });
            (history.floor, recent)
        };
        if picked.is_none() {
            picked = Some(self.changes_on_disk(after, stable)?);
        }
        let mut picked = picked.unwrap_or_default();
        picked.sort_by_key(|(_, e)| e.sequence);
        picked.dedup_by_key(|(_, e)| e.sequence);
        let more = picked.len() > limit;
        picked.truncate(limit);
        let next = if more {
            picked.last().map_or(after, |(_, e)| e.sequence)
        } else {
            stable.max(after)
        };
        let mut changes = Vec::with_capacity(picked.len());
        for (segment, entry) in picked {
            changes.extend(self.describe_change(segment, &entry)?);
        }
        let lost = after > 0 && after < floor;
        let history = if lost {
            Completeness::Gap { up_to: floor }
        } else {
            Completeness::Whole
        };
        Ok(Changes { changes, next, history })
    }

    fn changes_on_disk(&self, after: u64, stable: u64) -> Result<Vec<(u64, FooterEntry)>, Error> {
        let segments: Vec<_> = read(&self.segments)
            .iter()
            .filter(|s| s.state().max_seq > after)
            .cloned()
            .collect();
        let mut picked = Vec::new();
        for segment in segments {
            let table = segment
                .table()
                .map_err(Error::io("reading a footer"))?
                .unwrap_or_default();
            let newer = table
                .entries
                .iter()
                .filter(|e| e.sequence > after && e.sequence <= stable);
            picked.extend(newer.map(|e| (segment.id, *e)));
        }
        Ok(picked)
    }

    /// `None` when it no longer matters.
    fn describe_change(&self, segment: u64, entry: &FooterEntry) -> Result<Option<Change>, Error> {
        if matches!(entry.class, Class::Evict | Class::Floor) {
            return Ok(None);
        }
        let mut place = (read(&self.segments).by_id(segment).cloned(), entry.offset);
        if entry.class == Class::Put {
            let slot = self.index.shard(entry.fingerprint).get(entry.fingerprint);
            let Some(slot) = slot.filter(|s| s.sequence == entry.sequence) else {
                return Ok(None);
            };
            // Eviction may have moved it since it was noted.
            place = (self.segment(slot.segment), slot.offset);
        }
        let (Some(segment), offset) = place else {
            return Ok(None);
        };
        let read = read_head(&*segment.file, segment.tag, offset, 512).map_err(Error::io("reading a record"))?;
        let Some((head, names)) = read else { return Ok(None) };
        let key = head.key(&names).unwrap_or_default().to_vec();
        let kind = Kind::from_code(entry.kind);
        let action = match entry.class {
            Class::Put => Action::Put {
                kind,
                key,
                len: entry.body_len,
            },
            Class::DeleteNamespace => Action::DeleteNamespace,
            Class::Delete | Class::Evict | Class::Floor => Action::Delete { kind, key },
        };
        let namespace = head.namespace(&names).unwrap_or_default().to_vec();
        Ok(Some(Change {
            sequence: entry.sequence,
            version: entry.version,
            namespace,
            action,
        }))
    }
}
