//! Servers without root, against a real API server.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use russet_bootstrap::linux::{self, Data, Form, Join, KubernetesChannel, NodeAddress, PrivateNet, Taint};
use russet_cluster::control_plane::{self, Durability};
use russet_cluster::node::join;
use russet_cluster::{ControlPlane, Supervisor, kubeconfig};
use russet_parts::{Manifest, Silent, Store};
use russet_sim_linux::{CloudInit, Fleet, Row};
use russet_sim_scaleway::Id;
use russet_telemetry::Secret;

use crate::harness::PATIENCE;

#[tokio::test(flavor = "multi_thread")]
async fn without_root_user_data_makes_a_node_that_says_it_is_synthetic() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(Manifest::embedded(), russet_parts::Options::from_env());
    let wanted = ["etcd", "kube-apiserver", "kube-controller-manager"];
    let tools = store
        .ensure(&wanted, &Silent)
        .await
        .unwrap_or_else(|error| panic!("{error}"));
    let supervisor = Supervisor::new(dir.path());
    let mut options = control_plane::Options::new(dir.path().join("cluster"));
    options.durability = Durability::Throwaway;
    options.extras.controller_manager = Some(Vec::new());
    let control_plane = ControlPlane::start(&tools, &supervisor, options).await.unwrap();
    let client = control_plane.client().await.unwrap();
    let token = join::invite(&client, Timestamp::now()).await.unwrap();
    let file = dir.path().join("bootstrap-kubeconfig");
    let (server, ca) = (control_plane.server(), control_plane.ca_pem());
    kubeconfig::for_token(server, ca, "bootstrap", &token.bearer(), &file).unwrap();
    let orders = Join {
        node_name: "cache-1".to_owned(),
        provider_id: "scaleway://instance/fr-par-1/11111111-0000-4000-8000-000000000001".to_owned(),
        labels: BTreeMap::from([("node.cluster.x-k8s.io/instance-type".to_owned(), "scaleway".to_owned())]),
        taints: vec![Taint {
            key: "tuist.dev/runner-cache".to_owned(),
            value: "true".to_owned(),
            effect: "NoSchedule".to_owned(),
        }],
        bootstrap_kubeconfig: Secret::new(std::fs::read_to_string(&file).unwrap()),
        cluster_ca_pem: ca.to_owned(),
        cluster_dns: vec!["10.96.0.10".parse().unwrap()],
        cluster_domain: "cluster.local".to_owned(),
        kubernetes: KubernetesChannel::v1(35),
        private_network: PrivateNet::None,
        node_address: NodeAddress::DefaultRoute,
        data: Data::None,
        form: Form::CloudInit,
    };
    let mut row = Row {
        public_ip: Some("127.78.0.1".parse().unwrap()),
        user_data: Some(linux::cloud_init(&linux::render(&orders).unwrap()).expose().clone()),
        ..Row::instance(Id::named("cache-1"), "cache-1")
    };
    let fleet = Fleet::synthetic_in(dir.path()).unwrap();
    fleet.apply(row.clone()).await;
    assert_eq!(joined(&fleet, &row).await, CloudInit::Done);

    let nodes: Api<Node> = Api::all(client);
    let node = nodes.get("cache-1").await.unwrap();
    let (labels, spec, status) = (node.metadata.labels.unwrap(), node.spec.unwrap(), node.status.unwrap());
    assert_eq!(labels["sim.russet.dev/synthetic"], "true");
    assert_eq!(labels["node.cluster.x-k8s.io/instance-type"], "scaleway");
    assert_eq!(spec.provider_id.as_deref(), Some(orders.provider_id.as_str()));
    assert!(
        spec.taints
            .unwrap()
            .iter()
            .any(|taint| taint.key == "tuist.dev/runner-cache")
    );
    let conditions = status.conditions.unwrap();
    for kind in ["Ready", "Synthetic"] {
        let found = conditions.iter().find(|condition| condition.type_ == kind);
        assert!(
            found.is_some_and(|condition| condition.status == "True"),
            "{kind}: {conditions:?}"
        );
    }

    // It remembers who it is, and needs neither the token nor the user data again.
    row.boots += 1;
    row.user_data = None;
    join::revoke(&control_plane.client().await.unwrap(), &token).await;
    fleet.apply(row.clone()).await;
    assert_eq!(joined(&fleet, &row).await, CloudInit::Nothing);
    let boot = boot_of(&nodes).await;
    assert_ne!(
        boot,
        status.node_info.unwrap().boot_id,
        "the Node was told of the reboot"
    );

    drop(fleet);
    row.boots += 1;
    another_emulator_goes_on(dir.path(), &row, &nodes, &boot).await;
    supervisor.shutdown().await;
}

/// A Node is not forgotten with its emulator: the next one goes on from a note, which nobody else may read.
async fn another_emulator_goes_on(dir: &Path, row: &Row, nodes: &Api<Node>, boot: &str) {
    let kept = || -> Vec<std::fs::DirEntry> {
        let folder = std::fs::read_dir(dir.join("synthetic")).unwrap();
        folder.map(Result::unwrap).collect()
    };
    assert_eq!(kept()[0].metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let fleet = Fleet::synthetic_in(dir).unwrap();
    fleet.apply(row.clone()).await;
    assert_eq!(joined(&fleet, row).await, CloudInit::Nothing);
    assert_ne!(boot_of(nodes).await, boot, "the Node was told by the next emulator");
    fleet.remove(&row.server_id).await;
    assert!(kept().is_empty(), "a server that was given up leaves no key");
}

async fn boot_of(nodes: &Api<Node>) -> String {
    let status = nodes.get("cache-1").await.unwrap().status.unwrap();
    status.node_info.unwrap().boot_id
}

async fn joined(fleet: &Fleet, row: &Row) -> CloudInit {
    let mut states = fleet.watch(&row.server_id).await.unwrap();
    let waited = tokio::time::timeout(PATIENCE, states.wait_for(|state| state.cloud_init.is_some())).await;
    let state = waited
        .unwrap_or_else(|_| panic!("the node did not join"))
        .unwrap()
        .clone();
    state.cloud_init.unwrap()
}
