//! What is counted about virtual machines.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use russet_telemetry::Metrics;

/// From a boot that was quick to one that nobody waits for any longer. Dashboards know these bounds.
const BOOT_SECONDS: [f64; 11] = [10.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 240.0, 300.0, 600.0];
/// From a clone to a pull of tens of gigabytes behind others; the same for both, so that one can be laid over the other.
const PROVISION_SECONDS: [f64; 13] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0,
];
/// From an image that is there to one that comes over a slow line.
const PULL_SECONDS: [f64; 10] = [0.1, 1.0, 5.0, 30.0, 60.0, 300.0, 600.0, 1200.0, 2400.0, 3600.0];

/// Pools are few. Whoever may create Pods could give each a pool of its own, and fill the memory of all who keep numbers of them.
const MOST_POOLS: usize = 64;
/// The pool of a Pod that names none.
const UNKNOWN: &str = "unknown";
/// All pools beyond the first so many.
const OTHERS: &str = "other";

/// For which pool of runners.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Pool {
    pool: String,
}

/// For which pool of runners, and whether the base of the image was there (`warm`) or had to be made (`cold`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Work {
    pool: String,
    path: &'static str,
}

/// Of which virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Machine {
    vm: String,
}

/// The counters. Cheap to copy.
#[derive(Clone, Debug)]
pub struct Meters {
    /// Those that have numbers of their own.
    pools: Arc<Mutex<BTreeSet<String>>>,
    boot: Family<Pool, Histogram, fn() -> Histogram>,
    delay: Family<Pool, Histogram, fn() -> Histogram>,
    work: Family<Work, Histogram, fn() -> Histogram>,
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
        let boot: fn() -> Histogram = || Histogram::new(BOOT_SECONDS);
        let provision: fn() -> Histogram = || Histogram::new(PROVISION_SECONDS);
        Self {
            pools: Arc::default(),
            boot: metrics.register(
                "tart_kubelet_vm_boot_duration_seconds",
                "From the start of a virtual machine to its container running",
                Family::new_with_constructor(boot),
            ),
            delay: metrics.register(
                "tart_kubelet_pod_provision_delay_seconds",
                "From the creation of a Pod to the start of its first virtual machine",
                Family::new_with_constructor(provision),
            ),
            work: metrics.register(
                "tart_kubelet_vm_provision_work_seconds",
                "What the host did for a virtual machine before it could start: its image (path cold if the base had to be made) and its clone",
                Family::new_with_constructor(provision),
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

    /// The label of a pool.
    fn pool(&self, name: &str) -> String {
        let name = if name.is_empty() { UNKNOWN } else { name };
        let mut known = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(name) {
            return name.to_owned();
        }
        if known.len() >= MOST_POOLS {
            return OTHERS.to_owned();
        }
        known.insert(name.to_owned());
        name.to_owned()
    }

    /// A virtual machine of a pool came to run its container.
    pub(crate) fn booted(&self, pool: &str, took: Duration) {
        let pool = self.pool(pool);
        self.boot.get_or_create(&Pool { pool }).observe(took.as_secs_f64());
    }

    /// The first virtual machine of a Pod of a pool is about to start, so long after the Pod was created.
    pub(crate) fn provisioned(&self, pool: &str, waited: Duration) {
        let pool = self.pool(pool);
        self.delay.get_or_create(&Pool { pool }).observe(waited.as_secs_f64());
    }

    /// A virtual machine of a pool can start, and the host did so much for that. What it waited for others is no work.
    pub(crate) fn worked(&self, pool: &str, fresh: bool, took: Duration) {
        let work = Work {
            pool: self.pool(pool),
            path: if fresh { "cold" } else { "warm" },
        };
        self.work.get_or_create(&work).observe(took.as_secs_f64());
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
        let pool = self.pool(pool);
        family.get_or_create(&Pool { pool }).inc();
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
        meters.golden("", false);
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

    /// Names, labels and bounds that dashboards of existing fleets ask for.
    #[test]
    fn the_way_of_a_pod_to_its_vm_is_measured_as_dashboards_have_it() {
        let metrics = Metrics::new();
        let meters = Meters::new(&metrics);
        meters.booted("ios", Duration::from_secs(25));
        meters.provisioned("", Duration::from_secs(4000));
        meters.worked("ios", false, Duration::from_millis(500));
        meters.worked("ios", true, Duration::from_secs(1000));
        let text = metrics.encode().unwrap();
        for line in [
            "tart_kubelet_vm_boot_duration_seconds_count{pool=\"ios\"} 1",
            "tart_kubelet_vm_boot_duration_seconds_bucket{le=\"20.0\",pool=\"ios\"} 0",
            "tart_kubelet_vm_boot_duration_seconds_bucket{le=\"30.0\",pool=\"ios\"} 1",
            "tart_kubelet_pod_provision_delay_seconds_bucket{le=\"3600.0\",pool=\"unknown\"} 0",
            "tart_kubelet_pod_provision_delay_seconds_sum{pool=\"unknown\"} 4000.0",
            "tart_kubelet_vm_provision_work_seconds_bucket{le=\"1.0\",pool=\"ios\",path=\"warm\"} 1",
            "tart_kubelet_vm_provision_work_seconds_bucket{le=\"600.0\",pool=\"ios\",path=\"cold\"} 0",
            "tart_kubelet_vm_provision_work_seconds_count{pool=\"ios\",path=\"cold\"} 1",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        let bounds = |name: &str, labels: &str| -> Vec<String> {
            let lines = text
                .lines()
                .filter(|line| line.starts_with(name) && line.contains(labels));
            lines
                .filter_map(|line| Some(line.split_once("le=\"")?.1.split_once('"')?.0.to_owned()))
                .collect()
        };
        let seconds = "10.0 20.0 30.0 45.0 60.0 90.0 120.0 180.0 240.0 300.0 600.0 +Inf";
        let found = bounds("tart_kubelet_vm_boot_duration_seconds", "pool=\"ios\"").join(" ");
        assert_eq!(found, seconds);
        let seconds = "1.0 5.0 10.0 20.0 30.0 60.0 120.0 180.0 300.0 600.0 1200.0 1800.0 3600.0 +Inf";
        for (name, labels) in [
            ("tart_kubelet_pod_provision_delay_seconds", "pool=\"unknown\""),
            ("tart_kubelet_vm_provision_work_seconds", "path=\"warm\""),
        ] {
            assert_eq!(bounds(name, labels).join(" "), seconds, "{name}");
        }
    }

    #[test]
    fn pools_beyond_the_first_so_many_share_their_numbers() {
        let metrics = Metrics::new();
        let meters = Meters::new(&metrics);
        for number in 0..MOST_POOLS + 10 {
            meters.golden(&format!("pool-{number}"), true);
        }
        meters.booted("pool-0", Duration::from_secs(1));
        meters.booted("one more", Duration::from_secs(1));
        let text = metrics.encode().unwrap();
        for line in [
            "tart_kubelet_golden_base_materialized_total{pool=\"other\"} 10",
            "tart_kubelet_vm_boot_duration_seconds_count{pool=\"pool-0\"} 1",
            "tart_kubelet_vm_boot_duration_seconds_count{pool=\"other\"} 1",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        let series = text
            .lines()
            .filter(|line| line.starts_with("tart_kubelet_golden_base_materialized_total"));
        assert_eq!(series.count(), MOST_POOLS + 1);
    }
}
