//! What is counted about virtual machines.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use russet_telemetry::Metrics;

/// From a saved state to a first boot on a busy host.
const BOOT_SECONDS: [f64; 12] = [1.0, 2.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 120.0, 300.0];
/// From an image that is there to one that comes over a slow line.
const PULL_SECONDS: [f64; 10] = [0.1, 1.0, 5.0, 30.0, 60.0, 300.0, 600.0, 1200.0, 2400.0, 3600.0];

/// The counters. Cheap to copy.
#[derive(Clone, Debug)]
pub struct Meters {
    boot: Histogram,
    pull: Histogram,
    failed: Counter,
    pods: Gauge,
    writes: Counter,
}

impl Meters {
    /// Registers them.
    pub fn new(metrics: &Metrics) -> Self {
        Self {
            boot: metrics.register(
                "tart_kubelet_vm_boot_duration_seconds",
                "From the start of a virtual machine to its container running",
                Histogram::new(BOOT_SECONDS),
            ),
            pull: metrics.register(
                "tart_kubelet_image_ensure_duration_seconds",
                "Until the image of a container was there, whether it had to be pulled or not",
                Histogram::new(PULL_SECONDS),
            ),
            failed: metrics.register(
                "tart_kubelet_vm_start_failures_total",
                "Virtual machines that did not come to run",
                Counter::default(),
            ),
            pods: metrics.register(
                "tart_kubelet_pods",
                "Pods that are bound to this Node",
                Gauge::default(),
            ),
            writes: metrics.register(
                "tart_kubelet_pod_status_writes_total",
                "Statuses of Pods that were written",
                Counter::default(),
            ),
        }
    }

    pub(crate) fn booted(&self, took: Duration) {
        self.boot.observe(took.as_secs_f64());
    }

    pub(crate) fn pulled(&self, took: Duration) {
        self.pull.observe(took.as_secs_f64());
    }

    pub(crate) fn failed(&self) {
        self.failed.inc();
    }

    pub(crate) fn pods(&self, count: usize) {
        self.pods.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn wrote(&self) {
        self.writes.inc();
    }
}
