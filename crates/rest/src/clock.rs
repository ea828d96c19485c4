//! Time and chance as arguments, so that tests decide both.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rand::Rng as _;

/// A wait that ends by itself.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where waits and deadlines come from.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The monotonic clock, now.
    fn now(&self) -> Instant;
    /// The wall clock, as this machine believes it to be: tokens carry it.
    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }
    /// Ends after this long. Dropping it is free.
    fn sleep(&self, duration: Duration) -> Sleep;
}

/// The clock of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// Where jitter comes from.
pub trait Chance: Send + Sync + fmt::Debug {
    /// A number from 0 to 1, both included.
    fn fraction(&self) -> f64;
}

/// The random numbers of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemChance;

impl Chance for SystemChance {
    fn fraction(&self) -> f64 {
        rand::rng().random_range(0.0..=1.0)
    }
}
