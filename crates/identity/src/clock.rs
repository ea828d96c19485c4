//! Time as an argument.
//!
//! Ages are measured on the monotonic clock, so stepping the wall clock cannot prolong an allow; the wall clock is
//! needed only to read `exp` and `nbf`.

use std::fmt;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// One reading of both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Monotonic, for ages.
    pub instant: Instant,
    /// Seconds since 1970, for `exp` and `nbf`.
    pub unix_seconds: u64,
}

/// Where the background work reads the time. Requests pass their own [`Moment`].
pub trait Clock: Send + Sync + fmt::Debug {
    /// Both clocks, now.
    fn now(&self) -> Moment;
}

/// The clocks of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        Moment {
            instant: Instant::now(),
            // A clock before 1970 is broken; 0 makes every token look not yet valid rather than valid for ever.
            unix_seconds: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        }
    }
}
