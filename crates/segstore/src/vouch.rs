//! Looking up many entries and keeping what was found: presence that stays true.
//!
//! The look and the lease are two steps, and eviction may come between them. Eviction drops an entry and checks its lease under
//! one lock, and counts before it begins and after it ends; so whoever has leased needs to look again only if that count has
//! moved, or is odd.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::core::Core;
use crate::index::Slot;
use crate::key::Key;
use crate::reader::Presence;
use crate::store::Store;
use crate::sync::lock;

/// Entries found so far, to be kept together.
#[derive(Debug)]
pub struct Vouch<'s> {
    core: &'s Core,
    evictions: u64,
    found: Vec<Slot>,
}

impl Store {
    /// Begins to look entries up in order to keep those that are there.
    pub fn vouch(&self) -> Vouch<'_> {
        let core = self.core();
        Vouch {
            core,
            evictions: core.evictions.load(Ordering::SeqCst),
            found: Vec::new(),
        }
    }
}

impl Vouch<'_> {
    /// Whether the entry is there, from memory alone. It counts as a use.
    pub fn find(&mut self, key: &Key<'_>) -> Option<Presence> {
        let (slot, _) = self.core.touch(key.fingerprint(self.core.header.hash_key).0)?;
        self.found.push(slot);
        Some(Presence {
            len: u64::from(slot.body_len),
            sequence: slot.sequence,
        })
    }

    /// Keeps everything found from eviction for a time, as far as leases have room. `false`: something went in between, so
    /// what was found has to be looked up again.
    pub fn settle(self, ttl: Duration) -> bool {
        let core = self.core;
        let now = core.options.clock.steady();
        let limit = core.lease_limit();
        {
            let mut leases = lock(&core.leases);
            for slot in &self.found {
                leases.take(slot, now.saturating_add(ttl), limit);
            }
        }
        let evictions = core.evictions.load(Ordering::SeqCst);
        (evictions == self.evictions && evictions.is_multiple_of(2))
            || self
                .found
                .iter()
                .all(|slot| core.index.shard(slot.fingerprint).get(slot.fingerprint).is_some())
    }
}

impl Core {
    /// Drops an entry unless somebody has leased it meanwhile; whether somebody has.
    pub(crate) fn drop_unless_leased(&self, slot: &Slot) -> bool {
        // Held over the drop: whoever leases afterwards finds the entry gone.
        let leases = lock(&self.leases);
        if leases.holds(slot.fingerprint, self.options.clock.steady()) {
            return true;
        }
        if self.drop_slot(slot) {
            self.counters.evicted_entries.fetch_add(1, Ordering::Relaxed);
        }
        false
    }
}
