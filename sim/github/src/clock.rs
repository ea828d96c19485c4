//! The emulated clock: it runs as fast as one likes, or only when told to.

use jiff::{SignedDuration, Timestamp};
use std::time::{Duration, Instant};

/// How fast emulated time runs.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Factor(f64);

/// Why a number is no [`Factor`].
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("a clock factor is a number from 0 (only by hand) to 1000000, not {0}")]
pub struct BadFactor(f64);

impl Factor {
    /// Emulated time moves only by [`crate::Handle::advance`].
    pub const MANUAL: Self = Self(0.0);
    /// As fast as real time.
    pub const REAL: Self = Self(1.0);
}

impl TryFrom<f64> for Factor {
    type Error = BadFactor;

    fn try_from(factor: f64) -> Result<Self, BadFactor> {
        if (0.0..=1_000_000.0).contains(&factor) {
            Ok(Self(factor))
        } else {
            Err(BadFactor(factor))
        }
    }
}

impl From<Factor> for f64 {
    fn from(factor: Factor) -> Self {
        factor.0
    }
}

/// Emulated time, anchored to the monotonic clock of the machine.
#[derive(Debug)]
pub(crate) struct Clock {
    anchor: Instant,
    at_anchor: Timestamp,
    factor: Factor,
}

impl Clock {
    /// A clock that shows `start` now.
    pub(crate) fn new(start: Timestamp, factor: Factor) -> Self {
        Self {
            anchor: Instant::now(),
            at_anchor: start,
            factor,
        }
    }

    /// What the clock shows.
    pub(crate) fn now(&self) -> Timestamp {
        let elapsed = self.anchor.elapsed().mul_f64(self.factor.0);
        after(self.at_anchor, elapsed)
    }

    /// Moves the clock forward.
    pub(crate) fn advance(&mut self, by: Duration) {
        self.at_anchor = after(self.now(), by);
        self.anchor = Instant::now();
    }

    pub(crate) fn factor(&self) -> Factor {
        self.factor
    }

    /// Changes the pace without a jump.
    pub(crate) fn set_factor(&mut self, factor: Factor) {
        self.advance(Duration::ZERO);
        self.factor = factor;
    }
}

/// `at` plus `by`, stopping at the end of time.
pub(crate) fn after(at: Timestamp, by: Duration) -> Timestamp {
    SignedDuration::try_from(by)
        .ok()
        .and_then(|by| at.checked_add(by).ok())
        .unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_stands_still_until_it_is_advanced() {
        let mut clock = Clock::new(Timestamp::UNIX_EPOCH, Factor::MANUAL);
        assert_eq!(clock.now(), Timestamp::UNIX_EPOCH);
        clock.advance(Duration::from_secs(90));
        assert_eq!(clock.now().as_second(), 90);
        clock.set_factor(Factor::MANUAL);
        assert_eq!(clock.now().as_second(), 90);
    }

    #[test]
    fn a_factor_is_finite_and_not_negative() {
        for bad in [-1.0, f64::NAN, f64::INFINITY, 1e9] {
            assert!(Factor::try_from(bad).is_err(), "{bad}");
        }
    }
}
