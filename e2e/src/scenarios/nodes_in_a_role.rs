//! A Role named Nodes, which are in no namespace: it granted nothing, and the controller was refused.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use russet_cluster::kubeconfig;

use super::{Narrator, Play, Scenario, Stage};
use crate::cluster::{TestCluster, tools};
use crate::fleet::{Fleet, Yard};
use crate::identity::rule;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "nodes-in-a-role",
    from: "S4",
    what_happened: "Nodes are cluster-scoped, a Role cannot grant them, and the controller was refused",
    must_hold: "the provider adopts a Mac and gives it back under exactly the rights of its chart, without one 403",
    play: Play::Bare(run),
};

const RELEASE_NAMESPACE: &str = "russet";
const ACCOUNT: &str = "macs-capi-provider";

fn run<'a>(stage: &'a mut Stage<'_, Fleet>) -> BoxFuture<'a, Result<()>> {
    async move {
        let Stage { world: fleet, narrator } = stage;
        naive(&mut **narrator, &fleet.cluster).await?;

        narrator.step("install charts/capi-provider with Helm, and run the provider as its ServiceAccount");
        let yard = fleet.yard("rights", 1).await?;
        install(&yard).await?;
        let dest = fleet.cluster.dir().join("chart.kubeconfig");
        let control_plane = fleet.cluster.control_plane();
        kubeconfig::for_service_account(yard.client.clone(), control_plane, RELEASE_NAMESPACE, ACCOUNT, &dest).await?;
        let secrets = format!("--secrets-namespace={RELEASE_NAMESPACE}");
        let lease = format!("--leader-election-namespace={RELEASE_NAMESPACE}");
        let args = ["--leader-elect=true", &lease, &secrets];
        fleet.start_provider(&dest, &args).await?;

        narrator.step("adopt a Mac, and give it back");
        yard.running(1).await?;
        narrator.holds("a Mac is adopted, set up, and its Machine runs");
        yard.scale("macos", 0).await?;
        yard.all_pooled(1).await?;
        yard.available("macos", 0).await?;
        narrator.holds("it is wiped and back in the pool");

        let user = format!("system:serviceaccount:{RELEASE_NAMESPACE}:{ACCOUNT}");
        let audit = fleet.cluster.audit()?;
        let asked = audit.of_user(&user)?;
        ensure!(
            asked
                .iter()
                .any(|entry| entry.object().resource == "nodes" && entry.code() < 300),
            "the provider never asked for Nodes"
        );
        let denials = audit.denials(&user)?;
        ensure!(denials.is_empty(), "denied requests: {denials:?}");
        narrator.holds(&format!(
            "{} requests in the audit log, some about Nodes, and not one 403",
            asked.len()
        ));
        Ok(())
    }
    .boxed()
}

async fn naive(narrator: &mut dyn Narrator, cluster: &TestCluster) -> Result<()> {
    narrator.step("a naive chart names Nodes in a Role");
    let granted = {
        let sandbox = cluster.sandbox("naive").await?;
        let nodes = rule("", &["nodes"], &["get", "list", "watch", "patch", "delete"]);
        sandbox.identity("naive").here(vec![nodes]).grant().await?
    };
    let nodes: Api<Node> = Api::all(kubeconfig::client(&granted.kubeconfig).await?);
    match nodes.list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 403 => {
            narrator.bites(&format!(
                "it is installed without complaint and grants nothing: {}",
                status.message
            ));
            Ok(())
        }
        other => anyhow::bail!("the staged fault did not bite: {other:?}"),
    }
}

/// The chart with rights for a yard; no Pod could run here, so none is asked for.
async fn install(yard: &Yard<'_>) -> Result<()> {
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(RELEASE_NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    Api::<Namespace>::all(yard.client.clone())
        .create(&PostParams::default(), &namespace)
        .await?;
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/capi-provider");
    let home = tempfile::tempdir()?;
    let output = tokio::process::Command::new(tools(&["helm"]).await?.path("helm")?)
        .args(["upgrade", "--install", "macs"])
        .arg(chart)
        .args([
            "--namespace",
            RELEASE_NAMESPACE,
            "--set",
            "replicas=0,cluster.enabled=true",
        ])
        .args(["--set", &format!("provider.fleetNamespaces={{{}}}", yard.namespace)])
        .arg("--kubeconfig")
        .arg(yard.fleet.cluster.control_plane().admin_kubeconfig())
        .env("HOME", home.path())
        .output()
        .await
        .context("failed to start helm")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "helm failed: {said}");
    Ok(())
}
