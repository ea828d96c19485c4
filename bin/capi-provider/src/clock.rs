//! The time that decisions are made at, as an argument: what is written into records and compared with what other replicas wrote.
//!
//! Times that an API server or a certificate states are compared with the time of this machine instead.

use std::fmt::Debug;
use std::time::Duration;

use jiff::Timestamp;

/// Where the controllers read the time.
pub trait Clock: Debug + Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;

    /// After how long a reconcile that has to wait for this moment is tried again.
    fn requeue_at(&self, moment: Timestamp) -> Duration {
        left(moment, self.now())
    }
}

/// The time until a moment; none if it has passed.
pub(crate) fn left(moment: Timestamp, now: Timestamp) -> Duration {
    moment.duration_since(now).try_into().unwrap_or_default()
}

/// The clock of this machine.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
