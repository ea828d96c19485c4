//! How often something is tried, and for how long something is believed.

use std::time::Duration;

use tokio::time::Instant;

/// How an agent that is not in the cluster tries to get there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// After the first failure.
    pub(crate) first: Duration,
    /// After many.
    pub(crate) longest: Duration,
    /// For how long an API server must not know a certificate before another is asked for: most that are started wrongly are put right
    /// in less.
    pub(crate) doubt: Duration,
    /// How long another certificate is waited for until the one that is there is tried again.
    pub(crate) grant: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(250),
            longest: Duration::from_secs(30),
            doubt: Duration::from_mins(1),
            grant: Duration::from_secs(30),
        }
    }
}

/// Since when the API server says that it does not know us, and nothing else.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Doubt(Option<Instant>);

impl Doubt {
    /// Takes note of an answer by its code, which is none if there was no answer. Whether such were the only ones for long enough.
    pub(crate) fn hear(&mut self, code: Option<u16>, now: Instant, enough: Duration) -> bool {
        match code {
            Some(401) => now.duration_since(*self.0.get_or_insert(now)) >= enough,
            Some(_) => {
                self.0 = None;
                false
            }
            // Silence is no word about us.
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    #[test]
    fn a_certificate_is_doubted_after_a_minute_and_not_after_a_number_of_refusals() {
        let start = Instant::now();
        let mut doubt = Doubt::default();
        for millisecond in 0..1000 {
            let now = start + Duration::from_millis(millisecond);
            assert!(!doubt.hear(Some(401), now, MINUTE), "after {millisecond} ms");
        }
        assert!(doubt.hear(Some(401), start + MINUTE, MINUTE));
    }

    #[test]
    fn an_api_server_that_knows_us_once_ends_all_doubt_and_silence_does_not() {
        let start = Instant::now();
        let mut doubt = Doubt::default();
        assert!(!doubt.hear(Some(401), start, MINUTE));
        assert!(!doubt.hear(None, start + MINUTE, MINUTE));
        assert!(doubt.hear(Some(401), start + MINUTE, MINUTE));
        assert!(!doubt.hear(Some(403), start + MINUTE, MINUTE));
        assert!(!doubt.hear(Some(401), start + MINUTE, MINUTE));
        assert!(doubt.hear(Some(401), start + MINUTE * 2, MINUTE));
    }
}
