//! Whether and when a process that ended is started again. Pure: the driver brings the facts and does the waiting.

use std::time::Duration;

/// A process that was ready for this long has proven itself: its next failure counts as the first.
pub(super) const STABLE: Duration = Duration::from_secs(30);

/// What to do when a process exits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// Leave it stopped.
    Never,
    /// Start it again, after a delay that doubles with each failure in a row.
    Backoff {
        /// The delay after the first failure.
        initial: Duration,
        /// The longest delay.
        max: Duration,
    },
}

impl Restart {
    /// Quick first restart, at most half a minute between later ones.
    pub const DEFAULT: Self = Self::Backoff {
        initial: Duration::from_millis(250),
        max: Duration::from_secs(30),
    };
}

impl Default for Restart {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// What is known about a process that just ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ending {
    /// It has been ready at least once since it was asked for, in this attempt or an earlier one.
    pub(super) was_ever_ready: bool,
    /// How long it was ready in this attempt; `None` when it never got there.
    pub(super) ready_for: Option<Duration>,
    /// Failures in a row before this one.
    pub(super) failures: u32,
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Do not start it again.
    GiveUp,
    /// Start it again after `delay`; `failures` now counts this one.
    Again { delay: Duration, failures: u32 },
}

/// A process that was never ready is given up: somebody waits for `start` to answer and needs the reason now. One that
/// worked before is worth waiting for, however often it fails.
pub(super) fn decide(policy: Restart, ending: Ending) -> Verdict {
    let Restart::Backoff { initial, max } = policy else {
        return Verdict::GiveUp;
    };
    if !ending.was_ever_ready {
        return Verdict::GiveUp;
    }
    let before = if ending.ready_for.is_some_and(|ready| ready >= STABLE) {
        0
    } else {
        ending.failures
    };
    let delay = 2u32
        .checked_pow(before)
        .and_then(|factor| initial.checked_mul(factor))
        .map_or(max, |d| d.min(max));
    Verdict::Again {
        delay,
        failures: before.saturating_add(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Restart = Restart::Backoff {
        initial: Duration::from_secs(1),
        max: Duration::from_secs(10),
    };

    /// After how long it is started again, and the failures counted then.
    fn again(ending: Ending) -> (Duration, u32) {
        match decide(POLICY, ending) {
            Verdict::Again { delay, failures } => (delay, failures),
            Verdict::GiveUp => panic!("gave up"),
        }
    }

    fn crash(failures: u32) -> Ending {
        Ending {
            was_ever_ready: true,
            ready_for: Some(Duration::from_secs(1)),
            failures,
        }
    }

    #[test]
    fn delays_double_up_to_the_longest_one() {
        for (failures, seconds) in (0..).zip([1, 2, 4, 8, 10, 10]) {
            let delay = Duration::from_secs(seconds);
            assert_eq!(again(crash(failures)), (delay, failures + 1), "after {failures}");
        }
    }

    #[test]
    fn a_thousand_failures_do_not_overflow() {
        assert_eq!(again(crash(u32::MAX)).0, Duration::from_secs(10));
    }

    #[test]
    fn a_stable_process_starts_counting_anew() {
        let ending = Ending {
            ready_for: Some(STABLE),
            ..crash(7)
        };
        assert_eq!(again(ending), (Duration::from_secs(1), 1));
    }

    #[test]
    fn a_restart_that_never_gets_ready_keeps_counting() {
        let ending = Ending {
            ready_for: None,
            ..crash(2)
        };
        assert_eq!(again(ending), (Duration::from_secs(4), 3));
    }

    #[test]
    fn a_first_start_that_fails_is_given_up() {
        let ending = Ending {
            was_ever_ready: false,
            ready_for: None,
            failures: 0,
        };
        assert_eq!(decide(POLICY, ending), Verdict::GiveUp);
    }

    #[test]
    fn never_means_never() {
        assert_eq!(decide(Restart::Never, crash(0)), Verdict::GiveUp);
    }
}
