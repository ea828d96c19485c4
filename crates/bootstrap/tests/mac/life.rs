//! From a bare Mac to one that serves, and on.

use crate::harness::{STAYS, World};
use russet_bootstrap::mac::{Failed, desired};
use russet_sim_mac::macos::{Faults, SshFault};

#[tokio::test(flavor = "multi_thread")]
async fn a_bare_mac_becomes_what_the_plan_says_and_costs_one_command_from_then_on() {
    let world = World::new().await;
    let fleet = world.fleet(STAYS);
    let first = world.run(&fleet).await.unwrap();
    assert!(first.changed.contains(&"tart-kubelet-job"), "{first:?}");
    assert_eq!(first.uploaded, fleet.agent.program.len());
    let pid = world.agent_pid().await;
    assert!(!pid.is_empty());

    let again = world.run(&fleet).await.unwrap();
    assert_eq!(
        (again.changed.as_slice(), again.uploaded, again.commands),
        ([].as_slice(), 0, 1),
        "{again:?}"
    );
    assert_eq!(world.agent_pid().await, pid);
    let mac = world.mac().await;
    assert_eq!(mac.unexpected(), [""; 0], "every tool was called as macOS has it");
}

/// A roll used to load the job anew each time, until macOS stopped restarting it. (incident btm-cap)
#[tokio::test(flavor = "multi_thread")]
async fn a_new_agent_takes_over_without_its_plist_being_loaded_again() {
    let world = World::new().await;
    world.run(&world.fleet(STAYS)).await.unwrap();
    for round in 0..3 {
        let before = world.agent_pid().await;
        let fleet = world.fleet(&format!("{STAYS}# {round}\n"));
        let rolled = world.run(&fleet).await.unwrap();
        assert_eq!(rolled.changed, ["tart-kubelet", "tart-kubelet-job"]);
        assert_eq!(rolled.uploaded, fleet.agent.program.len());
        assert_ne!(world.agent_pid().await, before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_does_not_stay_is_never_recorded_as_rolled() {
    let world = World::new().await;
    world.run(&world.fleet(STAYS)).await.unwrap();
    let fleet = world.fleet("#!/bin/bash\nexit 3\n");
    for _ in 0..2 {
        let failed = world.run(&fleet).await.unwrap_err();
        let Failed::Step { step, message } = failed else {
            panic!("{failed}");
        };
        assert_eq!(step, "tart-kubelet-job");
        assert!(message.contains("does not stay up"), "{message}");
    }
    world.run(&world.fleet(STAYS)).await.unwrap();
    assert!(!world.agent_pid().await.is_empty());
}

/// A kickstart that did nothing left the old process running, and the roll was recorded all the same. (incident noop-kickstart)
#[tokio::test(flavor = "multi_thread")]
async fn a_kickstart_that_does_nothing_leaves_the_drift_set() {
    let world = World::new().await;
    world.run(&world.fleet(STAYS)).await.unwrap();
    let mac = world.mac().await;
    mac.set_faults(|faults| faults.kickstart_does_nothing = true);
    let fleet = world.fleet(&format!("{STAYS}# new\n"));
    let failed = world.run(&fleet).await.unwrap_err();
    assert!(
        matches!(
            failed,
            Failed::Step {
                step: "tart-kubelet-job",
                ..
            }
        ),
        "{failed}"
    );
    mac.set_faults(|faults| *faults = Faults::default());
    let healed = world.run(&fleet).await.unwrap();
    assert_eq!(healed.changed, ["tart-kubelet-job"]);
}

/// (incident stale-cdhash, the launchd that pins)
#[tokio::test(flavor = "multi_thread")]
async fn a_launchd_that_pins_the_code_it_loaded_is_recognised() {
    let world = World::made(|options| options.quirks.pins_cdhash = true).await;
    world.run(&world.fleet(STAYS)).await.unwrap();
    let before = world.agent_pid().await;
    world.run(&world.fleet(&format!("{STAYS}# new\n"))).await.unwrap();
    assert_ne!(world.agent_pid().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_cut_at_any_byte_costs_only_time() {
    let world = World::new().await;
    let fleet = world.fleet(&format!("{STAYS}#{}\n", "x".repeat(200_000)));
    let mac = world.mac().await;
    let mut cut = 3_000;
    let mut attempts = 0;
    loop {
        attempts += 1;
        assert!(attempts < 40, "it never ends");
        mac.set_faults(|faults| faults.ssh = SshFault::DropAfter(cut));
        match world.run(&fleet).await {
            Ok(_) => break,
            Err(Failed::Ssh(_)) => cut += 17_011,
            Err(other) => panic!("{other}"),
        }
    }
    mac.set_faults(|faults| *faults = Faults::default());
    let after = world.run(&fleet).await.unwrap();
    assert_eq!(after.changed, [""; 0], "{after:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_whose_password_is_sealed_says_so_in_one_sentence() {
    let world = World::new().await;
    let mut host = world.host();
    host.password = None;
    let failed = world.run_as(&world.fleet(STAYS), &host).await.unwrap_err();
    assert!(failed.to_string().contains("sudo asks for a password"), "{failed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hash_follows_the_fleet_and_not_the_host() {
    let world = World::new().await;
    let fleet = world.fleet(STAYS);
    let hash = desired(&fleet);
    let mut other = fleet.clone();
    other.firewall.cache_network = Some("172.16.0.0/22".to_owned());
    assert_ne!(desired(&other), hash);
    let mut other = fleet.clone();
    other.agent.max_pods = 3;
    assert_ne!(desired(&other), hash);
    assert_eq!(desired(&world.fleet(STAYS)), hash);
    assert_ne!(desired(&world.fleet("#!/bin/bash\n")), hash);
}
