//! One worker did everything, one thing after the other; a pull took twenty minutes, and so did whatever came after it.

use anyhow::{Result, ensure};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use kube::api::DeleteParams;
use russet_sim_tart::PullFault;
use russet_testkit::wait::{self, Look};
use tokio::time::{Duration, Instant};

use super::{IMAGE, Mac, OTHER_IMAGE, PATIENCE, WAITS, phase, split, terminated, waiting};
use crate::{Play, Scenario, Stage, promise};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "worker-blocked-by-pull",
    from: "F",
    what_happened: "a pull of twenty minutes held up the deletion and the status of the other VM of its host",
    must_hold: "while the image of one Pod is pulled, others are deleted and live their lives, and the one that waits for it can be deleted",
    without: Some(include_str!("worker_blocked.without.patch")),
    play: Play::Mac(run),
};

/// A Pod has five seconds to end; one that is still there after this is held up.
const HELD_UP: Duration = Duration::from_secs(90);

fn run<'a>(stage: &'a mut Stage<'_, Mac>) -> LocalBoxFuture<'a, Result<()>> {
    async move {
        let (mac, mut stage) = split(stage);
        stage.step("a Pod runs, and a large image is pulled for a second one");
        mac.run("busy", IMAGE, Some(&format!("{WAITS} 0"))).await?;
        mac.until_running("busy").await?;
        mac.control.switch(|switches| switches.pull = Some(PullFault::Stall))?;
        mac.run("pulls", OTHER_IMAGE, Some("true")).await?;
        mac.until("pulls", "a Pod that waits for its image", |pod| waiting(pod).is_some())
            .await?;
        wait::until_true("the pull to stand still", PATIENCE, || async {
            mac.is_pulling(OTHER_IMAGE).await
        })
        .await?;

        stage.step("while that download stands still the first Pod is deleted, and a third one comes");
        mac.pods().delete("busy", &DeleteParams::default()).await?;
        let deleted = Instant::now();
        let left = wait::until("the Pod and its VM to be gone", PATIENCE, || async {
            let (pod, vm) = (mac.pods().get_opt("busy").await?, mac.vm("busy")?);
            let left = pod.is_some() || vm.is_some();
            Ok(if left && deleted.elapsed() < HELD_UP {
                Look::not_yet(vm)
            } else {
                Look::Done(left)
            })
        })
        .await?;
        let pulls = mac.pods().get("pulls").await?;
        ensure!(phase(&pulls) == "Pending", "the download was over: {:?}", pulls.status);
        promise!(
            "deleted-beside-a-pull",
            !left,
            "{} s after it was deleted a Pod is still there, while another one waits for its image",
            HELD_UP.as_secs()
        );
        let next = mac.run("next", IMAGE, Some(&format!("{WAITS} 3"))).await?;
        mac.until_running("next").await?;
        mac.go(&next)?;
        let ended = mac
            .until("next", "the third Pod to end", |pod| phase(pod) == "Failed")
            .await?;
        let exit = terminated(&ended)?;
        promise!("a-life-beside-a-pull", exit.exit_code == 3, "it ended with {exit:?}");
        let pulls = mac.pods().get("pulls").await?;
        ensure!(phase(&pulls) == "Pending", "the download was over: {:?}", pulls.status);
        stage.holds("one Pod was deleted and another lived its whole life, while the download stood still");

        stage.step("the Pod that waits for its image is deleted");
        mac.pods().delete("pulls", &DeleteParams::default()).await?;
        mac.until_gone("pulls").await?;
        stage.holds("it goes at once, and does not wait for its image either");
        Ok(())
    }
    .boxed_local()
}
