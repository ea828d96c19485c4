//! One machine, from its creation to its deletion, with one thing going wrong; and two providers at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use russet_e2e::TestCluster;

use crate::life::{Fate, How, Life, Place};
use crate::replica::Replica;
use crate::world::{Kind, World, cluster};

/// Cases at once: most of the time they wait until a lost call can no longer arrive.
const AT_ONCE: usize = 24;

#[derive(Clone, Debug)]
struct Case {
    number: usize,
    kind: Kind,
    fate: Fate,
    /// The owner deletes the machine when its provider died before it served.
    deletes: bool,
}

/// A life without faults: what is done in it, in order, and how much of that before the machine serves.
async fn record(cluster: &TestCluster, kind: Kind) -> Result<(Vec<(Place, String)>, usize)> {
    let world = World::new(cluster, &format!("recorded-{kind:?}").to_lowercase(), kind).await?;
    let replica = Replica::start(&world, Life::new(None)).await?;
    let name = world.add_machine().await?;
    world.until_ready(&name).await?;
    world.check_serving()?;
    let serving = replica.life.done();
    world.delete_machine(&name).await?;
    world.until_gone(&name).await?;
    world.check_at_rest().await?;
    let log = replica.life.log();
    replica.kill().await?;
    Ok((log, serving))
}

/// Plays one case; says what was struck.
async fn play(cluster: &TestCluster, case: &Case) -> Result<Option<String>> {
    let name = format!("case-{:?}-{}", case.kind, case.number).to_lowercase();
    let world = World::new(cluster, &name, case.kind).await?;
    let mut replica = Replica::start(&world, Life::new(Some(case.fate.clone()))).await?;
    let struck = Arc::clone(&replica.life);
    let name = world.add_machine().await?;
    let died = tokio::select! {
        () = struck.ended() => true,
        ready = world.until_ready(&name) => { ready?; false }
    };
    let mut deleted = false;
    if died {
        replica.kill().await?;
        if case.deletes {
            world.delete_machine(&name).await?;
            deleted = true;
        }
        replica = Replica::start(&world, Life::new(None)).await?;
    }
    if !deleted {
        world.until_ready(&name).await?;
        world.check_serving()?;
        world.delete_machine(&name).await?;
    }
    let died = !died
        && tokio::select! {
            () = struck.ended() => true,
            gone = world.until_gone(&name) => { gone?; false }
        };
    if died {
        replica.kill().await?;
        replica = Replica::start(&world, Life::new(None)).await?;
    }
    world.until_gone(&name).await?;
    world.check_at_rest().await?;
    replica.kill().await?;
    Ok(struck.struck())
}

/// What can happen to a call. A write to Kubernetes whose answer is lost is like one whose writer died, but for who goes on.
fn hows(place: Place, index: usize) -> Vec<How> {
    match place {
        Place::Kube if index.is_multiple_of(3) => vec![How::DieBefore, How::DieAfter, How::FailAfter],
        Place::Kube => vec![How::DieAfter],
        Place::Cloud => vec![
            How::DieBefore,
            How::DieAfter,
            How::DieWhile,
            How::FailBefore,
            How::FailAfter,
        ],
    }
}

fn cases(kind: Kind, log: &[(Place, String)], serving: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut counts: BTreeMap<&(Place, String), usize> = BTreeMap::new();
    for (position, call) in log.iter().enumerate() {
        let (place, label) = call;
        let index = counts.entry(call).or_default();
        for how in hows(*place, *index) {
            let fate = Fate {
                place: *place,
                label: Some(label.clone()),
                index: *index,
                how,
            };
            let mut add = |deletes| {
                cases.push(Case {
                    number: cases.len(),
                    kind,
                    fate: fate.clone(),
                    deletes,
                });
            };
            add(false);
            if position < serving && *place == Place::Cloud && matches!(how, How::DieAfter | How::DieWhile) {
                add(true);
            }
        }
        *index += 1;
    }
    cases
}

async fn every_call(kind: Kind) -> Result<()> {
    let cluster = cluster().await?;
    let (log, serving) = record(cluster, kind).await.context("without faults")?;
    let cases = cases(kind, &log, serving);
    let planned = cases.len();
    let played: Vec<_> = futures::stream::iter(cases)
        .map(async |case| {
            let struck = play(cluster, &case).await.with_context(|| format!("{case:?}"))?;
            anyhow::Ok((case, struck))
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let mut failures = Vec::new();
    let mut struck = BTreeSet::new();
    let mut missed = 0;
    for result in played {
        match result {
            Ok((case, Some(label))) => drop(struck.insert((case.fate.place, case.fate.how, label))),
            Ok((_, None)) => missed += 1,
            Err(error) => failures.push(format!("{error:?}")),
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {planned}:\n{}",
        failures.len(),
        failures.join("\n\n")
    );
    ensure!(missed * 5 <= planned, "{missed} of {planned} cases met no fate");
    for (place, label) in log.iter().filter(|(place, _)| *place == Place::Cloud) {
        ensure!(
            struck.contains(&(*place, How::DieAfter, label.clone())),
            "{label} was never struck: {struck:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_killed_at_any_call_about_an_instance_leaks_and_doubles_nothing() -> Result<()> {
    every_call(Kind::Instance).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_killed_at_any_call_about_an_ordered_server_leaks_and_doubles_nothing() -> Result<()> {
    every_call(Kind::Ordered).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_killed_at_any_call_about_a_server_that_was_taken_frees_it_wiped() -> Result<()> {
    every_call(Kind::Adopted).await
}

fn fate(dice: &mut StdRng) -> Fate {
    let hows = [
        How::DieBefore,
        How::DieAfter,
        How::DieWhile,
        How::FailBefore,
        How::FailAfter,
    ];
    Fate {
        place: if dice.random_bool(0.5) {
            Place::Kube
        } else {
            Place::Cloud
        },
        label: None,
        index: dice.random_range(0..12),
        how: hows[dice.random_range(0..hows.len())],
    }
}

/// One of the two, and whoever follows it when it dies.
async fn hold(world: &World, life: Arc<Life>, next: u64) -> Result<()> {
    let replica = Replica::start(world, Arc::clone(&life)).await?;
    life.ended().await;
    replica.kill().await?;
    let life = Life::uneven(None, next);
    let _replica = Replica::start(world, Arc::clone(&life)).await?;
    life.ended().await;
    Ok(())
}

async fn pair(cluster: &TestCluster, kind: Kind, seed: u64) -> Result<()> {
    let mut dice = StdRng::seed_from_u64(seed);
    let world = World::new(cluster, &format!("pair-{kind:?}-{seed}").to_lowercase(), kind).await?;
    let lives: Vec<Arc<Life>> = (0..2)
        .map(|_| Life::uneven(Some(fate(&mut dice)), dice.random()))
        .collect();
    let script = async {
        let name = world.add_machine().await?;
        world.until_ready(&name).await?;
        world.check_serving()?;
        world.delete_machine(&name).await?;
        world.until_gone(&name).await?;
        world.check_at_rest().await
    };
    tokio::select! {
        done = script => done,
        ended = hold(&world, Arc::clone(&lives[0]), seed + 1) => ended,
        ended = hold(&world, Arc::clone(&lives[1]), seed + 2) => ended,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_providers_that_both_believe_they_lead_leak_and_double_nothing() -> Result<()> {
    let cluster = cluster().await?;
    let all = Kind::ALL
        .into_iter()
        .flat_map(|kind| (1..=4_u64).map(move |seed| (kind, seed)));
    futures::stream::iter(all)
        .map(async |(kind, seed)| {
            let played = pair(cluster, kind, seed).await;
            played.with_context(|| format!("{kind:?} {seed}"))
        })
        .buffer_unordered(12)
        .try_collect()
        .await
}
