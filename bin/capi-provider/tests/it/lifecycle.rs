//! Lives of machines in a world where nothing goes wrong, or one thing does.

use std::time::Duration;

use russet_api::values::ServerId;
use russet_capi_provider::rules::Rules;
use russet_capi_provider::situation::Situation;
use russet_scaleway::apple_silicon::ServerStatus;

use crate::replica::{Fault, Replica, run_to_rest};
use crate::world::{World, pool};

fn id(text: &str) -> ServerId {
    text.parse().unwrap()
}

fn only(world: &World) -> &crate::world::Object {
    world.clusters[0].objects.values().next().unwrap()
}

fn work(replica: &mut Replica, world: &mut World, steps: usize) {
    for _ in 0..steps {
        replica.step(world, 0, Fault::None);
    }
}

/// Has a replica look at the only machine until it has nothing more to do, and says why.
fn why_it_rests(world: &mut World, machine: usize) -> Option<Situation> {
    let mut replica = Replica::new(0);
    replica.step(world, machine, Fault::None);
    while !replica.is_idle() {
        replica.step(world, machine, Fault::None);
    }
    replica.rests
}

#[test]
fn a_machine_takes_a_host_serves_and_gives_it_back_wiped_in_few_calls() {
    let mut world = World::new(1, 1, Rules::default());
    world.add_machine(0, "mac-1");
    run_to_rest(&mut world);
    world.check_at_rest();
    assert_eq!(only(&world).server, Some(id("s0")));
    assert_eq!(world.servers[&id("s0")].host.name, "mac-1");
    let taking = world.calls;

    run_to_rest(&mut world);
    assert_eq!(world.calls, taking, "a machine at rest costs no call of its own");

    world.delete_machine(0, "uid-0-mac-1");
    run_to_rest(&mut world);
    world.check_at_rest();
    let server = &world.servers[&id("s0")];
    assert_eq!((server.wipes, server.dirty), (1, false));
    let giving = world.calls - taking;
    assert!(
        taking <= 9 && giving <= 11,
        "{taking} calls to take a host, {giving} to give it back"
    );
}

#[test]
fn ten_machines_share_three_hosts_and_the_rest_say_why_they_wait() {
    let mut world = World::new(3, 1, Rules::default());
    for index in 0..10 {
        world.add_machine(0, &format!("mac-{index}"));
    }
    run_to_rest(&mut world);
    world.check_at_rest();
    let serving = world.clusters[0]
        .objects
        .values()
        .filter(|o| o.server.is_some())
        .count();
    assert_eq!(serving, 3);
    let waiting = world.clusters[0]
        .objects
        .values()
        .position(|o| o.server.is_none())
        .unwrap();
    let Some(Situation::NoAvailableHost { shortage, .. }) = why_it_rests(&mut world, waiting) else {
        panic!("it does not wait for a host")
    };
    assert_eq!((shortage.pooled, shortage.other_type), (1, 1));
}

#[test]
fn a_host_that_cannot_be_set_up_is_rebooted_once_and_then_exchanged_wiped() {
    let rules = Rules {
        reboot_after: 2,
        give_back_after: 4,
        ..Rules::default()
    };
    let mut world = World::new(2, 1, rules);
    world.add_machine(0, "mac-1");
    let mut replica = Replica::new(0);
    replica.setup_works = false;
    for _ in 0..2_000 {
        replica.step(&mut world, 0, Fault::None);
        if replica.is_idle() {
            world.pass(Duration::from_secs(5));
        }
        if world.servers.values().any(|server| server.wipes == 1) {
            break;
        }
    }
    assert!(world.servers.values().any(|server| server.wipes == 1), "{world:#?}");
    assert_eq!(
        only(&world).provider,
        None,
        "a provider id would bind the machine to the bad host for ever"
    );
    assert!(only(&world).setup.rebooted);
    let bad = only(&world).server.clone().unwrap();
    run_to_rest(&mut world);
    world.check_at_rest();
    assert!(only(&world).setup.provisioned);
    assert_ne!(only(&world).server, Some(bad), "the host it gave back");
}

/// The rename into the pool once came before the wipe. When the wipe failed the host sat in the pool with its old data, was
/// taken by another machine, and then wiped under it by the retry.
#[test]
fn a_release_that_fails_at_every_call_neither_pools_an_unwiped_host_nor_wipes_a_live_one() {
    let mut world = World::new(1, 1, Rules::default());
    world.add_machine(0, "mac-1");
    run_to_rest(&mut world);
    world.delete_machine(0, "uid-0-mac-1");
    world.add_machine(0, "mac-2");
    // Every second step of either replica fails, with and without effect, for an hour; `World::check` runs all the time.
    let mut replicas = [Replica::new(0), Replica::new(0)];
    for round in 0..720_usize {
        for (index, replica) in replicas.iter_mut().enumerate() {
            let fault = [Fault::FailBefore, Fault::None, Fault::FailAfter, Fault::None][(round + index) % 4];
            replica.step(&mut world, round / 12, fault);
        }
        world.pass(Duration::from_secs(5));
    }
    run_to_rest(&mut world);
    world.check_at_rest();
    assert_eq!(only(&world).holder.name, "mac-2");
    assert!(only(&world).setup.provisioned);
}

/// A replica decided to wipe a host and was suspended. Meanwhile the other finished, and the host has a new owner.
#[test]
fn a_replica_that_wakes_up_late_sends_nothing() {
    let mut world = World::new(1, 1, Rules::default());
    world.add_machine(0, "mac-1");
    run_to_rest(&mut world);
    world.delete_machine(0, "uid-0-mac-1");
    world.add_machine(0, "mac-2");
    for asleep_after in 1..14 {
        let mut world = world.clone();
        let mut sleeper = Replica::new(0);
        work(&mut sleeper, &mut world, asleep_after);
        run_to_rest(&mut world);
        assert_eq!(only(&world).holder.name, "mac-2");
        let wipes = world.servers[&id("s0")].wipes;
        let calls = world.calls;
        work(&mut sleeper, &mut world, 1);
        assert_eq!(world.servers[&id("s0")].wipes, wipes);
        assert!(world.calls <= calls + 1, "at most a look");
        work(&mut sleeper, &mut world, 20);
        run_to_rest(&mut world);
        world.check_at_rest();
        assert_eq!(world.servers[&id("s0")].wipes, wipes);
    }
}

#[test]
fn a_host_in_use_that_somebody_put_into_the_pool_gets_its_name_back() {
    let mut world = World::new(1, 1, Rules::default());
    world.add_machine(0, "mac-1");
    run_to_rest(&mut world);
    world.strangers = true;
    world.servers.get_mut(&id("s0")).unwrap().host.name = pool().name("by-mistake");
    world.refresh_list();
    run_to_rest(&mut world);
    world.strangers = false;
    world.check_at_rest();
    assert_eq!(world.servers[&id("s0")].host.name, "mac-1");
}

#[test]
fn a_host_that_somebody_renamed_is_neither_renamed_nor_wiped_even_when_its_machine_goes() {
    let mut world = World::new(1, 1, Rules::default());
    world.add_machine(0, "mac-1");
    run_to_rest(&mut world);
    world.servers.get_mut(&id("s0")).unwrap().host.name = "keep-this-one".into();
    world.refresh_list();
    let rests = why_it_rests(&mut world, 0);
    assert_eq!(
        rests,
        Some(Situation::HostRenamed {
            name: "keep-this-one".into()
        })
    );
    world.delete_machine(0, "uid-0-mac-1");
    run_to_rest(&mut world);
    assert!(world.clusters[0].objects.is_empty());
    let server = &world.servers[&id("s0")];
    assert_eq!((server.host.name.as_str(), server.wipes), ("keep-this-one", 0));
}

#[test]
fn a_machine_whose_host_is_gone_says_so_and_can_be_deleted() {
    let mut world = World::new(1, 1, Rules::default());
    world.add_machine(0, "mac-1");
    run_to_rest(&mut world);
    world.servers.remove(&id("s0"));
    world.refresh_list();
    let rests = why_it_rests(&mut world, 0);
    assert_eq!(rests, Some(Situation::HostGone));
    world.delete_machine(0, "uid-0-mac-1");
    run_to_rest(&mut world);
    assert!(world.clusters[0].objects.is_empty());
    world.check_at_rest();
}

#[test]
fn a_moved_machine_finds_its_host_by_provider_id() {
    let mut world = World::new(1, 2, Rules::default());
    world.add_machine(0, "mac-1");
    run_to_rest(&mut world);
    let mut moved = world.clusters[0].objects.pop_first().unwrap().1;
    world.clusters[0] = crate::world::Cluster::default();
    moved.server = None;
    moved.setup = russet_capi_provider::decide::Setup::default();
    moved.finalizer = false;
    moved.holder.uid = "uid-new".into();
    world.clusters[1].objects.insert("uid-new".into(), moved);
    run_to_rest(&mut world);
    world.check_at_rest();
    assert_eq!(world.clusters[1].objects["uid-new"].server, Some(id("s0")));
    assert_eq!(world.servers[&id("s0")].wipes, 0);
}

/// The list still shows the host as free, and the claims of the other cluster cannot be seen from here.
#[test]
fn a_list_that_lags_behind_takes_nothing_from_another_cluster() {
    let mut world = World::new(1, 2, Rules::default());
    world.add_machine(1, "west");
    let listed = world.inventory();
    run_to_rest(&mut world);
    world.add_machine(0, "east");
    let mut replica = Replica::new(0);
    for _ in 0..200 {
        world.show_again(listed.clone());
        replica.step(&mut world, 0, Fault::None);
        assert_eq!(world.servers[&id("s0")].host.name, "west");
        if replica.is_idle() {
            world.pass(Duration::from_secs(10));
        }
    }
    run_to_rest(&mut world);
    world.check_at_rest();
}

#[test]
fn a_busy_host_is_waited_for() {
    let mut world = World::new(1, 1, Rules::default());
    world.add_machine(0, "mac-1");
    run_to_rest(&mut world);
    world.servers.get_mut(&id("s0")).unwrap().host.status = ServerStatus::Rebooting;
    world.refresh_list();
    let rests = why_it_rests(&mut world, 0);
    assert_eq!(
        rests,
        Some(Situation::HostBusy {
            status: ServerStatus::Rebooting
        })
    );
}

/// A lagging cache still showed the claim of the host's previous owner. The machine gave up, and left the host behind under
/// its own marker, where nobody looks for free hosts.
#[test]
fn claims_of_a_while_ago_make_nobody_abandon_a_marked_host() {
    let mut world = World::new(1, 1, Rules::default());
    world.add_machine(0, "mac-1");
    world.add_machine(0, "mac-2");
    // mac-1 has taken the claim, and nothing else happened yet.
    let mut lagging = Replica::new(0);
    let mut replica = Replica::new(0);
    while world.clusters[0].claims.iter().next().is_none() {
        replica.step(&mut world, 0, Fault::None);
    }
    lagging.step(&mut world, 1, Fault::None);
    lagging.forget_all_but_claims();
    // It goes, and mac-2 takes the host as far as the marker.
    world.delete_machine(0, "uid-0-mac-1");
    while !world.servers[&id("s0")].host.name.starts_with("tuist-claim-pending-") {
        replica.step(&mut world, 0, Fault::None);
    }
    while !replica.is_idle() {
        replica.step(&mut world, 0, Fault::None);
    }
    assert_eq!(only(&world).holder.name, "mac-2");
    // One look at mac-2 with the claims of then.
    lagging.step(&mut world, 0, Fault::FailAfter);
    while !lagging.is_idle() {
        lagging.step(&mut world, 0, Fault::None);
    }
    run_to_rest(&mut world);
    world.check_at_rest();
    assert!(only(&world).setup.provisioned);
}
