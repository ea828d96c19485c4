//! A VM crashed while its agent was away; the next agent found nothing wrong and called it a success.

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::core::v1::Pod;
use russet_testkit::wait;

use super::{IMAGE, Mac, PATIENCE, WAITS, phase, split, terminated};
use crate::{Play, Scenario, Stage, promise};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "lost-exit-code",
    from: "F",
    what_happened: "a VM that crashed was reported as Succeeded after a restart of the agent",
    must_hold: "what ended while the agent was away is told by what it left: an exit code is that of the program, and a crash is no success",
    without: Some(include_str!("lost_exit_code.without.patch")),
    play: Play::Mac(run),
};

fn run<'a>(stage: &'a mut Stage<'_, Mac>) -> LocalBoxFuture<'a, Result<()>> {
    async move {
        let (mac, mut stage) = split(stage);
        stage.step("the agent runs two Pods, one that its image brings and one with a program, and is killed");
        mac.run("crashes", IMAGE, None).await?;
        let fails = mac.run("fails", IMAGE, Some(&format!("{WAITS} 7"))).await?;
        mac.until_running("crashes").await?;
        mac.until_running("fails").await?;
        let crashing = mac.vm("crashes")?.context("the Pod has no VM")?;
        let failing = mac.vm("fails")?.context("the Pod has no VM")?;
        mac.kill_agent().await?;

        stage.step("while it is away the one VM crashes, which `tart run` ends with 0 for; the program in the other one fails with 7");
        mac.control.crash(&crashing)?;
        mac.go(&fails)?;
        let said = mac.state("run").join(failing).join("steps/main/exit.json");
        wait::until_true("both to end", PATIENCE, || async {
            Ok(said.exists() && !mac.control.running()?.contains(&crashing))
        })
        .await?;
        for name in ["crashes", "fails"] {
            let pod = mac.pods().get(name).await?;
            ensure!(!over(&pod), "{name} ended with the agent away: {:?}", pod.status);
        }

        stage.step("launchd starts the agent again");
        mac.start_agent().await?;
        let ended = mac.until("crashes", "the Pod to end", over).await?;
        let exit = terminated(&ended)?;
        promise!(
            "a-crash-is-no-success",
            phase(&ended) == "Failed" && exit.exit_code != 0,
            "a VM that crashed was reported as {} with {exit:?}",
            phase(&ended)
        );
        let why = exit.message.unwrap_or_default();
        promise!("a-crash-says-why", !why.is_empty(), "nothing says why: {:?}", ended.status);
        stage.holds(format!("the crash is a failure, and says: {why}"));
        let ended = mac.until("fails", "the Pod to end", over).await?;
        let exit = terminated(&ended)?;
        promise!(
            "an-exit-code-is-not-lost",
            (phase(&ended), exit.exit_code) == ("Failed", 7),
            "it was reported as {} with {exit:?}",
            phase(&ended)
        );
        stage.holds("the program failed with 7, and so its Pod says");
        Ok(())
    }
    .boxed_local()
}

fn over(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}
