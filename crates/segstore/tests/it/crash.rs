//! Crash enumeration: random traces stopped at every operation, every survivor checked against a model.
//!
//! A trace runs against a disk that stops at operation k. The disk a restart would find is opened, and every key must show
//! a value the model allows: the last acknowledged one that had to survive, or one that was under way after it. Then the
//! recovered store goes on with the trace, and is stopped again; recovery itself is stopped too.
//!
//! `SEGSTORE_TRACES=10000` runs the full count.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use russet_draw::Draw;
use russet_segstore::{Begin, CrashBackend, Durability, Error, Key, Kind, Outcome, Put, Store, Survival};

use crate::ALWAYS;
use crate::world::{BLOB, Dice, HandClock, RESULT, body, id_of, setting, small_options};

const NAMESPACES: [&str; 2] = ["ios", "web"];
const KEYS: [&str; 5] = ["a", "bb", "a-rather-longer-key-than-the-others", "d", "e"];

type Name = (usize, usize, bool);

fn key_of(name: Name) -> Key<'static> {
    Key::new(if name.2 { RESULT } else { BLOB }, NAMESPACES[name.0], KEYS[name.1])
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Acknowledged, and must survive this.
    Acked(Durability),
    /// Asked for; nobody was told that it happened.
    Unknown,
}

/// Something that happened to a key: a write with its number, or a delete.
#[derive(Clone, Copy, Debug)]
struct Event {
    wrote: Option<u64>,
    fate: Fate,
}

#[derive(Clone, Debug, Default)]
struct Model {
    events: BTreeMap<Name, Vec<Event>>,
    next_id: u64,
    /// Writes with references: they may go with their blob at any time.
    dependent: BTreeSet<u64>,
}

impl Model {
    fn note(&mut self, name: Name, wrote: Option<u64>, fate: Fate) {
        self.events.entry(name).or_default().push(Event { wrote, fate });
    }

    /// The number of the next write.
    fn number(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Values a reader may see after a stop: `None` is a miss.
    fn allowed(&self, name: Name, survival: Survival) -> Vec<Option<u64>> {
        let needed = match survival {
            Survival::Process => Durability::Process,
            Survival::Power(_) => Durability::Power,
        };
        let events = self.events.get(&name).map_or(&[][..], Vec::as_slice);
        let sure = events
            .iter()
            .rposition(|e| matches!(e.fate, Fate::Acked(d) if d >= needed));
        let mut allowed: Vec<_> = events[sure.unwrap_or(0)..].iter().map(|e| e.wrote).collect();
        if sure.is_none() || allowed.iter().flatten().any(|id| self.dependent.contains(id)) {
            allowed.push(None);
        }
        allowed
    }

    fn names() -> impl Iterator<Item = Name> {
        (0..NAMESPACES.len()).flat_map(|n| (0..KEYS.len()).flat_map(move |k| [(n, k, false), (n, k, true)]))
    }
}

struct World {
    store: Store,
    clock: Arc<HandClock>,
    model: Model,
    evicts: bool,
    /// Ends the open segments again and again, so that many small ones gather and are merged.
    churns: bool,
}

fn churns(seed: u64) -> bool {
    seed % 7 == 3
}

impl World {
    /// What a finished or failed write means for the model.
    fn learn(&mut self, name: Name, id: u64, durability: Durability, result: &Result<Outcome, Error>) {
        match result {
            Ok(Outcome::Created { .. }) => self.model.note(name, Some(id), Fate::Acked(durability)),
            Ok(Outcome::Exists) => {
                // Whatever is there has just been promised to survive what this caller asked for.
                if let Some(seen) = self.shown(name) {
                    self.model.note(name, Some(seen), Fate::Acked(durability));
                }
            }
            Ok(other) => panic!("a put answered {other:?}"),
            Err(_) => self.model.note(name, Some(id), Fate::Unknown),
        }
    }

    /// The number of the write a reader sees.
    fn shown(&self, name: Name) -> Option<u64> {
        let entry = self.store.get(&key_of(name)).unwrap();
        entry.map(|e| id_of(&e.read_all().unwrap()))
    }

    fn random_name(dice: &mut Dice) -> Name {
        let (n, k, m) = (dice.below(2), dice.below(KEYS.len() as u64), dice.below(2));
        (n as usize, k as usize, m == 1)
    }

    fn random_durability(dice: &mut Dice) -> Durability {
        if dice.below(4) == 0 {
            Durability::Process
        } else {
            Durability::Power
        }
    }

    /// One step of a trace. Errors are fine: the disk has stopped.
    fn step(&mut self, dice: &mut Dice) {
        if self.churns && dice.below(2) == 0 {
            let _ = self.store.delete_namespace(b"nobody's");
        }
        match dice.below(20) {
            0..=6 => self.put(dice),
            7..=9 => self.stream(dice),
            10 => self.abort(dice),
            11..=12 => self.delete(dice),
            13 => self.delete_namespace(dice),
            14..=15 => self.submit_some(dice),
            16 => self.lease(dice),
            17 => self
                .clock
                .wall
                .store(1_700_000_000_000 + dice.below(5), Ordering::SeqCst),
            18 => self.store.maintain(),
            _ => self.put_with_references(dice),
        }
    }

    fn put(&mut self, dice: &mut Dice) {
        let (name, durability, len) = (Self::random_name(dice), Self::random_durability(dice), dice.below(1500));
        let id = self.model.number();
        let put = Put::new(key_of(name), body(id, len as usize)).durability(durability);
        let result = self.store.put(put);
        self.learn(name, id, durability, &result);
    }

    fn stream(&mut self, dice: &mut Dice) {
        let (name, durability) = (Self::random_name(dice), Self::random_durability(dice));
        let id = self.model.number();
        let bytes = body(id, 200 + dice.below(6000) as usize);
        let length = (dice.below(2) == 0).then_some(bytes.len() as u64);
        let put = Put::stream(key_of(name)).durability(durability);
        let result = match self.store.writer(&put, length) {
            Ok(Begin::Exists) => Ok(Outcome::Exists),
            Ok(Begin::Writer(mut writer)) => bytes
                .chunks(1 + dice.below(2000) as usize)
                .try_for_each(|c| writer.write(c))
                .and_then(|()| writer.finish()),
            Err(error) => Err(error),
        };
        self.learn(name, id, durability, &result);
    }

    fn abort(&mut self, dice: &mut Dice) {
        let name = Self::random_name(dice);
        let bytes = body(u64::MAX, 900 + dice.below(5000) as usize);
        let length = (dice.below(2) == 0).then_some(bytes.len() as u64);
        if let Ok(Begin::Writer(mut writer)) = self.store.writer(&Put::stream(key_of(name)), length) {
            let _ = writer.write(&bytes[..bytes.len() / 2]);
        }
    }

    fn delete(&mut self, dice: &mut Dice) {
        let (name, durability) = (Self::random_name(dice), Self::random_durability(dice));
        match self.store.delete(&key_of(name), durability) {
            Ok(Outcome::Deleted { .. }) => self.model.note(name, None, Fate::Acked(durability)),
            Ok(_) => {}
            Err(_) => self.model.note(name, None, Fate::Unknown),
        }
    }

    fn delete_namespace(&mut self, dice: &mut Dice) {
        let namespace = dice.below(2) as usize;
        let fate = match self.store.delete_namespace(NAMESPACES[namespace].as_bytes()) {
            Ok(_) => Fate::Acked(Durability::Power),
            Err(_) => Fate::Unknown,
        };
        for name in Model::names().filter(|n| n.0 == namespace) {
            self.model.note(name, None, fate);
        }
    }

    /// Several writes in one commit, some to one key.
    fn submit_some(&mut self, dice: &mut Dice) {
        let mut tickets = Vec::new();
        for _ in 0..2 + dice.below(4) {
            let name = Self::random_name(dice);
            let id = self.model.number();
            let put = Put::new(key_of(name), body(id, dice.below(600) as usize));
            match self.store.submit(put) {
                Ok(ticket) => tickets.push((name, id, ticket)),
                Err(_) => self.model.note(name, Some(id), Fate::Unknown),
            }
        }
        self.store.commit();
        for (name, id, ticket) in tickets {
            self.learn(name, id, Durability::Power, &ticket.wait());
        }
    }

    fn put_with_references(&mut self, dice: &mut Dice) {
        let name = (dice.below(2) as usize, dice.below(KEYS.len() as u64) as usize, true);
        let blob = Key::new(BLOB, NAMESPACES[name.0], KEYS[dice.below(KEYS.len() as u64) as usize]);
        let id = self.model.number();
        if self.store.contains(&blob).is_none() {
            return;
        }
        let put = Put::new(key_of(name), body(id, 100));
        let result = self.store.put(put.references(&[blob]));
        self.learn(name, id, Durability::Power, &result);
        self.model.dependent.insert(id);
    }

    fn lease(&mut self, dice: &mut Dice) {
        let keys: Vec<_> = (0..3).map(|_| key_of(Self::random_name(dice))).collect();
        self.store.lease(&keys, Duration::from_millis(dice.below(100))).unwrap();
    }

    /// Every key shows a value the model allows; the model then knows which.
    fn check(&mut self, survival: Survival, story: &str) {
        for name in Model::names() {
            let allowed = self.model.allowed(name, survival);
            let seen = self.shown(name);
            let fine = allowed.contains(&seen) || (self.evicts && seen.is_none());
            assert!(
                fine,
                "{story}: {name:?} shows {seen:?}, allowed {allowed:?}: {:?}",
                self.model.events.get(&name)
            );
        }
        let stats = self.store.stats();
        assert_eq!((stats.damaged_entries, stats.fingerprint_collisions), (0, 0), "{story}");
        let checked = self.store.verify().unwrap();
        assert!(checked.is_sound(), "{story}: {checked:?}");
    }

    /// What is seen now becomes what must be there, once it is flushed.
    fn settle(&mut self) {
        if self.store.flush().is_err() {
            return;
        }
        for name in Model::names() {
            let wrote = self.shown(name);
            let fate = Fate::Acked(Durability::Power);
            self.model.events.insert(name, vec![Event { wrote, fate }]);
        }
    }
}

fn open(disk: &CrashBackend, seed: u64, evicts: bool, segment_size: u64) -> Result<(Store, Arc<HandClock>), Error> {
    let (mut options, clock) = small_options(seed);
    if evicts {
        options.capacity = 60 << 10;
    }
    if segment_size > 0 {
        options.segment_size = segment_size;
    }
    if seed % 3 == 0 {
        options.ballast = 512;
    }
    Store::open_on(Arc::new(disk.clone()), options).map(|store| (store, clock))
}

/// Ends a store the way a killed process does: nothing is sealed on the way out.
fn kill(disk: &CrashBackend, store: Store) {
    disk.stop_at(Some(0));
    drop(store);
}

fn survival_of(seed: u64, point: u64) -> Survival {
    if (seed + point).is_multiple_of(4) {
        Survival::Process
    } else {
        Survival::Power(seed ^ point.wrapping_mul(0x5851_f42d))
    }
}

/// Runs one trace to the stop and checks what a restart finds; two more rounds follow on the recovered store.
fn run(seed: u64, mut stop: Option<u64>) -> u64 {
    let segment_size = if churns(seed) { 64 << 10 } else { 0 };
    let evicts = seed % 2 == 1 && !churns(seed);
    let world_of = |(store, clock), model| World {
        store,
        clock,
        model,
        evicts,
        churns: churns(seed),
    };
    let mut disk = CrashBackend::new();
    let mut model = Model::default();
    let mut operations = 0;
    for round in 0..3_u64 {
        let story = format!("trace {seed} round {round} stop {stop:?}");
        let before = disk.operations();
        disk.stop_at(stop.map(|s| before + s));
        let survival = survival_of(seed, stop.unwrap_or(0) + round);
        let mut dice = Dice(seed.wrapping_mul(1000) + round);
        match open(&disk, seed + 100 * round, evicts, segment_size) {
            Ok(opened) => {
                let mut world = world_of(opened, model);
                if round > 0 && stop.is_none() {
                    world.check(survival_of(seed, round - 1), &story);
                }
                for _ in 0..12 + dice.below(20) {
                    world.step(&mut dice);
                    if disk.stopped() {
                        break;
                    }
                }
                if !disk.stopped() && round == 1 {
                    let closed = world.store.close();
                    assert!(closed.is_ok() || disk.stopped(), "{story}: {closed:?}");
                }
                if round == 0 {
                    operations = disk.operations();
                }
                model = world.model;
                kill(&disk, world.store);
            }
            Err(error) => assert!(disk.stopped(), "{story}: open failed on a sound disk: {error}"),
        }
        disk = disk.reboot(survival);
        // Recovery, stopped in the middle; then for good. Twice the same.
        if (seed + round).is_multiple_of(3) {
            disk.stop_at(Some(disk.operations() + seed % 7));
            if let Ok((store, _)) = open(&disk, seed, evicts, segment_size) {
                store.maintain();
                kill(&disk, store);
            }
            disk = disk.reboot(survival);
        }
        disk.stop_at(None);
        let opened = open(&disk, seed + 7, evicts, segment_size);
        let mut world = world_of(
            opened.unwrap_or_else(|e| panic!("{story}: recovery failed: {e}")),
            model,
        );
        world.check(survival, &story);
        world.settle();
        model = world.model;
        let story = format!("{story}, opened again");
        kill(&disk, world.store);
        disk = disk.reboot(Survival::Process);
        let mut again = world_of(open(&disk, seed + 8, evicts, segment_size).unwrap(), model);
        again.check(Survival::Process, &story);
        model = again.model;
        kill(&disk, again.store);
        disk = disk.reboot(Survival::Power(seed));
        stop = stop.map(|s| (s * 7 + 3) % 60);
    }
    operations
}

#[test]
fn no_stop_loses_what_was_acknowledged_or_shows_what_was_not() {
    let traces = setting("SEGSTORE_TRACES", 200);
    let points = setting("SEGSTORE_STOPS", 4);
    let first = setting("SEGSTORE_FIRST", 0);
    let mut stops = 0;
    for seed in Draw::cases("stopped traces", ALWAYS, first..first + traces) {
        let operations = run(seed, None).max(1);
        let step = (operations / points).max(1);
        let mut point = seed % step;
        while point < operations {
            run(seed, Some(point));
            stops += 1;
            point += step;
        }
    }
    println!("{stops} stops with three rounds each");
}

/// A short trace, stopped at every single operation, under many outcomes of the power loss.
#[test]
fn every_operation_of_a_trace_is_a_safe_place_to_stop() {
    let all = [2, 11]
        .into_iter()
        .flat_map(|seed| (0..run(seed, None)).map(move |point| (seed, point)));
    for (seed, point) in Draw::cases("operations to stop at", ALWAYS, all) {
        run(seed, Some(point));
    }
}

#[test]
fn kinds_used_here_are_what_they_say() {
    assert!(RESULT.is_mutable() && !BLOB.is_mutable());
    assert_ne!(Kind::immutable(1), Kind::mutable(1));
}
