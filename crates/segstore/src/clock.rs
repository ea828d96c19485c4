//! Time and randomness, passed in.

use std::fmt::Debug;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The two clocks of the store. The wall clock only labels versions and may step; leases and probes use the steady one.
pub trait Clock: Debug + Send + Sync {
    fn wall_ms(&self) -> u64;
    fn steady(&self) -> Duration;
}

/// The clocks of the operating system.
#[derive(Debug)]
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SystemClock {
    fn wall_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn steady(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Random numbers for ids, tags and the hash key.
pub trait Entropy: Debug + Send + Sync {
    fn next(&self) -> u128;
}

/// The random numbers of the operating system.
#[derive(Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn next(&self) -> u128 {
        let mut buf = [0_u8; 16];
        let got = rustix::rand::getrandom(&mut buf, rustix::rand::GetRandomFlags::empty());
        if got != Ok(buf.len()) {
            // Very old kernels only: the standard library keeps a random state of its own.
            use std::hash::{BuildHasher, RandomState};
            let (a, b) = (RandomState::new().hash_one(0), RandomState::new().hash_one(1));
            return u128::from(a) << 64 | u128::from(b);
        }
        u128::from_le_bytes(buf)
    }
}
