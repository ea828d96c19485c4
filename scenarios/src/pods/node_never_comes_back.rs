//! An administrator deleted a Node. Its agent went on reporting to nothing, until it was restarted by hand.

use anyhow::{Context, Result};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use russet_testkit::wait::{self, Look};
use tokio::time::{Duration, Instant};

use super::{IMAGE, Mac, PATIENCE, WAITS, split, vms};
use crate::{Play, Scenario, Stage, promise};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "node-never-comes-back",
    from: "F",
    what_happened: "a Node that was deleted was never registered again while its agent ran",
    must_hold: "it is back within one heartbeat, and what runs on its host runs on",
    without: Some(include_str!("node_never_comes_back.without.patch")),
    play: Play::Mac(run),
};

/// Tries to renew the Lease that are three heartbeats at least: one is two, when the Lease is gone.
const MANY: usize = 4;
/// How often the log of the API server is read while the Node is gone.
const READ: Duration = Duration::from_secs(1);

/// What the agent asked of the API server since some moment.
#[derive(Debug, Default)]
struct Beats {
    /// Renewals of its Lease, whatever was answered.
    tried: usize,
    /// Those that succeeded.
    renewed: usize,
    registered: bool,
}

impl Beats {
    fn since(mac: &Mac, deleted: Timestamp) -> Result<Self> {
        let mut beats = Self::default();
        let asked = mac.cluster().audit()?.of_user(&mac.user())?;
        for entry in asked.iter().filter(|entry| entry.at >= deleted) {
            match (entry.verb.as_str(), entry.object().resource.as_str()) {
                ("create", "nodes") => {
                    beats.registered = true;
                    break;
                }
                ("update" | "patch", "leases") => {
                    beats.tried += 1;
                    beats.renewed += usize::from(entry.code() == 200);
                }
                _ => {}
            }
        }
        Ok(beats)
    }
}

fn run<'a>(stage: &'a mut Stage<'_, Mac>) -> LocalBoxFuture<'a, Result<()>> {
    async move {
        let (mac, mut stage) = split(stage);
        stage.step("a Pod runs; then its Node is deleted");
        mac.run("job", IMAGE, Some(&format!("{WAITS} 0"))).await?;
        let pod = mac.until_running("job").await?;
        let vm = mac.vm("job")?.context("the Pod has no VM")?;
        let before = mac.nodes().get(&mac.node).await?;
        // The agent may have made it again before the deletion is answered.
        let deleted = Timestamp::now();
        mac.nodes().delete(&mac.node, &DeleteParams::default()).await?;
        let mut read = Instant::now();
        let back = wait::until("the Node to come back, or the agent to do without", PATIENCE, || {
            let reads = read.elapsed() >= READ;
            if reads {
                read = Instant::now();
            }
            let before = &before;
            async move {
                let node = mac.nodes().get_opt(&mac.node).await?;
                let node: Option<Node> = node.filter(|node| node.uid() != before.uid());
                // A Node is there before the API server has written down who made it.
                let settled = match &node {
                    Some(_) => Beats::since(mac, deleted)?.registered,
                    None => reads && Beats::since(mac, deleted)?.tried >= MANY,
                };
                Ok(if settled { Look::Done(node) } else { Look::not_yet(node) })
            }
        })
        .await?;
        let beats = Beats::since(mac, deleted)?;
        promise!(
            "node-back-with-the-next-heartbeat",
            back.is_some() && beats.registered && beats.renewed <= 1,
            "Node {} is {}; since it was deleted the agent did this before it registered: {beats:?}",
            mac.node,
            if back.is_some() { "back" } else { "gone" }
        );
        promise!(
            "node-back-and-ready",
            back.as_ref().is_some_and(vms::is_ready),
            "it came back as {back:?}"
        );
        stage.holds("the Node is back with the next heartbeat, and ready");

        let now = mac.until_running("job").await?;
        let runs = mac.vm("job")?;
        promise!(
            "vm-outlives-its-node",
            now.uid() == pod.uid() && runs.as_deref() == Some(vm.as_str()),
            "Pod {:?} in {vm} is Pod {:?} in {runs:?}",
            pod.uid(),
            now.uid()
        );
        stage.holds("the Pod runs on in the VM that it had");
        Ok(())
    }
    .boxed_local()
}
