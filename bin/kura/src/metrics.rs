//! Counters of what happens, one shard per serving thread, added up only when someone looks.
//!
//! A request costs a handful of uncontended additions and no formatting. Names follow what dashboards already query, which
//! includes a historic accident: counters were registered with a `_total` suffix and the library added another, so the wire
//! says `kura_http_requests_total_total`. We say the same.

mod exposition;
mod state;
mod trust;

pub use exposition::{Gauges, render};
pub use state::{Labelled, labelled, plain};
pub use trust::Trust;

use crate::blob::Kind;
use crate::http::route::Route;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Statuses with a counter of their own; the last counts everything else.
const STATUSES: [u16; 27] = [
    200, 201, 204, 206, 207, 304, 400, 401, 402, 403, 404, 405, 408, 409, 411, 413, 415, 416, 417, 422, 431, 500, 501,
    503, 505, 507, 0,
];
const OTHER: usize = STATUSES.len() - 1;
/// Upper bounds: sixteen doublings from one millisecond, as upstream has them.
const BUCKETS: usize = 16;
/// How many requests the moving average of latency remembers.
const EWMA: u64 = 16;
/// Upper bounds of throughput.
const SPEEDS: usize = 12;
const ROUTES: usize = Route::ALL.len();
const KINDS: usize = Kind::ALL.len();

/// How reading or writing an artifact ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// Read: it was there. Write: it is new.
    Ok,
    /// Read: it was not there. Write: it was there before.
    Known,
    /// The store or the client failed.
    Error,
}

const OUTCOMES: [Outcome; 3] = [Outcome::Ok, Outcome::Known, Outcome::Error];

/// One direction of artifact traffic.
#[derive(Debug, Default)]
struct Traffic {
    counts: [[AtomicU64; OUTCOMES.len()]; KINDS],
    bytes: [AtomicU64; KINDS],
}

/// Counts per bucket, of which the last has no upper bound, and the sum of what was observed.
#[derive(Debug)]
struct Histogram<const BOUNDS: usize> {
    buckets: [AtomicU64; BOUNDS],
    beyond: AtomicU64,
    sum: AtomicU64,
}

impl<const BOUNDS: usize> Default for Histogram<BOUNDS> {
    fn default() -> Self {
        Self {
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            beyond: AtomicU64::new(0),
            sum: AtomicU64::new(0),
        }
    }
}

impl<const BOUNDS: usize> Histogram<BOUNDS> {
    fn observe(&self, bucket: usize, value: u64) {
        self.bucket(bucket).fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// The counter of a bucket; everything past the bounds shares one.
    fn bucket(&self, bucket: usize) -> &AtomicU64 {
        self.buckets.get(bucket).unwrap_or(&self.beyond)
    }
}

/// Time, in sixteen doublings from one millisecond.
type Times = Histogram<BUCKETS>;

impl Times {
    fn took(&self, took: Duration) {
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let bucket = (u64::BITS - millis.leading_zeros()) as usize;
        self.observe(bucket, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }
}

/// Bytes per second, in twelve steps of four from one kibibyte.
type Speeds = Histogram<SPEEDS>;

impl Speeds {
    fn moved(&self, bytes: u64, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
        let speed = bytes.saturating_mul(1_000_000) / micros;
        // 1 KiB/s is 2^10; two doublings per step, and a bound belongs to its bucket.
        let doublings = u64::BITS - speed.saturating_sub(1).leading_zeros();
        self.observe(doublings.saturating_sub(9) as usize / 2, speed);
    }
}

/// Artifacts of one kind that left the node.
#[derive(Debug, Default)]
struct Egress {
    /// Whole ones, then those whose reader went away.
    counts: [AtomicU64; 2],
    bytes: [AtomicU64; 2],
    durations: Times,
    speeds: Speeds,
}

/// How an artifact's bytes left the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Path {
    /// From file to socket by the kernel.
    Accelerated,
    /// Header and body in one write.
    Memory,
    /// In pieces, through the library.
    Streaming,
}

/// The counters of one thread.
#[derive(Debug, Default)]
pub struct Shard {
    requests: [[AtomicU64; STATUSES.len()]; ROUTES],
    durations: [Times; ROUTES],
    reads: Traffic,
    writes: Traffic,
    egress: [Egress; KINDS],
    paths: [AtomicU64; 3],
    refused_connections: AtomicU64,
    /// Nanoseconds; follows the last few dozen requests.
    latency: AtomicU64,
}

fn add(counter: Option<&AtomicU64>, count: u64) {
    if let Some(counter) = counter {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

impl Shard {
    /// A request was answered.
    pub fn request(&self, route: Route, status: u16, took: Duration) {
        let column = STATUSES.iter().position(|known| *known == status).unwrap_or(OTHER);
        add(self.requests.get(route as usize).and_then(|row| row.get(column)), 1);
        if let Some(histogram) = self.durations.get(route as usize) {
            histogram.took(took);
        }
        if !route.is_probe() {
            // Only this thread writes it; a lost update would be one sample among many.
            let (old, new) = (
                self.latency.load(Ordering::Relaxed),
                u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
            );
            self.latency.store(old - old / EWMA + new / EWMA, Ordering::Relaxed);
        }
    }

    /// An artifact has left, or its reader went away after that many bytes.
    pub fn egress(&self, kind: Kind, bytes: u64, whole: bool, took: Duration) {
        let Some(egress) = self.egress.get(kind as usize) else {
            return;
        };
        let column = usize::from(!whole);
        add(egress.counts.get(column), 1);
        add(egress.bytes.get(column), bytes);
        egress.durations.took(took);
        egress.speeds.moved(bytes, took);
    }

    /// An artifact was asked for.
    pub fn read(&self, kind: Kind, outcome: Outcome, bytes: u64) {
        self.reads.add(kind, outcome, bytes);
    }

    /// An artifact was offered.
    pub fn write(&self, kind: Kind, outcome: Outcome, bytes: u64) {
        self.writes.add(kind, outcome, bytes);
    }

    /// An artifact is being sent.
    pub fn path(&self, path: Path) {
        add(self.paths.get(path as usize), 1);
    }

    /// A connection was cut off because its bytes were no HTTP.
    pub fn refused(&self) {
        self.refused_connections.fetch_add(1, Ordering::Relaxed);
    }
}

impl Traffic {
    fn add(&self, kind: Kind, outcome: Outcome, bytes: u64) {
        add(
            self.counts.get(kind as usize).and_then(|row| row.get(outcome as usize)),
            1,
        );
        if bytes > 0 {
            add(self.bytes.get(kind as usize), bytes);
        }
    }
}

/// All shards.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    shards: Arc<[Arc<Shard>]>,
    trust: Arc<Trust>,
}

impl Metrics {
    /// Counters for that many threads.
    pub fn new(threads: usize) -> Self {
        Self {
            shards: (0..threads.max(1)).map(|_| Arc::default()).collect(),
            trust: Arc::default(),
        }
    }

    /// The counters of one thread.
    pub fn shard(&self, thread: usize) -> Arc<Shard> {
        self.shards
            .get(thread % self.shards.len().max(1))
            .cloned()
            .unwrap_or_default()
    }

    /// The counters of decisions, for the authoriser to fill.
    pub fn trust(&self) -> Arc<Trust> {
        Arc::clone(&self.trust)
    }

    /// The moving average of latency over all threads that served anything, in nanoseconds.
    pub fn latency(&self) -> u64 {
        let busy = self.shards.iter().map(|shard| shard.latency.load(Ordering::Relaxed));
        let (count, sum) = busy
            .filter(|nanos| *nanos > 0)
            .fold((0, 0), |(count, sum), nanos| (count + 1, sum + nanos));
        sum / std::cmp::max(count, 1)
    }

    fn sum(&self, pick: impl Fn(&Shard) -> Option<&AtomicU64>) -> u64 {
        self.shards
            .iter()
            .filter_map(|shard| pick(shard))
            .map(|counter| counter.load(Ordering::Relaxed))
            .sum()
    }
}
