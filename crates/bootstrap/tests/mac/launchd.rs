//! A launchd that does not do what it was told, in every way the emulator knows.

use crate::harness::{STAYS, WITHIN, World};
use russet_bootstrap::mac::Failed;
use russet_sim_mac::macos::Faults;
use russet_testkit::wait;

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
    let (step, said) = message(world.run(&fleet).await.unwrap_err());
    assert_eq!(step, "tart-kubelet-job");
    // It used to say that a process "does not stay up: running".
    assert!(said.contains("still the process from before"), "{said}");
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

#[track_caller]
fn message(failed: Failed) -> (&'static str, String) {
    match failed {
        Failed::Step { step, message } => (step, message),
        other => panic!("{other}"),
    }
}

/// (incident crash-loop-pid)
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_killed_soon_after_each_start_is_not_taken_for_a_new_one() {
    let world = World::new().await;
    world.run(&world.fleet(STAYS)).await.unwrap();
    let mac = world.mac().await;
    let churn = mac.btm_churn();
    mac.set_faults(|faults| faults.crash_loop_after = Some(3));
    let fleet = world.fleet(&format!("{STAYS}# new\n"));
    for _ in 0..2 {
        let (step, said) = message(world.run(&fleet).await.unwrap_err());
        assert_eq!(step, "tart-kubelet-job");
        assert!(said.contains("does not stay up"), "{said}");
    }
    // It looks like a job that launchd holds to older code, so loading it again is tried: once, whatever comes of it.
    assert!(mac.btm_churn() <= churn + 1, "{} after {churn}", mac.btm_churn());
    mac.set_faults(|faults| *faults = Faults::default());
    // launchd waits longer and longer between two starts of it, which a new binary does not have to wait for.
    let mended = world.run(&world.fleet(&format!("{STAYS}# mended\n"))).await.unwrap();
    assert_eq!(mended.changed, ["tart-kubelet", "tart-kubelet-job"]);
    assert!(mac.btm_churn() <= churn + 2, "{} after {churn}", mac.btm_churn());
}

/// (incident stale-cdhash, and btm-cap) Six rolls, not one load; then one that the roll itself asks for.
#[tokio::test(flavor = "multi_thread")]
async fn many_rolls_in_a_row_load_no_plist_and_kill_nobody() {
    let world = World::new().await;
    world.run(&world.fleet(STAYS)).await.unwrap();
    let mac = world.mac().await;
    let churn = mac.btm_churn();
    for round in 0..6 {
        let fleet = world.fleet(&format!("{STAYS}# {round}\n"));
        assert_eq!(
            world.run(&fleet).await.unwrap().changed,
            ["tart-kubelet", "tart-kubelet-job"]
        );
    }
    assert_eq!(mac.btm_churn(), churn);
    let mut fleet = world.fleet(STAYS);
    fleet.agent.max_pods = 1;
    world.run(&fleet).await.unwrap();
    assert_eq!(mac.btm_churn(), churn + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bootout_that_takes_its_time_or_complains_is_waited_for() {
    let world = World::made(|options| options.quirks.bootout_says_36 = true).await;
    let slow = "#!/bin/bash\ntrap 'sleep 0.3; exit 0' TERM\nwhile :; do sleep 0.05; done\n";
    let mut fleet = world.fleet(slow);
    world.run(&fleet).await.unwrap();
    let before = world.agent_pid().await;
    fleet.agent.max_pods = 1;
    assert_eq!(world.run(&fleet).await.unwrap().changed, ["tart-kubelet-job"]);
    assert_ne!(world.agent_pid().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_launchd_never_lets_go_of_is_told_in_one_sentence() {
    let world = World::new().await;
    let mut fleet = world.fleet(STAYS);
    world.run(&fleet).await.unwrap();
    let mac = world.mac().await;
    mac.set_faults(|faults| faults.bootout_never_ends = true);
    fleet.agent.max_pods = 1;
    let (step, said) = message(world.run(&fleet).await.unwrap_err());
    assert_eq!(step, "tart-kubelet-job");
    assert!(
        said.contains("does not let go") && said.contains("restart the host"),
        "{said}"
    );
    mac.set_faults(|faults| *faults = Faults::default());
    mac.reboot().await;
    world.run(&fleet).await.unwrap();
    assert!(!world.agent_pid().await.is_empty());
}

/// Its database is broken, so nothing of ours is loaded after a restart. (macOS facts 1.5)
#[tokio::test(flavor = "multi_thread")]
async fn a_mac_that_loads_none_of_our_jobs_when_it_starts_gets_them_from_the_next_run() {
    let world = World::new().await;
    let fleet = world.fleet(STAYS);
    world.run(&fleet).await.unwrap();
    let mac = world.mac().await;
    mac.set_faults(|faults| faults.btm_database_broken = true);
    mac.reboot().await;
    assert_eq!(mac.daemon_pid("dev.tuist.tart-kubelet"), None);
    let mended = world.run(&fleet).await.unwrap();
    assert!(mended.changed.contains(&"tart-kubelet-job"), "{mended:?}");
    assert!(!world.agent_pid().await.is_empty());
}

/// `KeepAlive` is ignored from now on; what we start ourselves still starts. (incident btm-cap)
#[tokio::test(flavor = "multi_thread")]
async fn a_mac_that_has_seen_too_many_jobs_still_gets_its_roll() {
    let world = World::new().await;
    world.run(&world.fleet(STAYS)).await.unwrap();
    world.mac().await.set_faults(|faults| faults.btm_cap_reached = true);
    let before = world.agent_pid().await;
    world.run(&world.fleet(&format!("{STAYS}# new\n"))).await.unwrap();
    assert_ne!(world.agent_pid().await, before);
}

/// A plist that was there before its program was: launchd gives up on it, and a kickstart of it never returns. (macOS facts 1.2)
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_launchd_put_aside_is_loaded_again_and_nobody_waits_for_ever() {
    let world = World::new().await;
    let fleet = world.fleet(STAYS);
    world.run(&fleet).await.unwrap();
    world
        .root("mv /usr/local/bin/tart-kubelet /tmp/aside; kill -9 $(launchctl print system/dev.tuist.tart-kubelet | sed -n \"s/.*pid = //p\")")
        .await;
    let gives_up = wait::until_true("launchd to give up", WITHIN, || async {
        let said = world.root("launchctl print system/dev.tuist.tart-kubelet").await;
        Ok(said.contains("penalty box"))
    });
    gives_up.await.unwrap();
    let mended = world.run(&fleet).await.unwrap();
    assert_eq!(mended.changed, ["tart-kubelet", "tart-kubelet-job"]);
    assert!(!world.agent_pid().await.is_empty());
}

/// Somebody disabled the job, which outlives its plist.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_was_switched_off_is_switched_on_again() {
    for says_119 in [true, false] {
        let world = World::made(|options| options.quirks.disabled_is_119 = says_119).await;
        let fleet = world.fleet(STAYS);
        world.run(&fleet).await.unwrap();
        world
            .root("launchctl disable system/dev.tuist.tart-kubelet; launchctl bootout system/dev.tuist.tart-kubelet")
            .await;
        assert_eq!(world.run(&fleet).await.unwrap().changed, ["tart-kubelet-job"]);
        assert!(!world.agent_pid().await.is_empty());
    }
}
