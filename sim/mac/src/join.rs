//! What a machine is told when it shall join, and everything that can be wrong with it.
//!
//! The checks are as strict as what comes later: a label that the API server would refuse from a node's identity is refused
//! here, at once and with a sentence, instead of as a Node that never appears.

use k8s_openapi::api::core::v1 as core;
use kube::config::Kubeconfig;
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
    /// Its key.
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
    /// No object can have such a label.
    #[error("{0:?} is not a label key or value Kubernetes accepts")]
    Label(String),
    /// NodeRestriction would refuse the Node.
    #[error("a node may not give itself the label {0}: NodeRestriction keeps it for administrators")]
    RestrictedLabel(String),
    /// The machine knows better.
    #[error("the machine sets the label {key} itself, to {own:?}")]
    OwnLabel {
        /// Which.
        key: String,
        /// The truth.
        own: String,
    },
    /// No Node can have such a taint.
    #[error("{0:?} is not a taint key or value Kubernetes accepts")]
    Taint(String),
    /// The kubeconfig is useless on another machine.
    #[error("the kubeconfig cannot be used: {0}")]
    Kubeconfig(String),
    /// Nobody could tell what the machine is set up with.
    #[error("hash is empty")]
    NoHash,
}

/// Labels every Mac has by itself, the host name apart.
pub(crate) const OWN_LABELS: [(&str, &str); 3] = [
    ("kubernetes.io/os", "darwin"),
    ("kubernetes.io/arch", "arm64"),
    ("tuist.dev/runtime", "tart"),
];

impl Join {
    /// Reads and checks a body for the machine with this provider id.
    pub(crate) fn parse(body: &[u8], machine: &str) -> Result<Self, BadJoin> {
        let join: Self = serde_json::from_slice(body).map_err(BadJoin::Malformed)?;
        if !is_subdomain(&join.node_name) {
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
            check_label(key, value, &join.node_name)?;
        }
        for taint in &join.taints {
            if !is_qualified(&taint.key) || !is_label_value(&taint.value) {
                return Err(BadJoin::Taint(format!("{}={}", taint.key, taint.value)));
            }
        }
        check_kubeconfig(&join.kubeconfig)?;
        Ok(join)
    }
}

fn check_label(key: &str, value: &str, node_name: &str) -> Result<(), BadJoin> {
    if !is_qualified(key) {
        return Err(BadJoin::Label(key.to_owned()));
    }
    if !is_label_value(value) {
        return Err(BadJoin::Label(value.to_owned()));
    }
    if is_restricted(key) {
        return Err(BadJoin::RestrictedLabel(key.to_owned()));
    }
    let own = OWN_LABELS.into_iter().chain([("kubernetes.io/hostname", node_name)]);
    match own.into_iter().find(|(own, _)| *own == key) {
        Some((_, truth)) if truth != value => Err(BadJoin::OwnLabel {
            key: key.to_owned(),
            own: truth.to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Whether NodeRestriction refuses this label from a node's identity.
///
/// Everything under kubernetes.io and k8s.io is refused but for what kubelets are known to set. `cluster.x-k8s.io` is not
/// under k8s.io: there is no dot before it.
fn is_restricted(key: &str) -> bool {
    const KNOWN: [&str; 11] = [
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
    ];
    let Some((domain, _)) = key.split_once('/') else {
        return false;
    };
    let under = |parent: &str| {
        domain
            .strip_suffix(parent)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    (under("kubernetes.io") || under("k8s.io"))
        && !KNOWN.contains(&key)
        && !under("kubelet.kubernetes.io")
        && !under("node.kubernetes.io")
}

/// A kubeconfig must carry everything in itself: files and programs it names are on the machine that wrote it.
fn check_kubeconfig(text: &Secret<String>) -> Result<(), BadJoin> {
    let bad = |why: &str| BadJoin::Kubeconfig(why.to_owned());
    // The error of the parser may quote what it could not read, which may be a token.
    let config = Kubeconfig::from_yaml(text.expose()).map_err(|_| bad("it is not a kubeconfig"))?;
    let context = config
        .current_context
        .as_deref()
        .and_then(|current| config.contexts.iter().find(|context| context.name == current))
        .and_then(|named| named.context.as_ref())
        .ok_or_else(|| bad("it has no current context"))?;
    let cluster = config
        .clusters
        .iter()
        .find(|named| named.name == context.cluster)
        .and_then(|named| named.cluster.as_ref())
        .ok_or_else(|| bad("its context names no cluster"))?;
    if cluster.server.as_deref().unwrap_or_default().is_empty() {
        return Err(bad("its cluster has no server"));
    }
    if cluster.certificate_authority.is_some() {
        return Err(bad(
            "it names a file for the certificate authority, which this machine does not have",
        ));
    }
    let user = config
        .auth_infos
        .iter()
        .find(|named| context.user.as_deref() == Some(named.name.as_str()))
        .and_then(|named| named.auth_info.as_ref())
        .ok_or_else(|| bad("its context names no user"))?;
    let elsewhere = [&user.token_file, &user.client_certificate, &user.client_key];
    if elsewhere.into_iter().any(Option::is_some) || user.exec.is_some() || user.auth_provider.is_some() {
        return Err(bad(
            "its credentials are in files or programs this machine does not have",
        ));
    }
    if user.token.is_none() && user.client_key_data.is_none() {
        return Err(bad("its user has neither a token nor a client certificate"));
    }
    Ok(())
}

fn is_alphanumeric(c: char) -> bool {
    c.is_ascii_alphanumeric()
}

/// Starts and ends with a letter or digit, with `-`, `_` and `.` between.
fn is_name(text: &str, max: usize) -> bool {
    text.len() <= max
        && text.starts_with(is_alphanumeric)
        && text.ends_with(is_alphanumeric)
        && text.chars().all(|c| is_alphanumeric(c) || "-_.".contains(c))
}

fn is_subdomain(text: &str) -> bool {
    let label = |label: &str| is_name(label, 63) && !label.contains('_') && label == label.to_ascii_lowercase();
    text.len() <= 253 && text.split('.').all(label)
}

fn is_qualified(key: &str) -> bool {
    match key.split_once('/') {
        Some((domain, name)) => is_subdomain(domain) && is_name(name, 63),
        None => is_name(key, 63),
    }
}

fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_name(value, 63)
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

    /// The same list is held against a real NodeRestriction in e2e/tests/it/sim_mac.rs.
    #[test]
    fn labels_that_node_restriction_keeps_are_refused() {
        for key in [
            "node-role.kubernetes.io/worker",
            "node-restriction.kubernetes.io/a",
            "k8s.io/a",
            "a.k8s.io/b",
        ] {
            assert!(is_restricted(key), "{key}");
        }
        for key in [
            "node.cluster.x-k8s.io/pool",
            "topology.kubernetes.io/zone",
            "a.node.kubernetes.io/b",
            "plain",
        ] {
            assert!(!is_restricted(key), "{key}");
        }
    }
}
