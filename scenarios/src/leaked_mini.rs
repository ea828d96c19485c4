//! A deleted Machine left its mini behind: billed, named after nobody, in no pool.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use russet_sim_scaleway::{Act, Fault};
use russet_stages::macs::Fleet;
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::json;

use super::{Play, Scenario, Stage, promise, until};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "leaked-mini",
    from: "S2",
    what_happened: "deleting a Machine stranded a mini that was paid for and belonged to nobody",
    must_hold: "deleted while it is taken, set up or in use, a machine is gone only when its mini is in the pool, wiped if it was in use; \
                one that was torn off its mini all the same is reported",
    without: Some(include_str!("leaked_mini.without.patch")),
    play: Play::Fleet(run),
};

/// Where a machine is when it is deleted.
const PHASES: [&str; 3] = ["Adopting", "Bootstrapping", "Ready"];

fn run<'a>(stage: &'a mut Stage<'_, Fleet>) -> BoxFuture<'a, Result<()>> {
    async move {
        for phase in PHASES {
            delete_in(stage, phase).await?;
        }
        let orphan = torn_off(stage).await?;
        let Stage { world: fleet, narrator } = stage;
        reported(fleet, &orphan).await?;
        narrator.holds("the provider reports it as an orphan, by name");
        let bill = fleet.sim.handle().bill();
        let paid: BTreeSet<String> = bill.running().map(ToString::to_string).collect();
        let servers = fleet.sim.handle().servers();
        let known: BTreeSet<String> = servers
            .iter()
            .filter_map(|server| server["id"].as_str().map(str::to_owned))
            .collect();
        promise!(
            "none-ordered",
            paid == known,
            "the bill names {paid:?}, the account has {known:?}"
        );
        narrator.holds("every mini on the bill is in the account, and none was ordered");
        Ok(())
    }
    .boxed()
}

async fn delete_in(stage: &mut Stage<'_, Fleet>, phase: &str) -> Result<()> {
    let Stage { world: fleet, narrator } = stage;
    narrator.step(&format!("delete a machine that is {phase}"));
    let yard = fleet.yard("leak", 1).await?;
    let server = yard.minis().into_iter().next().context("there is no mini")?;
    if phase == "Bootstrapping" {
        // It stays there: the host never gets to join.
        fleet.macs.fail_joins(&server, u32::MAX).await;
    }
    if phase == "Adopting" {
        // Refused for certain: a lost answer would have to be waited for.
        let busy = Act::TooManyRequests { retry_after: 1 };
        let fault = Fault::new("PATCH", "/apple-silicon/**", busy).times(3);
        fleet.sim.handle().inject(fault);
    }
    yard.cluster().await?;
    yard.template("macos", json!({})).await?;
    yard.deployment("macos", "macos", 1).await?;
    let mac = yard
        .mac_until(&format!("phase {phase}"), |mac| {
            mac.status
                .as_ref()
                .and_then(|status| status.phase.as_ref())
                .is_some_and(|seen| seen.as_str() == phase)
        })
        .await?;
    let before = generation(fleet, &server)?;
    yard.scale("macos", 0).await?;
    let name = mac.name_any();
    let wiped = until("the machine to be gone", PATIENCE, || async {
        // The machine first: what is seen of its mini then is later.
        let left = yard.macs().get_opt(&name).await?;
        let wiped = generation(fleet, &server)? - before;
        let called = yard.name_of(&server)?;
        let pooled = called.starts_with(&yard.pool);
        promise!(
            "pooled-after-wipe",
            !pooled || phase == "Adopting" || wiped > 0,
            "{phase}: the mini was in use and is free as {called}, and nothing wiped it"
        );
        if left.is_some() {
            return Ok(Look::not_yet(json!(left)));
        }
        promise!(
            "not-left-behind",
            pooled,
            "{phase}: the machine is gone, and its mini is called {called} and paid for"
        );
        Ok(Look::Done(wiped))
    })
    .await?;
    narrator.holds(&format!("{phase}: the mini is back in the pool after {wiped} wipes"));
    Ok(())
}

/// How often a mini was installed.
fn generation(fleet: &Fleet, server: &russet_sim_scaleway::Id) -> Result<u32> {
    Ok(fleet.sim.handle().host(server).context("the mini is gone")?.generation)
}

/// A mini whose machine lost its finalizer to an operator who was in a hurry.
async fn torn_off(stage: &mut Stage<'_, Fleet>) -> Result<String> {
    stage.step("an operator pauses a machine, deletes it and takes its finalizer off, so that nothing is released");
    let yard = stage.world.yard("torn", 1).await?;
    yard.running(1).await?;
    let name = yard.only_mac().await?.name_any();
    let pause = Patch::Merge(json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}}));
    yard.macs().patch(&name, &PatchParams::default(), &pause).await?;
    yard.macs().delete(&name, &DeleteParams::default()).await?;
    let torn = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    yard.macs().patch(&name, &PatchParams::default(), &torn).await?;
    let left = yard.servers();
    ensure!(
        left.iter().any(|(server, _)| *server == name),
        "it was released: {left:?}"
    );
    Ok(name)
}

/// What only looks like an orphan for as long as a call may be under way is not reported.
async fn reported(fleet: &Fleet, name: &str) -> Result<()> {
    wait::until("the orphan to be reported", PATIENCE, || async {
        let log = fleet.provider_log();
        let told = log
            .lines()
            .any(|line| line.contains("belongs to nobody") && line.contains(name));
        Ok(if told {
            Look::Done(())
        } else {
            Look::not_yet("no line about it")
        })
    })
    .await
}
