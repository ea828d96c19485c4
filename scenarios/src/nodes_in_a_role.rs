//! A Role named Nodes, which are in no namespace: it granted nothing, and the controller was refused.

use anyhow::{Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use russet_cluster::kubeconfig;
use russet_stages::macs::{Fleet, chart};
use russet_testkit::cluster::TestCluster;
use russet_testkit::identity::rule;
use serde_json::json;

use super::{Narrator, Play, Scenario, Stage};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "nodes-in-a-role",
    from: "S4",
    what_happened: "Nodes are cluster-scoped, a Role cannot grant them, and the controller was refused",
    must_hold: "the provider adopts a Mac and gives it back under exactly the rights of its chart, without one 403",
    without: None,
    play: Play::Bare(run),
};

fn run<'a>(stage: &'a mut Stage<'_, Fleet>) -> BoxFuture<'a, Result<()>> {
    async move {
        let Stage { world: fleet, narrator } = stage;
        naive(&mut **narrator, &fleet.cluster).await?;

        narrator.step("install charts/capi-provider with Helm, and run the provider as its ServiceAccount");
        let yard = fleet.yard("rights", 1).await?;
        let values = json!({"provider": {"fleetNamespaces": [yard.namespace]}});
        fleet.start_under_chart(values).await?;

        narrator.step("adopt a Mac, and give it back");
        yard.running(1).await?;
        narrator.holds("a Mac is adopted, set up, and its Machine runs");
        yard.scale("macos", 0).await?;
        yard.all_pooled(1).await?;
        yard.available("macos", 0).await?;
        narrator.holds("it is wiped and back in the pool");

        let user = chart::user();
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
