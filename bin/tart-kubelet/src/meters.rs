//! What is counted about virtual machines.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use russet_telemetry::Metrics;

/// From a saved state to a first boot on a busy host.
const BOOT_SECONDS: [f64; 12] = [1.0, 2.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 120.0, 300.0];
/// From an image that is there to one that comes over a slow line.
const PULL_SECONDS: [f64; 10] = [0.1, 1.0, 5.0, 30.0, 60.0, 300.0, 600.0, 1200.0, 2400.0, 3600.0];

/// For which pool of runners.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Pool {
    pool: String,
}

/// Of which virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Machine {
    vm: String,
}

/// The counters. Cheap to copy.
#[derive(Clone, Debug)]
pub struct Meters {
    boot: Histogram,
    pull: Histogram,
    failed: Counter,
    pods: Gauge,
    writes: Counter,
    materialized: Family<Pool, Counter>,
    reused: Family<Pool, Counter>,
    dropped: Counter,
    evicted: Counter,
    guest_disk: Family<Machine, Gauge>,
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
            materialized: metrics.register(
                "tart_kubelet_golden_base_materialized_total",
                "Golden bases that had to be made",
                Family::default(),
            ),
            reused: metrics.register(
                "tart_kubelet_golden_base_reused_total",
                "Golden bases that were there when a container needed them",
                Family::default(),
            ),
            dropped: metrics.register(
                "tart_kubelet_images_deleted_total",
                "Images that were deleted because nobody needed them or the disk was nearly full",
                Counter::default(),
            ),
            evicted: metrics.register(
                "tart_kubelet_evictions_total",
                "Pods that had to go because of the disk",
                Counter::default(),
            ),
            guest_disk: metrics.register(
                "tart_kubelet_guest_disk_usage_percent",
                "How full the disk of a guest is, as its df says",
                Family::default(),
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

    /// A base was made for a Pod of a pool, or was there.
    pub(crate) fn golden(&self, pool: &str, fresh: bool) {
        let family = if fresh { &self.materialized } else { &self.reused };
        family.get_or_create(&Pool { pool: pool.to_owned() }).inc();
    }

    pub(crate) fn dropped(&self) {
        self.dropped.inc();
    }

    pub(crate) fn evicted(&self) {
        self.evicted.inc();
    }

    /// How full the disks of guests are; those of others are forgotten.
    pub(crate) fn guest_disks(&self, percents: &[(String, u8)]) {
        self.guest_disk.clear();
        for (vm, percent) in percents {
            let gauge = self.guest_disk.get_or_create(&Machine { vm: vm.clone() });
            gauge.set(i64::from(*percent));
        }
    }

    pub(crate) fn wrote(&self) {
        self.writes.inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bases_are_counted_by_pool_and_a_guest_that_is_gone_is_not_told_of() {
        let metrics = Metrics::new();
        let meters = Meters::new(&metrics);
        meters.golden("ios", true);
        meters.golden("unknown", false);
        meters.guest_disks(&[("vm-1".to_owned(), 82)]);
        let text = metrics.encode().unwrap();
        for line in [
            "tart_kubelet_golden_base_materialized_total{pool=\"ios\"} 1",
            "tart_kubelet_golden_base_reused_total{pool=\"unknown\"} 1",
            "tart_kubelet_guest_disk_usage_percent{vm=\"vm-1\"} 82",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        meters.guest_disks(&[]);
        assert!(!metrics.encode().unwrap().contains("vm-1"));
    }
}
