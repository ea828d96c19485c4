//! How careful a rollout is.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Serialize, Serializer};

/// A number of hosts, or a part of the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// So many.
    Count(u32),
    /// So many of a hundred.
    Percent(u8),
}

/// A text that is no [`Share`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a number of hosts such as 2 nor a part of the fleet such as 10%")]
pub struct BadShare(String);

impl Share {
    /// How many of a fleet of this size, a part of a host rounded down but never to nothing: for what is allowed.
    pub fn at_most(self, fleet: usize) -> usize {
        match self {
            Self::Count(count) => count as usize,
            Self::Percent(0) => 0,
            Self::Percent(percent) => (fleet.saturating_mul(percent.into()) / 100).max(1),
        }
    }

    /// How many of a fleet of this size, a part of a host rounded up: for what is needed.
    pub fn at_least(self, fleet: usize) -> usize {
        match self {
            Self::Count(count) => count as usize,
            Self::Percent(percent) => fleet.saturating_mul(percent.into()).div_ceil(100),
        }
    }
}

impl FromStr for Share {
    type Err = BadShare;

    fn from_str(text: &str) -> Result<Self, BadShare> {
        let bad = || BadShare(text.to_owned());
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
        match text.trim().strip_suffix('%') {
            Some(percent) if digits(percent) => match percent.parse() {
                Ok(percent @ 0..=100) => Ok(Self::Percent(percent)),
                _ => Err(bad()),
            },
            None if digits(text.trim()) => text.trim().parse().map(Self::Count).map_err(|_| bad()),
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// How careful a rollout is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Hosts that must be well with a configuration before others get it. None: all get it at once, within the other rules.
    pub canary: Share,
    /// How long they must be well.
    pub soak: Duration,
    /// Hosts that may be out of service at once. At least one, or nothing would ever be updated.
    pub max_unavailable: Share,
    /// Failing hosts at which a configuration is pushed to no further one. None: never stop.
    pub pause_failures: Share,
    /// How long the Node of a host must be lost before there is nothing on it to protect.
    pub lost_after: Duration,
    /// How long a host on which Pods run is waited for, once it is its turn.
    pub busy_patience: Duration,
    /// Time between a failure and the next try.
    pub retry_delay: Duration,
    /// Failures with one configuration before a host gives up. Zero: never.
    pub max_attempts: u32,
    /// How long a host that gave up stays so.
    pub terminal_retry_after: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            canary: Share::Count(1),
            soak: Duration::from_mins(10),
            max_unavailable: Share::Percent(10),
            pause_failures: Share::Count(2),
            lost_after: Duration::from_mins(2),
            busy_patience: Duration::from_hours(1),
            retry_delay: Duration::from_mins(1),
            max_attempts: 5,
            terminal_retry_after: Duration::from_mins(30),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_numbers_or_parts() {
        assert_eq!("3".parse(), Ok(Share::Count(3)));
        assert_eq!(" 25% ".parse(), Ok(Share::Percent(25)));
        for bad in ["", "%", "-1", "101%", "1.5", "+2", "two", "99999999999"] {
            assert!(bad.parse::<Share>().is_err(), "{bad}");
        }
        assert_eq!(Share::Percent(25).to_string(), "25%");
    }

    #[test]
    fn what_is_allowed_is_rounded_down_but_never_to_nothing_and_what_is_needed_is_rounded_up() {
        assert_eq!(Share::Percent(10).at_most(3), 1);
        assert_eq!(Share::Percent(10).at_most(29), 2);
        assert_eq!(Share::Percent(0).at_most(29), 0);
        assert_eq!(Share::Percent(10).at_least(3), 1);
        assert_eq!(Share::Percent(10).at_least(21), 3);
        assert_eq!(Share::Count(7).at_least(3), 7);
    }
}
