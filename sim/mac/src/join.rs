//! What a machine is told when it shall join, and everything that can be wrong with it.
//!
//! What a Node cannot have is refused here, at once and with a sentence, instead of as a Node that never appears.

use k8s_openapi::api::core::v1 as core;
use russet_node::{BadLabel, BadTaint, Unusable};
use russet_telemetry::Secret;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The body of `POST /join`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Join {
    /// The name of the Node.
    pub node_name: String,
    /// Which machine this is, as Cluster API knows it.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// Labels of the Node, besides those a Mac has by itself.
    pub labels: BTreeMap<String, String>,
    /// Taints of the Node, besides those a Mac has by itself.
    pub taints: Vec<Taint>,
    /// A kubeconfig that may ask for a certificate and nothing else.
    pub kubeconfig: Secret<String>,
    /// What the machine is set up with; shown again in `GET /state`.
    pub hash: String,
}

/// A taint, as the API has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Taint {
    pub key: String,
    /// Its value, often empty.
    #[serde(default)]
    pub value: String,
    /// What it does to Pods that do not tolerate it.
    pub effect: Effect,
}

/// The effects there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// New Pods stay away.
    NoSchedule,
    /// New Pods rather stay away.
    PreferNoSchedule,
    /// Running Pods go, too.
    NoExecute,
}

impl From<&Taint> for core::Taint {
    fn from(taint: &Taint) -> Self {
        Self {
            key: taint.key.clone(),
            value: (!taint.value.is_empty()).then(|| taint.value.clone()),
            effect: format!("{:?}", taint.effect),
            time_added: None,
        }
    }
}

/// Why a machine will not join.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadJoin {
    /// The body is not what it should be.
    #[error("the body is not a join request: {0}")]
    Malformed(serde_json::Error),
    /// No object can have such a name.
    #[error("nodeName {0:?} is not a name a Node can have (lower-case letters, digits, '-' and '.', at most 253)")]
    NodeName(String),
    /// The orders were meant for another machine.
    #[error("providerID {found:?} is not this machine, which is {expected:?}")]
    ProviderId {
        /// What was sent.
        found: String,
        /// What this machine is.
        expected: String,
    },
    /// The Node cannot have such a label.
    #[error(transparent)]
    Label(#[from] BadLabel),
    /// No Node can have such a taint.
    #[error(transparent)]
    Taint(#[from] BadTaint),
    /// The kubeconfig is useless on another machine.
    #[error(transparent)]
    Kubeconfig(#[from] Unusable),
    /// Nobody could tell what the machine is set up with.
    #[error("hash is empty")]
    NoHash,
}

impl Join {
    /// Reads and checks a body for the machine with this provider id.
    pub(crate) fn parse(body: &[u8], machine: &str) -> Result<Self, BadJoin> {
        let join: Self = serde_json::from_slice(body).map_err(BadJoin::Malformed)?;
        if !russet_node::is_node_name(&join.node_name) {
            return Err(BadJoin::NodeName(join.node_name));
        }
        if join.provider_id != machine {
            return Err(BadJoin::ProviderId {
                found: join.provider_id,
                expected: machine.to_owned(),
            });
        }
        if join.hash.is_empty() {
            return Err(BadJoin::NoHash);
        }
        for (key, value) in &join.labels {
            russet_node::check_label(key, value, &join.node_name)?;
        }
        for taint in &join.taints {
            russet_node::check_taint(&taint.key, &taint.value)?;
        }
        russet_node::check_kubeconfig(&join.kubeconfig)?;
        Ok(join)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const MACHINE: &str = "scw-applesilicon://fr-par-1/11111111-0000-4000-a000-000000000001";

    fn kubeconfig(user: &Value) -> String {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "tart-kubelet",
            "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443"}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "tart-kubelet", "context": {"cluster": "c", "user": "u"}}],
        })
        .to_string()
    }

    fn good() -> Value {
        json!({
            "nodeName": "mac-1",
            "providerID": MACHINE,
            "labels": {"tuist.dev/fleet": "runners", "node.cluster.x-k8s.io/pool": "macs"},
            "taints": [{"key": "tuist.dev/macos", "value": "true", "effect": "NoSchedule"}],
            "kubeconfig": kubeconfig(&json!({"token": "s3cret"})),
            "hash": "abc",
        })
    }

    fn parse(body: &Value) -> Result<Join, BadJoin> {
        Join::parse(body.to_string().as_bytes(), MACHINE)
    }

    #[track_caller]
    fn refused(pointer: &str, value: Value, sentence: &str) {
        let mut body = good();
        *body.pointer_mut(pointer).unwrap() = value;
        let error = parse(&body).unwrap_err().to_string();
        assert!(error.contains(sentence), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }

    #[test]
    fn a_complete_request_is_taken() {
        let join = parse(&good()).unwrap();
        assert_eq!(
            (join.node_name.as_str(), join.labels.len(), join.taints.len()),
            ("mac-1", 2, 1)
        );
        assert!(!format!("{join:?}").contains("s3cret"));
    }

    #[test]
    fn whatever_is_wrong_is_said() {
        refused("/nodeName", json!("Mac_1"), "nodeName \"Mac_1\"");
        refused("/nodeName", json!("a..b"), "nodeName");
        refused(
            "/providerID",
            json!("scw-applesilicon://fr-par-1/other"),
            "is not this machine",
        );
        refused("/hash", json!(""), "hash is empty");
        refused("/labels", json!({"-a": "b"}), "is not a label");
        refused("/labels", json!({"a": "b c"}), "is not a label");
        refused(
            "/labels",
            json!({"kubernetes.io/os": "linux"}),
            "sets the label kubernetes.io/os itself",
        );
        refused("/taints/0/effect", json!("Sometimes"), "unknown variant `Sometimes`");
        refused("/taints/0/key", json!("a b"), "is not a taint");
        refused("/taints", json!(7), "not a join request");
        refused("/kubeconfig", json!("s3cret: ["), "it is not a kubeconfig");
        refused("/kubeconfig", json!("{}"), "no current context");
        refused("/kubeconfig", json!(kubeconfig(&json!({}))), "neither a token");
        refused(
            "/kubeconfig",
            json!(kubeconfig(&json!({"tokenFile": "/x"}))),
            "does not have",
        );
        let unknown = json!({"nodeName": "a", "nodename": "b"});
        assert!(parse(&unknown).unwrap_err().to_string().contains("nodename"));
    }
}
