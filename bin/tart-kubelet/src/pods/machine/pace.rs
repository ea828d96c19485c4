//! How often a guest that boots is asked whether it is up.
//!
//! Asking starts a process on the host, and nobody tells us when a guest is up. But the guests of one host take about as long as
//! each other: so one is asked seldom while it cannot be up, often when it should be, and seldom again when something is wrong.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// When it may be up any moment.
const OFTEN: Duration = Duration::from_millis(50);
const SELDOM: Duration = Duration::from_secs(2);
/// Nothing is wrong yet with a guest that takes this long.
const PATIENCE: Duration = Duration::from_secs(45);

/// What the guests of this host took to boot.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// In milliseconds; 0 before the first.
    usual: AtomicU64,
}

impl Pace {
    /// One took so long. Those that take longer count less: they may have had a reason.
    pub(super) fn took(&self, boot: Duration) {
        let boot = u64::try_from(boot.as_millis()).unwrap_or(u64::MAX).max(1);
        let usual = match self.usual.load(Ordering::Relaxed) {
            0 => boot,
            usual if boot <= usual => boot,
            usual => usual + (boot - usual) / 4,
        };
        self.usual.store(usual, Ordering::Relaxed);
    }

    /// How long to wait before one that has booted for so long is asked again.
    pub(super) fn pause(&self, so_far: Duration) -> Duration {
        let usual = Duration::from_millis(self.usual.load(Ordering::Relaxed));
        let soonest = usual * 3 / 4;
        if so_far < soonest {
            soonest.saturating_sub(so_far).clamp(OFTEN, SELDOM)
        } else if so_far < PATIENCE.max(usual * 2) {
            OFTEN
        } else {
            SELDOM
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When a guest that took so long is found to be up, and how often it was asked.
    fn found(pace: &Pace, boot: Duration) -> (Duration, u32) {
        let (mut so_far, mut asked) = (Duration::ZERO, 1);
        while so_far < boot {
            so_far += pace.pause(so_far);
            asked += 1;
        }
        (so_far.saturating_sub(boot), asked)
    }

    #[test]
    fn a_guest_that_takes_as_long_as_the_others_is_found_at_once_and_asked_seldom() {
        let pace = Pace::default();
        let boot = Duration::from_secs(15);
        let (late, first) = found(&pace, boot);
        assert!(late <= OFTEN);
        pace.took(boot);
        for boot in [12_000, 14_500, 15_000, 20_000].map(Duration::from_millis) {
            let (late, asked) = found(&pace, boot);
            assert!(late <= OFTEN, "{boot:?} was found {late:?} late");
            assert!(asked < first, "{asked} times instead of {first}");
        }
    }

    #[test]
    fn a_guest_that_does_not_come_up_is_left_in_peace() {
        let pace = Pace::default();
        pace.took(Duration::from_secs(10));
        assert_eq!(pace.pause(Duration::from_mins(1)), SELDOM);
        assert_eq!(Pace::default().pause(Duration::from_mins(1)), SELDOM);
    }

    #[test]
    fn one_slow_boot_does_not_make_the_next_ones_late() {
        let pace = Pace::default();
        pace.took(Duration::from_secs(10));
        pace.took(Duration::from_secs(11));
        assert!(found(&pace, Duration::from_secs(10)).0 <= OFTEN);
    }
}
