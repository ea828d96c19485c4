//! The emulated clock: it runs as fast as one likes, or only when told to.
//!
//! A reinstall takes ten minutes of emulated time. With a factor of 600 that is one second; with a factor of 0 it is over
//! exactly when somebody calls [`Clock::advance`], which makes tests independent of the machine they run on.

use jiff::{SignedDuration, Timestamp};
use std::str::FromStr;
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
    /// Emulated time moves only by hand: [`Clock::advance`].
    pub const MANUAL: Self = Self(0.0);
    /// As fast as real time.
    pub const REAL: Self = Self(1.0);

    /// The number itself.
    pub fn get(self) -> f64 {
        self.0
    }
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

impl FromStr for Factor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
        Self::try_from(number).map_err(|error| error.to_string())
    }
}

impl From<Factor> for f64 {
    fn from(factor: Factor) -> Self {
        factor.0
    }
}

/// Emulated time, anchored to the monotonic clock of the machine.
#[derive(Debug)]
pub struct Clock {
    anchor: Instant,
    at_anchor: Timestamp,
    factor: Factor,
}

impl Clock {
    /// A clock that shows `start` now.
    pub fn new(start: Timestamp, factor: Factor) -> Self {
        Self {
            anchor: Instant::now(),
            at_anchor: start,
            factor,
        }
    }

    /// What the clock shows, in whole microseconds, as the real API prints them.
    pub fn now(&self) -> Timestamp {
        let elapsed = self.anchor.elapsed().mul_f64(self.factor.0);
        let micros = SignedDuration::from_micros(i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX / 2));
        self.at_anchor.checked_add(micros).unwrap_or(Timestamp::MAX)
    }

    /// Moves the clock forward.
    pub fn advance(&mut self, by: Duration) {
        let ahead = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
        let now = self.now();
        self.set(now.checked_add(ahead).unwrap_or(Timestamp::MAX));
    }

    /// Makes the clock show `now`.
    pub fn set(&mut self, now: Timestamp) {
        self.at_anchor = now;
        self.anchor = Instant::now();
    }

    pub fn factor(&self) -> Factor {
        self.factor
    }

    /// Changes the pace without a jump.
    pub fn set_factor(&mut self, factor: Factor) {
        let now = self.now();
        self.set(now);
        self.factor = factor;
    }

    /// How long a real clock runs until this one shows `moment`; none if it never will by itself.
    pub fn real_time_until(&self, moment: Timestamp) -> Option<Duration> {
        let ahead = moment.duration_since(self.now());
        if !ahead.is_positive() {
            return Some(Duration::ZERO);
        }
        if self.factor.0 <= 0.0 {
            return None;
        }
        Duration::try_from_secs_f64(ahead.as_secs_f64() / self.factor.0).ok()
    }
}

/// The wall clock in whole microseconds: where emulated time starts unless told otherwise.
pub fn wall() -> Timestamp {
    Timestamp::from_microsecond(Timestamp::now().as_microsecond()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// `at` plus `by`, stopping at the end of time.
pub fn after(at: Timestamp, by: Duration) -> Timestamp {
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
        assert_eq!(
            clock.real_time_until(after(Timestamp::UNIX_EPOCH, Duration::from_secs(1))),
            None
        );
        clock.advance(Duration::from_secs(90));
        assert_eq!(clock.now().as_second(), 90);
    }

    #[test]
    fn a_fast_clock_needs_less_real_time() {
        let clock = Clock::new(Timestamp::UNIX_EPOCH, Factor::try_from(600.0).unwrap());
        let wait = clock
            .real_time_until(after(clock.now(), Duration::from_mins(10)))
            .unwrap();
        assert!(wait <= Duration::from_secs(1), "{wait:?}");
    }

    #[test]
    fn a_factor_is_finite_and_not_negative() {
        for bad in [-1.0, f64::NAN, f64::INFINITY, 1e9] {
            assert!(Factor::try_from(bad).is_err(), "{bad}");
        }
    }
}
