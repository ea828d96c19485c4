//! What the authoriser does, counted under the names dashboards know.

use russet_identity::Observer;
use russet_identity::observer::{BackendRequest, CacheResult, Reload, Stage, Verdict};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const STAGES: [Stage; 7] = [
    Stage::Anonymous,
    Stage::Tenant,
    Stage::Static,
    Stage::Jwt,
    Stage::Introspection,
    Stage::Access,
    Stage::Backend,
];
const VERDICTS: [Verdict; 3] = [Verdict::Allow, Verdict::Deny, Verdict::Unavailable];
const RESULTS: [CacheResult; 3] = [CacheResult::Hit, CacheResult::Stale, CacheResult::Miss];

/// Route, result, class of status and kind of error of a request to the control plane.
type Asked = (&'static str, &'static str, &'static str, &'static str);

/// Times in sixteen doublings from half a millisecond.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wait {
    buckets: [u64; BUCKETS],
    beyond: u64,
    nanos: u64,
}

const BUCKETS: usize = 16;

impl Wait {
    fn took(&mut self, took: Duration) {
        let halves = u64::try_from(took.as_micros() / 500).unwrap_or(u64::MAX);
        let bucket = (u64::BITS - halves.leading_zeros()) as usize;
        *self.buckets.get_mut(bucket).unwrap_or(&mut self.beyond) += 1;
        self.nanos = self
            .nanos
            .saturating_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Upper bounds in seconds, and how many waits were within them.
    pub(super) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let mut sum = 0;
        self.buckets.iter().enumerate().map(move |(index, count)| {
            sum += count;
            (0.0005 * f64::from(1_u32 << index), sum)
        })
    }

    /// How many waits there were, given how many were within the bounds, and their sum in nanoseconds.
    pub(super) fn total(&self, within: u64) -> (u64, u64) {
        (within + self.beyond, self.nanos)
    }
}

/// Name, help and series of a histogram.
type Waits = (&'static str, &'static str, Vec<(String, Wait)>);

/// Counters of decisions.
#[derive(Debug, Default)]
pub struct Trust {
    decisions: [[AtomicU64; VERDICTS.len()]; STAGES.len()],
    cache: [AtomicU64; RESULTS.len()],
    /// Requests to the control plane are few, so a lock is cheap enough.
    backend: Mutex<BTreeMap<Asked, u64>>,
    /// Only decisions that had to wait are timed, so these are few as well.
    stages: Mutex<BTreeMap<&'static str, Wait>>,
    routes: Mutex<BTreeMap<&'static str, Wait>>,
    failed_reloads: AtomicU64,
}

fn count(counter: Option<&AtomicU64>) {
    if let Some(counter) = counter {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Observer for Trust {
    fn decision(&self, stage: Stage, outcome: Verdict, took: Option<Duration>) {
        if let Some(took) = took {
            let mut stages = self.stages.lock().unwrap_or_else(PoisonError::into_inner);
            stages.entry(stage.as_str()).or_default().took(took);
        }
        let row = STAGES.iter().position(|known| *known == stage);
        let column = VERDICTS.iter().position(|known| *known == outcome);
        if let (Some(row), Some(column)) = (row, column) {
            count(self.decisions.get(row).and_then(|row| row.get(column)));
        }
    }

    fn cache(&self, result: CacheResult) {
        let at = RESULTS.iter().position(|known| *known == result);
        count(at.and_then(|at| self.cache.get(at)));
    }

    fn backend(&self, request: BackendRequest) {
        let kind = request
            .error
            .map_or("none", russet_identity::observer::ErrorKind::as_str);
        let asked = (request.route.as_str(), request.result(), request.status_class(), kind);
        let mut backend = self.backend.lock().unwrap_or_else(PoisonError::into_inner);
        *backend.entry(asked).or_default() += 1;
        drop(backend);
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        routes.entry(request.route.as_str()).or_default().took(request.duration);
    }

    fn reload(&self, outcome: Reload) {
        if outcome == Reload::Failed {
            count(Some(&self.failed_reloads));
            tracing::warn!("a key or token file has a mistake; the old content stays in force");
        }
    }
}

impl Trust {
    /// How long decisions and questions took.
    pub(super) fn waits(&self) -> [Waits; 2] {
        let series = |label: &str, waits: &Mutex<BTreeMap<&'static str, Wait>>| {
            let waits = waits.lock().unwrap_or_else(PoisonError::into_inner);
            waits
                .iter()
                .map(|(name, wait)| (format!("{label}=\"{name}\""), *wait))
                .collect()
        };
        [
            (
                "auth_decision_duration_seconds",
                "Time of decisions for which the control plane was asked.",
                series("stage", &self.stages),
            ),
            (
                "auth_backend_request_duration_seconds",
                "Time of questions to the control plane.",
                series("route", &self.routes),
            ),
        ]
    }

    /// Name, labels and value of every counter that has counted.
    pub(super) fn lines(&self) -> Vec<(&'static str, String, u64)> {
        let mut lines = Vec::new();
        for (stage, row) in STAGES.iter().zip(&self.decisions) {
            for (verdict, counter) in VERDICTS.iter().zip(row) {
                let labels = format!("stage=\"{}\",result=\"{}\"", stage.as_str(), verdict.as_str());
                lines.push(("auth_decisions_total_total", labels, counter.load(Ordering::Relaxed)));
            }
        }
        for (result, counter) in RESULTS.iter().zip(&self.cache) {
            let labels = format!("cache=\"access\",result=\"{}\"", result.as_str());
            lines.push(("auth_cache_total_total", labels, counter.load(Ordering::Relaxed)));
        }
        let backend = self.backend.lock().unwrap_or_else(PoisonError::into_inner);
        for ((route, result, class, kind), value) in backend.iter() {
            let labels =
                format!("route=\"{route}\",result=\"{result}\",status_class=\"{class}\",error_kind=\"{kind}\"");
            lines.push(("auth_backend_requests_total_total", labels, *value));
        }
        let failed = self.failed_reloads.load(Ordering::Relaxed);
        lines.push(("auth_reload_failures_total_total", String::new(), failed));
        lines.retain(|(_, _, value)| *value > 0);
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_happened_is_told() {
        let trust = Trust::default();
        trust.decision(Stage::Jwt, Verdict::Deny, None);
        trust.cache(CacheResult::Hit);
        let lines = trust.lines();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].1, "stage=\"jwt\",result=\"deny\"");
        assert_eq!(
            lines[1],
            (
                "auth_cache_total_total",
                "cache=\"access\",result=\"hit\"".to_owned(),
                1
            )
        );
    }
}
