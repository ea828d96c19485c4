//! What to do about a Lease, given when we first saw it in its present form.

use std::time::{Duration, Instant};

/// The three periods of an election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long a standby waits after the last change it saw before it takes the Lease.
    pub lease_duration: Duration,
    /// How long the holder goes on writing after the last renewal it sent successfully.
    pub renew_deadline: Duration,
    /// How often either looks at the Lease.
    pub retry_period: Duration,
}

impl Default for Timing {
    /// The values of Kubernetes' own components.
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// Why periods do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// The Lease stores whole seconds.
    #[error("the lease duration ({0:?}) must be a whole number of seconds, at least 1")]
    NotWholeSeconds(Duration),
    /// Without a gap two processes could write at once.
    #[error("the renew deadline ({renew:?}) must be shorter than the lease duration ({lease:?})")]
    RenewTooLong {
        /// The renew deadline.
        renew: Duration,
        /// The lease duration.
        lease: Duration,
    },
    /// The holder needs at least one more try before its deadline.
    #[error(
        "the retry period ({retry:?}) must be positive and, with its jitter, shorter than the renew deadline ({renew:?})"
    )]
    RetryTooLong {
        /// The retry period.
        retry: Duration,
        /// The renew deadline.
        renew: Duration,
    },
}

/// Retries are spread by up to this factor, so that standbys do not all try in the same instant.
pub(super) const JITTER: f64 = 1.2;

impl Timing {
    /// Checks the invariant of the module: retry × jitter < renew deadline < lease duration.
    pub fn validate(self) -> Result<Self, TimingError> {
        if self.lease_duration.subsec_nanos() != 0
            || self.lease_duration.is_zero()
            || i32::try_from(self.lease_duration.as_secs()).is_err()
        {
            return Err(TimingError::NotWholeSeconds(self.lease_duration));
        }
        if self.renew_deadline >= self.lease_duration {
            return Err(TimingError::RenewTooLong {
                renew: self.renew_deadline,
                lease: self.lease_duration,
            });
        }
        if self.retry_period.is_zero() || self.retry_period.mul_f64(JITTER) >= self.renew_deadline {
            return Err(TimingError::RetryTooLong {
                retry: self.retry_period,
                renew: self.renew_deadline,
            });
        }
        Ok(self)
    }
}

/// The part of a Lease that elections are about. Times are opaque: they are compared for change, never with a clock.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// Who holds it; empty when released.
    pub holder: String,
    /// The duration the holder promised to renew within.
    pub duration: Duration,
    /// When it was taken, as written.
    pub acquire_time: Option<String>,
    /// When it was last renewed, as written.
    pub renew_time: Option<String>,
    /// How often it changed hands.
    pub transitions: i32,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// There is no Lease: create it in our name.
    Create,
    /// It is free or its holder fell silent: replace it in our name, with its resourceVersion.
    Take,
    /// It is ours: write a new renew time.
    Renew,
    /// Somebody else holds it at least until then.
    Wait {
        /// The first instant at which it may be taken if nothing changes.
        until: Instant,
    },
}

/// Decides from the record and the local instant at which it was first seen in this form.
///
/// The holder's own duration counts when it is longer than ours: a rollout that shortens the period must not make the new
/// process take the Lease from an old one that still trusts the old period.
pub fn decide(lease: Option<(&Record, Instant)>, now: Instant, me: &str, timing: &Timing) -> Action {
    let Some((record, seen)) = lease else {
        return Action::Create;
    };
    if record.holder.is_empty() {
        return Action::Take;
    }
    if record.holder == me {
        return Action::Renew;
    }
    let until = seen + record.duration.max(timing.lease_duration);
    if now >= until {
        Action::Take
    } else {
        Action::Wait { until }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::strategy::ValueTree as _;

    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn held_by(holder: &str, seconds: u64) -> Record {
        Record {
            holder: holder.into(),
            duration: Duration::from_secs(seconds),
            ..Record::default()
        }
    }

    #[test]
    fn every_state_of_a_lease_has_its_action() {
        let timing = Timing::default();
        let seen = Instant::now();
        let until = |seconds| Action::Wait {
            until: seen + Duration::from_secs(seconds),
        };
        let table = [
            ("no lease", None, 0, Action::Create),
            ("released", Some(held_by("", 1)), 0, Action::Take),
            ("ours", Some(held_by("me", 15)), 0, Action::Renew),
            ("ours, long silent", Some(held_by("me", 15)), 500, Action::Renew),
            ("another's, just seen", Some(held_by("you", 15)), 0, until(15)),
            ("another's, about to expire", Some(held_by("you", 15)), 14, until(15)),
            ("another's, expired", Some(held_by("you", 15)), 15, Action::Take),
            (
                "another's with a longer promise",
                Some(held_by("you", 60)),
                30,
                until(60),
            ),
            (
                "another's with a shorter promise",
                Some(held_by("you", 1)),
                5,
                until(15),
            ),
            ("another's without a promise", Some(held_by("you", 0)), 5, until(15)),
        ];
        for (name, record, elapsed, action) in table {
            let now = seen + Duration::from_secs(elapsed);
            assert_eq!(
                decide(record.as_ref().map(|record| (record, seen)), now, "me", &timing),
                action,
                "{name}"
            );
        }
    }

    #[test]
    fn periods_that_would_allow_two_leaders_are_refused() {
        let good = Timing::default();
        assert_eq!(good.validate(), Ok(good));
        let renew = Timing {
            renew_deadline: 15 * S,
            ..good
        };
        assert!(matches!(renew.validate(), Err(TimingError::RenewTooLong { .. })));
        let retry = Timing {
            retry_period: 9 * S,
            ..good
        };
        assert!(matches!(retry.validate(), Err(TimingError::RetryTooLong { .. })));
        let zero = Timing {
            retry_period: Duration::ZERO,
            ..good
        };
        assert!(matches!(zero.validate(), Err(TimingError::RetryTooLong { .. })));
        let fraction = Timing {
            lease_duration: S * 3 / 2,
            ..good
        };
        assert!(matches!(fraction.validate(), Err(TimingError::NotWholeSeconds(_))));
    }

    /// A model of processes and one Lease. A process may be paused for any time between any two steps, and its requests may
    /// take any time to arrive.
    #[derive(Debug, Clone)]
    struct Process {
        name: &'static str,
        observed: Option<(Record, u64, Duration)>,
        pending: Option<Pending>,
        deadline: Option<Duration>,
    }

    #[derive(Debug, Clone)]
    struct Pending {
        expected: Option<u64>,
        sent: Duration,
    }

    #[derive(Debug, Clone, Default)]
    struct Server {
        lease: Option<Record>,
        version: u64,
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        /// Read the Lease.
        Read,
        /// Decide on what was read, and send.
        Decide,
        /// The request reaches the server.
        Arrive,
        /// All of it without delay, which is what happens nearly always.
        Round,
    }

    impl Process {
        fn new(name: &'static str) -> Self {
            Self {
                name,
                observed: None,
                pending: None,
                deadline: None,
            }
        }

        fn leads(&self, now: Duration) -> bool {
            self.deadline.is_some_and(|deadline| now < deadline)
        }

        fn read(&mut self, server: &Server, now: Duration) {
            self.observed = server.lease.as_ref().map(|record| {
                let unchanged = self
                    .observed
                    .as_ref()
                    .filter(|(seen, ..)| seen == record)
                    .map(|(.., at)| *at);
                (record.clone(), server.version, unchanged.unwrap_or(now))
            });
        }

        /// A holder whose deadline passed, or whose Lease is no longer its own, ends and starts anew.
        fn decide(&mut self, now: Duration, base: Instant, timing: &Timing) {
            let lease = self.observed.as_ref().map(|(record, _, at)| (record, base + *at));
            let action = decide(lease, base + now, self.name, timing);
            if self.deadline.is_some() && (!self.leads(now) || action != Action::Renew) {
                *self = Self::new(self.name);
            } else if !matches!(action, Action::Wait { .. }) {
                let expected = self.observed.as_ref().map(|(_, version, _)| *version);
                self.pending = Some(Pending { expected, sent: now });
            }
        }

        fn arrive(&mut self, server: &mut Server, timing: &Timing) {
            let Some(Pending { expected, sent }) = self.pending.take() else {
                return;
            };
            if expected != server.lease.as_ref().map(|_| server.version) {
                return;
            }
            server.version += 1;
            server.lease = Some(Record {
                holder: self.name.into(),
                duration: timing.lease_duration,
                renew_time: Some(server.version.to_string()),
                ..Record::default()
            });
            self.deadline = Some(sent + timing.renew_deadline);
        }

        fn take(&mut self, step: Step, server: &mut Server, now: Duration, base: Instant, timing: &Timing) {
            match step {
                Step::Read => self.read(server, now),
                Step::Decide => self.decide(now, base, timing),
                Step::Arrive => self.arrive(server, timing),
                Step::Round => {
                    self.read(server, now);
                    self.decide(now, base, timing);
                    self.arrive(server, timing);
                }
            }
        }
    }

    /// The first instant at which two processes lead, and how often anybody led at all.
    fn simulate(steps: &[(usize, Step, u64)], timing: &Timing) -> (Option<Duration>, usize) {
        let base = Instant::now();
        let (mut now, mut server, mut led) = (Duration::ZERO, Server::default(), 0);
        let mut processes = ["a", "b", "c"].map(Process::new);
        for (index, step, millis) in steps {
            now += Duration::from_millis(*millis);
            processes[*index].take(*step, &mut server, now, base, timing);
            match processes.iter().filter(|process| process.leads(now)).count() {
                0 => {}
                1 => led += 1,
                _ => return (Some(now), led),
            }
        }
        (None, led)
    }

    fn any_steps() -> impl Strategy<Value = Vec<(usize, Step, u64)>> {
        let step = prop_oneof![
            2 => Just(Step::Read),
            2 => Just(Step::Decide),
            2 => Just(Step::Arrive),
            5 => Just(Step::Round),
        ];
        let millis = prop_oneof![6 => 0_u64..400, 1 => 0_u64..4_000];
        prop::collection::vec((0_usize..3, step, millis), 1..150)
    }

    const MODEL: Timing = Timing {
        lease_duration: Duration::from_secs(3),
        renew_deadline: Duration::from_secs(2),
        retry_period: Duration::from_millis(500),
    };

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]
        /// Whatever the order of reads, writes and pauses, and however late requests arrive, no two processes may write.
        #[test]
        fn at_no_time_do_two_processes_lead(steps in any_steps()) {
            prop_assert_eq!(simulate(&steps, &MODEL).0, None);
        }
    }

    /// Guards the model above against telling nothing: it must see leaders, and it must see two of them when the deadline is
    /// longer than the Lease.
    #[test]
    fn the_model_finds_two_leaders_when_the_periods_are_wrong() {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let broken = Timing {
            renew_deadline: Duration::from_secs(4),
            ..MODEL
        };
        let (mut led, mut caught) = (0, 0);
        for _ in 0..500 {
            let steps = any_steps().new_tree(&mut runner).unwrap().current();
            led += simulate(&steps, &MODEL).1;
            caught += usize::from(simulate(&steps, &broken).0.is_some());
        }
        assert!(led > 2_000, "led {led} times only");
        assert!(caught > 5, "caught {caught} times only");
    }
}
