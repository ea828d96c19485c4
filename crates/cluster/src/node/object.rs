//! The Node object: what the API server knows of a node, and waiting until it knows enough.

use std::{path::PathBuf, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
    runtime::wait::await_condition,
};
use serde_json::json;

use super::{Error, Options, Pods, Range, agents};

/// A kubelet registers and gets ready within seconds; a busy machine may need many of them.
const LIMIT: Duration = Duration::from_mins(2);

#[derive(Debug)]
pub(super) struct NodeObject {
    pub(super) api: Api<Node>,
    pub(super) name: String,
    /// Named in errors, since it explains why a node does not come.
    pub(super) kubelet_log: PathBuf,
}

impl NodeObject {
    /// Waits for the object, completes it, and returns the range of the node's pods.
    pub(super) async fn registered(&self, options: &Options) -> Result<Range, Error> {
        self.wait_for("to register", |node| node.is_some()).await?;
        let (_, labels) = agents::split_labels(&options.labels);
        let mut wanted = json!({ "metadata": { "labels": labels } });
        if let (Pods::Fixed(range), Some(fields)) = (options.pods, wanted.as_object_mut()) {
            let range = range.to_string();
            fields.insert("spec".to_owned(), json!({ "podCIDR": range, "podCIDRs": [range] }));
        }
        self.api
            .patch(&self.name, &PatchParams::default(), &Patch::Merge(&wanted))
            .await
            .map_err(Error::kubernetes(format!("complete the node {}", self.name)))?;
        let node = self
            .wait_for("to get a range for its pods", |node| pod_range(node).is_some())
            .await?;
        let text = pod_range(node.as_ref()).unwrap_or_default();
        text.parse().map_err(|source| Error::PodRange {
            node: self.name.clone(),
            text: text.to_owned(),
            source,
        })
    }

    /// Waits until the node says that it is ready. What it said before `since` does not count: the object of a node
    /// that was switched off stays ready for a while.
    pub(super) async fn ready(&self, since: Timestamp) -> Result<(), Error> {
        self.wait_for("to become Ready", |node| is_ready(node, since))
            .await
            .map(drop)
    }

    /// Deletes the object; one that is gone already is fine.
    pub(super) async fn delete(&self) -> Result<(), Error> {
        match self.api.delete(&self.name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(Error::kubernetes(format!("delete the node {}", self.name))(error)),
            Ok(_) => Ok(()),
        }
    }

    async fn wait_for(&self, what: &str, condition: impl Fn(Option<&Node>) -> bool) -> Result<Option<Node>, Error> {
        let waiting = await_condition(self.api.clone(), &self.name, condition);
        match tokio::time::timeout(LIMIT, waiting).await {
            Ok(Ok(node)) => Ok(node),
            Ok(Err(error)) => Err(Error::ControlPlane(Box::new(error))),
            Err(_) => Err(Error::Timeout {
                what: format!("node {} {what}", self.name),
                waited: LIMIT,
                detail: self.diagnosis().await,
            }),
        }
    }

    /// What the object says, and where to read on.
    async fn diagnosis(&self) -> String {
        let text = match self.api.get_opt(&self.name).await {
            Ok(Some(node)) => describe(&node),
            Ok(None) => "there is no such Node object".to_owned(),
            Err(error) => error.to_string(),
        };
        format!("{text}; see {}", self.kubelet_log.display())
    }
}

fn conditions(node: &Node) -> &[NodeCondition] {
    node.status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default()
}

/// The API keeps whole seconds, hence the comparison of seconds.
fn is_ready(node: Option<&Node>, since: Timestamp) -> bool {
    let recent = |condition: &NodeCondition| {
        condition
            .last_heartbeat_time
            .as_ref()
            .is_some_and(|time| time.0.as_second() >= since.as_second())
    };
    node.map(conditions)
        .unwrap_or_default()
        .iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True" && recent(condition))
}

fn pod_range(node: Option<&Node>) -> Option<&str> {
    node?
        .spec
        .as_ref()?
        .pod_cidr
        .as_deref()
        .filter(|range| !range.is_empty())
}

fn describe(node: &Node) -> String {
    let tell = |condition: &NodeCondition| {
        let message = condition.message.as_deref().unwrap_or_default();
        format!("{}={} ({message})", condition.type_, condition.status)
    };
    conditions(node).iter().map(tell).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_ready_only_when_it_said_so_recently() {
        let node = |status: &str| -> Node {
            let ready = json!({ "type": "Ready", "status": status, "lastHeartbeatTime": "2026-01-02T03:04:05Z" });
            serde_json::from_value(json!({ "status": { "conditions": [ready] } })).unwrap()
        };
        let time = |text: &str| text.parse::<Timestamp>().unwrap();
        assert!(is_ready(Some(&node("True")), time("2026-01-02T03:04:05.9Z")));
        assert!(!is_ready(Some(&node("True")), time("2026-01-02T03:04:06Z")));
        for node in [Some(&node("Unknown")), Some(&Node::default()), None] {
            assert!(!is_ready(node, time("2026-01-02T03:04:05Z")));
        }
    }

    #[test]
    fn an_empty_pod_range_is_none_yet() {
        let node = |range: &str| -> Node { serde_json::from_value(json!({ "spec": { "podCIDR": range } })).unwrap() };
        assert_eq!(pod_range(Some(&node("10.135.0.0/24"))), Some("10.135.0.0/24"));
        assert_eq!(pod_range(Some(&node(""))), None);
    }
}
