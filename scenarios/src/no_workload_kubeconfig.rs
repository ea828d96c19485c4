//! Cluster API core could not watch Nodes, so no Machine ever found its Node, and every deployment timed out.

use anyhow::Result;
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::ResourceExt;
use russet_stages::macs::Fleet;
use serde_json::{Value, json};

use super::{Play, Scenario, Stage, promise};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "no-workload-kubeconfig",
    from: "S2",
    what_happened: "Cluster API had no connection to the cluster, could not watch Nodes, and every deploy timed out",
    must_hold: "with an empty cluster the provider supplies <cluster>-kubeconfig, and Machines find their Nodes",
    without: Some(include_str!("no_workload_kubeconfig.without.patch")),
    play: Play::Fleet(run),
};

const SECRET: &str = "fleet-kubeconfig";

fn run<'a>(stage: &'a mut Stage<'_, Fleet>) -> BoxFuture<'a, Result<()>> {
    async move {
        let Stage { world: fleet, narrator } = stage;
        narrator
            .step("a Cluster in an empty namespace, and a Mac of it that is adopted, set up, and whose Node is Ready");
        let yard = fleet.yard("connection", 1).await?;
        yard.cluster().await?;
        yard.template("macos", json!({})).await?;
        yard.deployment("macos", "macos", 1).await?;
        let ready = |mac: &russet_api::ScalewayAppleSiliconMachine| {
            mac.status.as_ref().is_some_and(|status| status.ready == Some(true))
        };
        let mac = yard.mac_until("a Mac that is ready", ready).await?;
        let secret = yard.secret_named(SECRET).await?;
        let labelled = secret
            .as_ref()
            .and_then(|secret| secret.labels().get("cluster.x-k8s.io/cluster-name").cloned());
        promise!(
            "kubeconfig-supplied",
            labelled.as_deref() == Some("fleet"),
            "{} serves, and core finds no {SECRET} to see its Node with: {labelled:?}",
            mac.name_any()
        );
        narrator.holds("the provider made the Secret, with the label by which core finds it");
        yard.available("macos", 1).await?;
        let machines = yard.machines_of("macos").await?;
        let machine = machines.first().map_or(&Value::Null, |machine| &machine.data);
        let node = machine
            .pointer("/status/nodeRef/name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        promise!("finds-its-node", node == mac.name_any(), "{machine}");
        narrator.holds(&format!("the Machine found its Node {node}"));
        Ok(())
    }
    .boxed()
}
