//! A deleted Machine left its mini behind: billed, named after nobody, in no pool.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use russet_sim_scaleway::{Act, Fault};
use russet_stages::macs::{Fleet, Yard};
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::json;

use super::{Play, Scenario, Stage};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "leaked-mini",
    from: "S2",
    what_happened: "deleting a Machine stranded a mini that was paid for and belonged to nobody",
    must_hold: "deleted at any point, the mini ends in the pool, wiped, or is reported; it is never both owned and pooled",
    without: None,
    play: Play::Fleet(run),
};

/// Where a machine is when it is deleted.
const PHASES: [&str; 3] = ["Adopting", "Bootstrapping", "Ready"];

fn run<'a>(stage: &'a mut Stage<'_, Fleet>) -> BoxFuture<'a, Result<()>> {
    async move {
        let orphan = naive(stage).await?;
        for phase in PHASES {
            delete_in(stage, phase).await?;
        }
        stage.step("all phases are done; look at the bill, and at what the provider says of the stranded mini");
        reported(stage, &orphan).await?;
        let bill = stage.world.sim.handle().bill();
        let paid: BTreeSet<String> = bill.running().map(ToString::to_string).collect();
        let known: BTreeSet<String> = stage
            .world
            .sim
            .handle()
            .servers()
            .iter()
            .filter_map(|server| server["id"].as_str().map(str::to_owned))
            .collect();
        ensure!(paid == known, "the bill names {paid:?}, the account has {known:?}");
        stage.holds("every mini on the bill is in the account, and none was ordered");
        Ok(())
    }
    .boxed()
}

/// What happens when a finalizer is simply taken off, as a provider without a release does.
async fn naive(stage: &mut Stage<'_, Fleet>) -> Result<String> {
    stage.step("a machine whose finalizer is torn off while it is deleted: what a provider without a release leaves");
    let name = {
        let yard = stage.world.yard("naive", 1).await?;
        yard.running(1).await?;
        let mac = yard.only_mac().await?;
        let name = mac.name_any();
        // Paused, so that ours does not get to its release.
        let pause = Patch::Merge(json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}}));
        yard.macs().patch(&name, &PatchParams::default(), &pause).await?;
        yard.macs().delete(&name, &DeleteParams::default()).await?;
        let torn = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        yard.macs().patch(&name, &PatchParams::default(), &torn).await?;
        let left = yard.servers();
        ensure!(
            left.iter().any(|(server, _)| *server == name),
            "the staged fault did not bite: {left:?}"
        );
        name
    };
    stage.bites(format!(
        "the mini is still named {name}, costs money, and nobody will ever take it"
    ));
    Ok(name)
}

/// What only looks like an orphan for as long as a call may be under way is not reported, so this comes last.
async fn reported(stage: &mut Stage<'_, Fleet>, name: &str) -> Result<()> {
    let fleet = &stage.world;
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
    .await?;
    stage.holds("the provider reports it as an orphan, by name");
    Ok(())
}

async fn delete_in(stage: &mut Stage<'_, Fleet>, phase: &str) -> Result<()> {
    let Stage { world: fleet, narrator } = stage;
    narrator.step(&format!("delete a machine that is {phase}"));
    let yard = fleet.yard("leak", 1).await?;
    if phase == "Bootstrapping" {
        // It stays there: the host never gets to join.
        for server in yard.minis() {
            fleet.macs.fail_joins(&server, u32::MAX).await;
        }
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
    yard.scale("macos", 0).await?;
    let name = mac.name_any();
    wait::until("the machine to be gone", PATIENCE, || async {
        let left = yard.macs().get_opt(&name).await?;
        Ok(if left.is_none() {
            Look::Done(())
        } else {
            Look::not_yet(json!(left))
        })
    })
    .await?;
    yard.all_pooled(1).await?;
    let wiped = wipes(&yard);
    ensure!(
        phase == "Adopting" || wiped == 1,
        "{phase}: the mini was in use and came back after {wiped} wipes"
    );
    narrator.holds(&format!("{phase}: the mini is back in the pool after {wiped} wipes"));
    Ok(())
}

/// How often the minis of a yard were installed anew.
fn wipes(yard: &Yard<'_>) -> u32 {
    let generation = |server| yard.fleet.sim.handle().host(&server).map_or(0, |host| host.generation);
    yard.minis()
        .into_iter()
        .map(|server| generation(server).saturating_sub(1))
        .sum()
}
