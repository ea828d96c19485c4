//! A released host was renamed into the pool, its reinstallation failed, another Machine took it, and the retry wiped it.

use anyhow::{Context, Result};
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::ResourceExt as _;
use russet_sim_scaleway::{Act, Factor, Fault, Id};
use russet_stages::macs::{self, Fleet};
use russet_testkit::wait::{Look, PATIENCE};
use serde_json::json;

use super::{Play, Scenario, Stage, promise, until};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "release-wipes-a-live-host",
    from: "F capi 7.1",
    what_happened: "renamed to the pool, the reinstallation failed, another Machine adopted the host, and the retry wiped it",
    must_hold: "a host enters the pool only after its wipe was seen to run and to end, however often the call fails",
    without: Some(include_str!("release_wipes.without.patch")),
    play: Play::Fleet(run),
};

/// How a mini is called that is on its way back.
const RELEASING: &str = "tuist-releasing-";

fn run<'a>(stage: &'a mut Stage<'_, Fleet>) -> BoxFuture<'a, Result<()>> {
    async move {
        let Stage { world: fleet, narrator } = stage;
        narrator.step("two machines compete for one mini; the first is deleted while the reinstallation fails twice, and is then done without an answer");
        let handle = fleet.sim.handle();
        let yard = fleet.yard("release", 1).await?;
        yard.running(1).await?;
        let first = yard.only_mac().await?.name_any();
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
        until("the wipe to be seen", PATIENCE * 4, || async {
            let called = yard.name_of(&server)?;
            promise!(
                "pooled-after-wipe",
                called == first || called.starts_with(RELEASING),
                "the mini of {first} is called {called}, and its wipe was not seen to end"
            );
            let macs = yard.all_macs().await?;
            let owner = macs.iter().find(|mac| mac.name_any() == first);
            let intent = owner.and_then(|mac| mac.status.as_ref()?.intent.clone());
            let seen = intent.as_ref().is_some_and(|intent| intent.parameters.contains_key("wipeSeenAt"));
            Ok(if seen { Look::Done(()) } else { Look::not_yet(intent) })
        })
        .await?;
        let calls = changes(fleet, &server).split_off(before);
        let wanted = ["PATCH 200", "POST reinstall 502", "POST reinstall 502", "POST reinstall 502"];
        promise!("wiped-once", calls == wanted, "one name, and one wipe that three calls were needed for: {calls:?}");
        narrator.holds("two calls that failed were made again, the one whose answer was lost was not, and no other machine has the mini");
        handle.set_clock_factor(macs::clock()?);
        yard.available_within("macos", 0, PATIENCE * 3).await?;
        yard.available_within("next", 1, PATIENCE * 3).await?;
        let after = handle.host(&server).context("the mini is gone")?.generation;
        promise!("wiped-once", after == generation + 1, "wiped {} times", after - generation);
        narrator.holds("the second machine got the mini, wiped exactly once");

        // The name of the pool, the marker of a claim, the name of its next owner.
        let calls = changes(fleet, &server).split_off(before + wanted.len());
        promise!("named-after-wipe", calls == ["PATCH 200", "PATCH 200", "PATCH 200"], "{calls:?}");
        narrator.holds("it got its pool name, and then its next owner's, only after it was wiped");
        Ok(())
    }
    .boxed()
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
