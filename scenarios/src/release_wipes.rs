//! A released host was renamed into the pool, its reinstallation failed, another Machine took it, and the retry wiped it.

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use russet_sim_scaleway::{Act, Factor, Fault, Id, Status};
use russet_stages::macs::{self, Fleet};
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::{Value, json};

use super::raw::Raw;
use super::{Play, Scenario, Stage};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "release-wipes-a-live-host",
    from: "F capi 7.1",
    what_happened: "renamed to the pool, the reinstallation failed, another Machine adopted the host, and the retry wiped it",
    must_hold: "a host enters the pool only after its wipe was seen to run and to end, however often the call fails",
    without: None,
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
    narrator.step("two machines compete for one mini; the first is deleted while the reinstallation fails twice, and is then done without an answer");
    let handle = fleet.sim.handle();
    let yard = fleet.yard("ours", 1).await?;
    yard.running(1).await?;
    let first = yard
        .all_macs()
        .await?
        .into_iter()
        .next()
        .and_then(|mac| mac.metadata.uid);
    let server = yard.minis().into_iter().next().context("there is no mini")?;
    let reinstall = "/apple-silicon/v1alpha1/zones/*/servers/*/reinstall";
    handle.inject(Fault::new("POST", reinstall, Act::Status(502)).times(2));
    handle.inject(Fault::new("POST", reinstall, Act::Status(502)).skip(2).after_effect());
    let generation = handle.host(&server).context("the mini is gone")?.generation;
    let before = changes(fleet, &server).len();
    yard.template("next", json!({"hostCPU": 4})).await?;
    yard.deployment("next", "next", 1).await?;
    // A wipe takes as long as a real one until it was seen to run.
    handle.set_clock_factor(Factor::REAL);
    yard.scale("macos", 0).await?;
    let held = wait::until("the wipe to be seen", PATIENCE * 4, || async {
        let macs = yard.all_macs().await?;
        let owner = macs.iter().find(|mac| mac.metadata.deletion_timestamp.is_some());
        let intent = owner
            .and_then(|mac| mac.status.clone())
            .and_then(|status| status.intent);
        let seen = intent
            .as_ref()
            .is_some_and(|intent| intent.parameters.contains_key("wipeSeenAt"));
        let taken = macs.iter().any(|mac| {
            let server = mac.status.as_ref().and_then(|status| status.server_id.clone());
            mac.metadata.uid != first && server.is_some()
        });
        Ok(if seen || taken {
            Look::Done(!taken)
        } else {
            Look::not_yet(intent)
        })
    })
    .await?;
    ensure!(held, "another machine took the mini before it was wiped");
    let calls = changes(fleet, &server).split_off(before);
    let wanted = [
        "PATCH 200",
        "POST reinstall 502",
        "POST reinstall 502",
        "POST reinstall 502",
    ];
    ensure!(
        calls == wanted,
        "one name, and one wipe that three calls were needed for: {calls:?}"
    );
    narrator.holds(
        "two calls that failed were made again, the one whose answer was lost was not, and nobody else has the mini",
    );
    handle.set_clock_factor(macs::clock()?);
    yard.available_within("macos", 0, PATIENCE * 3).await?;
    yard.available_within("next", 1, PATIENCE * 3).await?;
    let after = handle.host(&server).context("the mini is gone")?.generation;
    ensure!(after == generation + 1, "wiped {} times", after - generation);
    narrator.holds("the second machine got the mini, wiped exactly once");

    // The name of the pool, the marker of a claim, the name of its next owner.
    let calls = changes(fleet, &server).split_off(before + wanted.len());
    ensure!(calls == ["PATCH 200", "PATCH 200", "PATCH 200"], "{calls:?}");
    narrator.holds("it got its pool name, and then its next owner's, only after it was wiped");
    Ok(())
}

/// What was asked of a mini so far, reads apart.
fn changes(fleet: &Fleet, server: &Id) -> Vec<String> {
    let id = server.to_string();
    let journal = fleet.sim.handle().journal();
    let changes = journal
        .iter()
        .filter(|call| call.path.contains(&id) && call.method != "GET");
    changes
        .map(|call| match call.path.rsplit('/').next() {
            Some("reinstall") => format!("{} reinstall {}", call.method, call.status),
            _ => format!("{} {}", call.method, call.status),
        })
        .collect()
}
