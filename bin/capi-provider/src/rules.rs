//! How long things may take.

use std::time::Duration;

/// The times the protocol is built on, and how patient a bootstrap is.
#[derive(Clone, Debug)]
pub struct Rules {
    /// A call is sent at most this long after its attempt was written down.
    pub send_within: Duration,
    /// After this long a call can no longer arrive. Covers `send_within`, the client's time-out for one exchange, and what
    /// the clocks of two replicas may differ by.
    pub flight: Duration,
    /// How long a marker name must stand before a host is used. As long as [`Rules::flight`] to be safe against other
    /// clusters that share the pool; zero if none does.
    pub settle: Duration,
    /// Time between the last sight of a running wipe and the first sight of a ready host that is believed.
    pub min_wipe: Duration,
    /// Failed bootstraps before the host is rebooted once. Zero: never.
    pub reboot_after: u32,
    /// Failed bootstraps before the host is given back and another taken. Zero: never.
    pub give_back_after: u32,
    /// How long the Node of a host that is set up may be missing before the host is asked to join again.
    pub rejoin_after: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            send_within: Duration::from_secs(10),
            flight: Duration::from_mins(1),
            settle: Duration::from_mins(1),
            min_wipe: Duration::from_secs(30),
            reboot_after: 3,
            give_back_after: 8,
            rejoin_after: Duration::from_mins(2),
        }
    }
}

/// Times that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a call may be sent {send_within:?} after it was written down and then take {call_timeout:?}, which is not well within \
     {flight:?}; raise the flight time"
)]
pub struct TooTight {
    send_within: Duration,
    call_timeout: Duration,
    flight: Duration,
}

impl Rules {
    /// Differences between the clocks of two replicas that are reckoned with.
    pub const SKEW: Duration = Duration::from_secs(5);

    /// Checks the times against the client's time-out for one exchange.
    pub fn check(&self, call_timeout: Duration) -> Result<(), TooTight> {
        if self.send_within + call_timeout + Self::SKEW <= self.flight {
            return Ok(());
        }
        Err(TooTight {
            send_within: self.send_within,
            call_timeout,
            flight: self.flight,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_times_fit_the_default_client() {
        Rules::default().check(Duration::from_secs(20)).unwrap();
    }

    #[test]
    fn a_client_that_waits_longer_than_a_flight_is_refused() {
        assert!(Rules::default().check(Duration::from_secs(46)).is_err());
    }
}
