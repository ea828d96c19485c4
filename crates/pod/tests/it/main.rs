//! Statuses and patches before a real API server, written as the node itself.

// The real parts are built for Linux.
#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "the exemption of tests does not reach the functions they share"
)]

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use russet_cluster::control_plane::{Durability, Options};
use russet_cluster::{ControlPlane, Supervisor, kubeconfig};
use russet_parts::{Bars, Manifest, Store};
use russet_pod::facts::{Ending, Exit, PodFacts, reasons};
use russet_pod::status::{patch, status};
use serde_json::{Value, json};
use std::time::Duration;

const NODE: &str = "mac1";
const PATIENCE: Duration = Duration::from_mins(2);

/// A Pod whose node is us.
struct Stage {
    pods: Api<Pod>,
    as_node: Api<Pod>,
    name: &'static str,
    facts: PodFacts,
    now: Timestamp,
}

impl Stage {
    async fn new(admin: &Client, node: &Client, name: &'static str, spec: Value) -> Self {
        let stage = Self {
            pods: Api::default_namespaced(admin.clone()),
            as_node: Api::default_namespaced(node.clone()),
            name,
            facts: PodFacts::default(),
            now: Timestamp::from_second(1_800_000_000).unwrap(),
        };
        let mut pod: Pod = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
        pod.spec.as_mut().unwrap().node_name = Some(NODE.to_owned());
        pod.spec.as_mut().unwrap().automount_service_account_token = Some(false);
        stage.pods.create(&PostParams::default(), &pod).await.unwrap();
        stage
    }

    fn exit(&self, code: i32) -> Exit {
        Exit::with_code(code, self.now)
    }

    fn run(&mut self, container: &str) {
        let known = self.facts.container_mut(container);
        known.begun(self.now);
        known.running(format!("tart://{container}"), self.now);
    }

    /// Writes what has changed, and sees that the API server has understood it: then there is nothing left to write.
    async fn publish(&mut self) -> Pod {
        self.now += Duration::from_secs(1);
        let pod = self.pods.get(self.name).await.unwrap();
        let uid = pod.metadata.uid.clone().unwrap();
        let new = status(&pod, &self.facts, self.now);
        let change = patch(&uid, pod.status.as_ref(), &new).unwrap_or_else(|| panic!("nothing to say: {new:#?}"));
        self.write(&change).await;
        let stored = self.pods.get(self.name).await.unwrap();
        let again = status(&stored, &self.facts, self.now);
        let left = patch(&uid, stored.status.as_ref(), &again);
        // A failed pull alone is told in two steps.
        let two_steps = format!("{again:?}").contains(reasons::PULL_BACK_OFF);
        assert!(left.is_none() || two_steps, "after {change:#} there is still {left:#?}");
        stored
    }

    /// The node may write to a Pod once the authorizer has heard that it was bound here, which takes a moment.
    async fn write(&self, change: &Value) {
        let write = async {
            loop {
                let change = Patch::Strategic(change);
                match self
                    .as_node
                    .patch_status(self.name, &PatchParams::default(), &change)
                    .await
                {
                    Ok(_) => return,
                    Err(kube::Error::Api(refusal)) if refusal.code == 403 => {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                    Err(error) => panic!("{change:?}: {error}"),
                }
            }
        };
        tokio::time::timeout(PATIENCE, write).await.unwrap();
    }
}

/// Status of a condition, if it is there.
fn condition(pod: &Pod, kind: &str) -> Option<(String, Option<String>)> {
    let mut all = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let found = all.find(|condition| condition.type_ == kind)?;
    Some((found.status.clone(), found.reason.clone()))
}

fn phase(pod: &Pod) -> String {
    pod.status.as_ref().unwrap().phase.clone().unwrap_or_default()
}

fn waiting(pod: &Pod, container: &str) -> String {
    let status = pod.status.as_ref().unwrap();
    let lists = [&status.init_container_statuses, &status.container_statuses];
    let mut all = lists.into_iter().flatten().flatten();
    let found = all.find(|status| status.name == container).unwrap();
    found
        .state
        .as_ref()
        .unwrap()
        .waiting
        .as_ref()
        .unwrap()
        .reason
        .clone()
        .unwrap()
}

async fn from_first_to_last(admin: &Client, node: &Client) {
    let probe = json!({"tcpSocket": {"port": 1}});
    let resources = json!({"requests": {"cpu": "500m", "memory": "1024Mi"}, "limits": {"memory": "2048Mi"}});
    let mut stage = Stage::new(
        admin,
        node,
        "whole",
        json!({
            "restartPolicy": "Never",
            "initContainers": [{"name": "i", "image": "x"}, {"name": "s", "image": "x", "restartPolicy": "Always"}],
            "containers": [{"name": "a", "image": "x", "readinessProbe": probe, "resources": resources}],
        }),
    )
    .await;
    stage.facts.started = Some(stage.now);
    stage.facts.host_ips = vec!["10.0.0.1".parse().unwrap()];
    let pod = stage.publish().await;
    assert_eq!(
        (phase(&pod), waiting(&pod, "i"), waiting(&pod, "a")),
        ("Pending".into(), "PodInitializing".into(), "PodInitializing".into())
    );
    stage.facts.prepared = true;
    assert_eq!(
        condition(&stage.publish().await, "PodReadyToStartContainers")
            .unwrap()
            .0,
        "True"
    );
    let retry = stage.now;
    stage.facts.container_mut("i").stuck(reasons::ERR_PULL, "denied", retry);
    assert_eq!(waiting(&stage.publish().await, "i"), "ErrImagePull");
    assert_eq!(waiting(&stage.publish().await, "i"), "ImagePullBackOff");
    stage.run("i");
    stage.publish().await;
    let exit = stage.exit(0);
    stage.facts.container_mut("i").exited(exit);
    stage.publish().await;
    stage.run("s");
    assert_eq!(condition(&stage.publish().await, "Initialized").unwrap().0, "True");
    stage.run("a");
    stage.facts.pod_ips = vec!["192.168.64.2".parse().unwrap()];
    let pod = stage.publish().await;
    assert_eq!(
        (phase(&pod), condition(&pod, "Ready").unwrap().0),
        ("Running".into(), "False".into())
    );
    stage.facts.container_mut("a").readiness_passed = true;
    let found = condition(&stage.publish().await, "Ready").unwrap();
    assert_eq!(found, ("True".into(), None));
    stage.facts.pod_ips = vec!["192.168.64.3".parse().unwrap()];
    let addresses = stage.publish().await.status.unwrap().pod_ips.unwrap();
    let found = addresses.iter().map(|ip| ip.ip.as_str()).collect::<Vec<_>>();
    assert_eq!(found, ["192.168.64.3"]);
    stage.facts.ending = Some(Ending::evicted(
        "The node was low on resource: ephemeral-storage. ",
        Duration::ZERO,
        stage.now,
    ));
    let pod = stage.publish().await;
    assert_eq!(
        (phase(&pod), condition(&pod, "DisruptionTarget").unwrap().0),
        ("Running".into(), "True".into())
    );
    for name in ["a", "s"] {
        let exit = stage.exit(137);
        stage.facts.container_mut(name).exited(exit);
    }
    let pod = stage.publish().await;
    assert_eq!(
        (phase(&pod), pod.status.as_ref().unwrap().reason.as_deref()),
        ("Failed".into(), Some("Evicted"))
    );
    let found = condition(&pod, "Ready").unwrap();
    assert_eq!(found, ("False".into(), Some("PodFailed".into())));
}

async fn through_restart_and_resize(admin: &Client, node: &Client) {
    let requests = |cpu: &str| json!({"name": "a", "image": "x", "resources": {"requests": {"cpu": cpu}}});
    let mut stage = Stage::new(admin, node, "again", json!({"containers": [requests("1")]})).await;
    stage.facts.started = Some(stage.now);
    stage.facts.prepared = true;
    stage.run("a");
    stage.publish().await;
    let exit = stage.exit(1);
    stage.facts.container_mut("a").exited(exit);
    stage.publish().await;
    stage.run("a");
    let pod = stage.publish().await;
    assert_eq!(
        (
            phase(&pod),
            pod.status.unwrap().container_statuses.unwrap()[0].restart_count
        ),
        ("Running".into(), 1)
    );

    let resize = Patch::Strategic(json!({"spec": {"containers": [requests("2")]}}));
    stage
        .pods
        .patch_subresource("resize", "again", &PatchParams::default(), &resize)
        .await
        .unwrap();
    let pod = stage.publish().await;
    let found = condition(&pod, "PodResizePending").unwrap();
    assert_eq!(found, ("True".into(), Some("Infeasible".into())));
    let exit = stage.exit(1);
    stage.facts.container_mut("a").exited(exit);
    stage.now += Duration::from_secs(1);
    assert_eq!(waiting(&stage.publish().await, "a"), "CrashLoopBackOff");
    stage.run("a");
    let pod = stage.publish().await;
    assert_eq!(condition(&pod, "PodResizePending"), None, "the new VM has the new size");
    let given = pod.status.unwrap().container_statuses.unwrap()[0]
        .allocated_resources
        .clone()
        .unwrap();
    assert_eq!(given["cpu"].0, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_api_server_understands_every_status_a_pod_goes_through() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(Manifest::embedded(), russet_parts::Options::from_env());
    let tools = store.ensure(&["etcd", "kube-apiserver"], &Bars::lines()).await.unwrap();
    let supervisor = Supervisor::new(dir.path());
    let options = Options {
        durability: Durability::Throwaway,
        ..Options::new(dir.path().join("cluster"))
    };
    let plane = ControlPlane::start(&tools, &supervisor, options).await.unwrap();
    let admin = plane.client().await.unwrap();
    let identity = plane
        .pki()
        .client("node", &format!("system:node:{NODE}"), Some("system:nodes"))
        .unwrap();
    let config = dir.path().join("node.kubeconfig");
    let config = kubeconfig::for_client_cert(plane.server(), plane.ca_pem(), &identity, &config).unwrap();
    let node = kubeconfig::client(&config).await.unwrap();

    let nodes: Api<Node> = Api::all(admin.clone());
    let object: Node = serde_json::from_value(json!({"metadata": {"name": NODE}})).unwrap();
    nodes.create(&PostParams::default(), &object).await.unwrap();
    // Nobody makes it here, since no controller manager runs.
    let accounts: Api<ServiceAccount> = Api::default_namespaced(admin.clone());
    let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();

    from_first_to_last(&admin, &node).await;
    through_restart_and_resize(&admin, &node).await;
    supervisor.shutdown().await;
}
