//! A drift path that was a second list of steps, and one of them was missing in it.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use jiff::Timestamp;
use russet_api::ScalewayAppleSiliconMachine;
use russet_stages::macs::Yard;
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::json;

use super::Mini;
use super::program::stays;
use super::under_provider::{Image, hash, look_again, mini_of, set_up};
use crate::{Play, Scenario, Stage, promise};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "drift-path-forgets-a-step",
    from: "S0",
    what_happened: "the drift update did not pass node_exporter on, so its installer was silently skipped on every roll",
    must_hold: "first set-up and drift run one and the same plan, and what is hashed is what the plan does",
    without: Some(include_str!("drift_path.without.patch")),
    play: Play::Own(run),
};

const EXPORTER: &str = "dev.tuist.node-exporter";

fn run<'a>(stage: &'a mut Stage<'_, ()>) -> LocalBoxFuture<'a, Result<()>> {
    async move {
        stage.step(
            "a real control plane with Cluster API core and the provider, which sets up an emulated Mac over SSH",
        );
        let image = Image::with(&stays("agent"))?;
        image.put("node_exporter", &stays("node_exporter 1"))?;
        let mut flags = image.tailnet()?;
        flags.push(image.flag("node-exporter-binary-path", "node_exporter"));
        let fleet = image.fleet(&flags).await?;
        let yard = fleet.yard("drift", 1).await?;
        let mini = mini_of(&yard).await?;
        let before = set_up(&yard, json!({})).await?;
        ours(stage, &image, &yard, &mini, &before).await
    }
    .boxed_local()
}

/// Which upload the node_exporter of a Mac came from.
async fn installed(mini: &Mini) -> Result<String> {
    let said = mini.root("cat /usr/local/lib/russet/installed/node_exporter").await?;
    Ok(said.split_whitespace().next().unwrap_or_default().to_owned())
}

/// When each step of the plan was last done, by name. The credentials are the provider's own affair.
fn steps(mac: &ScalewayAppleSiliconMachine) -> BTreeMap<String, Option<Timestamp>> {
    let steps = mac.status.iter().flat_map(|status| &status.steps);
    steps
        .filter(|step| step.name != "credentials")
        .map(|step| (step.name.clone(), step.finished_at.as_ref().map(|time| time.0)))
        .collect()
}

async fn ours(
    stage: &mut Stage<'_, ()>,
    image: &Image,
    yard: &Yard<'_>,
    mini: &Mini,
    before: &ScalewayAppleSiliconMachine,
) -> Result<()> {
    let mac = mini.mac().await?;
    let (file, process) = (installed(mini).await?, mac.daemon_pid(EXPORTER));
    ensure!(process.is_some(), "node_exporter does not run after the first set-up");
    stage.step("the provider gets a new node_exporter, and nothing else");
    let first = steps(before);
    let last = first.values().flatten().max().copied().context("no step was done")?;
    // Times of objects are whole seconds.
    wait::until_true("the next second", PATIENCE, || async {
        Ok(Timestamp::now().as_second() > last.as_second())
    })
    .await?;
    image.put("node_exporter", &stays("node_exporter 3"))?;
    look_again(yard, "a new node_exporter").await?;
    let rolled = yard
        .mac_until("the roll to be recorded", |mac| hash(mac) != hash(before))
        .await?;
    let now = installed(mini).await?;
    promise!(
        "whole-roll",
        now != file,
        "the roll is recorded, and node_exporter is the upload {now}, as before"
    );
    wait::until("the new node_exporter to run", PATIENCE, || async {
        let now = mac.daemon_pid(EXPORTER);
        let new = now.is_some() && now != process;
        Ok(if new { Look::Done(()) } else { Look::not_yet(now) })
    })
    .await?;
    stage.holds("the host is recorded as up to date, and it is: the new node_exporter is there, and runs");
    let again = steps(&rolled);
    let same = first.contains_key("node-exporter") && first.keys().eq(again.keys());
    promise!(
        "one-plan",
        same,
        "the two runs had different steps: {first:?} and {again:?}"
    );
    let forgotten: Vec<&String> = again
        .iter()
        .filter(|(_, done)| done.is_none_or(|done| done <= last))
        .map(|(step, _)| step)
        .collect();
    promise!("one-plan", forgotten.is_empty(), "the roll went past {forgotten:?}");
    stage.holds(format!(
        "the roll went through the same {} steps as the first set-up, which are also what is hashed",
        again.len()
    ));
    Ok(())
}
