//! Two replicas, or two clusters, interleaved at random with faults everywhere.

use std::time::Duration;

use proptest::prelude::*;
use russet_capi_provider::rules::Rules;

use crate::replica::{FAULTS, Fault, Replica, run_to_rest};
use crate::world::World;

#[derive(Clone, Debug)]
enum Event {
    /// A replica does one thing to one machine.
    Step {
        replica: usize,
        machine: usize,
        fault: Fault,
    },
    /// A replica does several things undisturbed.
    Run {
        replica: usize,
        machine: usize,
        steps: usize,
    },
    Pass(u64),
    List,
    Delete(usize),
    SetupFails(usize, bool),
}

fn any_fault() -> impl Strategy<Value = Fault> {
    prop_oneof![3 => Just(Fault::None), 1 => prop::sample::select(FAULTS.to_vec())]
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        30 => (0..2_usize, 0..6_usize, any_fault())
            .prop_map(|(replica, machine, fault)| Event::Step { replica, machine, fault }),
        20 => (0..2_usize, 0..6_usize, 1..12_usize)
            .prop_map(|(replica, machine, steps)| Event::Run { replica, machine, steps }),
        8 => prop_oneof![0_u64..5, 5_u64..70, 60_u64..400].prop_map(Event::Pass),
        4 => Just(Event::List),
        2 => (0..6_usize).prop_map(Event::Delete),
        1 => (0..2_usize, any::<bool>()).prop_map(|(replica, fails)| Event::SetupFails(replica, fails)),
    ]
}

fn play(world: &mut World, replicas: &mut [Replica; 2], events: Vec<Event>) {
    for event in events {
        match event {
            Event::Step {
                replica,
                machine,
                fault,
            } => replicas[replica].step(world, machine, fault),
            Event::Run {
                replica,
                machine,
                steps,
            } => {
                for _ in 0..steps {
                    replicas[replica].step(world, machine, Fault::None);
                }
            }
            Event::Pass(seconds) => world.pass(Duration::from_secs(seconds)),
            Event::List => world.refresh_list(),
            Event::Delete(machine) => {
                let cluster = machine % world.clusters.len();
                let uid = world.clusters[cluster].objects.keys().nth(machine / 2).cloned();
                if let Some(uid) = uid {
                    world.delete_machine(cluster, &uid);
                }
            }
            Event::SetupFails(replica, fails) => replicas[replica].setup_works = !fails,
        }
        world.check();
    }
}

/// Machines that serve, or wait, before anything happens, in turn in each cluster; and a list that knows nothing of it.
fn settle_first(world: &mut World, count: usize, name: &str) {
    for index in 0..count {
        world.add_machine(index % world.clusters.len(), &format!("{name}-{index}"));
    }
    if count > 0 {
        let listed = world.inventory();
        run_to_rest(world);
        world.show_again(listed);
    }
}

fn impatient(settle: u64) -> Rules {
    Rules {
        settle: Duration::from_secs(settle),
        reboot_after: 1,
        give_back_after: 3,
        ..Rules::default()
    }
}

proptest! {
    #[test]
    fn two_replicas_of_one_cluster_lose_double_or_wipe_nothing(
        machines in 1..4_usize, hosts in 1..4_usize, settle in prop_oneof![Just(0_u64), Just(60)],
        settled in 0..4_usize, events in prop::collection::vec(any_event(), 0..220),
    ) {
        let mut world = World::new(hosts, 1, impatient(settle));
        settle_first(&mut world, settled.min(machines), "old");
        (0..machines).for_each(|index| world.add_machine(0, &format!("mac-{index}")));
        play(&mut world, &mut [Replica::new(0), Replica::new(0)], events);
        run_to_rest(&mut world);
        world.check_at_rest();
        let living = world.clusters[0].objects.len();
        let serving = world.clusters[0].objects.values().filter(|o| o.setup.provisioned).count();
        prop_assert_eq!(serving, living.min(hosts), "everyone who can be served is");
    }

    #[test]
    fn two_clusters_that_share_a_pool_never_both_win(
        machines in 1..3_usize, hosts in 1..3_usize, settled in 0..3_usize,
        events in prop::collection::vec(any_event(), 0..220),
    ) {
        let mut world = World::new(hosts, 2, impatient(60));
        settle_first(&mut world, settled, "old");
        for index in 0..machines {
            world.add_machine(0, &format!("east-{index}"));
            world.add_machine(1, &format!("west-{index}"));
        }
        play(&mut world, &mut [Replica::new(0), Replica::new(1)], events);
        run_to_rest(&mut world);
        world.check_at_rest();
        let serving = world.clusters.iter().flat_map(|c| c.objects.values()).filter(|o| o.setup.provisioned).count();
        let living: usize = world.clusters.iter().map(|c| c.objects.len()).sum();
        prop_assert_eq!(serving, living.min(hosts));
    }
}
