//! What the provider counts. The first three names are those of the program it replaces; dashboards know them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use russet_api::values::{PoolPrefix, Zone};
use russet_scaleway::apple_silicon::{ServerType, Stock};
use russet_scaleway::observer::{Exchange, Observer};
use russet_telemetry::Metrics;

use crate::host::Inventory;
use crate::names::{CLAIM_MARKER, RELEASE_MARKER, is_pooled};
use crate::orphans::Why;
use crate::registry::Key;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MachinePhase {
    machine: String,
    fleet: String,
    phase: String,
    failure_reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OrphanLabels {
    zone: String,
    why: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HostLabels {
    zone: String,
    r#type: String,
    role: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TypeLabels {
    zone: String,
    r#type: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    endpoint: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndpointLabels {
    endpoint: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

/// The metrics of the provider. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ProviderMetrics {
    phases: Family<MachinePhase, Gauge>,
    shown: Arc<Mutex<HashMap<Key, MachinePhase>>>,
    orphans: Family<OrphanLabels, Gauge>,
    reclaimed: Counter,
    leftovers: Family<KindLabels, Gauge>,
    hosts: Family<HostLabels, Gauge>,
    stock: Family<TypeLabels, Gauge>,
    spend: Gauge<f64, AtomicU64>,
    adoption: Histogram,
    calls: Family<CallLabels, Counter>,
    call_seconds: Family<EndpointLabels, Histogram, fn() -> Histogram>,
    bootstraps: Family<ResultLabels, Counter>,
    bootstraps_running: Gauge,
}

impl ProviderMetrics {
    /// Registers them.
    pub fn new(metrics: &Metrics) -> Self {
        let seconds: fn() -> Histogram = || Histogram::new(exponential_buckets(0.01, 2.0, 12));
        Self {
            phases: metrics.register(
                "capt_scaleway_applesilicon_machine_phase",
                "1 for the phase a machine is in; one series per machine",
                Family::default(),
            ),
            shown: Arc::default(),
            orphans: metrics.register(
                "scaleway_orphan_servers",
                "Macs that are paid for and belong to nobody, and claims that hold nothing",
                Family::default(),
            ),
            reclaimed: metrics.register(
                "scaleway_orphan_servers_reclaimed_total",
                "Orphans that were wiped and put back into a pool",
                Counter::default(),
            ),
            leftovers: metrics.register(
                "scaleway_orphans",
                "What machines that are gone have left behind besides hosts",
                Family::default(),
            ),
            hosts: metrics.register(
                "russet_macs",
                "Macs of the project by what they are used for: pool, claiming, releasing or used",
                Family::default(),
            ),
            stock: metrics.register(
                "russet_mac_stock",
                "What Scaleway has to sell: 0 none, 1 few, 2 enough",
                Family::default(),
            ),
            spend: metrics.register(
                "russet_mac_spend_euros_per_hour",
                "What the Macs of the project cost per hour, idle ones included",
                Gauge::default(),
            ),
            adoption: metrics.register(
                "russet_mac_adoption_seconds",
                "From the choice of a host to its being ours",
                Histogram::new(exponential_buckets(0.5, 2.0, 12)),
            ),
            calls: metrics.register(
                "russet_scaleway_calls_total",
                "Exchanges with the Scaleway API",
                Family::default(),
            ),
            call_seconds: metrics.register(
                "russet_scaleway_call_seconds",
                "How long exchanges with the Scaleway API took",
                Family::new_with_constructor(seconds),
            ),
            bootstraps: metrics.register(
                "russet_mac_bootstraps_total",
                "Attempts to set up a host, by result",
                Family::default(),
            ),
            bootstraps_running: metrics.register(
                "russet_mac_bootstraps_running",
                "Hosts that are being set up",
                Gauge::default(),
            ),
        }
    }

    /// The phase of a machine; the series of its last phase goes.
    pub fn phase(&self, key: &Key, fleet: &str, phase: &str, failure_reason: &str) {
        let now = MachinePhase {
            machine: key.name.clone(),
            fleet: fleet.to_owned(),
            phase: phase.to_owned(),
            failure_reason: failure_reason.to_owned(),
        };
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        match shown.get(key) {
            Some(before) if *before == now => return,
            Some(before) => drop(self.phases.remove(before)),
            None => {}
        }
        self.phases.get_or_create(&now).set(1);
        shown.insert(key.clone(), now);
    }

    /// Machines that exist; the series of all others go.
    pub fn retain(&self, exists: impl Fn(&Key) -> bool) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.retain(|key, labels| {
            let stays = exists(key);
            if !stays {
                self.phases.remove(labels);
            }
            stays
        });
    }

    /// The Macs of a zone.
    pub fn hosts(&self, zone: &Zone, inventory: &Inventory, pools: &BTreeSet<PoolPrefix>) {
        let mut counts: BTreeMap<(&str, &'static str), i64> = BTreeMap::new();
        for host in &inventory.hosts {
            let role = if host.name.starts_with(CLAIM_MARKER) {
                "claiming"
            } else if host.name.starts_with(RELEASE_MARKER) {
                "releasing"
            } else if pools.iter().any(|pool| is_pooled(pool, &host.name)) {
                "pool"
            } else {
                "used"
            };
            *counts.entry((&host.type_, role)).or_default() += 1;
            // A series that was never there cannot fall to zero, and an alert on an empty pool would never fire.
            for role in ["pool", "claiming", "releasing", "used"] {
                counts.entry((&host.type_, role)).or_default();
            }
        }
        for ((type_, role), count) in counts {
            self.hosts
                .get_or_create(&HostLabels {
                    zone: zone.to_string(),
                    r#type: type_.to_owned(),
                    role,
                })
                .set(count);
        }
    }

    /// What Scaleway has to sell.
    pub fn stock(&self, zone: &Zone, types: &[ServerType]) {
        for type_ in types {
            let level = match type_.stock {
                Stock::None => 0,
                Stock::Low => 1,
                _ => 2,
            };
            let labels = TypeLabels {
                zone: zone.to_string(),
                r#type: type_.name.clone(),
            };
            self.stock.get_or_create(&labels).set(level);
        }
    }

    /// What all Macs cost per hour.
    pub fn spend(&self, euros: f64) {
        self.spend.set(euros);
    }

    /// The orphans of a zone.
    pub fn orphans(&self, zone: &Zone, counts: &BTreeMap<Why, i64>) {
        for why in Why::ALL {
            let labels = OrphanLabels {
                zone: zone.to_string(),
                why: why.as_str(),
            };
            self.orphans
                .get_or_create(&labels)
                .set(counts.get(&why).copied().unwrap_or_default());
        }
    }

    /// What is left behind of a kind.
    pub fn leftovers(&self, kind: &'static str, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.leftovers.get_or_create(&KindLabels { kind }).set(count);
    }

    /// An orphan was put back into a pool.
    pub fn reclaimed(&self) {
        self.reclaimed.inc();
    }

    /// A host is ours.
    pub fn adopted(&self, took: Duration) {
        self.adoption.observe(took.as_secs_f64());
    }

    /// A host is being set up.
    pub fn bootstrap_started(&self) {
        self.bootstraps_running.inc();
    }

    /// That ended.
    pub fn bootstrap_ended(&self, result: &'static str) {
        self.bootstraps_running.dec();
        self.bootstraps.get_or_create(&ResultLabels { result }).inc();
    }
}

impl Observer for ProviderMetrics {
    fn exchange(&self, exchange: &Exchange) {
        let endpoint = exchange.endpoint.name;
        self.calls
            .get_or_create(&CallLabels {
                endpoint,
                outcome: exchange.outcome.as_str(),
            })
            .inc();
        self.call_seconds
            .get_or_create(&EndpointLabels { endpoint })
            .observe(exchange.duration.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_one_series_and_none_when_it_is_gone() {
        let registry = Metrics::new();
        let metrics = ProviderMetrics::new(&registry);
        let key = Key {
            namespace: "default".into(),
            name: "mac-1".into(),
        };
        metrics.phase(&key, "runners", "Adopting", "");
        metrics.phase(&key, "runners", "Ready", "");
        let text = registry.encode().unwrap();
        let series: Vec<&str> = text.lines().filter(|line| line.contains("mac-1")).collect();
        assert_eq!(
            series,
            [
                "capt_scaleway_applesilicon_machine_phase{machine=\"mac-1\",fleet=\"runners\",phase=\"Ready\",failure_reason=\"\"} 1"
            ]
        );
        metrics.retain(|_| false);
        assert!(!registry.encode().unwrap().contains("mac-1"));
    }
}
