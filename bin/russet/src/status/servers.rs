//! The Linux cache nodes of the cluster: machines of two kinds, and their Nodes.

use super::cluster::is_ready;
use super::document::{Kind, Server};
use super::fleet::trouble;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Client, ResourceExt};
use russet_api::conditions::Condition;
use serde_json::Value;
use std::collections::HashMap;

/// By which Nodes without machines tell themselves apart.
const SYNTHETIC: &str = "sim.russet.dev/synthetic";

const KINDS: [(&str, Kind); 2] = [
    ("ScalewayElasticMetalMachine", Kind::ElasticMetal),
    ("ScalewayInstanceMachine", Kind::Instance),
];

/// What the machines of a template are.
pub(super) fn kind_of(machine: &str) -> Kind {
    let named = |(name, _): &&(&str, Kind)| machine.strip_suffix("Template").unwrap_or(machine) == *name;
    KINDS.iter().find(named).map_or(Kind::Mac, |(_, kind)| *kind)
}

/// All of them; none where their kinds are not served or may not be read.
pub(super) async fn ask(client: &Client) -> Vec<Server> {
    let list = async |(name, kind): (&str, Kind)| {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(
            "infrastructure.cluster.x-k8s.io",
            "v1alpha1",
            name,
        ));
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let found = api.list(&ListParams::default()).await;
        let items = found.map(|list| list.items).unwrap_or_default();
        items
            .into_iter()
            .map(move |machine| (kind, machine))
            .collect::<Vec<_>>()
    };
    let [metal, instance] = KINDS;
    let nodes: Api<Node> = Api::all(client.clone());
    let nothing = ListParams::default();
    let (metals, instances, nodes) = tokio::join!(list(metal), list(instance), nodes.list(&nothing));
    let nodes: HashMap<String, Node> = nodes
        .map(|list| list.items)
        .unwrap_or_default()
        .into_iter()
        .map(|node| (node.name_any(), node))
        .collect();
    let machines = metals.iter().chain(&instances);
    let mut servers: Vec<Server> = machines
        .map(|(kind, machine)| server(*kind, machine, nodes.get(&machine.name_any())))
        .collect();
    servers.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    servers
}

fn server(kind: Kind, machine: &DynamicObject, node: Option<&Node>) -> Server {
    let text = |pointer: &str| {
        let value = machine.data.pointer(pointer).and_then(Value::as_str);
        value.map(str::to_owned)
    };
    let address = |wanted: &str| {
        let all = machine.data.pointer("/status/addresses")?.as_array()?;
        let found = all
            .iter()
            .find(|address| address.get("type").and_then(Value::as_str) == Some(wanted))?;
        found.get("address").and_then(Value::as_str).map(str::to_owned)
    };
    let conditions = machine.data.pointer("/status/conditions").cloned().unwrap_or_default();
    let conditions: Vec<Condition> = serde_json::from_value(conditions).unwrap_or_default();
    let label = |name: &str| node.and_then(|node| node.labels().get(name).cloned());
    Server {
        name: machine.name_any(),
        namespace: machine.namespace().unwrap_or_default(),
        kind,
        fleet: text("/spec/fleetName"),
        zone: text("/spec/zone"),
        phase: text("/status/phase").unwrap_or_else(|| "Pending".to_owned()),
        server_id: text("/status/serverID"),
        private_address: label(russet_api::labels::PN_IPV4),
        public_address: address("ExternalIP"),
        ready: machine
            .data
            .pointer("/status/ready")
            .and_then(Value::as_bool)
            .unwrap_or(false),
        node_ready: node.is_some_and(is_ready),
        synthetic: label(SYNTHETIC).is_some(),
        per_hour_micro_eur: None,
        message: trouble(&conditions),
        created_at: machine
            .creation_timestamp()
            .and_then(|time| Timestamp::from_second(time.0.as_second()).ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn machine(status: &Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "ScalewayInstanceMachine",
            "metadata": {"name": "cache-1", "namespace": "fleet"},
            "spec": {"fleetName": "kura-fleet", "zone": "fr-par-1"},
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_cache_node_is_dialled_where_its_node_says() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "cache-1", "labels": {"tuist.dev/pn-ipv4": "172.28.0.2", SYNTHETIC: "true"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap();
        let status = json!({"phase": "Ready", "ready": true, "serverID": "s", "addresses": [
            {"type": "InternalIP", "address": "172.28.0.2"}, {"type": "ExternalIP", "address": "10.77.1.194"},
        ]});
        let server = server(Kind::Instance, &machine(&status), Some(&node));
        assert_eq!(server.private_address.as_deref(), Some("172.28.0.2"));
        assert_eq!(server.public_address.as_deref(), Some("10.77.1.194"));
        assert!(server.ready && server.node_ready && server.synthetic);
    }

    #[test]
    fn a_cache_node_without_a_node_says_what_it_waits_for() {
        let status = json!({"conditions": [{
            "type": "Provisioned", "status": "False", "reason": "OutOfStock", "message": "no PRO2-S is left",
            "lastTransitionTime": "2026-03-01T10:00:00Z",
        }]});
        let server = server(Kind::Instance, &machine(&status), None);
        assert_eq!(server.message.as_deref(), Some("no PRO2-S is left"));
        assert_eq!((server.phase.as_str(), server.node_ready), ("Pending", false));
    }

    #[test]
    fn a_deployment_is_of_the_kind_of_its_template() {
        assert_eq!(kind_of("ScalewayElasticMetalMachineTemplate"), Kind::ElasticMetal);
        assert_eq!(kind_of("ScalewayInstanceMachineTemplate"), Kind::Instance);
        assert_eq!(kind_of("ScalewayAppleSiliconMachineTemplate"), Kind::Mac);
    }
}
