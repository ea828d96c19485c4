//! Whether a failed exchange is tried again, and when.
//!
//! The rule is short: what may have had an effect is repeated only if the effect is the same twice. A caller of anything
//! else gets its error at once, since it has to look at the world before it acts again, and by then its reasons for the
//! call may be gone. That holds for 429 too: nothing happened, but the wait may be long.

use std::time::Duration;

use crate::call::Effect;

/// What went wrong with one exchange, as far as a repeat is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing was sent.
    NotSent,
    /// Sent; no answer, or one that says that the API itself failed.
    NoAnswer,
    /// 429, with the wait the API asks for.
    RateLimited(Option<Duration>),
    /// A definite answer.
    Final,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Try again after this long.
    After(Duration),
    /// Tell the caller.
    GiveUp,
}

/// No more tries than this, however much time is left.
pub const MAX_ATTEMPTS: u32 = 6;
/// The wait after a 429 that names none.
pub const RATE_LIMIT_DEFAULT: Duration = Duration::from_secs(2);
/// A wait longer than this is not believed: one absurd header must not stop the provider for a day.
pub const RATE_LIMIT_MAX: Duration = Duration::from_mins(5);

/// The wait a 429 asks for, within reason.
pub fn rate_limit_wait(asked: Option<Duration>) -> Duration {
    asked.unwrap_or(RATE_LIMIT_DEFAULT).min(RATE_LIMIT_MAX)
}

/// Decides about the next try.
///
/// `attempt` counts from 0, `left` is what remains of the deadline of the call, `chance` is a number from 0 to 1. Delays have
/// full jitter, so that callers who failed together do not come back together; a 429 gets its wait plus jitter, never less.
pub fn next(effect: Effect, trouble: Trouble, attempt: u32, left: Duration, chance: f64) -> Next {
    if effect == Effect::Once || trouble == Trouble::Final || attempt.saturating_add(1) >= MAX_ATTEMPTS {
        return Next::GiveUp;
    }
    let jitter = russet_rest::delay(attempt, chance);
    let delay = match trouble {
        Trouble::RateLimited(asked) => rate_limit_wait(asked).saturating_add(jitter),
        _ => jitter,
    };
    if delay < left { Next::After(delay) } else { Next::GiveUp }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LONG: Duration = Duration::from_hours(1);

    fn any_trouble() -> impl Strategy<Value = Trouble> {
        prop_oneof![
            Just(Trouble::NotSent),
            Just(Trouble::NoAnswer),
            Just(Trouble::Final),
            prop::option::of((0_u64..100_000).prop_map(Duration::from_secs)).prop_map(Trouble::RateLimited),
        ]
    }

    proptest! {
        #[test]
        fn what_would_do_harm_twice_is_never_repeated(trouble in any_trouble(), attempt in 0_u32..10, chance in 0.0..=1.0) {
            prop_assert_eq!(next(Effect::Once, trouble, attempt, LONG, chance), Next::GiveUp);
        }

        #[test]
        fn a_delay_fits_into_the_deadline(
            trouble in any_trouble(), attempt in 0_u32..10, left in 0_u64..100_000, chance in -1.0..2.0,
        ) {
            let left = Duration::from_millis(left);
            for effect in [Effect::Read, Effect::Repeatable] {
                if let Next::After(delay) = next(effect, trouble, attempt, left, chance) {
                    prop_assert!(delay < left);
                }
            }
        }

        #[test]
        fn a_429_waits_at_least_as_long_as_it_was_told(seconds in 0_u64..=300, attempt in 0_u32..5, chance in 0.0..=1.0) {
            let asked = Duration::from_secs(seconds);
            let Next::After(delay) = next(Effect::Read, Trouble::RateLimited(Some(asked)), attempt, LONG, chance) else {
                return Err(TestCaseError::fail("gave up"));
            };
            prop_assert!(delay >= asked);
        }
    }

    #[test]
    fn an_absurd_wait_is_cut() {
        assert_eq!(rate_limit_wait(Some(Duration::from_hours(24))), RATE_LIMIT_MAX);
    }

    #[test]
    fn tries_are_counted() {
        let tries = |attempt| next(Effect::Read, Trouble::NotSent, attempt, LONG, 0.5);
        assert!(matches!(tries(MAX_ATTEMPTS - 2), Next::After(_)));
        assert_eq!(tries(MAX_ATTEMPTS - 1), Next::GiveUp);
    }
}
