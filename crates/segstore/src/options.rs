//! How a store is opened.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Entropy, SystemClock, SystemEntropy};
use crate::key::Durability;

/// Who does the work nobody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    /// Two threads: one commits what was submitted, one seals, evicts and frees.
    Threads,
    /// The calling threads, inside their calls; submitted writes wait for [`crate::Store::commit`]. Deterministic.
    Caller,
}

/// Settings of one store.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes on disk to stay below. Eviction starts there.
    pub capacity: u64,
    /// Length at which a segment is sealed. One open file per segment: capacity / segment_size is the number of files.
    pub segment_size: u64,
    /// What `put` promises unless the call says otherwise.
    pub durability: Durability,
    /// Segments open for streamed bodies at the same time.
    pub stream_lanes: usize,
    /// Bodies up to this length go through the group commit, longer ones straight to their place.
    pub small_limit: usize,
    /// Bytes that may wait for a group commit.
    pub queue_limit: u64,
    /// Below this much free space the store is read-only.
    pub min_free: u64,
    /// Bytes kept aside so that a delete can be noted on a full disk; 0 for none.
    pub ballast: u64,
    /// How often a full disk is asked again.
    pub probe_interval: Duration,
    /// Percent of the capacity that leases may hold.
    pub lease_percent: u8,
    /// Percent of an evicted segment that may be kept because it was read lately.
    pub keep_percent: u8,
    /// Changes kept in memory for followers.
    pub history: usize,
    pub background: Background,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
}

/// 64 MiB, more for stores so large that it would mean too many open files, less for stores so small that the segments
/// being written would fill them.
fn default_segment_size(capacity: u64) -> u64 {
    let least = (capacity / 16).clamp(1 << 20, 64 << 20);
    (capacity / 512).clamp(least, 1 << 30)
}

impl Options {
    /// Defaults for a store of this capacity.
    pub fn new(capacity: u64) -> Self {
        Self {
            capacity,
            segment_size: default_segment_size(capacity),
            durability: Durability::Power,
            stream_lanes: 2,
            small_limit: 128 << 10,
            queue_limit: 64 << 20,
            min_free: 64 << 20,
            ballast: (capacity / 256).min(1 << 20),
            probe_interval: Duration::from_secs(1),
            lease_percent: 25,
            keep_percent: 50,
            history: 65_536,
            background: Background::Threads,
            clock: Arc::new(SystemClock::default()),
            entropy: Arc::new(SystemEntropy),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_suit_the_capacity() {
        let mib = |n: u64| n << 20;
        for (capacity, size) in [(mib(8), 1), (mib(512), 32), (mib(10 << 10), 64), (mib(1 << 20), 1024)] {
            let seen = default_segment_size(capacity);
            assert_eq!(seen, mib(size).max(capacity / 512).min(1 << 30), "{capacity}");
        }
    }
}
