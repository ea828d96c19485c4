//! A role written by hand for kubelets forgot leases, services, claims and CSI, one after the other.
//!
//! Without the Node authorizer it ends with a 403 on the Node itself, without `NodeRestriction` with a node that can be another, and
//! without the approval of signing requests with nobody who grants the certificate.

use anyhow::{Context as _, Result, anyhow, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, VolumeAttachment};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt as _};
use russet_api::ScalewayInstanceMachine;
use russet_cluster::kubeconfig;
use russet_stages::macs::{Fleet, Yard};
use russet_telemetry::Secret;
use russet_testkit::TestCluster;
use russet_testkit::identity::rule;
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::json;

use super::{gone, instances, is_linked, refused, until};
use crate::{Narrator, Play, Scenario, Stage};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "kubelet-rbac",
    from: "S4",
    what_happened: "the identity of nodes lacked leases, services, claims, volumes and CSI, found one outage at a time",
    must_hold: "a node is system:node:<name> in system:nodes: it may do all a kubelet needs, for its own Pods only",
    without: None,
    play: Play::Fleet(run),
};

const LEASES: &str = "kube-node-lease";

fn run<'a>(stage: &'a mut Stage<'_, Fleet>) -> BoxFuture<'a, Result<()>> {
    async move {
        let Stage { world: fleet, narrator } = stage;
        naive(&fleet.cluster, &mut **narrator).await?;
        ours(fleet, &mut **narrator).await
    }
    .boxed()
}

async fn naive(cluster: &TestCluster, narrator: &mut dyn Narrator) -> Result<()> {
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
        refused(leases.create(&PostParams::default(), &lease("cache-1")?).await)?,
        refused(Api::<Service>::all(client.clone()).list(&all).await)?,
        refused(claims.get("data").await)?,
        refused(Api::<PersistentVolume>::all(client.clone()).get("data").await)?,
        refused(Api::<CSIDriver>::all(client.clone()).list(&all).await)?,
        refused(Api::<VolumeAttachment>::all(client.clone()).get("data").await)?,
    ];
    for message in &missing {
        narrator.bites(message);
    }
    Ok(())
}

fn lease(node: &str) -> Result<Lease> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": node, "namespace": LEASES}, "spec": {"holderIdentity": node},
    }))?)
}

/// A server of ours on paper, and who it is to the cluster once it has used the token in its user data.
async fn joined(yard: &Yard<'_>) -> Result<(ScalewayInstanceMachine, Client)> {
    instances(yard).await?;
    let machine = until(yard, "the machine to have its server", is_linked).await?;
    let id = machine.spec.provider_id.clone().unwrap_or_default();
    let mut rows = yard.fleet.sim.handle().boxes().into_iter();
    let row = rows.find(|row| id.ends_with(row.server_id.as_str()));
    let user_data = row
        .and_then(|row| row.user_data)
        .context("the server has no user data")?;
    let user_data = Secret::new(user_data);
    let client = tokio::time::timeout(PATIENCE, russet_sim_linux::node_client(&user_data))
        .await
        .context("nobody granted the certificate")?
        .map_err(|error| anyhow!(error))?;
    Ok((machine, client))
}

async fn ours(fleet: &Fleet, narrator: &mut dyn Narrator) -> Result<()> {
    narrator
        .step("an Instance of ours, which asks for a certificate with its token and is judged by the Node authorizer");
    let volumes_before = fleet.sim.handle().volumes().len();
    let yard = fleet.yard("identity", 0).await?;
    let namespace = yard.namespace.as_str();
    let (machine, client) = joined(&yard).await?;
    let name = machine.name_any();
    let (all, post) = (ListParams::default(), PostParams::default());
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": name}, "spec": {"providerID": machine.spec.provider_id},
    }))?;
    Api::all(client.clone()).create(&post, &node).await?;
    Api::namespaced(client.clone(), LEASES)
        .create(&post, &lease(&name)?)
        .await?;
    Api::<Service>::all(client.clone()).list(&all).await?;
    Api::<CSIDriver>::all(client.clone()).list(&all).await?;
    let plugins: CSINode = serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"drivers": []}}))?;
    Api::all(client.clone()).create(&post, &plugins).await?;
    narrator.holds("it registers, keeps its lease, and reads Services and CSI drivers");

    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let why = refused(claims.get("data").await)?;
    narrator.holds(&format!(
        "of claims it knows nothing while no Pod of its own has one: {why}"
    ));
    bound(&yard.client, namespace, &name).await?;
    wait::until("the claim and the volume of its own Pod", PATIENCE, || async {
        claims.get("data").await?;
        volumes.get("story-data").await?;
        Ok(Look::Done(()))
    })
    .await?;
    narrator.holds("once a Pod with a volume is on it, it reads that claim and that volume");
    let other: Node = serde_json::from_value(json!({"metadata": {"name": "another"}}))?;
    let answer = Api::<Node>::all(client).create(&post, &other).await;
    ensure!(refused(answer).is_ok(), "it can be another node");
    narrator.holds("and it can be no other node");
    // No kubelet ends it.
    let pods: Api<Pod> = Api::namespaced(yard.client.clone(), namespace);
    pods.delete("cache", &DeleteParams::default().grace_period(0)).await?;
    gone(&yard, volumes_before).await
}

/// A Pod on the node, with a claim that is bound.
async fn bound(admin: &Client, namespace: &str, node: &str) -> Result<()> {
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
            "nodeName": node, "automountServiceAccountToken": false, "tolerations": [{"operator": "Exists"}],
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
