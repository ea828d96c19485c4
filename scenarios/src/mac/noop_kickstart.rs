//! A kickstart that said 0 and left the old process where it was.

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use russet_api::ScalewayAppleSiliconMachine;
use russet_api::conditions::types;
use russet_sim_mac::macos::Faults;
use russet_stages::macs::Yard;
use serde_json::json;

use super::Mini;
use super::program::stays;
use super::under_provider::{Image, condition, hash, look_again, mini_of, set_up};
use crate::{Play, Scenario, Stage, promise};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "noop-kickstart",
    from: "S2",
    what_happened: "kickstart left the old process running, and the roll was recorded",
    must_hold: "a roll is recorded only when a new process is stable; otherwise the drift stays set and the roll is tried again",
    without: Some(include_str!("noop_kickstart.without.patch")),
    play: Play::Own(run),
};

/// Failures after which it is clear that it is tried again.
const ATTEMPTS: i32 = 2;

fn run<'a>(stage: &'a mut Stage<'_, ()>) -> LocalBoxFuture<'a, Result<()>> {
    async move {
        stage.step(
            "a real control plane with Cluster API core and the provider, which sets up an emulated Mac over SSH",
        );
        let image = Image::with(&stays("1"))?;
        let fleet = image.fleet(&[]).await?;
        let yard = fleet.yard("noop", 1).await?;
        let mini = mini_of(&yard).await?;
        let before = set_up(&yard, json!({})).await?;
        stage.step("from now on kickstart says 0 and does nothing");
        mini.mac()
            .await?
            .set_faults(|faults| faults.kickstart_does_nothing = true);
        ours(stage, &image, &yard, &mini, &before).await
    }
    .boxed_local()
}

fn attempts(mac: &ScalewayAppleSiliconMachine) -> i32 {
    let status = mac.status.as_ref();
    status
        .and_then(|status| status.tart_kubelet_update_attempts)
        .unwrap_or(0)
}

fn says_why(mac: &ScalewayAppleSiliconMachine) -> bool {
    let said = condition(mac, types::UP_TO_DATE).and_then(|said| said.message.clone());
    said.is_some_and(|said| said.contains("tart-kubelet-job") && said.contains("still the process from before"))
}

async fn ours(
    stage: &mut Stage<'_, ()>,
    image: &Image,
    yard: &Yard<'_>,
    mini: &Mini,
    before: &ScalewayAppleSiliconMachine,
) -> Result<()> {
    stage.step("the provider gets a new agent and rolls it");
    let old = mini.running().await?;
    image.put("agent", &stays("2"))?;
    look_again(yard, "a new agent").await?;
    let failing = yard
        .mac_until("the roll to fail more than once and to say why", |mac| {
            hash(mac) != hash(before) || (attempts(mac) >= ATTEMPTS && says_why(mac))
        })
        .await?;
    ensure!(mini.running().await? == old, "there is another process after all");
    promise!(
        "recorded-when-new",
        hash(&failing) == hash(before),
        "process {old} has the old code, and the roll is recorded: {:?}",
        failing.status
    );
    let said = condition(&failing, types::UP_TO_DATE).context("nothing is said about the configuration")?;
    let message = said.message.as_deref().unwrap_or_default();
    stage.holds(format!(
        "{ATTEMPTS} attempts and more, none recorded: hostConfigHash is the old one, and a condition says: {message}"
    ));

    stage.step("launchd does what it is told again");
    mini.mac().await?.set_faults(|faults| *faults = Faults::default());
    yard.mac_until("the roll to be recorded", |mac| hash(mac) != hash(before))
        .await?;
    promise!(
        "recorded-when-new",
        mini.running().await? != old,
        "recorded, and process {old} is still there"
    );
    stage.holds("the next attempt leaves a new process, and only that one is recorded");
    Ok(())
}
