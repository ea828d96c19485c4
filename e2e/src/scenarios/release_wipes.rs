//! A released host was renamed into the pool, its reinstallation failed, another Machine took it, and the retry wiped it.

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use russet_sim_scaleway::{Act, Fault, Status};
use serde_json::{Value, json};

use super::raw::Raw;
use super::{Play, Scenario, Stage};
use crate::fleet::Fleet;
use crate::wait::PATIENCE;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "release-wipes-a-live-host",
    from: "F capi 7.1",
    what_happened: "renamed to the pool, the reinstallation failed, another Machine adopted the host, and the retry wiped it",
    must_hold: "a host enters the pool only after its wipe was seen to run and to end, however often the call fails",
    play: Play::Fleet(run),
};

fn run<'a>(stage: &'a mut Stage<'_, Fleet>) -> BoxFuture<'a, Result<()>> {
    async move {
        naive(stage).await?;
        ours(stage).await
    }
    .boxed()
}

/// The old order of calls, by hand.
async fn naive(stage: &mut Stage<'_, Fleet>) -> Result<()> {
    let Stage { world: fleet, narrator } = stage;
    narrator.step("release by hand as it was done: rename into the pool, then reinstall, and the second call fails");
    let handle = fleet.sim.handle();
    let yard = fleet.yard("naive", 1).await?;
    let server = yard.minis().into_iter().next().context("there is no mini")?;
    let url = format!(
        "{}/apple-silicon/v1alpha1/zones/fr-par-1/servers/{server}",
        fleet.sim.url()
    );
    let http = Raw::default();
    http.call("PATCH", &url, json!({"name": "somebody-elses-pool-1"}))
        .await?;
    handle.inject(Fault::new("POST", "/apple-silicon/**", Act::Status(502)));
    let refused = http.call("POST", &format!("{url}/reinstall"), json!({})).await;
    ensure!(refused.is_err(), "the fault was not injected");
    let shown = http.call("GET", &url, Value::Null).await?;
    ensure!(shown.get("status") == Some(&json!("ready")), "{shown}");
    narrator.step("another machine takes what looks free, and then the retry comes");
    http.call("PATCH", &url, json!({"name": "live-machine"})).await?;
    http.call("POST", &format!("{url}/reinstall"), json!({})).await?;
    let shown = http.call("GET", &url, Value::Null).await?;
    let wiping = json!(Status::Reinstalling.as_str());
    ensure!(shown.get("status") == Some(&wiping), "{shown}");
    narrator.bites("live-machine is being wiped under its owner");
    Ok(())
}

async fn ours(stage: &mut Stage<'_, Fleet>) -> Result<()> {
    let Stage { world: fleet, narrator } = stage;
    narrator.step("two machines compete for one mini; the first is deleted while the reinstallation is refused twice, and then done without an answer");
    let handle = fleet.sim.handle();
    let yard = fleet.yard("ours", 1).await?;
    yard.running(1).await?;
    let server = yard.minis().into_iter().next().context("there is no mini")?;
    let reinstall = "/apple-silicon/v1alpha1/zones/*/servers/*/reinstall";
    let refused = Act::TooManyRequests { retry_after: 1 };
    handle.inject(Fault::new("POST", reinstall, refused).times(2));
    handle.inject(Fault::new("POST", reinstall, Act::Status(502)).skip(2).after_effect());
    let generation = handle.host(&server).context("the mini is gone")?.generation;
    yard.template("next", json!({"hostCPU": 4})).await?;
    yard.deployment("next", "next", 1).await?;
    yard.scale("macos", 0).await?;
    // An answer that was lost is waited for until it can no longer arrive.
    yard.available_within("macos", 0, PATIENCE * 3).await?;
    yard.available_within("next", 1, PATIENCE * 3).await?;
    let after = handle.host(&server).context("the mini is gone")?.generation;
    // A wipe that nobody saw run, because its answer was lost, is not believed: it may be done again, while the host is still held.
    ensure!(after > generation, "it was handed on without a wipe");
    narrator.holds("the second machine got the mini, and it had been wiped");

    let id = server.to_string();
    let calls: Vec<String> = handle
        .journal()
        .iter()
        .filter(|call| call.path.contains(&id) && call.method != "GET" && call.reached)
        .map(|call| format!("{} {}", call.method, call.path.rsplit('/').next().unwrap_or_default()))
        .collect();
    let is_wipe = |call: &String| call.ends_with("reinstall");
    let first = calls.iter().position(is_wipe).context("it was never wiped")?;
    let last = calls.iter().rposition(is_wipe).context("it was never wiped")?;
    let wipes = calls.get(first..=last).unwrap_or_default();
    ensure!(wipes.iter().all(is_wipe), "renamed between two wipes: {calls:?}");
    let renames = calls.iter().skip(last).filter(|call| call.starts_with("PATCH")).count();
    ensure!(renames >= 2, "wiped after it was in the pool: {calls:?}");
    narrator.holds("it got its pool name, and then its next owner's, only after the last call that wipes it");
    Ok(())
}
