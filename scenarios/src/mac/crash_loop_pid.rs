//! Proves a part, the plan of the bootstrap library: a process that is killed soon after each start has a fresh pid at each
//! look of the provider.
//!
//! Taken out to see it fail: `job_settles` of the prelude took the first new pid without comparing it with a second one. The roll went
//! on to the look that ends every step, which found no process, and the story ended with "another failure: it was changed, and is still
//! not as it should be".

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use russet_bootstrap::mac::{Failed, Patience};
use russet_sim_mac::macos::Faults;
use russet_testkit::wait::{self, Look, PATIENCE};

use super::program::stays;
use super::{Bench, JOB, Mini, ROLL};
use crate::{Play, Scenario, Stage};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "crash-loop-pid",
    from: "S2",
    what_happened: "an agent that was killed for its signature after every start showed a fresh pid each time, and the roll was recorded",
    must_hold: "a pid counts when it is the same a while later; a crash loop is refused, said, and healed by the next roll",
    without: None,
    play: Play::Plain(run),
};

fn run<'a>(stage: &'a mut Stage<'_, ()>) -> BoxFuture<'a, Result<()>> {
    async move {
        stage.step("an emulated Mac, set up over SSH; launchd runs the agent");
        let bench = Bench::with(1).await?;
        let mut mini = bench.mini(0).await?;
        // Forty times as long as a process lives in this story, whatever else the machine does.
        mini.patience = Patience {
            settle: Duration::from_millis(400),
            pause: Duration::from_millis(50),
        };
        mini.set_up(&bench.fleet(&stays("0"))?).await?;
        mini.mac().await?.set_faults(|faults| faults.crash_loop_after = Some(1));
        naive(stage, &mini).await?;
        ours(stage, &bench, &mini).await
    }
    .boxed()
}

async fn naive(stage: &mut Stage<'_, ()>, mini: &Mini) -> Result<()> {
    stage.step(
        "from now on every process is killed a second of launchd after its start; a naive roll restarts the agent",
    );
    let before = mini.running().await?;
    let said = mini.root(&format!("launchctl kickstart -kp {JOB}")).await?;
    let told: i32 = said.trim().parse().with_context(|| format!("no pid: {said}"))?;
    ensure!(told != before, "the staged fault did not bite: the old process runs");
    wait::until("that process to be killed", PATIENCE, || async {
        Ok(match mini.pid().await? {
            Some(now) if now == told => Look::not_yet(now),
            _ => Look::Done(()),
        })
    })
    .await?;
    mini.until_job("launchd to say why", |said| said.contains("OS_REASON_CODESIGNING"))
        .await?;
    stage.bites(format!(
        "it sees a new pid, {told}, and records the roll; that process is gone already"
    ));
    Ok(())
}

async fn ours(stage: &mut Stage<'_, ()>, bench: &Bench, mini: &Mini) -> Result<()> {
    stage.step("the same with our plan, twice");
    let (mac, host) = (mini.mac().await?, mini.host()?);
    let churn = mac.btm_churn();
    for _ in 0..2 {
        match mini.try_set_up(&bench.fleet(&stays("1"))?, &host).await? {
            Err(Failed::Step { step, message }) => ensure!(
                step == "tart-kubelet-job" && message.contains("does not stay up") && message.contains("CODESIGNING"),
                "another failure: {step}: {message}"
            ),
            Err(other) => return Err(other.into()),
            Ok(report) => anyhow::bail!("the roll was taken for done: {report:?}"),
        }
    }
    stage.holds("both fail, and say of which job and why; nothing is recorded, so the host stays out of date");
    let loads = mac.btm_churn() - churn;
    ensure!(loads <= 1, "the job was loaded again {loads} times");
    stage.holds("since it could be a launchd that pins, the job is loaded again, once and not at every try");
    mac.set_faults(|faults| *faults = Faults::default());
    let healed = mini.set_up(&bench.fleet(&stays("2"))?).await?;
    ensure!(healed.changed == ROLL, "{healed:?}");
    mini.running().await?;
    stage.holds("the next agent, which is not killed, is rolled out and stays");
    Ok(())
}
