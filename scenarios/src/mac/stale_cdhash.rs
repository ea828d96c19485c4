//! A binary that was written over while it ran, and was killed from then on.
//!
//! Taken out to see it fail: `program_put` of the prelude copied the signed program over the old one rather than rename it into place.
//! The roll that should heal the poisoned Mac ended the story: "does not stay up: spawn scheduled, last exit OS_REASON_CODESIGNING".

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::program::stays;
use super::{Bench, HASTE, JOB, Mini, PROGRAM, ROLL};
use crate::{Play, Scenario, Stage};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "stale-cdhash",
    from: "S2",
    what_happened: "the agent was overwritten in place, and the kernel killed it by the signature it remembered",
    must_hold: "each roll is a new file, signed before it has its name: 100 rolls without one kill, and a launchd that pins is recognised",
    without: None,
    play: Play::Plain(run),
};

const ROLLS: usize = 100;
/// With a launchd that pins: each is loaded again, which is not done more often than needed.
const PINNED_ROLLS: usize = 3;

fn run<'a>(stage: &'a mut Stage<'_, ()>) -> BoxFuture<'a, Result<()>> {
    async move {
        stage.step("an emulated Mac, set up over SSH; launchd runs the agent");
        let bench = Bench::with(1).await?;
        let mut mini = bench.mini(0).await?;
        mini.patience = HASTE;
        mini.set_up(&bench.fleet(&stays("0"))?).await?;
        naive(stage, &mini).await?;
        heal(stage, &bench, &mini).await?;
        roll(stage, &bench, &mini).await?;
        pinned(stage, &bench, &mini).await
    }
    .boxed()
}

async fn naive(stage: &mut Stage<'_, ()>, mini: &Mini) -> Result<()> {
    stage.step("a naive roll copies the new agent over the one that runs, and restarts it");
    let kills = mini.mac().await?.code_kills();
    let said = mini
        .feed(&format!("sudo -n tee {PROGRAM} >/dev/null"), stays("naive"))
        .await?;
    ensure!(said.status.is_success(), "{said:?}");
    mini.root(&format!("codesign -v {PROGRAM} && launchctl kickstart -k {JOB}"))
        .await?;
    mini.until_job("the kernel to kill it", |said| {
        said.contains("last exit reason = OS_REASON_CODESIGNING")
    })
    .await?;
    ensure!(
        mini.mac().await?.code_kills() > kills,
        "the staged fault did not bite: nobody was killed"
    );
    stage.bites("codesign calls the file valid, and the kernel kills every process of it: OS_REASON_CODESIGNING");
    Ok(())
}

/// Nobody has to log in for that.
async fn heal(stage: &mut Stage<'_, ()>, bench: &Bench, mini: &Mini) -> Result<()> {
    let report = mini.set_up(&bench.fleet(&stays("1"))?).await?;
    ensure!(report.changed == ROLL, "{report:?}");
    mini.running().await?;
    stage.holds("our plan brings the same Mac back: another file takes the name, and its process stays");
    Ok(())
}

fn inode(root: &std::path::Path) -> Result<u64> {
    let path = root.join(PROGRAM.trim_start_matches('/'));
    let meta = std::fs::metadata(&path).with_context(|| format!("failed to look at {}", path.display()))?;
    Ok(meta.ino())
}

async fn roll(stage: &mut Stage<'_, ()>, bench: &Bench, mini: &Mini) -> Result<()> {
    stage.step(format!("{ROLLS} new agents, one after the other"));
    let (mac, host) = (mini.mac().await?, mini.host()?);
    let kills = mac.code_kills();
    let session = mini.session().await?;
    let mut pids = BTreeSet::from([mini.running().await?]);
    let mut file = inode(mac.root())?;
    for roll in 1..=ROLLS {
        let fleet = bench.fleet(&stays(&format!("roll {roll}")))?;
        let report = mini
            .steps(&session, &fleet, &host, |step| ROLL.contains(&step))
            .await??;
        ensure!(report.changed == ROLL, "roll {roll} did something else: {report:?}");
        ensure!(mac.code_kills() == kills, "roll {roll} got the agent killed");
        ensure!(
            pids.insert(mini.running().await?),
            "roll {roll} left an old process: {pids:?}"
        );
        let now = inode(mac.root())?;
        ensure!(now != file, "roll {roll} wrote over the file that ran");
        file = now;
    }
    stage.holds(format!(
        "{ROLLS} rolls, each a new file and a new process, and not one kill"
    ));
    Ok(())
}

/// Newer launchds remember the code they loaded a job with, so that even a new file is killed.
async fn pinned(stage: &mut Stage<'_, ()>, bench: &Bench, mini: &Mini) -> Result<()> {
    stage.step("from now on launchd pins the code that a job was loaded with");
    let mac = mini.mac().await?;
    mac.set_quirks(|quirks| quirks.pins_cdhash = true);
    let fleet = |version: &str| -> Result<_> {
        let mut fleet = bench.fleet(&stays(version))?;
        fleet.agent.max_pods = 1;
        Ok(fleet)
    };
    // Another plist is loaded anyway, and is pinned.
    mini.set_up(&fleet("pinned")?).await?;
    let kills = mac.code_kills();
    for roll in 1..=PINNED_ROLLS {
        let before = mini.running().await?;
        let report = mini.set_up(&fleet(&format!("pinned {roll}"))?).await?;
        ensure!(report.changed == ROLL, "{report:?}");
        ensure!(mini.running().await? != before, "roll {roll} left the old process");
    }
    ensure!(mac.code_kills() > kills, "launchd pinned nothing, so nothing was shown");
    stage.holds("it is recognised by its kill, and the job is loaded again: every roll ends with a process that stays");
    Ok(())
}
