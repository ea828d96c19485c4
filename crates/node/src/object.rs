//! The objects a machine writes: its Node, its status, its Lease. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde_json::{Value, json};

use crate::sight::{Condition, Sight};
use crate::spec::Spec;

/// Where the Leases of nodes are.
pub(crate) const LEASES: &str = "kube-node-lease";
/// After how many seconds of silence a Lease is worth nothing, as kubelets have it.
const LEASE_SECONDS: u32 = 40;

/// Since when each condition is as it is. Kept by whoever writes the status: the server's word would bring its own `Unknown` back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Since(BTreeMap<String, Said>);

/// A condition as it was told last.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Said {
    status: String,
    reason: String,
    message: String,
    since: Timestamp,
}

impl Since {
    /// What a Node that was there already says, so that a restart of the agent is no change of its condition.
    pub(crate) fn of(node: &Node) -> Self {
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        Self(
            conditions
                .filter_map(|condition| {
                    let said = Said {
                        status: condition.status.clone(),
                        reason: condition.reason.clone().unwrap_or_default(),
                        message: condition.message.clone().unwrap_or_default(),
                        since: condition.last_transition_time.as_ref()?.0,
                    };
                    Some((condition.type_.clone(), said))
                })
                .collect(),
        )
    }

    /// What is told of a condition. What is only assumed takes nothing back that was seen before; that others no longer heard of us
    /// was seen by nobody here.
    fn tell(&mut self, condition: &Condition, now: Timestamp) -> &Said {
        let status = condition.status();
        let before = self.0.remove(condition.kind);
        let said = match before {
            Some(before) if condition.assumed && before.status != "Unknown" => before,
            before => Said {
                status: status.to_owned(),
                reason: condition.reason.to_owned(),
                message: condition.message.clone(),
                since: before
                    .filter(|before| before.status == status)
                    .map_or(now, |before| before.since),
            },
        };
        self.0.entry(condition.kind.to_owned()).or_insert(said)
    }
}

/// How many images a Node tells of, as kubelets have it.
const MOST_IMAGES: usize = 50;

/// All labels of the Node: what its owner wants, what it is, and what is on it.
pub(crate) fn labels(spec: &Spec, sight: &Sight) -> BTreeMap<String, String> {
    let resident = sight.resident.iter().flat_map(|resident| &resident.labels);
    let mut labels: BTreeMap<String, String> = resident.map(|key| (key.clone(), "true".to_owned())).collect();
    labels.extend(spec.all_labels());
    labels
}

/// The Node as it is registered. Nothing was said of it before, whatever was of one that is gone.
pub(crate) fn node(spec: &Spec, sight: &Sight, since: &mut Since, now: Timestamp) -> Value {
    *since = Since::default();
    let mut node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": spec.name, "labels": labels(spec, sight)},
        "spec": {"taints": spec.all_taints()},
        "status": status(spec, sight, since, now),
    });
    if !spec.provider_id.is_empty()
        && let Some(fields) = node.get_mut("spec").and_then(Value::as_object_mut)
    {
        fields.insert("providerID".to_owned(), spec.provider_id.as_str().into());
    }
    node
}

/// The status as it is reported.
pub(crate) fn status(spec: &Spec, sight: &Sight, since: &mut Since, now: Timestamp) -> Value {
    let resources = json!({
        "cpu": spec.capacity.cpu.to_string(),
        "memory": format!("{}Mi", spec.capacity.memory_mib),
        "pods": spec.capacity.pods.to_string(),
        "ephemeral-storage": sight.storage_bytes.to_string(),
    });
    let conditions: Vec<Value> = sight
        .conditions
        .iter()
        .map(|condition| {
            let said = since.tell(condition, now);
            json!({
                "type": condition.kind, "status": said.status,
                "reason": said.reason, "message": said.message,
                "lastHeartbeatTime": k8s_time(now),
                "lastTransitionTime": k8s_time(said.since),
            })
        })
        .collect();
    let mut addresses: Vec<Value> = Vec::new();
    // First the one that everybody can dial: an API server may not know our names.
    addresses.extend(
        sight
            .address
            .map(|address| json!({"type": "InternalIP", "address": address})),
    );
    addresses.push(json!({"type": "Hostname", "address": spec.name}));
    let system = &sight.system;
    let mut status = json!({
        "capacity": resources,
        "allocatable": resources,
        "conditions": conditions,
        "addresses": addresses,
        "nodeInfo": {
            "machineID": system.machine_id,
            "systemUUID": system.system_uuid,
            "bootID": system.boot_id,
            "kernelVersion": system.kernel_version,
            "osImage": system.os_image,
            "containerRuntimeVersion": system.runtime,
            "kubeletVersion": spec.kubelet_version,
            "kubeProxyVersion": "",
            "operatingSystem": "darwin",
            "architecture": "arm64",
        },
    });
    if let (Some(resident), Some(fields)) = (&sight.resident, status.as_object_mut()) {
        let images = resident.images.iter().take(MOST_IMAGES);
        let images: Vec<Value> = images
            .map(|image| json!({"names": image.names, "sizeBytes": image.bytes}))
            .collect();
        fields.insert("images".to_owned(), images.into());
    }
    if let (Some(port), Some(fields)) = (sight.port, status.as_object_mut()) {
        // The capital letter is the API's.
        fields.insert("daemonEndpoints".to_owned(), json!({"kubeletEndpoint": {"Port": port}}));
    }
    status
}

/// The patch that makes the status of a Node so. An address it no longer has goes.
pub(crate) fn report(mut status: Value) -> Value {
    if let Some(addresses) = status.get_mut("addresses").and_then(Value::as_array_mut) {
        addresses.insert(0, json!({"$patch": "replace"}));
    }
    json!({"status": status})
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

/// When a Lease is renewed that was renewed before: now, or a moment later than then. Whoever watches it takes only a later time
/// for a sign of life, and a clock can be set back by hours.
pub(crate) fn later(last: Option<Timestamp>, now: Timestamp) -> Timestamp {
    let next = last.and_then(|last| last.checked_add(jiff::SignedDuration::from_millis(1)).ok());
    next.map_or(now, |next| next.max(now))
}

/// The renewal of a Lease.
pub(crate) fn renewal(now: Timestamp) -> Value {
    json!({"spec": {"renewTime": k8s_micro_time(now)}})
}

/// A Lease that is renewed as a whole.
pub(crate) fn renewed(mut lease: Lease, now: Timestamp) -> Lease {
    lease.spec.get_or_insert_default().renew_time = Some(MicroTime(now));
    // Others need not hear who wrote which field.
    lease.metadata.managed_fields = None;
    lease
}

fn k8s_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn k8s_micro_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sight::{Resident, ResidentImage, System};
    use crate::spec::Capacity;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn spec() -> Spec {
        Spec {
            name: "mac-1".to_owned(),
            provider_id: "scw-applesilicon://fr-par-1/1".to_owned(),
            labels: BTreeMap::from([("tuist.dev/fleet".to_owned(), "runners".to_owned())]),
            taints: Vec::new(),
            capacity: Capacity::default(),
            kubelet_version: "v1.35.4".to_owned(),
        }
    }

    fn sight(full: bool) -> Sight {
        Sight {
            address: Some("100.64.0.7".parse().unwrap()),
            port: Some(10250),
            storage_bytes: 494_384_795_648,
            system: System {
                os_image: "macOS 26.3".to_owned(),
                runtime: "tart://2.32.1".to_owned(),
                ..System::default()
            },
            conditions: vec![
                Condition::memory_pressure(false, "memory is enough"),
                Condition::disk_pressure(full, "the disk"),
                Condition::pid_pressure(false, "few processes"),
                Condition::ready(true, "it runs"),
            ],
            resident: Some(Resident {
                images: vec![ResidentImage {
                    names: vec!["ghcr.io/acme/mac:v1".to_owned()],
                    bytes: 72_000_000_000,
                }],
                labels: ["tuist.dev/golden-9c8af651fdf30b10".to_owned()].into(),
            }),
        }
    }

    /// The node controller took a Lease that was renewed "earlier" for one that was not renewed, and the Node for lost.
    #[test]
    fn a_lease_is_renewed_later_each_time_whatever_the_clock_says() {
        assert_eq!(later(None, at(100)), at(100));
        assert_eq!(later(Some(at(100)), at(110)), at(110));
        let back = later(Some(at(100)), at(20));
        assert!(back > at(100) && back < at(101), "{back}");
        assert!(k8s_micro_time(back) > k8s_micro_time(at(100)));
    }

    #[test]
    fn a_node_is_registered_whole() {
        insta::assert_json_snapshot!(node(&spec(), &sight(false), &mut Since::default(), at(1_767_225_600)));
    }

    #[test]
    fn a_condition_changes_when_it_changes_and_not_when_it_is_told_again() {
        let mut since = Since::default();
        let changed = |status: &Value, index: usize| status["conditions"][index]["lastTransitionTime"].clone();
        let first = status(&spec(), &sight(false), &mut since, at(100));
        let again = status(&spec(), &sight(false), &mut since, at(200));
        let full = status(&spec(), &sight(true), &mut since, at(300));
        assert_eq!(changed(&first, 1), changed(&again, 1));
        assert_eq!(changed(&full, 1), "1970-01-01T00:05:00Z");
        assert_eq!(changed(&full, 3), changed(&first, 3));
        // As another start of the agent reads it.
        let written = json!({"status": full});
        assert_eq!(Since::of(&serde_json::from_value(written).unwrap()), since);
    }

    /// A restart of the agent made its Node not Ready for a heartbeat, because `tart` had not answered yet: the node controller
    /// tainted the Node, and took its Pods out of their Services.
    #[test]
    fn what_nobody_looked_at_yet_takes_nothing_back_that_a_node_says() {
        let assumed = Sight {
            conditions: vec![Condition::ready(false, "nobody looked").assumed()],
            ..sight(false)
        };
        let ready = |status: &Value| status["conditions"].as_array().unwrap().last().unwrap().clone();
        let mut first = Since::default();
        let fresh = ready(&node(&spec(), &assumed, &mut first, at(100))["status"]);
        assert_eq!(
            (&fresh["status"], &fresh["message"]),
            (&json!("False"), &json!("nobody looked"))
        );

        let told = json!({"status": status(&spec(), &sight(false), &mut first, at(200))});
        let mut since = Since::of(&serde_json::from_value(told).unwrap());
        let restarted = ready(&status(&spec(), &assumed, &mut since, at(300)));
        assert_eq!(
            (&restarted["status"], &restarted["message"]),
            (&json!("True"), &json!("it runs"))
        );
        assert_eq!(restarted["lastTransitionTime"], k8s_time(at(200)));
        assert_eq!(restarted["lastHeartbeatTime"], k8s_time(at(300)));
        let looked = ready(&status(&spec(), &sight(false), &mut since, at(400)));
        assert_eq!(looked["lastTransitionTime"], k8s_time(at(200)));

        // What the node controller wrote while the machine was away is nothing that anybody saw here.
        let lost = json!({"status": {"conditions": [{
            "type": "Ready", "status": "Unknown", "lastTransitionTime": k8s_time(at(500)),
        }]}});
        let mut since = Since::of(&serde_json::from_value(lost).unwrap());
        let back = ready(&status(&spec(), &assumed, &mut since, at(600)));
        assert_eq!(back["status"], "False");
        assert_eq!(back["lastTransitionTime"], k8s_time(at(600)));
    }

    /// A Node that is made anew is as it is from then on.
    #[test]
    fn what_was_said_of_a_node_that_is_gone_is_not_said_of_the_next() {
        let mut since = Since::default();
        status(&spec(), &sight(false), &mut since, at(100));
        let assumed = Sight {
            conditions: vec![Condition::ready(false, "nobody looked").assumed()],
            ..sight(false)
        };
        let made = node(&spec(), &assumed, &mut since, at(200));
        assert_eq!(made["status"]["conditions"][0]["status"], "False");
    }

    #[test]
    fn what_is_not_known_yet_is_not_taken_back() {
        let unknown = Sight {
            resident: None,
            ..sight(false)
        };
        let written = status(&spec(), &unknown, &mut Since::default(), at(0));
        assert_eq!(written.get("images"), None);
        let emptied = Sight {
            resident: Some(Resident::default()),
            ..sight(false)
        };
        let written = status(&spec(), &emptied, &mut Since::default(), at(0));
        assert_eq!(written["images"], json!([]));
        assert!(!labels(&spec(), &emptied).contains_key("tuist.dev/golden-9c8af651fdf30b10"));
    }

    #[test]
    fn an_address_that_is_gone_is_taken_off() {
        let mut lost = sight(false);
        lost.address = None;
        let patch = report(status(&spec(), &lost, &mut Since::default(), at(0)));
        assert_eq!(
            patch["status"]["addresses"],
            json!([{"$patch": "replace"}, {"type": "Hostname", "address": "mac-1"}])
        );
    }
}
