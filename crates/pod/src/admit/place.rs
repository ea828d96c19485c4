//! Whether a Pod belongs on this node: name, ports, labels, taints.

use super::{Host, Refusal};
use crate::spec;
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check(pod: &Pod, spec: &PodSpec, host: &Host, others: &[&Pod]) -> Result<(), Refusal> {
    let failed = |reason: &str, why: &str| Err(Refusal::new(reason, format!("Predicate {reason} failed: {why}")));
    if spec.node_name.as_deref().is_some_and(|name| name != host.name) {
        return failed("NodeName", "node(s) didn't match the requested node name");
    }
    let wanted = host_ports(pod);
    if let Some(port) = wanted.iter().find(|port| host.own_ports.contains(&port.port)) {
        return failed(
            "NodePorts",
            &format!("the port {} is that of the node's agent", port.port),
        );
    }
    let taken: Vec<_> = others.iter().flat_map(|other| host_ports(other)).collect();
    if wanted.iter().any(|port| taken.iter().any(|other| port.clashes(other))) {
        return failed(
            "NodePorts",
            "node(s) didn't have free ports for the requested pod ports",
        );
    }
    if !selected(spec, host) {
        return failed("NodeAffinity", "node(s) didn't match Pod's node affinity/selector");
    }
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let untolerated = host.taints.iter().find(|taint| {
        taint.effect == "NoExecute" && !tolerations.iter().any(|toleration| tolerates(toleration, taint))
    });
    if let Some(taint) = untolerated {
        let value = taint.value.as_deref().unwrap_or_default();
        return failed(
            "TaintToleration",
            &format!("node(s) had untolerated taint {{{}: {value}}}", taint.key),
        );
    }
    Ok(())
}

/// A port of the host that a Pod wants.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct HostPort {
    port: i32,
    protocol: String,
    /// On which address; on every one if empty.
    ip: String,
}

impl HostPort {
    fn clashes(&self, other: &Self) -> bool {
        let same_ip = self.ip.is_empty() || other.ip.is_empty() || self.ip == other.ip;
        self.port == other.port && self.protocol == other.protocol && same_ip
    }
}

fn host_ports(pod: &Pod) -> BTreeSet<HostPort> {
    let ports = spec::containers(pod).flat_map(|(_, container)| container.ports.iter().flatten());
    let wanted = ports.filter_map(|port| {
        let number = port.host_port.filter(|number| *number > 0)?;
        let ip = port
            .host_ip
            .clone()
            .filter(|ip| ip != "0.0.0.0" && ip != "::")
            .unwrap_or_default();
        Some(HostPort {
            port: number,
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            ip,
        })
    });
    wanted.collect()
}

fn selected(spec: &PodSpec, host: &Host) -> bool {
    let mut selector = spec.node_selector.iter().flatten();
    if !selector.all(|(key, value)| host.labels.get(key) == Some(value)) {
        return false;
    }
    let affinity = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    required.is_none_or(|required| {
        let terms = &required.node_selector_terms;
        terms.iter().any(|term| term_matches(term, &host.name, &host.labels))
    })
}

/// Whether a term selects a node.
pub(crate) fn term_matches(term: &NodeSelectorTerm, name: &str, own_labels: &BTreeMap<String, String>) -> bool {
    let labels = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    // A term that asks for nothing selects nothing.
    if labels.is_empty() && fields.is_empty() {
        return false;
    }
    let own = BTreeMap::from([("metadata.name".to_owned(), name.to_owned())]);
    labels.iter().all(|wanted| holds(wanted, own_labels)) && fields.iter().all(|wanted| holds(wanted, &own))
}

/// Whether a selector selects labels; an empty one does.
pub(crate) fn labels_match(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let pairs = selector.match_labels.iter().flatten();
    let rules = selector.match_expressions.iter().flatten();
    pairs.into_iter().all(|(key, value)| labels.get(key) == Some(value))
        && rules
            .into_iter()
            .all(|rule| compares(&rule.key, &rule.operator, rule.values.as_deref(), labels))
}

fn holds(wanted: &NodeSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    compares(&wanted.key, &wanted.operator, wanted.values.as_deref(), labels)
}

/// What selectors of nodes and of labels have in common; the former compare numbers as well.
fn compares(key: &str, operator: &str, values: Option<&[String]>, labels: &BTreeMap<String, String>) -> bool {
    let value = labels.get(key);
    let values = values.unwrap_or_default();
    let numbers = || {
        let own: i64 = value?.parse().ok()?;
        let other: i64 = values.first()?.parse().ok()?;
        Some((own, other))
    };
    match operator {
        "In" => value.is_some_and(|value| values.contains(value)),
        "NotIn" => value.is_none_or(|value| !values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(own, other)| own > other),
        "Lt" => numbers().is_some_and(|(own, other)| own < other),
        _ => false,
    }
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let effect = given(&toleration.effect).is_none_or(|effect| effect == taint.effect);
    let key = given(&toleration.key).is_none_or(|key| key == taint.key);
    let value = match toleration.operator.as_deref() {
        Some("Exists") => true,
        _ => toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default(),
    };
    effect && key && value
}
