//! One fault at every read and write of a whole life, and two replicas at random.

use std::time::Duration;

use proptest::prelude::*;
use russet_capi_provider::linux::decide::UserData;
use russet_capi_provider::linux::server::Product;
use russet_capi_provider::linux::situation::Situation;
use russet_capi_provider::linux::wanted::Source;
use russet_draw::Draw;

use super::replica::{Replica, run_to_rest};
use super::world::{PREFIX, World};
use crate::ALWAYS;
use crate::crash::cross;
use crate::replica::{FAULTS, Fault};

/// A kind of machine, and whether its operating system takes a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Instance,
    Ordered,
    OrderedWithoutCloudInit,
    Adopted,
}

const KINDS: [Kind; 4] = [
    Kind::Instance,
    Kind::Ordered,
    Kind::OrderedWithoutCloudInit,
    Kind::Adopted,
];

impl Kind {
    fn add(self, world: &mut World, name: &str) -> String {
        match self {
            Self::Instance => world.add_machine(name, Product::Instance, Source::Order),
            Self::Ordered | Self::OrderedWithoutCloudInit => world.add_machine(name, Product::Metal, Source::Order),
            Self::Adopted => world.add_machine(name, Product::Metal, Source::Adopt(PREFIX.parse().unwrap())),
        }
    }

    fn cloud_init(self) -> bool {
        self != Self::OrderedWithoutCloudInit
    }
}

/// Longer than a life without faults takes.
const STEPS: usize = 150;

fn live(kind: Kind, fault_at: usize, fault: Fault, delete_at: Option<usize>) -> World {
    let mut world = World::new();
    world.add_adoptable(1);
    world.add_adoptable(2);
    let uid = kind.add(&mut world, "m1");
    let mut replica = Replica::new(kind.cloud_init());
    for step in 0..fault_at + 2 {
        if delete_at == Some(step) {
            world.delete_machine(&uid);
        }
        replica.step(&mut world, 0, if step == fault_at { fault } else { Fault::None });
        if replica.is_idle() {
            world.pass(Duration::from_secs(31));
            world.refresh_list();
        }
        world.check();
    }
    // The replica is lost with whatever it had under way.
    run_to_rest(&mut world, kind.cloud_init());
    world
}

#[test]
fn a_fault_at_any_step_of_provisioning_heals_and_makes_no_second_server() {
    let all = cross(cross(KINDS, FAULTS), 0..STEPS);
    for ((kind, fault), at) in Draw::cases("faults at a provisioning", ALWAYS, all) {
        let world = live(kind, at, fault, None);
        world.check();
        let machine = world.objects.values().next().unwrap();
        assert!(machine.progress.joined, "{kind:?} {fault:?} at {at}: {world:#?}");
        assert!(world.created <= 1, "{kind:?} {fault:?} at {at}");
        assert!(!matches!(machine.progress.user_data, UserData::Given(_)));
        assert!(machine.intent.is_none(), "{kind:?} {fault:?} at {at}");
    }
}

#[test]
fn a_fault_at_any_step_of_a_deletion_leaves_nothing_behind() {
    let all = cross(cross(KINDS, FAULTS), 0..70);
    for ((kind, fault), at) in Draw::cases("faults at a deletion", ALWAYS, all) {
        let world = live(kind, STEPS + at, fault, Some(STEPS));
        world.check_empty();
        let wipes: u32 = world.boxes.values().map(|it| it.wipes).sum();
        let most = if fault == Fault::None { 1 } else { 2 };
        assert!(
            if kind == Kind::Adopted {
                (1..=most).contains(&wipes)
            } else {
                wipes == 0
            },
            "{wipes} wipes: {kind:?} {fault:?} at {at}"
        );
    }
}

#[test]
fn a_deletion_at_any_step_of_provisioning_leaves_nothing_behind() {
    let faults: Vec<Fault> = FAULTS.into_iter().chain([Fault::None]).collect();
    let all = cross(cross(cross(KINDS, faults), 0..STEPS), 0..3);
    for (((kind, fault), at), after) in Draw::cases("deletions during a provisioning", ALWAYS, all) {
        let world = live(kind, at + after, fault, Some(at));
        world.check_empty();
    }
}

#[test]
fn a_server_that_is_there_and_healthy_costs_no_call() {
    for kind in KINDS {
        let mut world = live(kind, STEPS, Fault::None, None);
        let mut replica = Replica::new(kind.cloud_init());
        replica.step(&mut world, 0, Fault::None);
        // A hash that costs nothing, and what it means. The list that everybody shares is there.
        for _ in 0..2 {
            replica.step(&mut world, 0, Fault::None);
        }
        assert!(replica.is_idle(), "{kind:?}: {replica:?}");
        assert_eq!(replica.rests, Some(Situation::Serving { ready: true }), "{kind:?}");
    }
}

/// That there was none left was taken for a server that takes no script.
#[test]
fn the_last_server_of_an_offer_is_set_up_as_any_other() {
    for kind in [Kind::Ordered, Kind::OrderedWithoutCloudInit] {
        let mut world = World::new();
        world.stock = Some(1);
        kind.add(&mut world, "m1");
        run_to_rest(&mut world, kind.cloud_init());
        world.check();
        let machine = world.objects.values().next().unwrap();
        assert!(machine.progress.joined, "{kind:?}: {world:#?}");
        let expected = if kind.cloud_init() {
            UserData::Gone
        } else {
            UserData::None
        };
        assert_eq!(machine.progress.user_data, expected, "{kind:?}");
    }
}

#[test]
fn two_machines_that_want_the_same_server_or_network_do_not_both_get_it() {
    let mut world = World::new();
    world.add_adoptable(1);
    Kind::Adopted.add(&mut world, "m1");
    Kind::Adopted.add(&mut world, "m2");
    Kind::Instance.add(&mut world, "m3");
    run_to_rest(&mut world, true);
    world.check();
    let served = world.objects.values().filter(|object| object.progress.joined).count();
    assert_eq!(served, 2, "one of the two waits: {world:#?}");
    assert_eq!(world.networks.len(), 1);
}

fn any_fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        8 => Just(Fault::None),
        1 => prop::sample::select(FAULTS.to_vec()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Both sure that they lead, with faults anywhere and machines deleted somewhere in the middle.
    #[test]
    fn two_replicas_at_once_double_leak_and_wipe_nothing(
        kinds in prop::collection::vec(prop::sample::select(KINDS.to_vec()), 1..4),
        steps in prop::collection::vec((0..2_usize, 0..4_usize, any_fault(), 0..40_u64), 1..300),
        deletions in prop::collection::vec((0..300_usize, 0..4_usize), 0..4),
    ) {
        let mut world = World::new();
        world.add_adoptable(1);
        world.add_adoptable(2);
        // All of one make: what the operating system takes is a fact of the zone.
        let uids: Vec<String> = kinds.iter().enumerate().map(|(n, kind)| kind.add(&mut world, &format!("m{n}"))).collect();
        let mut replicas = [Replica::new(true), Replica::new(true)];
        for (at, (who, pick, fault, seconds)) in steps.into_iter().enumerate() {
            for (_, which) in deletions.iter().filter(|(when, _)| *when == at) {
                world.delete_machine(&uids[which % uids.len()].clone());
            }
            replicas[who].step(&mut world, pick, fault);
            if seconds > 30 {
                world.pass(Duration::from_secs(seconds));
            }
            if seconds > 35 {
                world.refresh_list();
            }
            world.check();
        }
        run_to_rest(&mut world, true);
        world.check();
        for uid in &uids {
            world.delete_machine(uid);
        }
        run_to_rest(&mut world, true);
        world.check_empty();
    }
}
