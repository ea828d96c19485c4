//! How long things may take.

use std::time::Duration;

use russet_scaleway::Rate;

/// The times the protocol is built on, and how patient a bootstrap is.
#[derive(Clone, Debug)]
pub struct Rules {
    /// A call is sent at most this long after its attempt was written down.
    pub send_within: Duration,
    /// After this long a call can no longer arrive. Covers `send_within`, the client's time-out for one exchange, and what
    /// the clocks of two replicas may differ by: a sixth, a third and a twelfth of it by default.
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
    /// After how long steps that had to wait are tried again.
    pub held_again: Duration,
    /// How often a host is looked at for what changes on it by itself. Zero: never.
    pub look_every: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        let flight = Duration::from_mins(1);
        Self {
            send_within: flight / 6,
            flight,
            settle: Duration::from_mins(1),
            min_wipe: Duration::from_secs(30),
            reboot_after: 3,
            give_back_after: 8,
            rejoin_after: Duration::from_mins(2),
            held_again: Duration::from_mins(10),
            look_every: Duration::from_mins(15),
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
    /// The default rules with another time of flight, and with the time to send a call that goes with it.
    pub fn with_flight(flight: Duration) -> Self {
        Self {
            send_within: flight / 6,
            flight,
            ..Self::default()
        }
    }

    /// The time-out for one exchange that goes with these rules.
    pub fn call_timeout(&self) -> Duration {
        self.flight / 3
    }

    /// Differences between the clocks of two replicas that are reckoned with.
    fn skew(&self) -> Duration {
        self.flight / 12
    }

    /// How many machines may be worked on at once at this rate of calls. Each may wait for a call, and one that stands in the queue for
    /// longer than [`Rules::send_within`] is not made any more: with too many of them none ever would be.
    pub fn most_at_once(&self, rate: Rate) -> u16 {
        let half = self.send_within.as_nanos() / 2;
        let calls = half / rate.interval.as_nanos().max(1);
        u16::try_from(calls).unwrap_or(u16::MAX).max(1)
    }

    /// Checks the times against the client's time-out for one exchange.
    pub fn check(&self, call_timeout: Duration) -> Result<(), TooTight> {
        if self.send_within + call_timeout + self.skew() <= self.flight {
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
    fn the_times_of_a_call_fit_each_other_however_long_a_flight_is() {
        for flight in [6, 12, 60, 600].map(Duration::from_secs) {
            let rules = Rules::with_flight(flight);
            rules.check(rules.call_timeout()).unwrap();
        }
    }

    /// With 10 calls a second and more than 100 workers, each call stood in the queue for more than the 10 seconds after which it is
    /// given up, was written down again, and stood at its end again: nothing was ever adopted.
    #[test]
    fn no_more_machines_are_worked_on_than_the_queue_of_calls_can_bear() {
        let rules = Rules::default();
        let rate = |interval| Rate {
            interval,
            ..Rate::default()
        };
        assert_eq!(rules.most_at_once(rate(Duration::from_millis(100))), 50);
        assert_eq!(rules.most_at_once(rate(Duration::from_millis(1))), 5000);
        assert_eq!(
            rules.most_at_once(rate(Duration::from_mins(1))),
            1,
            "somebody has to work"
        );
        assert_eq!(rules.most_at_once(rate(Duration::ZERO)), u16::MAX);
    }

    #[test]
    fn a_client_that_waits_longer_than_a_flight_is_refused() {
        assert!(Rules::default().check(Duration::from_secs(46)).is_err());
    }
}
