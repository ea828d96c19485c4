//! The objects of a synthetic node. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::orders::Orders;
use crate::row::Row;

/// Where the Leases of nodes are.
pub(super) const LEASES: &str = "kube-node-lease";
/// By which anybody can tell that no Pod will ever run there.
const SYNTHETIC: &str = "sim.russet.dev/synthetic";

/// The Node as it is registered.
pub(super) fn node(row: &Row, orders: &Orders, booted: Timestamp, now: Timestamp) -> Value {
    let mut labels = orders.labels.clone();
    for (key, value) in [
        (SYNTHETIC, "true"),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/hostname", &orders.node_name),
    ] {
        labels.insert(key.to_owned(), value.to_owned());
    }
    let taints: Vec<Value> = orders
        .taints
        .iter()
        .map(|(key, value, effect)| json!({"key": key, "value": value, "effect": effect}))
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": orders.node_name, "labels": labels},
        "spec": {"providerID": orders.provider_id, "taints": taints},
        "status": status(row, orders, booted, now),
    })
}

/// The status as it is reported.
pub(super) fn status(row: &Row, orders: &Orders, booted: Timestamp, now: Timestamp) -> Value {
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": time(now), "lastTransitionTime": time(booted),
        })
    };
    let mut addresses = vec![json!({"type": "Hostname", "address": orders.node_name})];
    addresses.extend(
        row.public_ip
            .map(|address| json!({"type": "InternalIP", "address": address})),
    );
    let resources = json!({"cpu": "4", "memory": "16Gi", "pods": "110", "ephemeral-storage": "100Gi"});
    json!({
        "capacity": resources,
        "allocatable": resources,
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "a synthetic node has memory"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "a synthetic node has room"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID", "a synthetic node runs nothing"),
            condition("Synthetic", "True", "NoRoot", "sim-linux runs without root: Pods sent here never run"),
            condition("Ready", "True", "KubeletReady", "sim-linux keeps this node alive"),
        ],
        "addresses": addresses,
        "nodeInfo": {
            "machineID": row.server_id, "systemUUID": row.server_id,
            "bootID": format!("{}-{}", row.generation, booted.as_millisecond()),
            "kernelVersion": "synthetic", "osImage": row.os, "containerRuntimeVersion": "synthetic://0",
            "kubeletVersion": crate::fleet::kubernetes_version(), "kubeProxyVersion": "",
            "operatingSystem": "linux", "architecture": "amd64",
        },
    })
}

/// A Lease that goes with its Node.
pub(super) fn lease(node: &Node, now: Timestamp) -> Value {
    let name = node.metadata.name.clone().unwrap_or_default();
    let owner = json!({
        "apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid.clone().unwrap_or_default(),
    });
    json!({
        "metadata": {"name": name, "namespace": LEASES, "ownerReferences": [owner]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": micro(now)},
    })
}

/// The renewal of a Lease.
pub(super) fn renewal(now: Timestamp) -> Value {
    json!({"spec": {"renewTime": micro(now)}})
}

fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn micro(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}
