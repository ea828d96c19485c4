//! One fault at every read and write of a whole life, one after the other.

use std::time::Duration;

use russet_capi_provider::rules::Rules;
use russet_draw::Draw;

use crate::ALWAYS;
use crate::replica::{FAULTS, Fault, Replica, run_to_rest};
use crate::world::World;

/// Takes a host, serves, is deleted at step `delete_at`, with one fault at step `fault_at`; then all is left to heal.
fn live(fault_at: usize, fault: Fault, delete_at: Option<usize>, steps: usize, rules: &Rules) -> World {
    let mut world = World::new(2, 1, rules.clone());
    world.add_machine(0, "mac-1");
    let mut replica = Replica::new(0);
    for step in 0..steps {
        if delete_at == Some(step) {
            world.delete_machine(0, "uid-0-mac-1");
        }
        replica.step(&mut world, 0, if step == fault_at { fault } else { Fault::None });
        if replica.is_idle() {
            world.pass(Duration::from_secs(31));
        }
    }
    // The replica is lost with whatever it had under way.
    run_to_rest(&mut world);
    world
}

/// Every one with every other.
pub(crate) fn cross<A: Copy, B>(
    one: impl IntoIterator<Item = A>,
    other: impl IntoIterator<Item = B> + Clone,
) -> impl Iterator<Item = (A, B)> {
    one.into_iter()
        .flat_map(move |a| other.clone().into_iter().map(move |b| (a, b)))
}

#[test]
fn a_fault_at_any_step_of_taking_a_host_heals() {
    for rules in [
        Rules::default(),
        Rules {
            settle: Duration::ZERO,
            ..Rules::default()
        },
    ] {
        for (fault, at) in Draw::cases("faults at a taking", ALWAYS, cross(FAULTS, 0..70)) {
            let world = live(at, fault, None, at + 2, &rules);
            world.check_at_rest();
            let machine = world.clusters[0].objects.values().next().unwrap();
            assert!(machine.setup.provisioned, "{fault:?} at {at}");
            assert_eq!(
                world.servers.values().map(|s| s.wipes).sum::<u32>(),
                0,
                "{fault:?} at {at}"
            );
        }
    }
}

#[test]
fn a_fault_at_any_step_of_giving_a_host_back_heals() {
    let rules = Rules::default();
    for (fault, at) in Draw::cases("faults at a release", ALWAYS, cross(FAULTS, 70..170)) {
        let world = live(at, fault, Some(70), at + 2, &rules);
        world.check_at_rest();
        assert!(world.clusters[0].objects.is_empty(), "{fault:?} at {at}");
        let wipes = world.servers.values().map(|s| s.wipes).sum::<u32>();
        assert!((1..=2).contains(&wipes), "{wipes} wipes, {fault:?} at {at}");
    }
}

#[test]
fn a_deletion_at_any_step_of_taking_a_host_returns_it_and_wipes_it_only_if_somebody_logged_in() {
    let rules = Rules::default();
    let faults = FAULTS.into_iter().chain([Fault::None]);
    let all = cross(cross(faults, 0..70), 0..4);
    for ((fault, at), fault_after) in Draw::cases("deletions during a taking", ALWAYS, all) {
        let world = live(at + fault_after, fault, Some(at), at + fault_after + 2, &rules);
        world.check_at_rest();
        assert!(
            world.clusters[0].objects.is_empty(),
            "{fault:?} {fault_after} after {at}"
        );
    }
}
