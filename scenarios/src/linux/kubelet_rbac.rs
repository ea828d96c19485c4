//! A role written by hand for kubelets forgot leases, services, claims and CSI, one after the other.

use anyhow::{Context as _, Result, anyhow, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt as _};
use russet_api::ScalewayInstanceMachine;
use russet_stages::macs::{Fleet, Yard};
use russet_telemetry::Secret;
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::json;

use super::{CACHE, LONG, gone, instances, is_linked, machines, refused};
use crate::{Play, Scenario, Stage, promise};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "kubelet-rbac",
    from: "S4",
    what_happened: "the identity of nodes lacked leases, services, claims, volumes and CSI, found one outage at a time",
    must_hold: "by its token a server becomes system:node:<name> in system:nodes for its own machine and for no other, which may do all a \
                kubelet needs, for its own Pods only",
    without: Some(include_str!("kubelet_rbac.without.patch")),
    play: Play::Fleet(run),
};

const LEASES: &str = "kube-node-lease";

fn lease(node: &str) -> Result<Lease> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": node, "namespace": LEASES}, "spec": {"holderIdentity": node},
    }))?)
}

/// The machines of a yard, once each has its server.
async fn both(yard: &Yard<'_>) -> Result<(ScalewayInstanceMachine, ScalewayInstanceMachine)> {
    wait::until("two machines to have their servers", LONG, || async {
        let all = machines(yard).list(&ListParams::default()).await?.items;
        let mut linked = all.iter().filter(|machine| is_linked(machine)).cloned();
        Ok(match (linked.next(), linked.next()) {
            (Some(one), Some(other)) => Look::Done((one, other)),
            _ => Look::not_yet(json!(all)),
        })
    })
    .await
}

/// What the server of a machine is given to start with.
fn user_data(yard: &Yard<'_>, machine: &ScalewayInstanceMachine) -> Result<Secret<String>> {
    let id = machine.spec.provider_id.clone().unwrap_or_default();
    let mut rows = yard.fleet.sim.handle().boxes().into_iter();
    let row = rows.find(|row| id.ends_with(row.server_id.as_str()));
    let user_data = row.and_then(|row| row.user_data);
    Ok(Secret::new(user_data.context("the server has no user data")?))
}

fn run<'a>(stage: &'a mut Stage<'_, Fleet>) -> BoxFuture<'a, Result<()>> {
    async move {
        let Stage { world: fleet, narrator } = stage;
        narrator.step("two Instances, whose tokens are in what they are given to start with");
        let volumes_before = fleet.sim.handle().volumes().len();
        let yard = fleet.yard("identity", 0).await?;
        let namespace = yard.namespace.as_str();
        instances(&yard).await?;
        yard.scale(CACHE, 2).await?;
        let (machine, other) = both(&yard).await?;
        let (name, other) = (machine.name_any(), other.name_any());
        let given = user_data(&yard, &machine)?;

        let asked = russet_sim_linux::another_nodes_client(&given, &other);
        let asked = tokio::time::timeout(PATIENCE, asked).await;
        let answer = asked.context("the request for the other node is not decided")?;
        promise!(
            "no-other-node",
            answer.is_err(),
            "with its token {name} got a certificate of {other}"
        );
        let why = answer.err().map(|error| error.to_string()).unwrap_or_default();
        ensure!(why.contains("Denied"), "refused for another reason: {why}");
        narrator.holds(&format!("{name} is denied a certificate of {other}"));

        let client = tokio::time::timeout(PATIENCE, russet_sim_linux::node_client(&given))
            .await
            .context("the provider does not grant the certificate")?
            .map_err(|error| anyhow!(error))?;
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
        narrator.holds("with its own it registers, keeps its lease, and reads Services and CSI drivers");

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
        let another: Node = serde_json::from_value(json!({"metadata": {"name": "another"}}))?;
        refused(Api::<Node>::all(client).create(&post, &another).await)?;
        narrator.holds("and it can be no other node");
        // No kubelet ends it.
        let pods: Api<Pod> = Api::namespaced(yard.client.clone(), namespace);
        pods.delete("cache", &DeleteParams::default().grace_period(0)).await?;
        gone(&yard, volumes_before).await
    }
    .boxed()
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
