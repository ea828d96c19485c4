//! What is on the Macs: virtual machines, images, disks. A Node tells of its images and its disk, Pods of their virtual machines.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// What a Mac runs and keeps, as its Node and Pods tell.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Hosting {
    /// Where the Node is dialled.
    pub address: Option<String>,
    /// Pods it takes.
    pub places: Option<u64>,
    /// The size of its disk.
    pub disk_bytes: Option<u64>,
    pub disk_pressure: bool,
    /// Images that need no download.
    pub images: Vec<Image>,
    pub vms: Vec<Vm>,
}

/// An image on a Mac.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    pub names: Vec<String>,
    pub bytes: Option<u64>,
}

/// A virtual machine: one container of a Pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vm {
    pub namespace: String,
    pub pod: String,
    pub container: String,
    pub image: String,
    /// What keeps it, else the phase of its Pod.
    pub phase: String,
    pub address: Option<String>,
    pub ready: bool,
    pub restarts: u32,
    pub created_at: Option<Timestamp>,
    pub age_seconds: Option<i64>,
}

/// By the name of the Node; nothing of what may not be read.
pub(super) async fn ask(client: &Client) -> HashMap<String, Hosting> {
    let (nodes, pods): (Api<Node>, Api<Pod>) = (Api::all(client.clone()), Api::all(client.clone()));
    let everything = ListParams::default();
    let (nodes, pods) = tokio::join!(nodes.list(&everything), pods.list(&everything));
    let nodes = nodes.map(|list| list.items).unwrap_or_default();
    let pods = pods.map(|list| list.items).unwrap_or_default();
    nodes
        .iter()
        .map(|node| (node.name_any(), hosting(node, &pods)))
        .collect()
}

fn hosting(node: &Node, pods: &[Pod]) -> Hosting {
    let status = node.status.as_ref();
    let here = |pod: &&Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(&node.name_any());
    let mut vms: Vec<Vm> = pods.iter().filter(here).flat_map(vms_of).collect();
    vms.sort_by(|a, b| (&a.namespace, &a.pod, &a.container).cmp(&(&b.namespace, &b.pod, &b.container)));
    let mut images: Vec<Image> = status
        .and_then(|status| status.images.as_deref())
        .unwrap_or_default()
        .iter()
        .map(|image| Image {
            names: image.names.clone().unwrap_or_default(),
            bytes: image.size_bytes.and_then(|size| u64::try_from(size).ok()),
        })
        .collect();
    images.sort_by(|a, b| a.names.cmp(&b.names));
    let capacity = |name: &str| status?.capacity.as_ref()?.get(name).and_then(number);
    let condition = |name: &str| {
        let all = status
            .and_then(|status| status.conditions.as_deref())
            .unwrap_or_default();
        all.iter().any(|found| found.type_ == name && found.status == "True")
    };
    Hosting {
        address: status
            .and_then(|status| status.addresses.as_deref())
            .unwrap_or_default()
            .iter()
            .find(|address| address.type_ == "InternalIP")
            .map(|address| address.address.clone()),
        places: capacity("pods"),
        disk_bytes: capacity("ephemeral-storage").filter(|bytes| *bytes > 0),
        disk_pressure: condition("DiskPressure"),
        images,
        vms,
    }
}

/// A container is a virtual machine. Those that took their turn before the others are over.
fn vms_of(pod: &Pod) -> Vec<Vm> {
    let status = pod.status.as_ref();
    let said = |name: &str| -> Option<&ContainerStatus> {
        let mains = status?.container_statuses.iter().flatten();
        let firsts = status?.init_container_statuses.iter().flatten();
        mains.chain(firsts).find(|container| container.name == name)
    };
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let lives = |name: &str| {
        let state = said(name).and_then(|container| container.state.as_ref());
        state.is_some_and(|state| state.running.is_some())
    };
    let firsts = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|container| lives(&container.name));
    let all = firsts.chain(&spec.containers);
    all.map(|container| {
        let said = said(&container.name);
        Vm {
            namespace: pod.namespace().unwrap_or_default(),
            pod: pod.name_any(),
            container: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            phase: phase(pod, said),
            address: status.and_then(|status| status.pod_ip.clone()),
            ready: said.is_some_and(|said| said.ready),
            restarts: said.map_or(0, |said| u32::try_from(said.restart_count).unwrap_or(0)),
            created_at: pod
                .creation_timestamp()
                .and_then(|time| Timestamp::from_second(time.0.as_second()).ok()),
            age_seconds: None,
        }
    })
    .collect()
}

/// As kubectl says it: what keeps a container, else what the Pod is in.
fn phase(pod: &Pod, said: Option<&ContainerStatus>) -> String {
    if pod.metadata.deletion_timestamp.is_some() {
        return "Terminating".to_owned();
    }
    let state = said.and_then(|said| said.state.as_ref());
    let reason = state.and_then(|state| {
        let waiting = state.waiting.as_ref().and_then(|waiting| waiting.reason.clone());
        waiting.or_else(|| state.terminated.as_ref().and_then(|ended| ended.reason.clone()))
    });
    let status = pod.status.as_ref();
    reason
        .or_else(|| status.and_then(|status| status.reason.clone()))
        .or_else(|| status.and_then(|status| status.phase.clone()))
        .unwrap_or_else(|| "Pending".to_owned())
}

/// Whole numbers and powers of two, which is what Nodes count in.
fn number(quantity: &Quantity) -> Option<u64> {
    let text = quantity.0.as_str();
    let (digits, shift) = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40)]
        .iter()
        .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)))
        .unwrap_or((text, 0));
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node() -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "mac-1"},
            "status": {
                "capacity": {"pods": "2", "ephemeral-storage": "494384795648"},
                "addresses": [{"type": "InternalIP", "address": "100.64.0.7"}, {"type": "Hostname", "address": "mac-1"}],
                "conditions": [{"type": "DiskPressure", "status": "True"}],
                "images": [{"names": ["ghcr.io/acme/mac@sha256:aa", "ghcr.io/acme/mac:v1"], "sizeBytes": 25_123_000_000_u64}],
            },
        }))
        .unwrap()
    }

    fn pod(change: impl FnOnce(&mut serde_json::Value)) -> Pod {
        let mut pod = json!({
            "metadata": {"name": "job", "namespace": "ci"},
            "spec": {
                "nodeName": "mac-1",
                "initContainers": [{"name": "fetch", "image": "ghcr.io/acme/mac:v1"}],
                "containers": [{"name": "main", "image": "ghcr.io/acme/mac:v1"}],
            },
            "status": {"phase": "Running", "podIP": "192.168.64.2", "containerStatuses": [
                {"name": "main", "ready": true, "restartCount": 3, "image": "", "imageID": "", "state": {"running": {}}},
            ]},
        });
        change(&mut pod);
        serde_json::from_value(pod).unwrap()
    }

    fn only(pod: Pod) -> Vm {
        let mut vms = hosting(&node(), &[pod]).vms;
        assert_eq!(vms.len(), 1);
        vms.remove(0)
    }

    #[test]
    fn a_mac_shows_its_machines_its_images_and_its_disk() {
        let elsewhere = pod(|pod| pod["spec"]["nodeName"] = json!("mac-2"));
        let hosting = hosting(&node(), &[elsewhere, pod(|_| {})]);
        assert_eq!((hosting.places, hosting.disk_bytes), (Some(2), Some(494_384_795_648)));
        assert!(hosting.disk_pressure);
        assert_eq!(hosting.address.as_deref(), Some("100.64.0.7"));
        let bytes = hosting.images.first().and_then(|image| image.bytes);
        assert_eq!(bytes, Some(25_123_000_000));
        let vm = hosting.vms.first().unwrap();
        assert_eq!(hosting.vms.len(), 1, "an init container that is over is no machine");
        let names = (vm.pod.as_str(), vm.container.as_str(), vm.phase.as_str());
        assert_eq!((names, vm.restarts, vm.ready), (("job", "main", "Running"), 3, true));
    }

    #[test]
    fn what_keeps_a_machine_is_said_before_the_phase_of_its_pod() {
        let waits = |pod: &mut serde_json::Value| {
            pod["status"]["phase"] = json!("Pending");
            pod["status"]["containerStatuses"][0]["state"] = json!({"waiting": {"reason": "ImagePullBackOff"}});
        };
        assert_eq!(only(pod(waits)).phase, "ImagePullBackOff");
        let refused = |pod: &mut serde_json::Value| pod["status"] = json!({"phase": "Failed", "reason": "Unsupported"});
        assert_eq!(only(pod(refused)).phase, "Unsupported");
        let leaves = |pod: &mut serde_json::Value| pod["metadata"]["deletionTimestamp"] = json!("2026-03-01T10:00:00Z");
        assert_eq!(only(pod(leaves)).phase, "Terminating");
    }

    #[test]
    fn an_init_container_at_work_is_a_machine() {
        let first = |pod: &mut serde_json::Value| {
            pod["status"] = json!({"phase": "Pending", "initContainerStatuses": [
                {"name": "fetch", "ready": false, "restartCount": 0, "image": "", "imageID": "", "state": {"running": {}}},
            ]});
        };
        let vms = hosting(&node(), &[pod(first)]).vms.into_iter();
        let names: Vec<String> = vms.map(|vm| vm.container).collect();
        assert_eq!(names, ["fetch", "main"]);
    }

    #[test]
    fn sizes_are_read_in_the_units_of_nodes() {
        let read = |text: &str| number(&Quantity(text.to_owned()));
        assert_eq!(read("2"), Some(2));
        assert_eq!(read("16384Mi"), Some(16_384 << 20));
        assert_eq!(read("1.5"), None);
        assert_eq!(read("99999999999999Ti"), None);
    }
}
