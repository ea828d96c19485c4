//! Rolls that loaded the job anew each time, until macOS no longer restarted it.
//!
//! Taken out to see it fail: `plist_loaded` of the prelude always said no, so that every roll was a bootout and a bootstrap. The first
//! roll ended the story: "roll 1 loaded the job again".

use anyhow::{Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use russet_testkit::wait::{self, Look, PATIENCE};

use super::program::stays;
use super::{Bench, HASTE, JOB, LABEL, PLIST, ROLL};
use crate::{Play, Scenario, Stage};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "btm-cap",
    from: "S2",
    what_happened: "bootout and bootstrap at every roll made launchd stop honouring KeepAlive",
    must_hold: "an unchanged plist is never loaded again: Background Task Management counts nothing over 50 binary rolls",
    without: None,
    play: Play::Plain(run),
};

const ROLLS: usize = 50;

fn run<'a>(stage: &'a mut Stage<'_, ()>) -> BoxFuture<'a, Result<()>> {
    async move {
        stage.step("two emulated Macs, set up over SSH; launchd of each runs the agent and restarts it when it ends");
        let bench = Bench::with(2).await?;
        naive(stage, &bench).await?;
        ours(stage, &bench).await
    }
    .boxed()
}

/// The reload of the first provider.
async fn naive(stage: &mut Stage<'_, ()>, bench: &Bench) -> Result<()> {
    let mini = bench.mini(0).await?;
    mini.set_up(&bench.fleet(&stays("0"))?).await?;
    let cap = mini.mac().await?.quirks().btm_cap;
    stage.step(format!(
        "a naive roll boots the job out and bootstraps it, {cap} times on the first Mac"
    ));
    let reload = format!(
        "for roll in $(seq 1 {cap}); do
           launchctl bootout {JOB}
           while launchctl print {JOB} >/dev/null 2>&1; do sleep 0.02; done
           launchctl bootstrap system {PLIST} || exit 1
         done"
    );
    mini.root(&reload).await?;
    mini.until_job("the agent to run", |said| said.contains("state = running"))
        .await?;
    mini.root(&format!("kill -9 {}", mini.running().await?)).await?;
    // Where KeepAlive counts, a job whose process ended waits for its next start.
    mini.until_job("launchd to let it lie", |said| said.contains("state = not running"))
        .await?;
    let log = mini.root("cat /var/log/system.log").await?;
    ensure!(
        log.contains(&format!("Exceeded max notifications for {LABEL}")),
        "the staged fault did not bite: {log}"
    );
    stage.bites("then the agent dies once, and launchd lets it lie: KeepAlive no longer counts on this Mac");
    Ok(())
}

async fn ours(stage: &mut Stage<'_, ()>, bench: &Bench) -> Result<()> {
    let mut mini = bench.mini(1).await?;
    mini.patience = HASTE;
    let (mac, host) = (mini.mac().await?, mini.host()?);
    mini.set_up(&bench.fleet(&stays("0"))?).await?;
    let churn = mac.btm_churn();
    ensure!(churn == 0, "setting up the Mac loaded something twice: {churn}");
    stage.step(format!("{ROLLS} new agents on the second Mac, by our plan"));
    let session = mini.session().await?;
    let mut pid = mini.running().await?;
    for roll in 1..=ROLLS {
        let fleet = bench.fleet(&stays(&roll.to_string()))?;
        let report = mini
            .steps(&session, &fleet, &host, |step| ROLL.contains(&step))
            .await??;
        ensure!(report.changed == ROLL, "roll {roll} did something else: {report:?}");
        ensure!(mac.btm_churn() == 0, "roll {roll} loaded the job again");
        let now = mini.running().await?;
        ensure!(now != pid, "roll {roll} left the old process");
        pid = now;
    }
    stage.holds(format!(
        "{ROLLS} new processes, by kickstart alone: Background Task Management counted none"
    ));
    let whole = mini.set_up(&bench.fleet(&stays(&ROLLS.to_string()))?).await?;
    ensure!(
        whole.changed.is_empty() && mac.btm_churn() == 0,
        "the whole plan finds something to do: {whole:?}"
    );
    mini.root(&format!("kill -9 {pid}")).await?;
    wait::until("launchd to restart the agent", PATIENCE, || async {
        Ok(match mini.pid().await? {
            Some(now) if now != pid => Look::Done(()),
            other => Look::not_yet(other),
        })
    })
    .await?;
    stage.holds("and when the agent dies, launchd restarts it");
    Ok(())
}
