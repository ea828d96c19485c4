//! A role written by hand for kubelets forgot leases, services, claims and CSI, one after the other.

use anyhow::{Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, VolumeAttachment};
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use russet_cluster::kubeconfig;
use russet_cluster::pki::Profile;
use serde_json::json;

use super::refused;
use crate::TestCluster;
use crate::identity::rule;
use crate::scenarios::{Narrator, Play, Scenario, Stage};
use crate::wait::{self, Look, PATIENCE};

pub(in crate::scenarios) const SCENARIO: Scenario = Scenario {
    name: "kubelet-rbac",
    from: "S4",
    what_happened: "the identity of nodes lacked leases, services, claims, volumes and CSI, found one outage at a time",
    must_hold: "a node is system:node:<name> in system:nodes: it may do all a kubelet needs, for its own Pods only",
    play: Play::Cluster(run),
};

const NODE: &str = "cache-1";
const LEASES: &str = "kube-node-lease";

fn run<'a>(stage: &'a mut Stage<'_, TestCluster>) -> BoxFuture<'a, Result<()>> {
    async move {
        let Stage {
            world: cluster,
            narrator,
        } = stage;
        let namespace = naive(cluster, &mut **narrator).await?;
        ours(cluster, &mut **narrator, &namespace).await
    }
    .boxed()
}

/// The account with a role of its own; where it was.
async fn naive(cluster: &TestCluster, narrator: &mut dyn Narrator) -> Result<String> {
    narrator.step("a ServiceAccount whose role grants what comes to mind: Nodes and Pods");
    let sandbox = cluster.sandbox("kubelet").await?;
    let verbs = ["get", "list", "watch", "create", "update", "patch"];
    let rules = vec![rule("", &["nodes", "nodes/status", "pods", "pods/status"], &verbs)];
    let granted = sandbox.identity("kubelet").everywhere(rules).grant().await?;
    let client = kubeconfig::client(&granted.kubeconfig).await?;
    let all = ListParams::default();
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASES);
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), sandbox.namespace());
    let missing = [
        refused(leases.create(&PostParams::default(), &lease()?).await)?,
        refused(Api::<Service>::all(client.clone()).list(&all).await)?,
        refused(claims.get("data").await)?,
        refused(Api::<PersistentVolume>::all(client.clone()).get("data").await)?,
        refused(Api::<CSIDriver>::all(client.clone()).list(&all).await)?,
        refused(Api::<VolumeAttachment>::all(client.clone()).get("data").await)?,
    ];
    for message in &missing {
        narrator.bites(message);
    }
    Ok(sandbox.namespace().to_owned())
}

fn lease() -> Result<Lease> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": NODE, "namespace": LEASES}, "spec": {"holderIdentity": NODE},
    }))?)
}

async fn ours(cluster: &TestCluster, narrator: &mut dyn Narrator, namespace: &str) -> Result<()> {
    narrator.step("the identity that our nodes get for their token: a certificate, judged by the Node authorizer");
    let control_plane = cluster.control_plane();
    let profile = Profile::client(format!("system:node:{NODE}"), Some("system:nodes"));
    let pair = control_plane.pki().pair_in(cluster.dir(), "story-node", &profile)?;
    let (server, ca) = (control_plane.server(), control_plane.ca_pem());
    let file = kubeconfig::for_client_cert(server, ca, &pair, &cluster.dir().join("story-node.kubeconfig"))?;
    let client = kubeconfig::client(&file).await?;
    let (all, post) = (ListParams::default(), PostParams::default());
    let node: Node = serde_json::from_value(json!({"metadata": {"name": NODE}}))?;
    Api::all(client.clone()).create(&post, &node).await?;
    Api::namespaced(client.clone(), LEASES).create(&post, &lease()?).await?;
    Api::<Service>::all(client.clone()).list(&all).await?;
    Api::<CSIDriver>::all(client.clone()).list(&all).await?;
    let plugins: CSINode = serde_json::from_value(json!({"metadata": {"name": NODE}, "spec": {"drivers": []}}))?;
    Api::all(client.clone()).create(&post, &plugins).await?;
    narrator.holds("it registers, keeps its lease, and reads Services and CSI drivers");

    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let why = refused(claims.get("data").await)?;
    narrator.holds(&format!(
        "of claims it knows nothing while no Pod of its own has one: {why}"
    ));
    bound(&cluster.client().await?, namespace).await?;
    wait::until("the claim and the volume of its own Pod", PATIENCE, || async {
        claims.get("data").await?;
        volumes.get("story-data").await?;
        Ok(Look::Done(()))
    })
    .await?;
    narrator.holds("once a Pod with a volume is on it, it reads that claim and that volume");
    let other: Node = serde_json::from_value(json!({"metadata": {"name": "cache-2"}}))?;
    let answer = Api::<Node>::all(client).create(&post, &other).await;
    ensure!(refused(answer).is_ok(), "it can be another node");
    narrator.holds("and it can be no other node");
    Ok(())
}

/// A Pod on the node, with a claim that is bound.
async fn bound(admin: &Client, namespace: &str) -> Result<()> {
    let post = PostParams::default();
    let (size, modes) = (json!({"storage": "1Mi"}), json!(["ReadWriteOnce"]));
    let volume: PersistentVolume = serde_json::from_value(json!({
        "metadata": {"name": "story-data"},
        "spec": {
            "capacity": size, "accessModes": modes, "storageClassName": "none", "hostPath": {"path": "/nowhere"},
            "claimRef": {"namespace": namespace, "name": "data"},
        },
    }))?;
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": modes, "storageClassName": "none", "volumeName": "story-data", "resources": {"requests": size},
        },
    }))?;
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "cache"},
        "spec": {
            "nodeName": NODE, "automountServiceAccountToken": false, "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "cache", "image": "cache"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    }))?;
    Api::all(admin.clone()).create(&post, &volume).await?;
    Api::namespaced(admin.clone(), namespace).create(&post, &claim).await?;
    let pods: Api<Pod> = Api::namespaced(admin.clone(), namespace);
    wait::until("the Pod to be admitted", PATIENCE, || async {
        pods.create(&post, &pod).await?;
        Ok(Look::Done(()))
    })
    .await
}
