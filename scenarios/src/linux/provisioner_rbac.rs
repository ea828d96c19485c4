//! Proves a part, the chart's rights for another project's program: the provisioner makes a Pod for every volume, and was not allowed to.
//!
//! Without `create` and `delete` of Pods in the chart's Role it ends with a claim that stays Pending.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use russet_stages::linux::{STORAGE, provisioner, provisioner_kubeconfig, start_provisioner, user};
use russet_stages::macs::{Fleet, Yard};
use russet_testkit::identity::rule;
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::json;

use super::paper_node;
use crate::{FLEET_ARGS, Play, Scenario, Stage};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "provisioner-rbac",
    from: "S4",
    what_happened: "local-path may not create Pods in a role copied from other provisioners, and every claim stayed Pending",
    must_hold: "the real provisioner binds a claim under exactly the rights of the chart, without one 403",
    without: None,
    play: Play::Own(run),
};

const NODE: &str = "cache-1";

fn run<'a>(stage: &'a mut Stage<'_, ()>) -> LocalBoxFuture<'a, Result<()>> {
    async move {
        let Stage { narrator, .. } = stage;
        narrator.step("install charts/capi-provider with Helm; a Node that exists on paper");
        let values = json!({"kuraFleet": {"enabled": true, "replicas": 0}});
        let fleet = Fleet::start_with(&FLEET_ARGS, values).await?;
        let yard = fleet.yard("volumes", 0).await?;
        paper_node(&yard.client, NODE, json!({}), json!([]), 10250).await?;

        narrator.step("the real provisioner with a role that knows volumes and claims, and no Pods");
        let naive = naive_account(&fleet).await?;
        start_provisioner(&fleet, "naive-provisioner", naive).await?;
        claim(&yard, "naive").await?;
        let said = refusal(&yard).await?;
        narrator.bites(&format!("the claim stays Pending: {said}"));
        fleet.cluster.supervisor().stop("naive-provisioner").await?;

        narrator.step("the same as the account of the chart; whoever plays the kubelet lets its helper succeed");
        let account = provisioner_kubeconfig(&fleet).await?;
        start_provisioner(&fleet, "chart-provisioner", account).await?;
        claim(&yard, "ours").await?;
        bind(&yard, "ours").await?;
        narrator.holds("the claim is bound, to a folder below the path of the chart");
        let user = user(STORAGE, &provisioner(&fleet));
        let audit = fleet.cluster.audit()?;
        let made = audit.writes_per_object(&user, "pods")?;
        ensure!(!made.is_empty(), "the provisioner made no Pod");
        let denials = audit.denials(&user)?;
        ensure!(denials.is_empty(), "denied requests: {denials:?}");
        narrator.holds("it made and removed its helper Pod, and not one request was refused");
        fleet.cluster.supervisor().stop("chart-provisioner").await?;
        Ok(())
    }
    .boxed_local()
}

/// An account with everything of the chart's but Pods.
async fn naive_account(fleet: &Fleet) -> Result<PathBuf> {
    let sandbox = fleet.cluster.sandbox("naive").await?;
    let read = ["get", "list", "watch"];
    let everywhere = vec![
        rule("", &["nodes", "persistentvolumeclaims"], &read),
        rule(
            "",
            &["persistentvolumes"],
            &["get", "list", "watch", "create", "patch", "update", "delete"],
        ),
        rule("storage.k8s.io", &["storageclasses"], &read),
        rule("", &["events"], &["create", "patch"]),
    ];
    let settings = vec![rule("", &["configmaps"], &["get"]), rule("", &["pods"], &read)];
    let identity = sandbox.identity("provisioner").everywhere(everywhere);
    let granted = identity.in_namespace(STORAGE, settings).grant().await?;
    Ok(granted.kubeconfig)
}

/// A claim that the scheduler has already given to the node.
async fn claim(yard: &Yard<'_>, name: &str) -> Result<()> {
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": {"volume.kubernetes.io/selected-node": NODE}},
        "spec": {
            "storageClassName": "scw-local-nvme", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }))?;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(yard.client.clone(), &yard.namespace);
    claims.create(&PostParams::default(), &claim).await?;
    Ok(())
}

/// What the provisioner was told when it asked for a Pod.
async fn refusal(yard: &Yard<'_>) -> Result<String> {
    let events: Api<Event> = Api::namespaced(yard.client.clone(), &yard.namespace);
    wait::until("the refusal", PATIENCE, || async {
        let all = events.list(&ListParams::default()).await?.items;
        let said: Vec<String> = all.into_iter().filter_map(|event| event.message).collect();
        let refusal = said
            .iter()
            .find(|said| said.contains("forbidden") && said.contains("pods"));
        Ok(refusal.map_or_else(|| Look::not_yet(&said), |refusal| Look::Done(refusal.clone())))
    })
    .await
}

/// Lets every helper Pod succeed, as a kubelet would, until the claim is bound.
async fn bind(yard: &Yard<'_>, name: &str) -> Result<()> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(yard.client.clone(), &yard.namespace);
    let pods: Api<Pod> = Api::namespaced(yard.client.clone(), STORAGE);
    let done = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    let bound = wait::until("the claim to be bound", PATIENCE, || async {
        for pod in pods.list(&ListParams::default()).await?.items {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            if node == Some(NODE) {
                pods.patch_status(&pod.name_any(), &PatchParams::default(), &done)
                    .await?;
            }
        }
        let claim = claims.get(name).await?;
        let phase = claim.status.and_then(|status| status.phase);
        Ok(if phase.as_deref() == Some("Bound") {
            Look::Done(claim.spec.and_then(|spec| spec.volume_name))
        } else {
            Look::not_yet(phase)
        })
    })
    .await?;
    bound.map(drop).context("a bound claim names its volume")
}
