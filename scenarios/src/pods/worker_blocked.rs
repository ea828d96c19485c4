//! One worker did everything, one thing after the other; a pull took twenty minutes, and so did whatever came after it.

use std::process::Stdio;

use anyhow::{Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::api::DeleteParams;
use russet_sim_tart::{Image, PullFault};
use russet_testkit::TestCluster;
use russet_testkit::wait::{self, Look, PATIENCE};
use tokio::process::Command;

use super::{IMAGE, Mac, WAITS, container, phase, split, terminated};
use crate::{Play, Scenario, Stage};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "worker-blocked-by-pull",
    from: "F",
    what_happened: "a pull of twenty minutes held up the deletion and the status of the other VM of its host",
    must_hold: "each VM goes on by itself, whatever another one waits for",
    without: None,
    play: Play::Cluster(run),
};

const OTHER: &str = "ghcr.io/acme/large:v1";

fn run<'a>(stage: &'a mut Stage<'_, TestCluster>) -> BoxFuture<'a, Result<()>> {
    async move {
        let (world, mut stage) = split(stage);
        let mac = Mac::new(world, "127.77.20.2").await?;
        mac.control.push(OTHER, &Image::default())?;
        naive(&mut stage, &mac).await?;
        ours(&mut stage, &mac).await
    }
    .boxed()
}

/// One worker: the pull of one Pod comes before the deletion of another.
async fn naive(stage: &mut Stage<'_, ()>, mac: &Mac<'_>) -> Result<()> {
    stage.step("a VM runs, and a worker has two things to do: pull a large image, then delete that VM");
    let running = mac.run_by_hand("ended").await?;
    mac.control.switch(|switches| switches.pull = Some(PullFault::Stall))?;
    let said = mac.path("worker");
    let script = r#"tart=$1; "$tart" pull "$2"; "$tart" stop ended; "$tart" delete ended"#;
    let mut worker = Command::new("/bin/sh")
        .args(["-c", script, "worker"])
        .arg(mac.path("bin/tart"))
        .arg(OTHER)
        .env_clear()
        .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
        .env("TART_HOME", mac.control.home())
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(&said)?)
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    let group = worker
        .id()
        .and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?));
    wait::until("the pull to stand still", PATIENCE, || async {
        let said = std::fs::read_to_string(&said)?;
        Ok(if said.contains("40%") {
            Look::Done(())
        } else {
            Look::NotYet(said)
        })
    })
    .await?;
    ensure!(
        mac.control.running()?.contains(&"ended".to_owned()),
        "the staged fault did not bite: the VM is gone"
    );
    stage.bites("the download stands at 40 %, and the VM that was to be deleted runs until that ends, if it ever does");
    // The worker and the pull that it waits for.
    if let Some(group) = group {
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL)?;
    }
    worker.wait().await?;
    mac.control.switch(|switches| switches.pull = None)?;
    mac.by_hand(&["stop", "ended"]).await?;
    mac.by_hand(&["delete", "ended"]).await?;
    drop(running);
    Ok(())
}

async fn ours(stage: &mut Stage<'_, ()>, mac: &Mac<'_>) -> Result<()> {
    stage.step("our agent runs a Pod, and pulls the large image for a second one");
    let _agent = mac.start()?;
    mac.run("busy", IMAGE, Some(&format!("{WAITS} 0"))).await?;
    mac.until_running("busy").await?;
    mac.control.switch(|switches| switches.pull = Some(PullFault::Stall))?;
    mac.run("pulls", OTHER, Some("true")).await?;
    mac.until("pulls", "a Pod that waits for its image", |pod| {
        container(pod).is_some_and(|container| container.state.as_ref().is_some_and(|state| state.waiting.is_some()))
    })
    .await?;

    stage.step("while that download stands still the first Pod is deleted, and a third one comes");
    mac.pods().delete("busy", &DeleteParams::default()).await?;
    mac.until_gone("busy").await?;
    wait::until_true("its VM to be gone", PATIENCE, || async {
        Ok(mac.vm("busy")?.is_none())
    })
    .await?;
    let next = mac.run("next", IMAGE, Some(&format!("{WAITS} 3"))).await?;
    mac.until_running("next").await?;
    mac.go(&next)?;
    let ended = mac
        .until("next", "the third Pod to end", |pod| phase(pod) == "Failed")
        .await?;
    let exit = terminated(&ended)?;
    ensure!(exit.exit_code == 3, "it ended with {exit:?}");
    let pulls = mac.pods().get("pulls").await?;
    ensure!(phase(&pulls) == "Pending", "the download was over: {:?}", pulls.status);
    stage.holds("one Pod was deleted and another lived its whole life, while the download stood still");

    stage.step("the Pod that waits for its image is deleted");
    mac.pods().delete("pulls", &DeleteParams::default()).await?;
    mac.until_gone("pulls").await?;
    stage.holds("it goes at once, and does not wait for its image either");
    Ok(())
}
