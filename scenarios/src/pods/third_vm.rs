//! A VM whose Pod had vanished ran on for ever, and held one of the two places that macOS gives.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::api::DeleteParams;
use russet_sim_tart::Control;
use russet_testkit::TestCluster;
use russet_testkit::wait::{self, PATIENCE};
use tokio_util::task::AbortOnDropHandle;

use super::{IMAGE, Mac, WAITS, container, split};
use crate::{Play, Scenario, Stage};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "third-vm",
    from: "F",
    what_happened: "a VM whose Pod had vanished was never stopped, and held one of the two places that macOS allows",
    must_hold: "the ledger finds ours and ends it, VMs of others are never touched, and never more than two run",
    without: None,
    play: Play::Cluster(run),
};

const FOREIGN: &str = "packer";

fn run<'a>(stage: &'a mut Stage<'_, TestCluster>) -> BoxFuture<'a, Result<()>> {
    async move {
        let (world, mut stage) = split(stage);
        let mac = Mac::new(world, "127.77.20.1").await?;
        naive(&mut stage, &mac).await?;
        ours(&mut stage, &mac).await
    }
    .boxed()
}

/// An agent that cleans up what does not run, and lets alone what does.
async fn naive(stage: &mut Stage<'_, ()>, mac: &Mac<'_>) -> Result<()> {
    stage.step("two VMs run on a Mac: one that somebody builds an image in, and one whose Pod is gone");
    let builder = mac.run_by_hand(FOREIGN).await?;
    let lost = mac.run_by_hand("lost").await?;
    mac.by_hand(&["clone", IMAGE, "next"]).await?;
    let next = mac.by_hand(&["run", "next", "--no-graphics"]).await?;
    let said = String::from_utf8_lossy(&next.stderr).trim().to_owned();
    ensure!(
        !next.status.success() && said.contains("exceeds the system limit"),
        "the staged fault did not bite: {next:?}"
    );
    stage.bites(format!(
        "an agent that spares whatever runs spares both, and no other VM ever starts: {said}"
    ));
    for name in [FOREIGN, "lost"] {
        mac.by_hand(&["stop", name]).await?;
    }
    for name in [FOREIGN, "lost", "next"] {
        mac.by_hand(&["delete", name]).await?;
    }
    drop((builder, lost));
    Ok(())
}

/// Looks all the time, and remembers the most.
struct Most {
    seen: Arc<AtomicUsize>,
    _looking: AbortOnDropHandle<()>,
}

impl Most {
    fn of(control: &Control) -> Self {
        let seen = Arc::new(AtomicUsize::new(0));
        let (control, most) = (control.clone(), Arc::clone(&seen));
        let looking = tokio::spawn(async move {
            loop {
                let running = control.running().map_or(0, |names| names.len());
                most.fetch_max(running, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        Self {
            seen,
            _looking: AbortOnDropHandle::new(looking),
        }
    }
}

async fn ours(stage: &mut Stage<'_, ()>, mac: &Mac<'_>) -> Result<()> {
    stage.step("the same under our agent: a Pod runs beside the VM of somebody else, the agent is killed, and the Pod vanishes");
    // A kernel that would allow more: what keeps to two is our agent, which does not even try a third.
    mac.control.switch(|switches| switches.vm_limit = 8)?;
    let builder = mac.run_by_hand(FOREIGN).await?;
    let most = Most::of(&mac.control);
    let agent = mac.start()?;
    mac.run("lost", IMAGE, Some(&format!("{WAITS} 0"))).await?;
    mac.until_running("lost").await?;
    agent.killed().await?;
    mac.pods()
        .delete("lost", &DeleteParams::default().grace_period(0))
        .await?;
    ensure!(mac.vm("lost")?.is_some(), "the VM went with its agent");

    stage.step("the next agent starts, and two more Pods come");
    let _agent = mac.start()?;
    mac.run("next", IMAGE, Some(&format!("{WAITS} 0"))).await?;
    mac.until_running("next").await?;
    wait::until_true("the VM without a Pod to be gone", PATIENCE, || async {
        Ok(mac.vm("lost")?.is_none())
    })
    .await?;
    ensure!(
        mac.control.running()?.contains(&FOREIGN.to_owned()),
        "somebody else's VM was ended"
    );
    stage.holds("the VM whose Pod had vanished is gone, and its place is another Pod's");

    mac.run("waits", IMAGE, Some(&format!("{WAITS} 0"))).await?;
    let waits = mac
        .until("waits", "a Pod that says whom it waits for", |pod| {
            waiting(pod).is_some_and(|why| why.contains(FOREIGN))
        })
        .await?;
    stage.holds(format!(
        "a Pod more than there are places waits, and says why: {}",
        waiting(&waits).unwrap_or_default()
    ));

    stage.step("whoever owns the other VM stops it");
    mac.by_hand(&["stop", FOREIGN]).await?;
    mac.until_running("waits").await?;
    ensure!(
        mac.control.home().join("vms").join(FOREIGN).exists(),
        "somebody else's VM was deleted"
    );
    let seen = most.seen.load(Ordering::Relaxed);
    ensure!(seen == 2, "{seen} VMs ran at once");
    stage.holds("the Pod that waited runs by itself; never more than two VMs ran, and nobody touched the other one");
    drop(builder);
    Ok(())
}

fn waiting(pod: &k8s_openapi::api::core::v1::Pod) -> Option<String> {
    container(pod)?.state.as_ref()?.waiting.as_ref()?.message.clone()
}
