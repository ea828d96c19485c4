//! The hourly count of calls.

use jiff::Timestamp;
use std::collections::BTreeMap;

const HOUR: i64 = 3600;

/// Calls of each bearer in its present hour.
#[derive(Debug, Default)]
pub(crate) struct Limits(BTreeMap<String, Window>);

#[derive(Debug, Clone, Copy)]
struct Window {
    reset: i64,
    used: u32,
}

/// What is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) limit: u32,
    pub(crate) used: u32,
    pub(crate) reset: i64,
}

impl Limits {
    /// Counts one call; none left is the caller's to refuse.
    pub(crate) fn count(&mut self, who: &str, limit: u32, now: Timestamp) -> Left {
        let now = now.as_second();
        let window = self.0.entry(who.to_owned()).or_insert(Window { reset: 0, used: 0 });
        if now >= window.reset {
            *window = Window {
                reset: now.saturating_add(HOUR),
                used: 0,
            };
        }
        window.used = window.used.saturating_add(1);
        Left {
            limit,
            used: window.used,
            reset: window.reset,
        }
    }
}

impl Left {
    pub(crate) fn spent(self) -> bool {
        self.used > self.limit
    }

    /// The headers every answer carries.
    pub(crate) fn headers(self) -> Vec<(&'static str, String)> {
        vec![
            ("x-ratelimit-limit", self.limit.to_string()),
            (
                "x-ratelimit-remaining",
                self.limit.saturating_sub(self.used).to_string(),
            ),
            ("x-ratelimit-used", self.used.min(self.limit).to_string()),
            ("x-ratelimit-reset", self.reset.to_string()),
            ("x-ratelimit-resource", "core".to_owned()),
        ]
    }
}
