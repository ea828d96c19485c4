//! How long to wait before trying again: 10 s, doubling up to 5 min, forgotten after 10 good minutes.
//!
//! Two things wait like this in a kubelet, and they count from different moments: a container that ended waits from its end
//! ([`Backoff::after_exit`]), an image that could not be pulled from the failed attempt ([`Backoff::after_failure`]).
//! Everything here is a value: the same calls give the same waits, and a ledger can keep it. An event that lies ahead means
//! that the clock has gone back; nobody waits for it.

use crate::time::{after, in_words};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The first wait.
pub const FIRST: Duration = Duration::from_secs(10);
/// The longest wait.
pub const LONGEST: Duration = Duration::from_mins(5);
/// What ran, or was left alone, for longer than this begins anew.
pub const FORGET: Duration = Duration::from_mins(10);

/// What is remembered of failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    entry: Option<Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    wait: Duration,
    /// When the wait last grew: the start of the attempt it followed.
    grown: Timestamp,
}

impl Backoff {
    /// When what ended at `finished` may start again, or `None` if it may at once, as after the first end.
    pub fn after_exit(&self, finished: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let entry = self.entry.filter(|entry| !entry.is_forgotten(finished))?;
        let ready = after(finished, entry.wait);
        (finished <= now && now < ready).then_some(ready)
    }

    /// To be called when what ended at `finished` is started again: the next wait is longer.
    pub fn restarted(&mut self, finished: Timestamp, now: Timestamp) {
        self.grow(finished, now);
    }

    /// To be called when an attempt failed. Returns when the next may be.
    pub fn failed(&mut self, now: Timestamp) -> Timestamp {
        self.grow(now, now);
        after(now, self.wait())
    }

    /// When the attempt after the last failure may be, or `None` if it may be now.
    pub fn after_failure(&self, now: Timestamp) -> Option<Timestamp> {
        let entry = self.entry.filter(|entry| !entry.is_forgotten(now))?;
        let ready = after(entry.grown, entry.wait);
        (entry.grown <= now && now < ready).then_some(ready)
    }

    /// The present wait.
    pub fn wait(&self) -> Duration {
        self.entry.map_or(Duration::ZERO, |entry| entry.wait)
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        self.entry = None;
    }

    fn grow(&mut self, event: Timestamp, now: Timestamp) {
        let wait = match self.entry.filter(|entry| !entry.is_forgotten(event)) {
            Some(entry) => (entry.wait * 2).min(LONGEST),
            None => FIRST,
        };
        self.entry = Some(Entry { wait, grown: now });
    }
}

impl Entry {
    fn is_forgotten(&self, at: Timestamp) -> bool {
        at > after(self.grown, FORGET)
    }
}

/// What a container that waits for its restart says.
pub fn crash_message(wait: Duration, container: &str, pod: &str) -> String {
    let wait = in_words(wait);
    format!("back-off {wait} restarting failed container={container} pod={pod}")
}

/// What a container that waits for its image says.
pub fn pull_message(image: &str, cause: &str) -> String {
    format!("Back-off pulling image \"{image}\": ErrImagePull: {cause}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// A container that runs for a second and ends, restarted as soon as it may be. Returns the waits.
    fn crashes(count: usize) -> Vec<i64> {
        let (mut backoff, mut now, mut waits) = (Backoff::default(), at(1000), Vec::new());
        for _ in 0..count {
            let finished = after(now, Duration::from_secs(1));
            now = backoff.after_exit(finished, finished).unwrap_or(finished);
            waits.push(now.as_second() - finished.as_second());
            let found = backoff.after_exit(finished, now);
            assert_eq!(found, None, "what waited long enough may start");
            backoff.restarted(finished, now);
        }
        waits
    }

    #[test]
    fn the_first_restart_is_at_once_and_later_ones_wait_twice_as_long_up_to_five_minutes() {
        assert_eq!(crashes(8), [0, 10, 20, 40, 80, 160, 300, 300]);
    }

    #[test]
    fn ten_good_minutes_are_a_new_beginning() {
        let mut backoff = Backoff::default();
        backoff.restarted(at(0), at(0));
        backoff.restarted(at(10), at(20));
        let found = backoff.after_exit(at(620), at(620));
        assert_eq!(found, Some(at(640)), "600 s is not more than 600 s");
        assert_eq!(backoff.after_exit(at(621), at(621)), None);
        backoff.restarted(at(621), at(621));
        assert_eq!(backoff.wait(), FIRST);
    }

    #[test]
    fn a_failed_pull_waits_from_the_failure() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.after_failure(at(5)), None);
        assert_eq!(backoff.failed(at(5)), at(15));
        assert_eq!(backoff.after_failure(at(14)), Some(at(15)));
        assert_eq!(backoff.after_failure(at(15)), None);
        assert_eq!(backoff.failed(at(15)), at(35));
        backoff.reset();
        assert_eq!(backoff.failed(at(36)), at(46));
    }

    #[test]
    fn nobody_waits_for_a_clock_that_has_gone_back() {
        let mut backoff = Backoff::default();
        backoff.restarted(at(5000), at(5000));
        assert_eq!(backoff.after_exit(at(5001), at(5001)), Some(at(5011)));
        assert_eq!(backoff.after_exit(at(5001), at(1000)), None);
        backoff.failed(at(5001));
        assert_eq!(backoff.after_failure(at(1000)), None);
    }

    #[test]
    fn the_words_are_those_of_a_kubelet() {
        assert_eq!(
            crash_message(Duration::from_secs(80), "main", "job_ci(0b5d)"),
            "back-off 1m20s restarting failed container=main pod=job_ci(0b5d)"
        );
        let found = pull_message("a/b:1", "denied");
        assert_eq!(found, "Back-off pulling image \"a/b:1\": ErrImagePull: denied");
    }
}
