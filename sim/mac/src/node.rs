//! The objects a machine writes: its Node, its status, its Lease. Pure.

use crate::join::{Join, OWN_LABELS, Taint};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{self as core, Node};
use russet_sim_scaleway::Host;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What Nodes say their kubelet is. Cluster API compares it with `Machine.spec.version` to the letter.
pub const DEFAULT_KUBELET_VERSION: &str = "v1.35.4";
/// Where the Leases of nodes are.
pub(crate) const LEASES: &str = "kube-node-lease";
/// After how many seconds of silence a Lease is worth nothing, as kubelets have it.
const LEASE_SECONDS: u32 = 40;

/// What a machine offers to Pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Cores.
    pub cpu: u32,
    /// Memory, in MiB.
    pub memory_mib: u32,
    /// Pods; macOS runs two VMs at a time, and one more Pod may wait.
    pub pods: u32,
}

impl Default for Capacity {
    fn default() -> Self {
        Self {
            cpu: 8,
            memory_mib: 14_336,
            pods: 3,
        }
    }
}

/// What a boot of a machine knows about itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub(crate) host: &'a Host,
    pub(crate) join: &'a Join,
    pub(crate) kubelet_version: &'a str,
    pub(crate) capacity: Capacity,
    /// When it was switched on.
    pub(crate) booted: Timestamp,
}

/// The labels of the orders and those a Mac has by itself.
pub(crate) fn labels(join: &Join) -> BTreeMap<String, String> {
    let own = OWN_LABELS.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let hostname = ("kubernetes.io/hostname".to_owned(), join.node_name.clone());
    let mut labels = join.labels.clone();
    labels.extend(own);
    labels.extend([hostname]);
    labels
}

/// The taints of the orders, that of a Mac, and the one Cluster API takes away once it knows the Node. A node may give
/// itself taints when it registers and never again.
fn taints(join: &Join) -> Vec<core::Taint> {
    let own = [
        ("tuist.dev/macos", Some("true")),
        ("node.cluster.x-k8s.io/uninitialized", None),
    ];
    let own = own.map(|(key, value)| core::Taint {
        key: key.to_owned(),
        value: value.map(str::to_owned),
        effect: "NoSchedule".to_owned(),
        time_added: None,
    });
    let mut taints: Vec<core::Taint> = join.taints.iter().map(<core::Taint as From<&Taint>>::from).collect();
    for taint in own {
        if !taints
            .iter()
            .any(|given| given.key == taint.key && given.effect == taint.effect)
        {
            taints.push(taint);
        }
    }
    taints
}

/// The Node as it is registered.
pub(crate) fn node(facts: Facts<'_>, now: Timestamp) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": facts.join.node_name, "labels": labels(facts.join)},
        "spec": {"providerID": facts.join.provider_id, "taints": taints(facts.join)},
        "status": status(facts, now),
    })
}

/// The status as it is reported.
pub(crate) fn status(facts: Facts<'_>, now: Timestamp) -> Value {
    let Facts { host, capacity, .. } = facts;
    let resources = json!({
        "cpu": capacity.cpu.to_string(),
        "memory": format!("{}Mi", capacity.memory_mib),
        "pods": capacity.pods.to_string(),
        "ephemeral-storage": "200Gi",
    });
    // Core reads all four: a Node without one of the pressures keeps its Machine from ever being Ready.
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": k8s_time(now), "lastTransitionTime": k8s_time(facts.booted),
        })
    };
    json!({
        "capacity": resources,
        "allocatable": resources,
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "an emulated Mac has memory"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "an emulated Mac has room"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID", "an emulated Mac runs nothing"),
            condition("Ready", "True", "KubeletReady", "the stand-in agent is running"),
        ],
        "addresses": [
            {"type": "InternalIP", "address": host.address},
            {"type": "Hostname", "address": facts.join.node_name},
        ],
        "nodeInfo": {
            "machineID": host.server_id.to_string(),
            "systemUUID": host.server_id.to_string(),
            "bootID": format!("{}-{}", host.generation, facts.booted.as_millisecond()),
            "kernelVersion": "Darwin",
            "osImage": host.os,
            "containerRuntimeVersion": "tart://stand-in",
            "kubeletVersion": facts.kubelet_version,
            "kubeProxyVersion": "",
            "operatingSystem": "darwin",
            "architecture": "arm64",
        },
    })
}

/// A Lease that goes with its Node: the garbage collector takes it away, and the next renewal notices.
pub(crate) fn lease(node: &Node, now: Timestamp) -> Result<Lease, serde_json::Error> {
    let name = node.metadata.name.clone().unwrap_or_default();
    serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "namespace": LEASES,
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Node", "name": name,
                "uid": node.metadata.uid.clone().unwrap_or_default(),
            }],
        },
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": k8s_micro_time(now)},
    }))
}

/// The renewal of a Lease.
pub(crate) fn renewal(now: Timestamp) -> Value {
    json!({"spec": {"renewTime": k8s_micro_time(now)}})
}

fn k8s_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn k8s_micro_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}
