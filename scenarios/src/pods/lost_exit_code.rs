//! A VM crashed while its agent was away; the next agent found nothing wrong and called it a success.

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use russet_testkit::TestCluster;
use russet_testkit::wait::{self, PATIENCE};

use super::{IMAGE, Mac, WAITS, phase, split, terminated};
use crate::{Play, Scenario, Stage};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "lost-exit-code",
    from: "F",
    what_happened: "a VM that crashed was reported as Succeeded after a restart of the agent",
    must_hold: "how a container ended is read from the ledger and from its guest; what nobody saw is no success",
    without: None,
    play: Play::Cluster(run),
};

fn run<'a>(stage: &'a mut Stage<'_, TestCluster>) -> BoxFuture<'a, Result<()>> {
    async move {
        let (world, mut stage) = split(stage);
        let mac = Mac::new(world, "127.77.20.4").await?;
        naive(&mut stage, &mac).await?;
        ours(&mut stage, &mac).await
    }
    .boxed()
}

async fn naive(stage: &mut Stage<'_, ()>, mac: &Mac<'_>) -> Result<()> {
    stage.step("a VM runs, and its kernel panics");
    let mut running = mac.run_by_hand("crashes").await?;
    mac.control.crash("crashes")?;
    let ended = tokio::time::timeout(PATIENCE, running.wait())
        .await
        .context("tart run does not end")??;
    ensure!(ended.success(), "the staged fault did not bite: {ended}");
    stage.bites("`tart run` ends with 0 all the same, and an agent that believes it reports Succeeded");
    mac.by_hand(&["delete", "crashes"]).await?;
    Ok(())
}

async fn ours(stage: &mut Stage<'_, ()>, mac: &Mac<'_>) -> Result<()> {
    stage.step("our agent runs two Pods, one that its image brings and one with a program, and is killed");
    let agent = mac.start()?;
    mac.run("crashes", IMAGE, None).await?;
    let fails = mac.run("fails", IMAGE, Some(&format!("{WAITS} 7"))).await?;
    mac.until_running("crashes").await?;
    mac.until_running("fails").await?;
    let (crashing, failing) = (
        mac.vm("crashes")?.context("the Pod has no VM")?,
        mac.vm("fails")?.context("the Pod has no VM")?,
    );
    agent.killed().await?;

    stage.step("while it is away the one VM crashes, and the program in the other fails with 7");
    mac.control.crash(&crashing)?;
    mac.go(&fails)?;
    let said = mac.path("state/run").join(failing).join("steps/main/exit.json");
    wait::until_true("both to end", PATIENCE, || async {
        Ok(said.exists() && !mac.control.running()?.contains(&crashing))
    })
    .await?;

    stage.step("the next agent starts");
    let _agent = mac.start()?;
    let ended = mac.until("fails", "the Pod to end", over).await?;
    let exit = terminated(&ended)?;
    ensure!(
        (phase(&ended), exit.exit_code) == ("Failed", 7),
        "it was reported as {} with {exit:?}",
        phase(&ended)
    );
    stage.holds("the program failed with 7, and so its Pod says");
    let ended = mac.until("crashes", "the Pod to end", over).await?;
    let exit = terminated(&ended)?;
    ensure!(
        phase(&ended) == "Failed" && exit.exit_code != 0,
        "a crash was reported as {} with {exit:?}",
        phase(&ended)
    );
    let why = exit.message.unwrap_or_default();
    ensure!(!why.is_empty(), "nothing says why: {:?}", ended.status);
    stage.holds(format!("the crash is a failure, and says: {why}"));
    Ok(())
}

fn over(pod: &k8s_openapi::api::core::v1::Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}
