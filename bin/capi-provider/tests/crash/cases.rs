//! One machine, from its creation to its deletion, with one thing going wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use russet_e2e::TestCluster;

use crate::life::{Fate, How, Life, Place};
use crate::replica::Replica;
use crate::world::{World, cluster};

/// Cases at once: most of the time they wait until a lost call can no longer arrive.
const AT_ONCE: usize = 40;

/// What the owner of the machine does when its provider died before it served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Waits,
    Deletes,
}

#[derive(Clone, Debug)]
struct Case {
    number: usize,
    fate: Fate,
    then: Then,
}

/// A life without faults: what is done in it, in order, and how much of that before the machine serves.
struct Recorded {
    log: Vec<(Place, String)>,
    serving: usize,
}

async fn record(cluster: &TestCluster) -> Result<Recorded> {
    let world = World::new(cluster, "recorded", 2).await?;
    let replica = Replica::start(&world, Life::new(None)).await?;
    let name = world.add_machine(0).await?;
    world.until_serving(&name).await?;
    world.check_serving(&name).await?;
    let serving = replica.life.done();
    world.delete_machine(&name).await?;
    world.until_gone(&name).await?;
    world.check_at_rest().await?;
    let log = replica.life.log();
    replica.kill().await?;
    world.sim.stop().await?;
    Ok(Recorded { log, serving })
}

/// Plays one case; says what was struck.
async fn play(cluster: &TestCluster, case: &Case) -> Result<Option<String>> {
    let world = World::new(cluster, &format!("case-{}", case.number), 2).await?;
    let mut replica = Replica::start(&world, Life::new(Some(case.fate.clone()))).await?;
    let struck = std::sync::Arc::clone(&replica.life);
    let name = world.add_machine(0).await?;
    let died = tokio::select! {
        () = struck.ended() => true,
        ready = world.until_serving(&name) => { ready?; false }
    };
    if died {
        replica.kill().await?;
        if case.then == Then::Deletes {
            world.delete_machine(&name).await?;
        }
        replica = Replica::start(&world, Life::new(None)).await?;
    }
    if !world.ledger.is_deleted(&name) {
        world.until_serving(&name).await?;
        world.check_serving(&name).await?;
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
    world.sim.stop().await?;
    Ok(struck.struck())
}

/// What is written to Kubernetes for access to a host: whom the fleet's key lets in, what it joins with, how it is reached.
const ACCESS: [&str; 7] = [
    "POST keys",
    "PATCH keys",
    "POST tokens",
    "DELETE tokens",
    "DELETE certificatesigningrequests",
    "POST services",
    "DELETE services",
];
/// Calls to Scaleway that change something.
const EFFECTS: [&str; 6] = [
    "PATCH mark",
    "PATCH name",
    "PATCH release",
    "POST reinstall",
    "PATCH pool",
    "POST ssh-key",
];

/// What can happen to a call. To a read, being late means nothing; and a write to Kubernetes whose answer is lost is like one
/// whose writer died, but for who goes on, so every third will do.
fn hows(place: Place, index: usize, label: &str) -> Vec<How> {
    match place {
        Place::Kube if ACCESS.contains(&label) => {
            vec![How::DieBefore, How::DieAfter, How::FailBefore, How::FailAfter]
        }
        Place::Kube if index.is_multiple_of(3) => vec![How::DieBefore, How::DieAfter, How::FailAfter],
        Place::Kube => vec![How::DieBefore, How::DieAfter],
        Place::Cloud if label.starts_with("GET") => vec![How::DieBefore, How::DieAfter, How::FailBefore],
        Place::Cloud => vec![
            How::DieBefore,
            How::DieAfter,
            How::DieWhile,
            How::FailBefore,
            How::FailAfter,
        ],
    }
}

fn cases(recorded: &Recorded) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut counts: BTreeMap<&(Place, String), usize> = BTreeMap::new();
    for (position, call) in recorded.log.iter().enumerate() {
        let (place, label) = call;
        let count = counts.entry(call).or_default();
        for how in hows(*place, *count, label) {
            let mut add = |then| {
                cases.push(Case {
                    number: cases.len(),
                    fate: Fate {
                        place: *place,
                        label: Some(label.clone()),
                        index: *count,
                        how,
                    },
                    then,
                });
            };
            add(Then::Waits);
            if position < recorded.serving && matches!(how, How::DieAfter | How::DieWhile) {
                add(Then::Deletes);
            }
        }
        *count += 1;
    }
    cases
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_killed_at_any_call_leaves_nothing_leaked_doubled_or_unwiped() -> Result<()> {
    let cluster = cluster().await?;
    let began = std::time::Instant::now();
    let recorded = record(cluster).await.context("without faults")?;
    let cases = cases(&recorded);
    let planned = cases.len();
    let single = futures::stream::iter(cases)
        .map(async |case| {
            let struck = play(cluster, &case).await.with_context(|| format!("{case:?}"))?;
            anyhow::Ok((case, struck))
        })
        .buffer_unordered(AT_ONCE);
    let played: Vec<_> = single.collect().await;
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
    // A call more or less of some kind is a matter of timing; that each kind was struck is not.
    ensure!(missed * 10 <= planned, "{missed} of {planned} cases met no fate");
    let kinds: BTreeSet<&(Place, String)> = recorded.log.iter().collect();
    for (place, label) in kinds {
        let hit = |how| struck.contains(&(*place, how, label.clone()));
        ensure!(
            hit(How::DieBefore) && hit(How::DieAfter),
            "{label} was never struck: {struck:?}"
        );
    }
    let failed = [How::FailBefore, How::FailAfter];
    let wanted = EFFECTS
        .iter()
        .flat_map(|label| {
            failed
                .into_iter()
                .chain([How::DieWhile])
                .map(|how| (Place::Cloud, how, *label))
        })
        .chain(
            ACCESS
                .iter()
                .flat_map(|label| failed.map(|how| (Place::Kube, how, *label))),
        );
    for (place, how, label) in wanted {
        ensure!(
            struck.contains(&(place, how, label.to_owned())),
            "{label} never met {how:?}"
        );
    }
    // Past the test harness, which keeps to itself what tests that pass have to say.
    let time = began.elapsed();
    writeln!(
        std::io::stdout(),
        "{planned} cases, {missed} of which met no fate, in {time:.0?}"
    )?;
    Ok(())
}
