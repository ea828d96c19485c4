//! Never a third virtual machine, whatever happens in whatever order.
//!
//! Random schedules over the real parts that decide about it, the [`Driver`](super::driver::Driver) of each VM, the
//! [`Places`](crate::places::Places), the ledger and the look around of an agent that starts, on a synthetic host whose kernel would
//! let any number run: Pods come, are stopped and vanish, guests end and crash, VMs of others come and go, the agent is killed at
//! any moment or at any write of the ledger, calls fail with and without having done their work, the disk is full, entries and VMs
//! are lost, the host is rebooted. Time is virtual, so a schedule of a minute takes a fraction of a millisecond.
//!
//! ```sh
//! PROPTEST_CASES=1000000 cargo test --release -p russet-tart-kubelet --lib schedules
//! ```

mod mortal;
mod world;

use self::mortal::{Fault, Fuse};
use self::world::World;
use super::Life;
use crate::ledger::Stage;
use proptest::prelude::*;
use russet_pod::facts::reasons;
use russet_vm::synthetic::{Op, Reply, Script};
use russet_vm::{Owner, PodVm, Runtime, Synthetic, VmName};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// How many Pods there may be.
const PODS: u8 = 5;
const LIMIT: usize = crate::places::LIMIT;

/// Something that happens.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A Pod wants its container started, unless it runs.
    Start(u8),
    /// A container shall end within so many milliseconds.
    Stop(u8, u16),
    /// A guest crashes.
    Crash(u8),
    /// A Pod is taken away.
    Vanish(u8),
    /// Somebody deletes a VM of ours behind our back.
    Lose(u8),
    /// What is written of a VM is lost. It is noticed by the next agent.
    Damage(u8),
    /// The agent is killed, and another starts.
    Kill,
    /// At one of the next writes of the ledger something happens.
    Burn(u8, Fuse),
    /// One of the next calls goes wrong.
    Wrong(Fault),
    /// The host loses power.
    Reboot,
    /// Somebody else starts a VM, if the kernel lets him, or ends it.
    Stranger(bool),
    /// VMs that nobody waits for are looked for.
    Sweep,
}

fn events() -> impl Strategy<Value = Vec<(Event, u16)>> {
    let pod = || 0..PODS;
    let fuse = prop_oneof![Just(Fuse::DieBefore), Just(Fuse::DieAfter), Just(Fuse::Full)];
    let fault = prop_oneof![
        Just(Fault::List),
        Just(Fault::LateClone),
        Just(Fault::LateStart),
        Just(Fault::Start),
        Just(Fault::Stop),
        Just(Fault::Delete),
    ];
    let event = prop_oneof![
        10 => pod().prop_map(Event::Start),
        4 => (pod(), 0..2000_u16).prop_map(|(pod, grace)| Event::Stop(pod, grace)),
        2 => pod().prop_map(Event::Crash),
        2 => pod().prop_map(Event::Vanish),
        1 => pod().prop_map(Event::Lose),
        1 => pod().prop_map(Event::Damage),
        3 => Just(Event::Kill),
        3 => (0..6_u8, fuse).prop_map(|(after, fuse)| Event::Burn(after, fuse)),
        3 => fault.prop_map(Event::Wrong),
        1 => Just(Event::Reboot),
        2 => any::<bool>().prop_map(Event::Stranger),
        1 => Just(Event::Sweep),
    ];
    // Much happens at once, and some things take seconds.
    let pause = prop_oneof![3 => Just(0), 4 => 0..300_u16, 3 => 0..2500_u16];
    prop::collection::vec((event, pause), 1..24)
}

/// Chances that are the same each time a schedule is run.
#[derive(Clone, Debug)]
struct Chance(Arc<Mutex<u64>>);

impl Chance {
    fn up_to(&self, milliseconds: u64) -> Duration {
        let mut state = self.0.lock().unwrap();
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        Duration::from_millis(*state % (milliseconds + 1))
    }
}

/// A host on which everything takes its time, each time another.
#[derive(Debug)]
struct Moody(Chance);

impl Script for Moody {
    fn delay(&self, op: Op, _name: &str) -> Duration {
        self.0.up_to(match op {
            Op::Pull => 0,
            Op::Clone | Op::Start => 700,
            Op::Boot | Op::ShutDown => 1500,
            Op::Configure | Op::Delete | Op::Exec => 100,
        })
    }

    fn run(&self, _vm: &str, words: &[String], _input: &[u8]) -> Reply {
        let main = words
            .last()
            .is_some_and(|word| word.ends_with(crate::pods::guest::START));
        Reply {
            lasts: if main { self.0.up_to(6000) } else { Duration::ZERO },
            ..Reply::default()
        }
    }
}

/// Sees every start, and what ran then.
#[derive(Clone, Debug, Default)]
struct Judge {
    /// Since when which VM has its place at the latest.
    placed: Arc<Mutex<BTreeMap<PodVm, Instant>>>,
    /// Since when which VM of others runs.
    strangers: Arc<Mutex<BTreeMap<String, Instant>>>,
    verdict: Arc<Mutex<Option<String>>>,
}

impl Judge {
    fn placed(&self, vm: &PodVm, at: Instant) {
        self.placed.lock().unwrap().entry(vm.clone()).or_insert(at);
    }

    /// Others can start a VM at any moment, also between our look and our start; the kernel tells then. Those that were there before
    /// must have been seen.
    async fn started(&self, host: &Synthetic, vm: &VmName) {
        let listing = host.list().await.unwrap();
        let VmName::Pod(pod) = vm else { return };
        let since = self.placed.lock().unwrap().get(pod).copied();
        let strangers = self.strangers.lock().unwrap();
        let counts = |owner: &Owner| match owner {
            Owner::Ours(_) => true,
            Owner::Foreign(name) => strangers
                .get(name)
                .zip(since)
                .is_some_and(|(came, placed)| came < &placed),
        };
        let running: Vec<&Owner> = listing
            .vms
            .iter()
            .filter(|listed| listed.running && counts(&listed.owner))
            .map(|listed| &listed.owner)
            .collect();
        if running.len() > LIMIT {
            let mut verdict = self.verdict.lock().unwrap();
            verdict.get_or_insert(format!("{vm} was started beside others: {running:?}"));
        }
    }
}

thread_local! {
    static TIME: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
}

/// A host on which only starts and deletions take their time.
#[derive(Debug)]
struct Slow;

impl Script for Slow {
    fn delay(&self, op: Op, _name: &str) -> Duration {
        match op {
            Op::Start | Op::Delete => Duration::from_secs(1),
            _ => Duration::ZERO,
        }
    }

    fn run(&self, _vm: &str, _words: &[String], _input: &[u8]) -> Reply {
        Reply {
            hangs: true,
            ..Reply::default()
        }
    }
}

/// One VM runs, another is being started when the agent dies. The next agent ends that one and starts a third.
fn late_start(then: &[Event]) -> Result<(), String> {
    TIME.with(|time| {
        time.block_on(async {
            let mut world = World::new(1, |_| Arc::new(Slow)).await;
            world.happen(Event::Start(1)).await;
            world.pass(Duration::from_secs(5)).await;
            world.happen(Event::Start(3)).await;
            while world.stage(3) != Some(Stage::Cloned) {
                world.pass(Duration::from_millis(10)).await;
            }
            for event in then {
                world.happen(*event).await;
            }
            world.pass(Duration::from_secs(10)).await;
            world.verdict()
        })
    })
}

/// The next agent found that it did not run, gave its place to the third and began to delete it, and then it ran.
#[test]
fn a_start_that_comes_late_has_kept_its_place() {
    let ends = [Event::Kill, Event::Stop(3, 0), Event::Start(5)];
    assert_eq!(late_start(&ends), Ok(()));
}

/// The same of one that is in no ledger any more: it was taken for a clone that nobody had thought of starting.
#[test]
fn a_start_that_comes_late_and_is_written_nowhere_takes_a_place_all_the_same() {
    let ends = [Event::Damage(3), Event::Kill, Event::Start(5)];
    assert_eq!(late_start(&ends), Ok(()));
}

/// The same of one that could not be deleted when it was found: it was left for later, without a place, and then it ran beside two others.
#[test]
fn a_start_that_comes_late_of_a_vm_that_cannot_be_deleted_takes_a_place_too() {
    let deletion = Event::Wrong(Fault::Delete);
    let ends = [deletion, Event::Damage(3), Event::Kill, Event::Start(5)];
    assert_eq!(late_start(&ends), Ok(()));
    // The next agent finds it in the ledger, and still there.
    let ends = [
        deletion,
        Event::Damage(3),
        Event::Kill,
        deletion,
        Event::Kill,
        Event::Start(5),
    ];
    assert_eq!(late_start(&ends), Ok(()));
}

/// More deletions than anybody should try.
const MANY: usize = 1000;

/// A VM that runs, on a host where none can be deleted.
async fn undeletable() -> World {
    let mut world = World::new(1, |_| Arc::new(Slow)).await;
    world.happen(Event::Start(1)).await;
    world.pass(Duration::from_secs(5)).await;
    for _ in 0..MANY {
        world.happen(Event::Wrong(Fault::Delete)).await;
    }
    world
}

/// A VM that was told to end, and could not be deleted, was tried again without a pause, for as long as that was so: whoever waited
/// for the next try also waited for a word to end sooner, and took the first one for news each time.
#[test]
fn a_vm_that_cannot_be_deleted_is_tried_again_ever_less_often() {
    TIME.with(|time| {
        time.block_on(async {
            let mut world = undeletable().await;
            world.happen(Event::Stop(1, 0)).await;
            world.pass(Duration::from_mins(10)).await;
            let tried = MANY - world.to_come(Fault::Delete);
            // After 1, 2, 4, 8 and 16 seconds, and then every 30.
            assert!((10..=30).contains(&tried), "{tried} times in ten minutes");
            assert_eq!(world.end().await, Ok(()));
        });
    });
}

#[test]
fn a_word_to_end_sooner_is_heard_at_once_and_once() {
    TIME.with(|time| {
        time.block_on(async {
            let mut world = undeletable().await;
            let tried = |world: &World| MANY - world.to_come(Fault::Delete);
            world.happen(Event::Stop(1, 2000)).await;
            world.pass(Duration::from_millis(500)).await;
            assert_eq!(tried(&world), 1, "the guest shuts down at once");
            world.happen(Event::Stop(1, 0)).await;
            world.pass(Duration::from_millis(100)).await;
            assert_eq!(tried(&world), 2);
            world.pass(Duration::from_millis(1500)).await;
            assert_eq!(tried(&world), 2, "it was no news any more");
            world.pass(Duration::from_secs(1)).await;
            assert_eq!(tried(&world), 3);
            assert_eq!(world.end().await, Ok(()));
        });
    });
}

/// What came of a start, with these faults in its way.
async fn failure(faults: &[Event]) -> (&'static str, String, Duration) {
    let mut world = World::new(1, |_| Arc::new(Slow)).await;
    for fault in faults {
        world.happen(*fault).await;
    }
    world.happen(Event::Start(1)).await;
    world.pass(Duration::from_secs(20)).await;
    let Some(Life::Failed { reason, message, pause }) = world.life(1) else {
        panic!("{:?}", world.life(1))
    };
    assert_eq!(world.end().await, Ok(()));
    (reason, message, pause)
}

/// A clone found the disk full, and what it left could not be removed at once, since `tart list` hung. The next look found a VM that
/// was only planned, and the same agent said that it had been restarted meanwhile. Nobody heard of the disk.
#[test]
fn a_vm_whose_remains_cannot_be_removed_at_once_still_says_why_it_failed() {
    TIME.with(|time| {
        time.block_on(async {
            // The second, if there is an image to delete for it.
            let full = [Event::Wrong(Fault::NoSpace), Event::Wrong(Fault::NoSpace)];
            for fault in [Fault::Stop, Fault::Delete] {
                let faults = [&full[..], &[Event::Wrong(fault)]].concat();
                let (reason, message, pause) = failure(&faults).await;
                assert_eq!(reason, reasons::CREATE);
                assert!(message.contains("disk is full"), "{message}");
                assert!(!pause.is_zero());
            }
        });
    });
}

/// A clone filled the disk, so that it could not be written down. The agent said that it had been restarted, deleted the clone, and
/// made the next at once, for as long as the disk was that full.
#[test]
fn a_clone_that_cannot_be_written_down_says_so_and_waits() {
    TIME.with(|time| {
        time.block_on(async {
            // The first write is the plan.
            let (reason, message, pause) = failure(&[Event::Burn(1, Fuse::Full)]).await;
            assert_eq!(reason, reasons::CREATE);
            assert!(
                message.contains("ledger") && message.contains("no storage space"),
                "{message}"
            );
            assert!(!pause.is_zero());
        });
    });
}

#[test]
fn a_vm_that_an_earlier_agent_planned_says_so_and_waits_for_nothing() {
    TIME.with(|time| {
        time.block_on(async {
            let (reason, message, pause) = failure(&[Event::Burn(0, Fuse::DieAfter)]).await;
            assert_eq!((reason, pause), (reasons::CREATE, Duration::ZERO));
            assert!(message.contains("the agent was restarted"), "{message}");
        });
    });
}

/// A host whose guests never come up.
#[derive(Debug)]
struct Deaf;

impl Script for Deaf {
    fn delay(&self, op: Op, _name: &str) -> Duration {
        match op {
            Op::Boot => Duration::from_hours(24),
            _ => Duration::ZERO,
        }
    }

    fn run(&self, _vm: &str, _words: &[String], _input: &[u8]) -> Reply {
        Reply::default()
    }
}

/// An image without a guest agent, or one that hangs while it boots, had one of the two places of its host for as long as its Pod
/// was there, and nothing was said but `ContainerCreating`.
#[test]
fn a_guest_that_does_not_come_up_says_why_and_makes_room_in_the_end() {
    TIME.with(|time| {
        time.block_on(async {
            let mut world = World::new(1, |_| Arc::new(Deaf)).await;
            // One with a program of its own, and one that is told what to run.
            let both = [(1, "it has no address"), (2, "the guest agent does not answer: ")];
            for (pod, _) in both {
                world.happen(Event::Start(pod)).await;
            }
            world.pass(Duration::from_secs(50)).await;
            for (pod, _) in both {
                assert_eq!(world.life(pod), Some(Life::Making(None)), "it may only be slow");
            }
            world.pass(Duration::from_secs(20)).await;
            for (pod, why) in both {
                let life = world.life(pod);
                assert!(
                    matches!(&life, Some(Life::Making(Some(said))) if said.contains(why)),
                    "{life:?}"
                );
            }
            world.pass(Duration::from_mins(8)).await;
            for (pod, _) in both {
                let life = world.life(pod);
                assert!(matches!(&life, Some(Life::Making(Some(_)))), "{life:?}");
            }
            world.pass(Duration::from_mins(1)).await;
            for (pod, why) in both {
                let life = world.life(pod);
                let Some(Life::Failed { reason, message, pause }) = &life else {
                    panic!("{life:?}")
                };
                assert_eq!(*reason, reasons::RUN);
                assert!(message.contains(why) && !pause.is_zero(), "{message} {pause:?}");
                assert_eq!(world.stage(pod), None, "nothing of it is left");
            }
            assert_eq!(world.end().await, Ok(()));
        });
    });
}

/// A VM whose lock macOS had lost, by which `tart` knows that it runs, was asked again and again without a pause. It had its place for ever, and
/// nothing was said.
#[test]
fn a_vm_that_tart_does_not_know_to_run_is_asked_seldom_and_given_up_in_the_end() {
    TIME.with(|time| {
        time.block_on(async {
            let mut world = World::new(1, |_| Arc::new(Slow)).await;
            let many = 2 * MANY;
            for _ in 0..many {
                world.happen(Event::Wrong(Fault::Exec)).await;
            }
            let pod = 2;
            world.happen(Event::Start(pod)).await;
            world.pass(Duration::from_secs(90)).await;
            let life = world.life(pod);
            let Some(Life::Making(Some(said))) = &life else {
                panic!("{life:?}")
            };
            assert!(said.contains("is not running"), "{said}");
            world.pass(Duration::from_mins(10)).await;
            let life = world.life(pod);
            assert!(
                matches!(&life, Some(Life::Failed { pause, .. }) if !pause.is_zero()),
                "{life:?}"
            );
            assert!(world.to_come(Fault::Exec) > 0, "it was asked {many} times");
            assert_eq!(world.stage(pod), None, "its place is free");
            assert_eq!(world.end().await, Ok(()));
        });
    });
}

fn run(seed: u64, events: &[(Event, u16)]) -> Result<(), String> {
    TIME.with(|time| time.block_on(World::live(seed, events)))
}

proptest! {
    // More by PROPTEST_CASES.
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn never_more_than_two_virtual_machines_run_and_none_is_left(seed in 1..u64::MAX, events in events()) {
        prop_assert_eq!(run(seed, &events), Ok(()));
    }
}
