//! Leases: what was vouched for stays until the lease ends.
//!
//! Held in memory and bounded to a share of the capacity. They end with the process: a restart takes seconds, and eviction
//! then begins with what was read least.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::Duration;

use crate::core::Core;
use crate::error::Error;
use crate::index::Slot;
use crate::key::Key;
use crate::sync::lock;

/// What became of a request for leases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leased {
    /// Entries now held, references included.
    pub held: u64,
    /// Keys, or references of them, that are not in the store.
    pub missing: u64,
    /// Entries over the share of the capacity; they may be evicted.
    pub refused: u64,
}

/// Fingerprints are keyed hashes already; hashing them again would only cost time.
#[derive(Debug, Default)]
pub(crate) struct Scattered(u64);

impl Hasher for Scattered {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "half of a fingerprint is as random as all of it"
    )]
    fn write_u128(&mut self, fingerprint: u128) {
        self.0 = fingerprint as u64;
    }
}

#[derive(Debug, Default)]
pub(crate) struct Leases {
    until: HashMap<u128, (Duration, u64), BuildHasherDefault<Scattered>>,
    bytes: u64,
}

impl Leases {
    pub(crate) fn holds(&self, fp: u128, now: Duration) -> bool {
        self.until.get(&fp).is_some_and(|&(until, _)| until > now)
    }

    pub(crate) fn prune(&mut self, now: Duration) {
        let bytes = &mut self.bytes;
        self.until.retain(|_, &mut (until, weight)| {
            let keep = until > now;
            if !keep {
                *bytes = bytes.saturating_sub(weight);
            }
            keep
        });
    }

    /// Extends or takes a lease; false when the share is used up.
    pub(crate) fn take(&mut self, slot: &Slot, until: Duration, limit: u64) -> bool {
        if let Some((held, _)) = self.until.get_mut(&slot.fingerprint) {
            *held = (*held).max(until);
            return true;
        }
        if self.bytes.saturating_add(slot.weight()) > limit {
            return false;
        }
        self.bytes += slot.weight();
        self.until.insert(slot.fingerprint, (until, slot.weight()));
        true
    }

    pub(crate) fn held(&self) -> (u64, u64) {
        (self.until.len() as u64, self.bytes)
    }
}

impl Core {
    /// Bytes that leases may hold.
    pub(crate) fn lease_limit(&self) -> u64 {
        self.options.capacity / 100 * u64::from(self.options.lease_percent.min(90))
    }

    pub(crate) fn lease(self: &Arc<Self>, keys: &[Key<'_>], ttl: Duration) -> Result<Leased, Error> {
        let now = self.options.clock.steady();
        let limit = self.lease_limit();
        lock(&self.leases).prune(now);
        let mut report = Leased::default();
        let mut seen = std::collections::HashSet::new();
        let mut queue: Vec<u128> = keys.iter().map(|k| k.fingerprint(self.header.hash_key).0).collect();
        while let Some(fp) = queue.pop() {
            if !seen.insert(fp) {
                continue;
            }
            let Some((slot, segment)) = self.touch(fp) else {
                report.missing += 1;
                continue;
            };
            // Lease first, look at the references then: what they lead to may go meanwhile, the entry itself may not.
            if lock(&self.leases).take(&slot, now.saturating_add(ttl), limit) {
                report.held += 1;
            } else {
                report.refused += 1;
            }
            if slot.references {
                queue.extend(self.read_references(&segment, &slot)?.unwrap_or_default());
            }
        }
        Ok(report)
    }
}
