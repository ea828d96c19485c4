//! What the clients of web APIs (Scaleway's, GitHub's) have in common. What an answer means is the client's own.

pub mod clock;
pub mod connection;
pub mod text;

use std::time::Duration;

/// Ceiling of the first delay; doubles with each further one.
const BASE: Duration = Duration::from_millis(500);
/// No ceiling is higher.
const MAX: Duration = Duration::from_secs(20);

/// What happens if a call is sent twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Nothing: it only reads.
    Read,
    /// Nothing that matters: it removes or sets one thing that has an id of its own and that nobody else sets otherwise, or makes
    /// something that ends by itself.
    Repeatable,
    /// Harm, a second bill, or a second thing that stays.
    Once,
}

/// The wait after a try that failed, the first being 0. Full jitter, so that callers who failed together do not come back together;
/// `chance` is a number from 0 to 1.
pub fn delay(attempt: u32, chance: f64) -> Duration {
    let ceiling = BASE.saturating_mul(2_u32.saturating_pow(attempt)).min(MAX);
    ceiling.mul_f64(chance.clamp(0.0, 1.0))
}
