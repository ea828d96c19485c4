//! What runs on a host, before its update would disturb it.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use tracing::warn;

use super::{Context, Mac};
use crate::rollout::Work;

/// By which a kubelet marks the Pods that it was given by a file and nobody can delete.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Whether an update of its host would disturb a Pod. One that is on every host, or that the host runs by itself, never ends; nor does
/// one that should have ended by now, on a host that nobody hears of: an API server that moved would be waited for in vain.
fn is_work(pod: &Pod, now: Timestamp) -> bool {
    let overdue = pod.metadata.deletion_timestamp.as_ref().is_some_and(|end| end.0 < now);
    let resident = pod
        .owner_references()
        .iter()
        .any(|owner| matches!(owner.kind.as_str(), "DaemonSet" | "Node"));
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !resident && !overdue && !pod.annotations().contains_key(MIRROR) && !matches!(phase, Some("Succeeded" | "Failed"))
}

/// Namespace and name of every Pod that counts, in order.
fn names(pods: &[Pod], now: Timestamp) -> Option<Vec<String>> {
    let full = |pod: &Pod| format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
    let mut names: Vec<String> = pods.iter().filter(|pod| is_work(pod, now)).map(full).collect();
    names.sort();
    (!names.is_empty()).then_some(names)
}

impl Context {
    /// The Pods of the host. Each machine looks at its own; the plans of others go by what it saw last.
    pub(super) async fn look_for_work(&self, mac: &Mac, now: Timestamp) -> Option<Work> {
        let pods: Api<Pod> = Api::all(self.client.clone());
        let here = ListParams::default().fields(&format!("spec.nodeName={}", mac.name_any()));
        let found = match pods.list(&here).await {
            Ok(pods) => names(&pods.items, now),
            Err(error) => {
                warn!(%error, "the Pods of the host could not be listed; its update waits");
                Some(Vec::new())
            }
        };
        self.memory.note_work(&mac.uid().unwrap_or_default(), found, now)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, owner: Option<&str>, phase: &str, annotations: &Value) -> Pod {
        let owners: Vec<Value> = owner
            .map(|kind| json!({"apiVersion": "v1", "kind": kind, "name": "x", "uid": "u"}))
            .into_iter()
            .collect();
        serde_json::from_value(json!({
            "metadata": {"namespace": "ci", "name": name, "ownerReferences": owners, "annotations": annotations},
            "status": {"phase": phase},
        }))
        .unwrap()
    }

    #[test]
    fn only_pods_that_can_end_and_have_not_ended_are_waited_for() {
        let pods = vec![
            pod("runner", Some("ReplicaSet"), "Running", &json!({})),
            pod("bare", None, "Pending", &json!({})),
            pod("agent", Some("DaemonSet"), "Running", &json!({})),
            pod("static", Some("Node"), "Running", &json!({})),
            pod("mirror", None, "Running", &json!({MIRROR: "hash"})),
            pod("done", Some("Job"), "Succeeded", &json!({})),
            pod("dead", Some("Job"), "Failed", &json!({})),
        ];
        let now = Timestamp::now();
        assert_eq!(
            names(&pods, now),
            Some(vec!["ci/bare".to_owned(), "ci/runner".to_owned()])
        );
        assert_eq!(names(&pods[2..], now), None);
    }

    #[test]
    fn a_pod_that_should_have_ended_is_not_waited_for_any_longer() {
        let now: Timestamp = "2026-11-15T12:00:00Z".parse().unwrap();
        let ending = |at: &str| {
            let mut pod = pod("runner", Some("ReplicaSet"), "Running", &json!({}));
            pod.metadata.deletion_timestamp = Some(Time(at.parse().unwrap()));
            pod
        };
        assert!(is_work(&ending("2026-11-15T12:00:30Z"), now), "it has time left");
        assert!(!is_work(&ending("2026-11-15T11:59:59Z"), now));
    }
}
