//! What is counted about Linux servers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use russet_telemetry::Metrics;

use super::server::Product;
use crate::registry::Key;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabels {
    kind: &'static str,
    machine: String,
    fleet: String,
    phase: String,
    failure_reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    kind: &'static str,
    step: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OrphanLabels {
    kind: &'static str,
    why: &'static str,
}

/// The metrics. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LinuxMetrics {
    phases: Family<PhaseLabels, Gauge>,
    shown: Arc<Mutex<HashMap<(Product, Key), PhaseLabels>>>,
    calls: Family<CallLabels, Counter>,
    orphans: Family<OrphanLabels, Gauge>,
}

/// Value of a label `kind`.
pub(super) fn kind(product: Product) -> &'static str {
    match product {
        Product::Instance => "instance",
        Product::Metal => "elastic_metal",
    }
}

impl LinuxMetrics {
    /// Registers them.
    pub fn new(metrics: &Metrics) -> Self {
        Self {
            phases: metrics.register(
                "russet_linux_machine_phase",
                "1 for the phase a Linux machine is in; one series per machine",
                Family::default(),
            ),
            shown: Arc::default(),
            calls: metrics.register(
                "russet_linux_steps",
                "Calls that change something at Scaleway about Linux servers, by step and outcome",
                Family::default(),
            ),
            orphans: metrics.register(
                "russet_linux_orphans",
                "Linux servers that bear our tags and belong to no machine, and what they left behind",
                Family::default(),
            ),
        }
    }

    pub(super) fn phase(&self, product: Product, key: &Key, fleet: &str, phase: &str, failure: &str) {
        let labels = PhaseLabels {
            kind: kind(product),
            machine: key.name.clone(),
            fleet: fleet.to_owned(),
            phase: phase.to_owned(),
            failure_reason: failure.to_owned(),
        };
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let before = shown.insert((product, key.clone()), labels.clone());
        if let Some(before) = before.filter(|before| *before != labels) {
            self.phases.remove(&before);
        }
        self.phases.get_or_create(&labels).set(1);
    }

    pub(super) fn forget(&self, product: Product, key: &Key) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = shown.remove(&(product, key.clone())) {
            self.phases.remove(&before);
        }
    }

    pub(super) fn call(&self, product: Product, step: &'static str, outcome: &'static str) {
        let kind = kind(product);
        self.calls.get_or_create(&CallLabels { kind, step, outcome }).inc();
    }

    pub(super) fn orphans(&self, product: Product, why: &'static str, count: usize) {
        let kind = kind(product);
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.orphans.get_or_create(&OrphanLabels { kind, why }).set(count);
    }
}
