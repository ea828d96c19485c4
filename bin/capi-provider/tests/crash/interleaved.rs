//! Two providers at once, both sure that they lead, with random pauses and a random death each.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use russet_draw::Draw;
use russet_testkit::TestCluster;
use russet_testkit::wait::{self, Look};

use crate::clock::Pace;
use crate::life::Life;
use crate::stage::{PATIENCE, cluster};
use crate::suite::{ALWAYS, Played as _, any_fate, hold};
use crate::world::World;

/// How many are played, and from which seed on: more for a long run by night.
const COUNT: &str = "RUSSET_CRASH_INTERLEAVINGS";
const SEED: &str = "RUSSET_CRASH_SEED";

#[expect(clippy::disallowed_methods, reason = "a longer run is asked for by hand")]
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_providers_that_both_believe_they_lead_leak_double_and_wipe_nothing() -> Result<()> {
    let cluster = cluster().await?;
    let first = number(SEED, 6);
    let seeds = Draw::cases("interleavings of Macs", ALWAYS, first..first + number(COUNT, 10));
    futures::stream::iter(seeds)
        .map(async |seed| play(cluster, seed).await.with_context(|| format!("{SEED}={seed}")))
        .buffer_unordered(10)
        .try_collect()
        .await
}

async fn play(cluster: &TestCluster, seed: u64) -> Result<()> {
    let mut dice = StdRng::seed_from_u64(seed);
    let hosts = dice.random_range(1..=2);
    let mut world = World::new(cluster, &format!("pair-{seed}"), hosts).await?;
    world.clock.pace = Pace::Real;
    let mut life = || {
        let fate = any_fate(&mut dice);
        Life::uneven(Some(fate), dice.random())
    };
    let (one, two) = (life(), life());
    let moments = [dice.random_range(0..60), dice.random_range(0..60)];
    let done = || one.done() + two.done();
    let script = async {
        let mut machines = Vec::new();
        for _ in 0..moments.len() {
            machines.push(world.add_machine().await?);
        }
        // Each machine is deleted somewhere in the middle of what the two do, or when there is nothing more to do.
        for (machine, moment) in machines.iter().zip(moments) {
            let moment = done() + moment;
            wait::until("something to be done", PATIENCE, || async {
                let serving = world.serving().await?;
                let reached = done() >= moment || serving >= 1;
                Ok(Look::done_if(reached, (done(), moment)))
            })
            .await?;
            world.delete_machine(machine).await?;
        }
        for machine in &machines {
            world.until_gone(machine).await?;
        }
        world.check_at_rest().await
    };
    tokio::select! {
        done = script => done?,
        ended = hold(&world, Arc::clone(&one), seed ^ 1) => panic!("a provider ended: {ended:?}"),
        ended = hold(&world, Arc::clone(&two), seed ^ 2) => panic!("a provider ended: {ended:?}"),
    }
    world.sim.stop().await?;
    Ok(())
}
