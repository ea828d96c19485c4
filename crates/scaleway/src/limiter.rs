//! One token bucket per API key.
//!
//! Scaleway counts calls per key, so everybody who uses a key has to draw from one bucket; [`Limiters`] sees to that inside
//! a process. A 429 empties the bucket for all: whoever was told to wait knows something the others are about to learn.
//!
//! The bucket is kept as the time at which it would be full again (GCRA). A caller reserves the next free moment and sleeps
//! until then, so callers are served in the order in which they came. A caller that goes away while it waits has used
//! up its moment; that errs on the side of calling too seldom.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use russet_rest::clock::Clock;

/// How often we may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Calls that may be made at once after a quiet time.
    pub burst: NonZeroU32,
    /// Time between calls once the burst is used up.
    pub interval: Duration,
}

impl Default for Rate {
    /// 10 calls a second, 20 at once.
    fn default() -> Self {
        Self {
            burst: NonZeroU32::MIN.saturating_add(19),
            interval: Duration::from_millis(100),
        }
    }
}

/// The arithmetic: no clock, no lock. Times count from an epoch of the caller's.
#[derive(Clone, Debug)]
pub struct Bucket {
    interval: Duration,
    tolerance: Duration,
    full_at: Duration,
    /// Until when the API told us to stay away.
    closed_until: Duration,
}

impl Bucket {
    /// A full bucket.
    pub fn new(rate: Rate) -> Self {
        Self {
            interval: rate.interval,
            tolerance: rate.interval.saturating_mul(rate.burst.get() - 1),
            full_at: Duration::ZERO,
            closed_until: Duration::ZERO,
        }
    }

    /// Reserves the next free moment, which is `now` or later, or says how long the wait would be if that exceeds `patience`.
    pub fn reserve(&mut self, now: Duration, patience: Duration) -> Result<Duration, Duration> {
        let full_at = self.full_at.max(now);
        let at = full_at.saturating_sub(self.tolerance).max(now);
        let wait = at.saturating_sub(now);
        if wait > patience {
            return Err(wait);
        }
        self.full_at = full_at.saturating_add(self.interval);
        Ok(at)
    }

    /// Nobody calls before `until`, and from then on one by one.
    pub fn close(&mut self, until: Duration) {
        self.closed_until = self.closed_until.max(until);
        self.full_at = self.full_at.max(until.saturating_add(self.tolerance));
    }

    /// Whether a moment reserved earlier may still be used, now that it has come.
    pub fn still_open(&self, at: Duration) -> bool {
        at >= self.closed_until
    }
}

/// A bucket that waits. Clones share it.
#[derive(Clone, Debug)]
pub struct Limiter {
    bucket: Arc<Mutex<Bucket>>,
    epoch: Instant,
    clock: Arc<dyn Clock>,
}

impl Limiter {
    /// A full bucket.
    pub fn new(rate: Rate, clock: Arc<dyn Clock>) -> Self {
        Self {
            bucket: Arc::new(Mutex::new(Bucket::new(rate))),
            epoch: clock.now(),
            clock,
        }
    }

    fn now(&self) -> Duration {
        self.clock.now().saturating_duration_since(self.epoch)
    }

    fn with<T>(&self, act: impl FnOnce(&mut Bucket) -> T) -> T {
        act(&mut self.bucket.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for the right to make one call. Fails at once, with the wait there would be, if that is longer than `patience`.
    pub async fn acquire(&self, patience: Duration) -> Result<(), Duration> {
        let give_up_at = self.now().saturating_add(patience);
        loop {
            let now = self.now();
            let at = self.with(|bucket| bucket.reserve(now, give_up_at.saturating_sub(now)))?;
            if at > now {
                self.clock.sleep(at.saturating_sub(now)).await;
            }
            // A 429 to somebody else may have closed the bucket while this caller slept.
            if self.with(|bucket| bucket.still_open(at)) {
                return Ok(());
            }
        }
    }

    /// Stops everybody for this long.
    pub fn close_for(&self, wait: Duration) {
        let until = self.now().saturating_add(wait);
        self.with(|bucket| bucket.close(until));
    }
}

/// The limiters of a process, by API key.
#[derive(Debug, Default)]
pub struct Limiters {
    by_key: Mutex<HashMap<String, Limiter>>,
}

impl Limiters {
    /// The limiter of this key. The first user of a key decides its rate.
    pub fn of(&self, access_key: &str, rate: Rate, clock: &Arc<dyn Clock>) -> Limiter {
        let mut by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        by_key
            .entry(access_key.to_owned())
            .or_insert_with(|| Limiter::new(rate, Arc::clone(clock)))
            .clone()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use russet_rest::clock::SystemClock;

    fn rate(burst: u32, interval_ms: u64) -> Rate {
        Rate {
            burst: NonZeroU32::new(burst).unwrap(),
            interval: Duration::from_millis(interval_ms),
        }
    }

    #[derive(Clone, Debug)]
    enum Event {
        Pass(u64),
        Reserve { patience: u64 },
        Close(u64),
    }

    fn any_event() -> impl Strategy<Value = Event> {
        prop_oneof![
            3 => (0_u64..500).prop_map(Event::Pass),
            6 => (0_u64..2_000).prop_map(|patience| Event::Reserve { patience }),
            1 => (0_u64..1_000).prop_map(Event::Close),
        ]
    }

    proptest! {
        /// In no window of any length are there more grants than the burst plus what the window refills; nobody is served
        /// before an earlier caller, nor while the bucket is closed, nor later than he is willing to wait.
        #[test]
        fn a_bucket_keeps_its_promises(
            burst in 1_u32..8, interval in 1_u64..300, events in prop::collection::vec(any_event(), 1..80),
        ) {
            let mut bucket = Bucket::new(rate(burst, interval));
            let mut now = Duration::ZERO;
            let mut closed_until = Duration::ZERO;
            let mut grants: Vec<Duration> = Vec::new();
            for event in events {
                match event {
                    Event::Pass(ms) => now += Duration::from_millis(ms),
                    Event::Close(ms) => {
                        closed_until = closed_until.max(now + Duration::from_millis(ms));
                        bucket.close(closed_until);
                    }
                    Event::Reserve { patience } => {
                        let patience = Duration::from_millis(patience);
                        match bucket.reserve(now, patience) {
                            Ok(at) => {
                                prop_assert!(at >= now && at <= now + patience);
                                prop_assert!(at >= closed_until);
                                prop_assert!(bucket.still_open(at));
                                prop_assert!(grants.last().is_none_or(|last| *last <= at));
                                grants.push(at);
                            }
                            Err(wait) => prop_assert!(wait > patience),
                        }
                    }
                }
            }
            for (i, first) in grants.iter().enumerate() {
                for (j, last) in grants.iter().enumerate().skip(i) {
                    let window = last.saturating_sub(*first).as_millis() / u128::from(interval);
                    prop_assert!((j - i + 1) as u128 <= u128::from(burst) + window);
                }
            }
        }

        #[test]
        fn a_quiet_time_fills_the_bucket_again(burst in 1_u32..20, interval in 1_u64..300) {
            let mut bucket = Bucket::new(rate(burst, interval));
            for round in 0..3_u32 {
                let now = Duration::from_millis(interval) * burst * round;
                for _ in 0..burst {
                    prop_assert_eq!(bucket.reserve(now, Duration::ZERO), Ok(now));
                }
                prop_assert!(bucket.reserve(now, Duration::ZERO).is_err());
            }
        }
    }

    #[test]
    fn a_moment_reserved_before_a_429_is_void_after_it() {
        let mut bucket = Bucket::new(rate(1, 100));
        bucket.reserve(Duration::ZERO, Duration::ZERO).unwrap();
        let at = bucket.reserve(Duration::ZERO, Duration::from_secs(1)).unwrap();
        assert!(bucket.still_open(at));
        bucket.close(Duration::from_secs(5));
        assert!(!bucket.still_open(at));
    }

    #[test]
    fn users_of_one_key_share_a_bucket() {
        let limiters = Limiters::default();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let one = limiters.of("key-a", rate(1, 1_000), &clock);
        let same = limiters.of("key-a", rate(9, 1), &clock);
        let other = limiters.of("key-b", rate(1, 1_000), &clock);
        assert!(Arc::ptr_eq(&one.bucket, &same.bucket));
        assert!(!Arc::ptr_eq(&one.bucket, &other.bucket));
    }
}
