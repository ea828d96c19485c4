//! From a bare Mac to one that serves, and on.

use crate::harness::{STAYS, World};

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
