//! What a plan says about one host, in words for people and programs.

use std::fmt;

use jiff::Timestamp;

/// What a plan says about one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to do.
    UpToDate,
    /// It may be updated now.
    Update {
        /// It is one of the first.
        canary: bool,
    },
    /// It has to wait.
    Wait(Wait),
}

/// What a host waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Its machine is being deleted.
    Deleting,
    /// It was never set up.
    NotSetUp,
    /// It is paused.
    Paused,
    /// Its update runs.
    Updating,
    /// It failed, and the next try comes then.
    Retry {
        /// Failures so far.
        tries: u32,
        /// When.
        at: Timestamp,
    },
    /// It failed too often.
    GaveUp {
        /// Failures.
        tries: u32,
        /// Until when.
        until: Timestamp,
    },
    /// Others fail with the configuration, or do not serve since they have it.
    Failing {
        /// Which.
        hosts: Vec<String>,
    },
    /// Others try the configuration first.
    Canary {
        /// Which.
        hosts: Vec<String>,
    },
    /// Others have it, and have to prove it for a while.
    Soak {
        /// Which.
        hosts: Vec<String>,
        /// Until when.
        until: Timestamp,
    },
    /// Pods run on it.
    Busy {
        /// Which; none if they could not be listed.
        pods: Vec<String>,
        /// When it is updated all the same.
        until: Timestamp,
    },
    /// Too many hosts are out of service.
    Budget {
        /// How many are.
        unavailable: usize,
        /// How many may be.
        allowed: usize,
    },
}

impl Wait {
    /// When the wait ends by itself, if time ends it.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Retry { at: until, .. }
            | Self::GaveUp { until, .. }
            | Self::Soak { until, .. }
            | Self::Busy { until, .. } => Some(*until),
            _ => None,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UpToDate => f.write_str("The host has the configuration it should have"),
            Self::Update { canary: true } => f.write_str("The host gets the new configuration first, as a canary"),
            Self::Update { canary: false } => f.write_str("The host gets the new configuration now"),
            Self::Wait(wait) => write!(f, "{wait}"),
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deleting => f.write_str("The host is being given back and is not updated any more"),
            Self::NotSetUp => f.write_str("The host is not set up yet; it gets the new configuration then"),
            Self::Paused => f.write_str("The host has drifted, and its machine or cluster is paused"),
            Self::Updating => f.write_str("The host is being updated"),
            Self::Retry { tries, at } => {
                write!(f, "The update failed {}; the next try is at {at}", times(*tries))
            }
            Self::GaveUp { tries, until } => write!(
                f,
                "The update failed {} and is not tried again before {until}; correct the cause, or clear \
                 status.failureReason to try at once",
                times(*tries)
            ),
            Self::Failing { hosts } => write!(
                f,
                "The rollout is paused because hosts fail or do not serve with the new configuration: {}; correct the \
                 configuration, or mend or remove these hosts",
                names(hosts)
            ),
            Self::Canary { hosts } => write!(
                f,
                "The host waits; the new configuration is tried first on {}",
                names(hosts)
            ),
            Self::Soak { hosts, until } => write!(
                f,
                "The host waits until {until}; until then {} must be well with the new configuration",
                names(hosts)
            ),
            Self::Busy { pods, until } if pods.is_empty() => write!(
                f,
                "The host waits because its Pods could not be listed, as the log says; it is updated all the same from \
                 {until} on"
            ),
            Self::Busy { pods, until } => write!(
                f,
                "The host waits for Pods that run on it: {}; it is updated when they are done, and under them from \
                 {until} on",
                names(pods)
            ),
            Self::Budget { unavailable, allowed } => write!(
                f,
                "The host waits for its turn: {unavailable} of the fleet's hosts are out of service or being updated, and {allowed} may be"
            ),
        }
    }
}

fn times(count: u32) -> String {
    match count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    }
}

/// A few names, and how many more.
fn names(hosts: &[String]) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<&str> = hosts.iter().take(SHOWN).map(String::as_str).collect();
    match hosts.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
