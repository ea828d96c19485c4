//! What controllers count.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use russet_telemetry::Metrics;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerResult {
    controller: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerClass {
    controller: String,
    class: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerName {
    controller: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerKind {
    controller: String,
    kind: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Write {
    manager: String,
    verb: &'static str,
    kind: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: String,
}

/// The metrics of all controllers of a process.
#[derive(Debug, Clone)]
pub struct ControllerMetrics {
    reconciles: Family<ControllerResult, Counter>,
    durations: Family<ControllerName, Histogram, fn() -> Histogram>,
    errors: Family<ControllerClass, Counter>,
    writes: Family<Write, Counter>,
    watch_errors: Family<ControllerKind, Counter>,
    malformed: Family<ControllerKind, Counter>,
    missing_crds: Family<Kind, Gauge>,
    leader: Gauge,
}

impl ControllerMetrics {
    /// Registers them.
    pub fn new(metrics: &Metrics) -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(exponential_buckets(0.001, 2.0, 16));
        Self {
            reconciles: metrics.register("russet_reconcile_total", "Reconciles by result", Family::default()),
            durations: metrics.register(
                "russet_reconcile_duration_seconds",
                "How long reconciles took",
                Family::new_with_constructor(histogram),
            ),
            errors: metrics.register(
                "russet_reconcile_errors_total",
                "Failed reconciles by retry class",
                Family::default(),
            ),
            writes: metrics.register(
                "russet_writes_total",
                "Writing requests to the API server",
                Family::default(),
            ),
            watch_errors: metrics.register(
                "russet_watch_errors_total",
                "Watches that failed and were retried",
                Family::default(),
            ),
            malformed: metrics.register(
                "russet_malformed_objects_total",
                "Objects that could not be read and were left alone",
                Family::default(),
            ),
            missing_crds: metrics.register(
                "russet_crd_missing",
                "1 for kinds that are needed and not served",
                Family::default(),
            ),
            leader: metrics.register("russet_leader", "Whether this process may write", Gauge::default()),
        }
    }

    pub(crate) fn reconciled(&self, controller: &str, result: &'static str, seconds: f64) {
        let controller = controller.to_owned();
        self.reconciles
            .get_or_create(&ControllerResult {
                controller: controller.clone(),
                result,
            })
            .inc();
        self.durations
            .get_or_create(&ControllerName { controller })
            .observe(seconds);
    }

    pub(crate) fn failed(&self, controller: &str, class: &'static str) {
        self.errors
            .get_or_create(&ControllerClass {
                controller: controller.to_owned(),
                class,
            })
            .inc();
    }

    pub(crate) fn wrote(&self, manager: &str, verb: &'static str, kind: &str, ok: bool) {
        let result = if ok { "ok" } else { "error" };
        self.writes
            .get_or_create(&Write {
                manager: manager.to_owned(),
                verb,
                kind: kind.to_owned(),
                result,
            })
            .inc();
    }

    pub(crate) fn watch_failed(&self, controller: &str, kind: &str) {
        let labels = ControllerKind {
            controller: controller.to_owned(),
            kind: kind.to_owned(),
        };
        self.watch_errors.get_or_create(&labels).inc();
    }

    pub(crate) fn malformed(&self, controller: &str, kind: &str) {
        let labels = ControllerKind {
            controller: controller.to_owned(),
            kind: kind.to_owned(),
        };
        self.malformed.get_or_create(&labels).inc();
    }

    pub(crate) fn crd_missing(&self, kind: &str, missing: bool) {
        self.missing_crds
            .get_or_create(&Kind { kind: kind.to_owned() })
            .set(i64::from(missing));
    }

    pub(crate) fn leading(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }
}
