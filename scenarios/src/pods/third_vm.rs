//! A VM whose Pod had vanished ran on for ever, and held one of the two places that macOS gives.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use kube::api::DeleteParams;
use russet_sim_tart::Control;
use russet_testkit::wait;
use tokio_util::task::AbortOnDropHandle;

use super::{IMAGE, Mac, PATIENCE, WAITS, split, vms, waiting};
use crate::{Play, Scenario, Stage, promise};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "third-vm",
    from: "F",
    what_happened: "a VM whose Pod had vanished was never stopped, and held one of the two places that macOS allows",
    must_hold: "a VM of ours whose Pod is gone is found and ended, VMs of others are never touched, and never more than two run",
    without: Some(include_str!("third_vm.without.patch")),
    play: Play::Mac(run),
};

const FOREIGN: &str = "packer";

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

    fn seen(&self) -> usize {
        self.seen.load(Ordering::Relaxed)
    }
}

fn run<'a>(stage: &'a mut Stage<'_, Mac>) -> LocalBoxFuture<'a, Result<()>> {
    async move {
        let (mac, mut stage) = split(stage);
        stage.step("a Pod runs beside a VM that an operator started, the agent is killed, and the Pod vanishes");
        // A kernel that would allow more: what keeps to two is our agent, which does not even try a third.
        mac.control.switch(|switches| switches.vm_limit = 8)?;
        mac.run_by_hand(FOREIGN).await?;
        let most = Most::of(&mac.control);
        mac.run("lost", IMAGE, Some(&format!("{WAITS} 0"))).await?;
        mac.until_running("lost").await?;
        mac.kill_agent().await?;
        mac.pods()
            .delete("lost", &DeleteParams::default().grace_period(0))
            .await?;
        ensure!(mac.vm("lost")?.is_some(), "the VM went with its agent");

        stage.step("launchd starts the agent again, and two more Pods come");
        mac.start_agent().await?;
        mac.run("next", IMAGE, Some(&format!("{WAITS} 0"))).await?;
        mac.until_running("next").await?;
        wait::until_true("the VM without a Pod to be gone", PATIENCE, || async {
            Ok(mac.vm("lost")?.is_none())
        })
        .await?;
        let running = mac.control.running()?;
        promise!(
            "vms-of-others-run-on",
            running.iter().any(|name| name == FOREIGN),
            "{FOREIGN} was ended: {running:?}"
        );
        stage.holds("the VM whose Pod had vanished is gone, and its place is another Pod's");

        mac.run("waits", IMAGE, Some(&format!("{WAITS} 0"))).await?;
        let waits = mac
            .until("waits", "a Pod that says what it waits for, or runs", |pod| {
                vms::runs(pod) || waiting(pod).is_some_and(|why| why.contains(FOREIGN))
            })
            .await?;
        promise!(
            "never-a-third-vm",
            most.seen() <= 2 && !vms::runs(&waits),
            "{} VMs ran at once: {:?}",
            most.seen(),
            mac.control.running()?
        );
        stage.holds(format!(
            "a Pod more than there are places waits, and says why: {}",
            waiting(&waits).unwrap_or_default()
        ));

        stage.step("the operator stops the other VM");
        mac.by_hand(&format!("stop {FOREIGN}")).await?;
        mac.until_running("waits").await?;
        promise!(
            "vms-of-others-are-kept",
            mac.control.home().join("vms").join(FOREIGN).exists(),
            "{FOREIGN} was deleted"
        );
        promise!(
            "two-places-are-used",
            most.seen() == 2,
            "{} VMs ran at once",
            most.seen()
        );
        stage.holds(
            "the Pod that waited runs by itself; never more than two VMs ran, and the agent left the other one alone",
        );
        Ok(())
    }
    .boxed_local()
}
