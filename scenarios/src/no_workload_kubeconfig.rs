//! Cluster API core could not watch Nodes, so no Machine ever found its Node, and every deployment timed out.

use anyhow::{Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use russet_stages::macs::{CORE, Fleet, INFRA, Yard, condition};
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::{Value, json};

use super::{Play, Scenario, Stage};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "no-workload-kubeconfig",
    from: "S2",
    what_happened: "Cluster API had no connection to the cluster, could not watch Nodes, and every deploy timed out",
    must_hold: "with an empty cluster the provider supplies <cluster>-kubeconfig, and Machines find their Nodes",
    without: None,
    play: Play::Fleet(run),
};

const SECRET: &str = "fleet-kubeconfig";

fn run<'a>(stage: &'a mut Stage<'_, Fleet>) -> BoxFuture<'a, Result<()>> {
    async move {
        naive(stage).await?;
        ours(stage).await
    }
    .boxed()
}

async fn naive(stage: &mut Stage<'_, Fleet>) -> Result<()> {
    let Stage { world: fleet, narrator } = stage;
    narrator
        .step("a Cluster whose infrastructure somebody else manages, who says that all is ready and makes no Secret");
    let yard = fleet.yard("naive", 1).await?;
    yard.apply(json!({
        "apiVersion": format!("{INFRA}/v1alpha1"), "kind": "ScalewayAppleSiliconCluster",
        "metadata": {"name": "fleet", "annotations": {format!("{CORE}/managed-by"): "somebody"}},
        "spec": {"controlPlaneEndpoint": {"host": "192.0.2.1", "port": 6443}},
    }))
    .await?;
    yard.apply(yard.core_cluster()).await?;
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    let ready = |kind: &str| json!({"type": kind, "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": now});
    let status = json!({"status": {
        "ready": true,
        "initialization": {"provisioned": true, "controlPlaneInitialized": true},
        "externalManagedControlPlane": true,
        "conditions": [ready("Ready"), ready("Available")],
    }});
    yard.infra_clusters()
        .patch_status("fleet", &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    yard.template("macos", json!({})).await?;
    yard.deployment("macos", "macos", 1).await?;

    narrator.step("a Mac is adopted, set up, and its Node is Ready");
    let mac = yard
        .mac_until("a Mac that is ready", |mac| {
            mac.status.as_ref().is_some_and(|status| status.ready == Some(true))
        })
        .await?;
    let provider_id = mac.spec.provider_id.clone().unwrap_or_default();
    let nodes = yard.nodes().list(&kube::api::ListParams::default()).await?;
    let joined = nodes
        .items
        .iter()
        .any(|node| node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()) == Some(provider_id.as_str()));
    ensure!(joined, "{} has no Node {provider_id}", mac.name_any());

    let said = wait::until("core to say that it cannot see the Node", PATIENCE, || async {
        let machine = only_machine(&yard).await?;
        let provisioned = machine.pointer("/status/initialization/infrastructureProvisioned") == Some(&json!(true));
        let cluster = yard.clusters().get("fleet").await?;
        let probe = condition(&cluster, "RemoteConnectionProbe")
            .cloned()
            .unwrap_or_default();
        let blind = probe.get("status") == Some(&json!("False"));
        Ok(if provisioned && blind {
            Look::Done(
                probe
                    .get("message")
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned(),
            )
        } else {
            Look::not_yet((probe, machine))
        })
    })
    .await?;
    ensure!(
        node_ref(&only_machine(&yard).await?).is_none(),
        "the staged fault did not bite"
    );
    ensure!(yard.secret_named(SECRET).await?.is_none(), "somebody made the Secret");
    narrator.bites(&format!(
        "the Machine has no nodeRef and never gets one: core has no connection to the cluster ({said})"
    ));
    Ok(())
}

async fn ours(stage: &mut Stage<'_, Fleet>) -> Result<()> {
    let Stage { world: fleet, narrator } = stage;
    narrator.step("the same in an empty namespace, with the provider in charge of the Cluster");
    let yard = fleet.yard("ours", 1).await?;
    yard.running(1).await?;
    let secret = yard.secret_named(SECRET).await?;
    let labelled = secret
        .as_ref()
        .and_then(|secret| secret.labels().get("cluster.x-k8s.io/cluster-name").cloned());
    ensure!(labelled.as_deref() == Some("fleet"), "core does not find {SECRET}");
    narrator.holds("the provider made the Secret, with the label by which core finds it");
    let machine = only_machine(&yard).await?;
    let node = node_ref(&machine);
    ensure!(node.is_some(), "{machine}");
    narrator.holds(&format!("the Machine found its Node {}", node.unwrap_or_default()));
    Ok(())
}

/// What core says of the only Machine.
async fn only_machine(yard: &Yard<'_>) -> Result<Value> {
    let machines = yard.machines_of("macos").await?;
    let [machine] = machines.as_slice() else {
        anyhow::bail!("{} machines", machines.len());
    };
    Ok(machine.data.clone())
}

fn node_ref(machine: &Value) -> Option<String> {
    let name = machine.pointer("/status/nodeRef/name")?.as_str()?;
    (!name.is_empty()).then(|| name.to_owned())
}
