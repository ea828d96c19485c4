//! One machine, from its creation to its deletion, with one thing going wrong: the same for every kind of machine.
//!
//! A life without faults is recorded first; then each thing that was done in it, or the share that [`Draw`] takes, is the one at which
//! something happens. Worlds are used again and again, and the provider that made everything whole is the one that the next thing
//! happens to: each case must leave things as it found them, and a world costs more than a case. What is done only once in a world
//! (the fleet's key, a network) needs a new one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result, ensure};
use rand::Rng as _;
use rand::rngs::StdRng;
use russet_draw::Draw;
use tokio::sync::Semaphore;

use crate::life::{Fate, How, Life, Place};
use crate::replica::{Replica, Scene};

/// Worlds at once, of all tests together. More of them end no sooner, since two cores are busy with these; on a slow machine a hundred
/// and thirty worlds kept each other from ending within their patience.
const WORLDS: usize = 8;
/// New worlds in which a case that met no fate is played again: how often some calls are made is a matter of timing.
const TRIES: u32 = 3;
/// Calls that may meet no fate in any of them, and why.
const UNMET: [(&str, &str); 0] = [];
/// Cases that ever failed.
pub(crate) const ALWAYS: &str = include_str!("always.txt");
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
    /// In how many worlds it met no fate.
    missed: u32,
}

impl Case {
    fn name(&self) -> String {
        let Fate {
            place,
            label,
            index,
            how,
        } = &self.fate;
        format!(
            "{place:?} {} {index} {how:?} {:?}",
            label.as_deref().unwrap_or_default(),
            self.then
        )
    }
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
        // What is still on its way finds a follower that believes that it is done.
        world.clock().arrive().await;
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
    world.clock().arrive().await;
    world.check_at_rest().await?;
    Ok((replica, struck.struck()))
}

/// Plays a single case in a world of its own.
pub(crate) async fn play_once(world: &impl Played, fate: Fate) -> Result<()> {
    let case = Case {
        fate,
        then: Then::Waits,
        first: true,
        missed: 0,
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
                    missed: 0,
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

/// What can be struck, and how. What was drawn of it was struck.
pub(crate) struct Planned(BTreeSet<(Place, How, String)>);

impl Planned {
    pub(crate) fn ensure(&self, place: Place, how: How, label: &str) -> Result<()> {
        let planned = self.0.contains(&(place, how, label.to_owned()));
        ensure!(planned, "{label} never meets {how:?}: {:?}", self.0);
        Ok(())
    }
}

/// What is left to play, and what went wrong with the rest.
struct Table {
    left: VecDeque<Case>,
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

    fn note(table: &Mutex<Self>, mut case: Case, struck: Option<String>) {
        let label = case.fate.label.clone().unwrap_or_default();
        if struck.is_some() || UNMET.iter().any(|(unmet, _)| *unmet == label) {
            return;
        }
        let mut table = table.lock().unwrap();
        case.missed += 1;
        case.first = true;
        if case.missed < TRIES {
            table.left.push_front(case);
        } else {
            let name = case.name();
            table
                .failures
                .push(format!("{name}: met no fate in {TRIES} new worlds"));
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
                doing = now.name();
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

/// Plays the cases that are drawn of those that a life without faults gives rise to.
pub(crate) async fn every_call<W: Played>(
    name: &str,
    world: impl AsyncFn(String) -> Result<W>,
    plan: Plan,
    regrets: Regrets,
) -> Result<Planned> {
    let recorded = record(world(format!("{name}-recorded")).await?).await;
    let recorded = recorded.context("without faults")?;
    let mut cases = cases(&recorded, plan, regrets);
    let label = |case: &Case| case.fate.label.clone().unwrap_or_default();
    let planned = cases.iter().map(|case| (case.fate.place, case.fate.how, label(case)));
    let planned = Planned(planned.collect());
    let draw = Draw::of(&format!("crash points of {name}"), ALWAYS);
    cases.retain(|case| draw.takes(&case.name()));
    draw.report();
    cases.sort_by_key(|case| !case.first);
    let table = Mutex::new(Table {
        left: cases.into(),
        failures: Vec::new(),
    });
    let workers = (0..WORLDS).map(|_| work(&table, async || world(name.to_owned()).await));
    futures::future::join_all(workers).await;
    let failures = table.into_inner().unwrap().failures;
    ensure!(
        failures.is_empty(),
        "{} cases:\n{}",
        failures.len(),
        failures.join("\n\n")
    );
    Ok(planned)
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
