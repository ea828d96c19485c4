//! Analytics webhooks: single uploads and downloads of a project's Xcode and Gradle artifacts, told to a server in batches.
//!
//! They are a courtesy, not a bill: what does not fit into the queue is dropped and counted, and nothing survives a restart.
//! A server that keeps failing is left alone for a while (a circuit breaker); meanwhile events wait in the queue.

mod delivery;

pub use delivery::{Breaker, run};

use crate::blob::Kind;
use crate::config;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// The server's two doors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pipeline {
    /// Xcode artifacts.
    Xcode,
    /// Gradle artifacts.
    Gradle,
}

impl Pipeline {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Xcode, Self::Gradle];

    /// The pipeline of a kind, if it has one.
    pub fn of(kind: Kind) -> Option<Self> {
        match kind {
            Kind::Xcode => Some(Self::Xcode),
            Kind::Gradle => Some(Self::Gradle),
            _ => None,
        }
    }

    /// Where its events go.
    pub fn path(self) -> &'static str {
        match self {
            Self::Xcode => "/webhooks/cache",
            Self::Gradle => "/webhooks/gradle-cache",
        }
    }

    /// The label of metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Xcode => "xcode",
            Self::Gradle => "gradle",
        }
    }
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// A client stored it.
    Upload,
    /// A client fetched it.
    Download,
}

/// One upload or download.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Event {
    account_handle: String,
    project_handle: String,
    action: Action,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cas_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_key: Option<String>,
}

/// What became of one pipeline's events.
#[derive(Debug, Default)]
pub struct Counts {
    sent: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
    batches_ok: AtomicU64,
    batches_failed: AtomicU64,
    opened: AtomicU64,
    closed: AtomicU64,
    /// 0 closed, 1 open, 2 trying again.
    circuit: AtomicU8,
    nanos: AtomicU64,
}

#[derive(Debug)]
struct Lane {
    queue: Sender<Event>,
    counts: Arc<Counts>,
}

#[derive(Debug)]
struct On {
    account: String,
    lanes: [Lane; 2],
}

/// The front of the queues. Off, it costs one comparison.
#[derive(Debug, Default)]
pub struct Analytics(Option<On>);

/// The back of one queue.
#[derive(Debug)]
pub struct Backlog {
    pipeline: Pipeline,
    waiting: Receiver<Event>,
    counts: Arc<Counts>,
}

impl Analytics {
    /// Queues for what `config` describes, and what empties them.
    pub fn on(config: &config::Analytics, account: &str) -> (Self, Vec<Backlog>) {
        let mut backlogs = Vec::new();
        let lanes = Pipeline::ALL.map(|pipeline| {
            let (queue, waiting) = channel(config.queue.max(1));
            let counts = Arc::new(Counts::default());
            backlogs.push(Backlog {
                pipeline,
                waiting,
                counts: Arc::clone(&counts),
            });
            Lane { queue, counts }
        });
        let on = On {
            account: account.to_owned(),
            lanes,
        };
        (Self(Some(on)), backlogs)
    }

    /// Whether anybody wants to know about this artifact: only those of projects are told.
    pub fn wants(&self, kind: Kind, namespace: &str) -> bool {
        self.0.is_some() && !namespace.is_empty() && Pipeline::of(kind).is_some()
    }

    /// Tells about an artifact, if anybody wants to know and there is room.
    pub fn tell(&self, action: Action, kind: Kind, namespace: &str, key: &[u8], size: u64) {
        let (Some(on), Some(pipeline), false) = (&self.0, Pipeline::of(kind), namespace.is_empty()) else {
            return;
        };
        let key = String::from_utf8_lossy(key).into_owned();
        let (cas_id, cache_key) = match pipeline {
            Pipeline::Xcode => (Some(key), None),
            Pipeline::Gradle => (None, Some(key)),
        };
        let event = Event {
            account_handle: on.account.clone(),
            project_handle: namespace.to_owned(),
            action,
            size,
            cas_id,
            cache_key,
        };
        if let Some(lane) = on.lanes.get(pipeline as usize)
            && lane.queue.try_send(event).is_err()
        {
            lane.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Name, labels, kind and value of every metric.
    pub fn lines(&self) -> Vec<(&'static str, &'static str, String, f64)> {
        let Some(on) = &self.0 else { return Vec::new() };
        let mut lines = Vec::new();
        for (pipeline, lane) in Pipeline::ALL.iter().zip(&on.lanes) {
            let label = pipeline.label();
            let counts = &lane.counts;
            #[expect(clippy::cast_precision_loss, reason = "metrics are floats on the wire")]
            let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
            for (name, result, counter) in [
                ("analytics_events_total_total", "sent", &counts.sent),
                ("analytics_events_total_total", "dropped", &counts.dropped),
                ("analytics_events_total_total", "failed", &counts.failed),
                ("analytics_batches_total_total", "ok", &counts.batches_ok),
                ("analytics_batches_total_total", "error", &counts.batches_failed),
                ("analytics_circuit_transitions_total_total", "opened", &counts.opened),
                ("analytics_circuit_transitions_total_total", "closed", &counts.closed),
            ] {
                let labels = format!("pipeline=\"{label}\",result=\"{result}\"");
                lines.push((name, "counter", labels, get(counter)));
            }
            let labels = format!("pipeline=\"{label}\"");
            let capacity = lane.queue.max_capacity();
            #[expect(clippy::cast_precision_loss, reason = "metrics are floats on the wire")]
            let depth = (capacity - lane.queue.capacity()) as f64;
            lines.push(("analytics_queue_depth", "gauge", labels.clone(), depth));
            #[expect(clippy::cast_precision_loss, reason = "metrics are floats on the wire")]
            lines.push(("analytics_queue_capacity", "gauge", labels.clone(), capacity as f64));
            let circuit = f64::from(counts.circuit.load(Ordering::Relaxed));
            lines.push(("analytics_circuit_state", "gauge", labels.clone(), circuit));
            let seconds = Duration::from_nanos(counts.nanos.load(Ordering::Relaxed)).as_secs_f64();
            let batches = get(&counts.batches_ok) + get(&counts.batches_failed);
            lines.push(("analytics_batch_duration_seconds_sum", "", labels.clone(), seconds));
            lines.push(("analytics_batch_duration_seconds_count", "", labels, batches));
        }
        // Lines of one metric stand together.
        lines.sort_by_key(|(name, ..)| *name);
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> config::Analytics {
        config::Analytics {
            url: "http://127.0.0.1:9".to_owned(),
            key: "k".into(),
            batch: 10,
            gather: Duration::from_secs(1),
            queue: 2,
            timeout: Duration::from_secs(1),
            threshold: 1,
            open: Duration::from_secs(1),
        }
    }

    #[test]
    fn only_artifacts_of_projects_are_told_and_the_queue_is_bounded() {
        let (analytics, mut backlogs) = Analytics::on(&config(), "acme");
        analytics.tell(Action::Upload, Kind::Gradle, "", b"k", 1);
        analytics.tell(Action::Upload, Kind::Nx, "ios", b"k", 1);
        assert!(!analytics.wants(Kind::Gradle, "") && analytics.wants(Kind::Xcode, "ios"));
        for _ in 0..5 {
            analytics.tell(Action::Download, Kind::Gradle, "ios", b"key", 7);
        }
        let gradle = &mut backlogs[1];
        assert_eq!(gradle.counts.dropped.load(Ordering::Relaxed), 3);
        let event = gradle.waiting.try_recv().unwrap();
        assert_eq!(
            serde_json::to_value(&event).unwrap(),
            serde_json::json!({"account_handle":"acme","project_handle":"ios","action":"download","size":7,"cache_key":"key"})
        );
    }

    #[test]
    fn off_wants_nothing() {
        assert!(!Analytics::default().wants(Kind::Gradle, "ios"));
        assert!(Analytics::default().lines().is_empty());
    }
}
