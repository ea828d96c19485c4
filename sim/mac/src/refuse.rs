//! Pods on a machine without virtual machines: each is told at once, in words, that it will never run here. In silence it would wait
//! for ever on a Node that says it is ready.

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use std::time::Duration;

/// Between two attempts to hear of Pods.
const AGAIN: Duration = Duration::from_secs(1);
const REASON: &str = "NoVirtualMachines";
const MESSAGE: &str = "this Mac is a stand-in without virtual machines, and no Pod runs on it; run `make up` as root and without \
                       --synthetic-macs";

/// What is done about a Pod.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It has failed.
    Fail,
    /// Nothing of it runs, so that it may go.
    LetGo,
    /// Nothing.
    Leave,
}

fn judge(pod: &Pod) -> Verdict {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or_default();
    match (&pod.metadata.deletion_timestamp, phase) {
        (Some(_), _) if grace > 0 => Verdict::LetGo,
        (Some(_), _) | (None, Some("Failed" | "Succeeded")) => Verdict::Leave,
        (None, _) => Verdict::Fail,
    }
}

/// Refuses every Pod of a node for as long as it runs. `client` answers soon, `watching` may be silent for long.
pub(crate) async fn every_pod(client: Client, watching: Client, node: String) {
    loop {
        if let Err(error) = until_silence(&client, &watching, &node).await {
            tracing::debug!(node, %error, "does not hear of its Pods");
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn until_silence(client: &Client, watching: &Client, node: &str) -> kube::Result<()> {
    let ours = format!("spec.nodeName={node}");
    let there = Api::<Pod>::all(client.clone())
        .list(&ListParams::default().fields(&ours))
        .await?;
    for pod in &there.items {
        refuse(client, pod).await?;
    }
    let version = there.metadata.resource_version.unwrap_or_default();
    let pods: Api<Pod> = Api::all(watching.clone());
    let events = pods.watch(&WatchParams::default().fields(&ours), &version).await?;
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(pod) | WatchEvent::Modified(pod) => refuse(client, &pod).await?,
            WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
            // What was heard of is too old; a new look begins.
            WatchEvent::Error(_) => return Ok(()),
        }
    }
    Ok(())
}

async fn refuse(client: &Client, pod: &Pod) -> kube::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let name = pod.name_any();
    let done = match judge(pod) {
        Verdict::Leave => return Ok(()),
        Verdict::LetGo => {
            let now = DeleteParams::default().grace_period(0);
            pods.delete(&name, &now).await.map(drop)
        }
        Verdict::Fail => {
            // With its uid: another Pod of this name may be there by now.
            let status = json!({
                "metadata": {"uid": pod.uid()},
                "status": {"phase": "Failed", "reason": REASON, "message": format!("Pod was rejected: {MESSAGE}")},
            });
            let (params, patch) = (PatchParams::default(), Patch::Merge(status));
            pods.patch_status(&name, &params, &patch).await.map(drop)
        }
    };
    match done {
        // It went meanwhile, or is another one.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn judged(metadata: &Value, phase: &str) -> Verdict {
        judge(&serde_json::from_value(json!({"metadata": metadata, "status": {"phase": phase}})).unwrap())
    }

    #[test]
    fn a_pod_fails_at_once_and_one_that_is_deleted_may_go() {
        assert_eq!(judged(&json!({}), "Pending"), Verdict::Fail);
        assert_eq!(judged(&json!({}), "Running"), Verdict::Fail);
        assert_eq!(judged(&json!({}), "Failed"), Verdict::Leave);
        let deleted =
            |grace: i64| json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace});
        assert_eq!(judged(&deleted(30), "Pending"), Verdict::LetGo);
        // Somebody else holds on to it.
        assert_eq!(judged(&deleted(0), "Pending"), Verdict::Leave);
    }
}
