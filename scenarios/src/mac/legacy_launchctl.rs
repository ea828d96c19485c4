//! The runner's own script starts its agent with `launchctl load`, which over SSH cannot reach the desktop session.
//!
//! Taken out to see it fail: the step `github-runner` started the agent by the runner's own `svc.sh start`. The story ended with "step
//! github-runner: Load failed: 5: Input/output error".

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use russet_bootstrap::mac::{Host, Runner};
use russet_telemetry::Secret;
use russet_testkit::wait::{self, Look, PATIENCE};

use super::program::stays;
use super::runner::{self, VERSION};
use super::{Bench, Mini};
use crate::{Play, Scenario, Stage};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "legacy-launchctl",
    from: "S3",
    what_happened: "`launchctl load` over SSH cannot reach the Aqua session, so the runner of a builder never started",
    must_hold: "agents are loaded into gui/<uid>, where they run, also after a restart of the host",
    without: None,
    play: Play::Plain(run),
};

const AGENT: &str = "gui/501/actions.runner.tuist.mac-1";
const NAIVE: &str = "gui/501/naive.runner";

fn run<'a>(stage: &'a mut Stage<'_, ()>) -> BoxFuture<'a, Result<()>> {
    async move {
        stage.step("an emulated Mac, set up over SSH; its user is logged in at the screen that it does not have");
        let bench = Bench::with(1).await?;
        let mini = bench.mini(0).await?;
        runner::can_be_downloaded(&mini).await?;
        mini.set_up(&bench.fleet(&stays("0"))?).await?;
        naive(stage, &mini).await?;
        ours(stage, &bench, &mini).await
    }
    .boxed()
}

/// What `svc.sh start` does.
async fn naive(stage: &mut Stage<'_, ()>, mini: &Mini) -> Result<()> {
    stage.step("over SSH, the user loads an agent the old way, on the macOS of today and on that of yesterday");
    let load = r"mkdir -p ~/Library/LaunchAgents && cat >~/Library/LaunchAgents/naive.plist <<END
<plist version='1.0'><dict><key>Label</key><string>naive.runner</string>
<key>ProgramArguments</key><array><string>/bin/sleep</string><string>100000</string></array>
<key>RunAtLoad</key><true/></dict></plist>
END
launchctl load -w ~/Library/LaunchAgents/naive.plist
";
    let mac = mini.mac().await?;
    for today in [true, false] {
        mac.set_quirks(|quirks| quirks.legacy_load_fails = today);
        let said = mini.user(load).await?;
        ensure!(
            said.stderr.contains("Load failed: 5: Input/output error"),
            "the staged fault did not bite: {said:?}"
        );
        ensure!(said.status.is_success() != today, "{said:?}");
        let there = mini.user(&format!("launchctl print {NAIVE}")).await?;
        ensure!(!there.status.is_success(), "the staged fault did not bite: {there:?}");
    }
    mini.root("rm /Users/*/Library/LaunchAgents/naive.plist").await?;
    stage.bites(
        "launchctl says \"Load failed: 5\", yesterday's even with exit status 0, and no agent runs in the session",
    );
    Ok(())
}

fn builder(mini: &Mini) -> Result<Host> {
    Ok(Host {
        runner: Some(Runner {
            org: "tuist".to_owned(),
            labels: "self-hosted,macos,vm-image-builder".to_owned(),
            version: VERSION.to_owned(),
            token: Secret::new("AFAKETOKENFORTHISSTORY".to_owned()),
        }),
        ..mini.host()?
    })
}

async fn runs(mini: &Mini) -> Result<String> {
    wait::until("the runner to run in the session", PATIENCE, || async {
        let said = mini.root(&format!("launchctl print {AGENT}")).await?;
        let pid = said.lines().find_map(|line| line.trim().strip_prefix("pid = "));
        Ok(match pid {
            Some(pid) => Look::Done(pid.to_owned()),
            None => Look::NotYet(said),
        })
    })
    .await
}

async fn ours(stage: &mut Stage<'_, ()>, bench: &Bench, mini: &Mini) -> Result<()> {
    stage.step("the same Mac becomes a builder, by our plan");
    let (fleet, host) = (bench.fleet(&stays("0"))?, builder(mini)?);
    let mac = mini.mac().await?;
    let before = mac.calls().len();
    let report = mini.try_set_up(&fleet, &host).await??;
    ensure!(report.changed.contains(&"github-runner"), "{report:?}");
    let pid = runs(mini).await?;
    let calls = mac.calls();
    let ours = calls.get(before..).unwrap_or_default();
    let legacy = ours
        .iter()
        .find(|call| call.tool == "launchctl" && call.args.first().is_some_and(|verb| verb == "load"));
    ensure!(legacy.is_none(), "somebody called {legacy:?}");
    stage.holds(format!(
        "the runner is in {AGENT}, as process {pid}, and nobody called launchctl load"
    ));

    stage.step("the host restarts; without a screen nobody is logged in");
    mac.reboot().await;
    wait::until("the Mac to be back", PATIENCE, || async {
        Ok(match mini.session().await {
            Ok(_) => Look::Done(()),
            Err(error) => Look::NotYet(error.to_string()),
        })
    })
    .await?;
    ensure!(mac.console_user() == "root", "somebody is logged in");
    let mended = mini.try_set_up(&fleet, &host).await??;
    ensure!(mended.changed.contains(&"auto-login"), "{mended:?}");
    runs(mini).await.context("after the restart")?;
    stage.holds("the plan opens the session again, and the runner is in it");
    Ok(())
}
