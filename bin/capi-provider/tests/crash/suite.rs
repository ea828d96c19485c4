//! One machine, from its creation to its deletion, with one thing going wrong: the same for every kind of machine.
//!
//! A life without faults is recorded first; then each thing that was done in it is the one at which something happens. Worlds are
//! used again and again, and the provider that made everything whole is the one that the next thing happens to: each case must leave
//! things as it found them, and a world costs more than a case. What is done only once in a world (the fleet's key, a network)
//! needs a new one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use rand::Rng as _;
use rand::rngs::StdRng;
use tokio::sync::Semaphore;

use crate::life::{Fate, How, Life, Place};
use crate::replica::{Replica, Scene};

/// Worlds at once, of all tests together: most of the time they wait until a lost call can no longer arrive. More of them end no
/// sooner, since two cores are busy with these. Each test had as many for itself once, and on a slow machine a hundred and thirty
/// worlds kept each other from ending within their patience.
const WORLDS: usize = 20;
static ROOM: Semaphore = Semaphore::const_new(WORLDS);

pub(crate) const DIES: [How; 3] = [How::DieBefore, How::DieAfter, How::DieWhile];
pub(crate) const FAILS: [How; 2] = [How::FailBefore, How::FailAfter];

/// What a case happens in, and what must hold.
pub(crate) trait Played: Scene {
    async fn add(&self) -> Result<String>;

    async fn until_serving(&self, name: &str) -> Result<()>;

    /// While a machine serves.
    async fn check_serving(&self, name: &str) -> Result<()>;

    async fn delete_machine(&self, name: &str) -> Result<()>;

    async fn until_gone(&self, name: &str) -> Result<()>;

    /// After all machines are gone.
    async fn check_at_rest(&self) -> Result<()>;

    async fn close(self) -> Result<()>;
}

/// What the owner of the machine does when its provider died before it served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Waits,
    Deletes,
}

#[derive(Clone, Debug)]
struct Case {
    fate: Fate,
    then: Then,
    /// It happens in a new world only.
    first: bool,
}

/// What is done in a life without faults, in order, and how much of that before the machine serves.
struct Recorded {
    log: Vec<(Place, String)>,
    serving: usize,
    /// How often it is done again for the next machine.
    again: BTreeMap<(Place, String), usize>,
}

async fn live(world: &impl Played, life: &Life) -> Result<(Vec<(Place, String)>, usize)> {
    let name = world.add().await?;
    world.until_serving(&name).await?;
    world.check_serving(&name).await?;
    let serving = life.done();
    world.delete_machine(&name).await?;
    world.until_gone(&name).await?;
    world.check_at_rest().await?;
    Ok((life.log(), serving))
}

async fn record(world: impl Played) -> Result<Recorded> {
    let replica = Replica::start(&world, Life::new(None)).await?;
    let (log, serving) = live(&world, &replica.life).await?;
    let (both, _) = live(&world, &replica.life).await?;
    replica.kill().await?;
    world.close().await?;
    let mut again = BTreeMap::new();
    for call in both.into_iter().skip(log.len()) {
        *again.entry(call).or_default() += 1;
    }
    Ok(Recorded { log, serving, again })
}

/// Plays one case with the provider that is there; whoever is there afterwards, and what was struck.
async fn play(world: &impl Played, mut replica: Replica, case: &Case) -> Result<(Replica, Option<String>)> {
    replica.life.arm(case.fate.clone());
    let struck = Arc::clone(&replica.life);
    let name = world.add().await?;
    let died = tokio::select! {
        () = struck.ended() => true,
        ready = world.until_serving(&name) => { ready?; false }
    };
    let mut deleted = false;
    if died {
        replica.kill().await?;
        if case.then == Then::Deletes {
            world.delete_machine(&name).await?;
            deleted = true;
        }
        replica = Replica::start(world, Life::new(None)).await?;
    }
    if !deleted {
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
        replica = Replica::start(world, Life::new(None)).await?;
    }
    world.until_gone(&name).await?;
    world.check_at_rest().await?;
    Ok((replica, struck.struck()))
}

/// Plays a single case in a world of its own.
pub(crate) async fn play_once(world: &impl Played, fate: Fate) -> Result<()> {
    let case = Case {
        fate,
        then: Then::Waits,
        first: true,
    };
    let replica = Replica::start(world, Life::new(None)).await?;
    let (replica, struck) = play(world, replica, &case).await?;
    ensure!(struck.is_some(), "{case:?} was not met");
    replica.kill().await
}

/// What can happen to the n-th call of this kind, and what its owner does then.
pub(crate) type Plan = fn(Place, usize, &str) -> Vec<How>;

/// Which of the deaths before a machine serves are also ones after which it is not wanted any more.
pub(crate) type Regrets = fn(Place, How) -> bool;

fn cases(recorded: &Recorded, plan: Plan, regrets: Regrets) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut counts: BTreeMap<&(Place, String), usize> = BTreeMap::new();
    for (position, call) in recorded.log.iter().enumerate() {
        let (place, label) = call;
        let count = counts.entry(call).or_default();
        for how in plan(*place, *count, label) {
            let mut add = |then| {
                cases.push(Case {
                    fate: Fate {
                        place: *place,
                        label: Some(label.clone()),
                        index: *count,
                        how,
                    },
                    then,
                    first: *count >= recorded.again.get(call).copied().unwrap_or_default(),
                });
            };
            add(Then::Waits);
            if position < recorded.serving && regrets(*place, how) {
                add(Then::Deletes);
            }
        }
        *count += 1;
    }
    cases
}

/// What was struck, and how.
pub(crate) struct Struck(BTreeSet<(Place, How, String)>);

impl Struck {
    pub(crate) fn ensure(&self, place: Place, how: How, label: &str) -> Result<()> {
        let met = self.0.contains(&(place, how, label.to_owned()));
        ensure!(met, "{label} never met {how:?}: {:?}", self.0);
        Ok(())
    }
}

/// What is left to play, and what came of the rest.
struct Table {
    left: VecDeque<Case>,
    struck: BTreeSet<(Place, How, String)>,
    missed: Vec<String>,
    failures: Vec<String>,
}

impl Table {
    fn take(table: &Mutex<Self>, first: bool) -> Option<Case> {
        let mut table = table.lock().unwrap();
        // Those that need a new world come before all others.
        let next = table.left.front()?;
        if next.first && !first {
            return None;
        }
        table.left.pop_front()
    }

    fn note(table: &Mutex<Self>, case: Case, struck: Option<String>) {
        let mut table = table.lock().unwrap();
        match struck {
            Some(label) => drop(table.struck.insert((case.fate.place, case.fate.how, label))),
            None => table.missed.push(format!("{case:?}")),
        }
    }
}

/// One world after the other, each as long as it is good for something.
async fn work<W: Played>(table: &Mutex<Table>, world: impl AsyncFn() -> Result<W>) {
    loop {
        let _room = ROOM.acquire().await.expect("nobody closes it");
        let mut case = Table::take(table, true);
        if case.is_none() {
            return;
        }
        let mut doing = String::new();
        let played = async {
            let world = world().await?;
            let mut replica = Replica::start(&world, Life::new(None)).await?;
            while let Some(now) = case.take().or_else(|| Table::take(table, false)) {
                doing = format!("{now:?}");
                let (next, struck) = play(&world, replica, &now).await?;
                replica = next;
                Table::note(table, now, struck);
            }
            replica.kill().await?;
            world.close().await
        };
        if let Err(error) = played.await {
            table.lock().unwrap().failures.push(format!("{doing}: {error:?}"));
        }
    }
}

/// Plays all cases that a life without faults gives rise to.
pub(crate) async fn every_call<W: Played>(
    name: &str,
    world: impl AsyncFn(String) -> Result<W>,
    plan: Plan,
    regrets: Regrets,
) -> Result<Struck> {
    let began = Instant::now();
    let recorded = record(world(format!("{name}-recorded")).await?).await;
    let recorded = recorded.context("without faults")?;
    let recording = began.elapsed();
    let mut cases = cases(&recorded, plan, regrets);
    cases.sort_by_key(|case| !case.first);
    let planned = cases.len();
    let table = Mutex::new(Table {
        left: cases.into(),
        struck: BTreeSet::new(),
        missed: Vec::new(),
        failures: Vec::new(),
    });
    let workers = (0..WORLDS).map(|_| work(&table, async || world(name.to_owned()).await));
    futures::future::join_all(workers).await;
    let Table {
        struck,
        missed,
        failures,
        ..
    } = table.into_inner().unwrap();
    assert!(
        failures.is_empty(),
        "{} of {planned}:\n{}",
        failures.len(),
        failures.join("\n\n")
    );
    // Past the test harness, which keeps to itself what tests that pass have to say.
    let time = began.elapsed();
    writeln!(
        std::io::stdout(),
        "{name}: {planned} cases, {} of which met no fate, in {time:.0?} ({recording:.0?} without faults)",
        missed.len()
    )?;
    // A call more or less of some kind is a matter of timing; that each kind was struck is not.
    ensure!(
        missed.len() * 10 <= planned,
        "{} of {planned} cases met no fate:\n{}",
        missed.len(),
        missed.join("\n")
    );
    let struck = Struck(struck);
    let kinds: BTreeSet<&(Place, String)> = recorded.log.iter().collect();
    for (place, label) in kinds {
        for how in plan(*place, 0, label) {
            struck.ensure(*place, how, label)?;
        }
    }
    Ok(struck)
}

/// Something that happens somewhere.
pub(crate) fn any_fate(dice: &mut StdRng) -> Fate {
    let hows = [DIES.as_slice(), &FAILS].concat();
    Fate {
        place: if dice.random_bool(0.5) {
            Place::Kube
        } else {
            Place::Cloud
        },
        label: None,
        index: dice.random_range(0..32),
        how: hows[dice.random_range(0..hows.len())],
    }
}

/// One of two providers that both believe they lead, and whoever follows it when it dies.
pub(crate) async fn hold(world: &impl Played, life: Arc<Life>, next: u64) -> Result<()> {
    let replica = Replica::start(world, Arc::clone(&life)).await?;
    life.ended().await;
    replica.kill().await?;
    let life = Life::uneven(None, next);
    let _replica = Replica::start(world, Arc::clone(&life)).await?;
    life.ended().await;
    Ok(())
}
