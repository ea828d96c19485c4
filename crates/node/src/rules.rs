//! What names, labels and taints Kubernetes takes from a node.
//!
//! The checks are as strict as what comes later: a label that the API server would refuse from a node's identity is refused
//! here, at once and with a sentence, instead of as a Node that never appears.

use crate::spec::{HOSTNAME, OWN_LABELS};

/// A label that a machine will not put on its Node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLabel {
    /// No object can have such a label.
    #[error("{0:?} is not a label key or value Kubernetes accepts")]
    Malformed(String),
    /// NodeRestriction would refuse the Node.
    #[error("a node may not give itself the label {0}: NodeRestriction keeps it for administrators")]
    Restricted(String),
    /// The machine knows better.
    #[error("the machine sets the label {key} itself, to {own:?}")]
    Own {
        /// Which.
        key: String,
        /// The truth.
        own: String,
    },
}

/// A taint no Node can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a taint key or value Kubernetes accepts")]
pub struct BadTaint(String);

/// Whether a node of this name may have this label.
pub fn check_label(key: &str, value: &str, node_name: &str) -> Result<(), BadLabel> {
    if !is_qualified(key) {
        return Err(BadLabel::Malformed(key.to_owned()));
    }
    if !is_label_value(value) {
        return Err(BadLabel::Malformed(value.to_owned()));
    }
    if is_restricted(key) {
        return Err(BadLabel::Restricted(key.to_owned()));
    }
    let own = OWN_LABELS.into_iter().chain([(HOSTNAME, node_name)]);
    match own.into_iter().find(|(own, _)| *own == key) {
        Some((_, truth)) if truth != value => Err(BadLabel::Own {
            key: key.to_owned(),
            own: truth.to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Whether a taint may have this key and value.
pub fn check_taint(key: &str, value: &str) -> Result<(), BadTaint> {
    if is_qualified(key) && is_label_value(value) {
        Ok(())
    } else {
        Err(BadTaint(format!("{key}={value}")))
    }
}

/// Whether a Node may have this name.
pub fn is_node_name(text: &str) -> bool {
    is_subdomain(text)
}

/// Whether NodeRestriction refuses this label from a node's identity.
///
/// Everything under kubernetes.io and k8s.io is refused but for what kubelets are known to set. `cluster.x-k8s.io` is not
/// under k8s.io: there is no dot before it.
pub fn is_restricted(key: &str) -> bool {
    const KNOWN: [&str; 11] = [
        HOSTNAME,
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

    /// The same list is held against a real NodeRestriction in sim/mac/tests/it/cluster.rs.
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

    #[test]
    fn what_is_wrong_with_a_label_is_said() {
        let said = |key: &str, value: &str| check_label(key, value, "mac-1").map_err(|error| error.to_string());
        assert!(said("tuist.dev/fleet", "runners").is_ok());
        assert!(said("kubernetes.io/hostname", "mac-1").is_ok());
        assert!(said("-a", "b").unwrap_err().contains("is not a label"));
        assert!(said("a", "b c").unwrap_err().contains("is not a label"));
        assert!(said("kubernetes.io/os", "linux").unwrap_err().contains("itself"));
        assert!(said("k8s.io/a", "b").unwrap_err().contains("NodeRestriction"));
    }

    #[test]
    fn names_of_nodes_are_names_of_objects() {
        for good in ["mac-1", "a.b", "0"] {
            assert!(is_node_name(good), "{good}");
        }
        for bad in ["", "Mac_1", "a..b", "-a", "a-"] {
            assert!(!is_node_name(bad), "{bad}");
        }
    }
}
