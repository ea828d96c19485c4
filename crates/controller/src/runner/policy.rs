//! When to come back after a failure.

use std::time::Duration;

use rand::Rng;

use crate::backoff::{self, Limits};
use crate::error::Class;

/// When to come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requeue {
    /// After this time, or on an event.
    After(Duration),
    /// On an event only.
    OnChange,
}

/// So many conflicts in a row are retried at once; after that somebody writes in a loop, and back-off applies.
const PATIENT_CONFLICTS: u32 = 5;

/// Decides by the class and by how many failures came before this one.
pub fn requeue(class: &Class, attempt: u32, rng: &mut impl Rng) -> Requeue {
    Requeue::After(match class {
        Class::Invalid => return Requeue::OnChange,
        Class::Conflict if attempt < PATIENT_CONFLICTS => Duration::ZERO,
        Class::Conflict => backoff::delay(attempt - PATIENT_CONFLICTS, &Limits::TRANSIENT, rng),
        Class::Transient => backoff::delay(attempt, &Limits::TRANSIENT, rng),
        Class::Forbidden => backoff::delay(attempt, &Limits::FORBIDDEN, rng),
        // Never earlier than we were told, and not all at the same moment.
        Class::RateLimited { after } => {
            *after + rng.random_range(Duration::ZERO..=*after / 4 + Duration::from_millis(1))
        }
        Class::Waiting { poll, .. } => backoff::jittered(*poll, rng),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;

    use super::*;

    fn at(class: &Class, attempt: u32, seed: u64) -> Requeue {
        requeue(class, attempt, &mut StdRng::seed_from_u64(seed))
    }

    #[test]
    fn an_invalid_object_waits_for_a_change() {
        assert_eq!(at(&Class::Invalid, 0, 1), Requeue::OnChange);
    }

    #[test]
    fn a_conflict_is_retried_at_once_but_not_for_ever() {
        assert_eq!(at(&Class::Conflict, 0, 1), Requeue::After(Duration::ZERO));
        assert_eq!(at(&Class::Conflict, 4, 1), Requeue::After(Duration::ZERO));
        assert!(matches!(at(&Class::Conflict, 5, 1), Requeue::After(delay) if delay >= Limits::TRANSIENT.floor));
    }

    proptest! {
        #[test]
        fn a_rate_limit_is_never_undercut(after in 0_u64..100_000, seed: u64) {
            let after = Duration::from_millis(after);
            let Requeue::After(delay) = at(&Class::RateLimited { after }, 0, seed) else { panic!("must come back") };
            prop_assert!(delay >= after && delay <= after * 2 + Duration::from_millis(1));
        }

        #[test]
        fn missing_rights_are_asked_about_seldom(attempt in 0_u32..100, seed: u64) {
            let Requeue::After(delay) = at(&Class::Forbidden, attempt, seed) else { panic!("must come back") };
            prop_assert!(delay >= Duration::from_secs(30) && delay <= Duration::from_mins(5));
        }
    }
}
