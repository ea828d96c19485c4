//! Exponential back-off with full jitter.
//!
//! A thousand objects that fail together (the API server restarted) must not come back together. With full jitter each
//! delay is uniform between a small floor and a ceiling that doubles, which spreads them evenly; the reasoning is in the
//! AWS Architecture Blog, "Exponential Backoff And Jitter".

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rand::Rng;

/// The range of delays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// No delay is shorter. Keeps a failing object from spinning.
    pub floor: Duration,
    /// The ceiling of the first delay; doubles with each further attempt.
    pub base: Duration,
    /// No ceiling is higher.
    pub max: Duration,
}

impl Limits {
    /// For errors that are expected to pass.
    pub const TRANSIENT: Self = Self {
        floor: Duration::from_millis(50),
        base: Duration::from_millis(500),
        max: Duration::from_mins(1),
    };
    /// For errors that a person has to fix.
    pub const FORBIDDEN: Self = Self {
        floor: Duration::from_secs(30),
        base: Duration::from_mins(1),
        max: Duration::from_mins(5),
    };
    /// For watches: short, because a controller that does not see is a controller that does not act.
    pub const WATCH: Self = Self {
        floor: Duration::from_millis(100),
        base: Duration::from_millis(800),
        max: Duration::from_secs(10),
    };

    /// For lost races with another writer of one object: a few milliseconds let it finish, and one that writes in a loop is
    /// outwaited instead of raced.
    pub const RACE: Self = Self {
        floor: Duration::from_millis(1),
        base: Duration::from_millis(5),
        max: Duration::from_secs(1),
    };

    /// The longest delay the `attempt`th failure (from 0) may get.
    pub fn ceiling(&self, attempt: u32) -> Duration {
        let factor = 2_u32.saturating_pow(attempt);
        self.base.saturating_mul(factor).min(self.max).max(self.floor)
    }
}

/// The delay after the `attempt`th failure in a row, counted from 0.
pub fn delay(attempt: u32, limits: &Limits, rng: &mut impl Rng) -> Duration {
    let ceiling = limits.ceiling(attempt);
    rng.random_range(limits.floor.min(ceiling)..=ceiling)
}

/// Spreads a periodic delay by up to a tenth either way, so that objects made together drift apart.
pub fn jittered(period: Duration, rng: &mut impl Rng) -> Duration {
    period.mul_f64(rng.random_range(0.9..=1.1))
}

/// Failures in a row, per object.
#[derive(Debug)]
pub struct Attempts<Key> {
    counts: Mutex<HashMap<Key, u32>>,
}

impl<Key> Default for Attempts<Key> {
    fn default() -> Self {
        Self {
            counts: Mutex::new(HashMap::new()),
        }
    }
}

impl<Key: Eq + Hash> Attempts<Key> {
    /// Counts a failure and returns how many came before it.
    pub fn failed(&self, key: Key) -> u32 {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(key).or_insert(0);
        let before = *count;
        *count = count.saturating_add(1);
        before
    }

    /// Forgets the failures of an object that succeeded or is gone.
    pub fn reset(&self, key: &Key) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;

    use super::*;

    proptest! {
        #[test]
        fn a_delay_stays_within_its_limits(
            attempt in 0_u32..200, seed: u64, floor in 0_u64..1_000, base in 1_u64..5_000, max in 1_000_u64..600_000,
        ) {
            let limits = Limits {
                floor: Duration::from_millis(floor),
                base: Duration::from_millis(base),
                max: Duration::from_millis(max),
            };
            let delay = delay(attempt, &limits, &mut StdRng::seed_from_u64(seed));
            prop_assert!(delay >= limits.floor.min(limits.ceiling(attempt)));
            prop_assert!(delay <= limits.max.max(limits.floor));
            prop_assert!(delay <= limits.ceiling(attempt));
        }

        #[test]
        fn the_ceiling_never_shrinks(attempt in 0_u32..200) {
            for limits in [Limits::TRANSIENT, Limits::FORBIDDEN, Limits::WATCH] {
                prop_assert!(limits.ceiling(attempt) <= limits.ceiling(attempt + 1));
            }
        }

        #[test]
        fn jitter_moves_a_period_by_a_tenth_at_most(seconds in 1_u64..100_000, seed: u64) {
            let period = Duration::from_secs(seconds);
            let moved = jittered(period, &mut StdRng::seed_from_u64(seed));
            prop_assert!(moved >= period.mul_f64(0.899) && moved <= period.mul_f64(1.101));
        }
    }

    #[test]
    fn delays_of_many_objects_are_spread_over_the_whole_range() {
        let mut rng = StdRng::seed_from_u64(7);
        let ceiling = Limits::TRANSIENT.ceiling(5);
        let delays: Vec<Duration> = (0..1000).map(|_| delay(5, &Limits::TRANSIENT, &mut rng)).collect();
        for quarter in 0..4_u32 {
            let (from, to) = (ceiling * quarter / 4, ceiling * (quarter + 1) / 4);
            let share = delays.iter().filter(|delay| **delay >= from && **delay < to).count();
            assert!((150..350).contains(&share), "quarter {quarter} got {share} of 1000");
        }
    }

    #[test]
    fn success_starts_the_count_again() {
        let attempts = Attempts::default();
        assert_eq!(attempts.failed("a"), 0);
        assert_eq!(attempts.failed("a"), 1);
        assert_eq!(attempts.failed("b"), 0);
        attempts.reset(&"a");
        assert_eq!(attempts.failed("a"), 0);
    }
}
