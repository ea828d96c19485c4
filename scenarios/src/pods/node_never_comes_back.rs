//! Somebody deleted a Node. Its agent went on reporting to nobody, until it was restarted by hand.

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use russet_testkit::TestCluster;
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::json;

use super::{IMAGE, Mac, WAITS, split};
use crate::{Play, Scenario, Stage};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "node-never-comes-back",
    from: "F",
    what_happened: "a Node that was deleted was never registered again while its agent ran",
    must_hold: "it is back within one heartbeat, and what runs on its host runs on",
    without: None,
    play: Play::Cluster(run),
};

fn run<'a>(stage: &'a mut Stage<'_, TestCluster>) -> BoxFuture<'a, Result<()>> {
    async move {
        let (world, mut stage) = split(stage);
        let mac = Mac::new(world, "127.77.20.3").await?;
        naive(&mut stage, &mac).await?;
        ours(&mut stage, &mac, world).await
    }
    .boxed()
}

/// An agent that registers when it starts, and reports from then on.
async fn naive(stage: &mut Stage<'_, ()>, mac: &Mac<'_>) -> Result<()> {
    stage.step("an agent registers its Node and reports its status; then somebody deletes the Node");
    let nodes = mac.nodes();
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "before"}}))?;
    nodes.create(&PostParams::default(), &node).await?;
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let report = || async {
        let params = PatchParams::default();
        nodes
            .patch_status("before", &params, &Patch::Strategic(status.clone()))
            .await
    };
    report().await?;
    nodes.delete("before", &DeleteParams::default()).await?;
    let said = match report().await {
        Err(kube::Error::Api(status)) if status.is_not_found() => status.message,
        other => anyhow::bail!("the staged fault did not bite: {other:?}"),
    };
    ensure!(
        nodes.get_opt("before").await?.is_none(),
        "the staged fault did not bite"
    );
    stage.bites(format!("every report of it is answered with: {said}"));
    Ok(())
}

async fn ours(stage: &mut Stage<'_, ()>, mac: &Mac<'_>, cluster: &TestCluster) -> Result<()> {
    stage.step("our agent, with a Pod that runs; then its Node is deleted");
    let _agent = mac.start()?;
    mac.run("job", IMAGE, Some(&format!("{WAITS} 0"))).await?;
    let pod = mac.until_running("job").await?;
    let vm = mac.vm("job")?.context("the Pod has no VM")?;
    let before = mac.nodes().get(&mac.node).await?;
    mac.nodes().delete(&mac.node, &DeleteParams::default()).await?;
    let asked = cluster.audit()?.of_user(&mac.user())?.len();
    let back = wait::until("the Node to come back", PATIENCE, || async {
        let node = mac.nodes().get_opt(&mac.node).await?;
        Ok(match node.filter(|node| node.uid() != before.uid()) {
            Some(node) => Look::Done(node),
            None => Look::not_yet("no Node"),
        })
    })
    .await?;
    let since = cluster.audit()?.of_user(&mac.user())?;
    let renewals = since
        .iter()
        .skip(asked)
        .take_while(|entry| !(entry.verb == "create" && entry.object().resource == "nodes"))
        .filter(|entry| entry.object().resource == "leases" && entry.code() == 200)
        .count();
    ensure!(renewals <= 1, "it renewed a Lease {renewals} times before it noticed");
    let conditions = back.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions
        .filter(|condition| condition.type_ == "Ready")
        .map(|condition| &condition.status);
    ensure!(
        ready.clone().any(|status| status == "True"),
        "it came back as {:?}",
        ready.collect::<Vec<_>>()
    );
    stage.holds("the Node is back with the next heartbeat, and ready");

    let now = mac.until_running("job").await?;
    ensure!(now.uid() == pod.uid(), "it is another Pod");
    ensure!(mac.vm("job")?.as_deref() == Some(vm.as_str()), "it has another VM");
    stage.holds("the Pod runs on in the VM that it had");
    Ok(())
}
