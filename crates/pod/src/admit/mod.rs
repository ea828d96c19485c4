//! Which Pods a node takes on, and what it says to the others.
//!
//! Asked once per Pod, before anything is made, in the order of their creation. A refusal is final: the Pod fails with a reason
//! and a sentence, and whoever owns it makes another. The order is that of a kubelet: the node's own state, what a VM cannot
//! do, then names, ports, affinity, taints and resources.
//!
//! Slots are counted in VMs, not in Pods: a Pod may need both at once ([`crate::spec::peak_vms`]), and a host has two. A
//! Pod that fits but has to wait until another's VM has ended is no matter of admission; [`crate::lifecycle`] holds it.

mod features;
mod place;
mod resources;
#[cfg(test)]
mod tests;

pub use features::unsupported;
pub(crate) use place::{labels_match, term_matches};
pub use resources::{qos_class, requests};

use crate::quantity::Amount;
use crate::spec;
use crate::time::stored;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus, Taint};
use std::collections::BTreeMap;

/// The node that is asked.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// What it can give: cpu, memory, pods and so on.
    pub allocatable: BTreeMap<String, Amount>,
    /// How many VMs may run at once: two with macOS.
    pub vms: usize,
    /// Conditions such as `DiskPressure` that are true now.
    pub pressures: Vec<String>,
    /// Ports of its agent, which are nobody else's: on macOS a more particular listener would take the agent's callers over.
    pub own_ports: Vec<i32>,
}

/// Why a Pod is not taken on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

impl Refusal {
    fn new(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            message: message.into(),
        }
    }

    /// What the Pod says from now on.
    pub fn status(&self, pod: &Pod, now: Timestamp) -> PodStatus {
        let old = pod.status.clone().unwrap_or_default();
        PodStatus {
            phase: Some("Failed".to_owned()),
            reason: Some(self.reason.clone()),
            message: Some(format!("Pod was rejected: {}", self.message)),
            start_time: old.start_time.or_else(|| Some(stored(now))),
            observed_generation: pod.metadata.generation,
            // What the scheduler wrote stays.
            conditions: old.conditions,
            qos_class: old.qos_class,
            ..PodStatus::default()
        }
    }
}

/// From this priority on, a Pod is critical and spared.
const CRITICAL: i32 = 2_000_000_000;

/// Whether the node takes a Pod on. `others` are the Pods it has taken on and that have not finished.
pub fn admit(pod: &Pod, host: &Host, others: &[&Pod]) -> Result<(), Refusal> {
    let spec = match &pod.spec {
        Some(spec) if !spec.containers.is_empty() => spec,
        _ => {
            return Err(Refusal::new(
                "InvalidPod",
                "the Pod has no containers; give it at least one",
            ));
        }
    };
    if let Some(missing) = nameless(pod) {
        return Err(Refusal::new(
            "InvalidPod",
            format!("the Pod has no {missing}, by which its VMs are named"),
        ));
    }
    if spec.os.is_some() {
        // The API knows only linux and windows, and a Mac is neither.
        return Err(Refusal::new(
            "PodOSNotSupported",
            "Failed to admit pod as the OS field doesn't match node OS; leave spec.os out and select kubernetes.io/os: darwin",
        ));
    }
    pressure(pod, spec.priority, host)?;
    let bad = unsupported(pod);
    if !bad.is_empty() {
        return Err(Refusal::new(
            "UnsupportedByVM",
            format!("a VM cannot do this: {}", bad.join("; ")),
        ));
    }
    let peak = spec::peak_vms(pod);
    if peak > host.vms {
        return Err(Refusal::new(
            "TooManyContainers",
            format!(
                "each container is a VM and {peak} of them have to run at once, but this node may run {}; use fewer \
                 containers or make them init containers",
                host.vms
            ),
        ));
    }
    place::check(pod, spec, host, others)?;
    resources::check(pod, host, others)?;
    let used: usize = others.iter().map(|other| spec::peak_vms(other)).sum();
    if used + peak > host.vms {
        return Err(Refusal::new(
            "OutOfVMs",
            resources::shortage("VMs", peak, used, host.vms),
        ));
    }
    Ok(())
}

fn nameless(pod: &Pod) -> Option<&'static str> {
    let meta = &pod.metadata;
    let parts = [("name", &meta.name), ("namespace", &meta.namespace), ("uid", &meta.uid)];
    parts
        .into_iter()
        .find(|(_, value)| value.as_deref().unwrap_or_default().is_empty())
        .map(|(part, _)| part)
}

fn pressure(pod: &Pod, priority: Option<i32>, host: &Host) -> Result<(), Refusal> {
    let only_memory = host.pressures.iter().all(|pressure| pressure == "MemoryPressure");
    let spared = priority.is_some_and(|priority| priority >= CRITICAL) || only_memory && qos_class(pod) != "BestEffort";
    if host.pressures.is_empty() || spared {
        return Ok(());
    }
    let message = format!("The node had condition: [{}]. ", host.pressures.join(" "));
    Err(Refusal::new("Evicted", message))
}
