//! What a host can lack: a password, a disk with room, a session, a key.

use crate::harness::{CANARY, STAYS, WITHIN, World};
use russet_bootstrap::mac::Failed;
use russet_bootstrap::ssh::{self, Auth};
use russet_sim_mac::macos::Faults;
use russet_telemetry::Secret;
use russet_testkit::wait::{self, Look};

fn one_sentence(failed: &Failed) -> String {
    let text = failed.to_string();
    assert!(text.lines().count() <= 3, "{text}");
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_whose_password_is_not_known_says_so_in_one_sentence_and_is_not_touched() {
    let world = World::made(|options| options.quirks.sudo_lockout = 4).await;
    let fleet = world.fleet(STAYS);
    let mac = world.mac().await;
    for (password, says) in [
        (None, "not known"),
        (Some("<sealed>"), "reinstall the host"),
        (Some(""), "not known"),
    ] {
        let mut host = world.host();
        host.password = password.map(|text| Secret::new(text.to_owned()));
        let failed = world.run_as(&fleet, &host).await.unwrap_err();
        assert!(matches!(failed, Failed::NoPassword { .. }), "{failed}");
        assert!(one_sentence(&failed).contains(says), "{failed}");
    }
    // Each wrong password counts, and an account can be locked: a run that has a wrong one costs the three times that sudo asks.
    let mut host = world.host();
    host.password = Some(Secret::new("wrong-password".to_owned()));
    let failed = world.run_as(&fleet, &host).await.unwrap_err();
    assert!(
        one_sentence(&failed).contains("does not accept the password"),
        "{failed}"
    );
    assert!(!mac.root().join("usr/local/lib/russet").exists());
    // The right one is still taken, and is needed once.
    world.run(&fleet).await.unwrap();
    let mut host = world.host();
    host.password = Some(Secret::new("<sealed>".to_owned()));
    assert_eq!(world.run_as(&fleet, &host).await.unwrap().changed, [""; 0]);
}

/// loginwindow seals a password it does not like, and tells nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_macos_seals_is_told_and_mended() {
    let world = World::new().await;
    let fleet = world.fleet(STAYS);
    let mac = world.mac().await;
    mac.set_faults(|faults| faults.sealed_password = true);
    let failed = world.run(&fleet).await.unwrap_err();
    assert!(
        one_sentence(&failed).contains("does not accept the password for automatic login"),
        "{failed}"
    );
    // The password is gone from Scaleway meanwhile: there is nothing to write.
    let mut host = world.host();
    host.password = None;
    let failed = world.run_as(&fleet, &host).await.unwrap_err();
    assert!(one_sentence(&failed).contains("not disclosed any more"), "{failed}");
    mac.set_faults(|faults| *faults = Faults::default());
    world.run(&fleet).await.unwrap();
    assert_eq!(mac.console_user(), world.mini().username);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_window_that_cannot_be_restarted_is_told_in_one_sentence() {
    let world = World::new().await;
    let mac = world.mac().await;
    mac.set_faults(|faults| faults.loginwindow_is_protected = true);
    let failed = world.run(&world.fleet(STAYS)).await.unwrap_err();
    let text = one_sentence(&failed);
    assert!(
        text.contains("ended with 150") && text.contains("restart the host"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_leaves_nothing_half_written_and_is_finished_when_there_is_room() {
    let world = World::made(|options| options.memory_disks = Some(64 << 20)).await;
    let fleet = world.fleet(&format!("{STAYS}#{}\n", "x".repeat(400_000)));
    let mac = world.mac().await;
    for left in [0, 8_192, 40_960, 200_000, 450_000] {
        mac.leave_on_disk(Some(left)).unwrap();
        match world.run(&fleet).await {
            Ok(_) => {}
            Err(failed @ Failed::Step { .. }) => {
                let text = failed.to_string();
                assert!(
                    text.contains("No space left") || text.contains("could not be written"),
                    "{text}"
                );
            }
            Err(other) => panic!("{other}"),
        }
        world.holds_no_secret_but_where_it_must().await;
    }
    mac.leave_on_disk(None).unwrap();
    world.run(&fleet).await.unwrap();
    assert!(!world.agent_pid().await.is_empty());
    assert_eq!(world.run(&fleet).await.unwrap().changed, [""; 0]);
}

/// A silent fallback to the public address would be worse than no figures. (incident tailscale-down-no-fallback)
#[tokio::test(flavor = "multi_thread")]
async fn a_tailnet_that_gives_no_address_stops_the_run_before_the_agent() {
    let world = World::new().await;
    let (fleet, host) = (world.full(), world.full_host());
    let mac = world.mac().await;
    mac.set_faults(|faults| faults.tailscale_down = true);
    let failed = world.run_as(&fleet, &host).await.unwrap_err();
    assert!(failed.to_string().contains("step tailscale"), "{failed}");
    assert_eq!(mac.daemon_pid("dev.tuist.tart-kubelet"), None);
    assert_eq!(mac.daemon_pid("dev.tuist.node-exporter"), None);
    assert!(!mac.root().join("private/etc/tuist/tailscale-auth-key").exists());
    mac.set_faults(|faults| *faults = Faults::default());
    world.run_as(&fleet, &host).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_of_the_tailnet_the_sentence_says_so() {
    let world = World::new().await;
    let mut host = world.full_host();
    host.tailnet_key = None;
    let failed = world.run_as(&world.full(), &host).await.unwrap_err();
    assert!(one_sentence(&failed).contains("no key to join it with"), "{failed}");
}

/// A bad key is quoted back by nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_the_tailnet_refuses_is_not_in_what_is_told() {
    let world = World::new().await;
    let mut host = world.full_host();
    host.tailnet_key = Some(Secret::new(CANARY.to_owned()));
    let failed = world.run_as(&world.full(), &host).await.unwrap_err();
    assert!(failed.to_string().contains("invalid key"), "{failed}");
    world.holds_no_secret_but_where_it_must().await;
}

/// networksetup complains on standard output, and in some releases ends with 0 all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_private_network_that_cannot_be_made_is_told_whatever_networksetup_ends_with() {
    for code in [4, 0] {
        let world = World::made(|options| options.quirks.networksetup_fails_with = code).await;
        let (fleet, mut host) = (world.fleet(STAYS), world.host());
        world.run_as(&fleet, &host).await.unwrap();
        host.vlan = Some(3548);
        world.root("networksetup -createVLAN other en0 3548").await;
        let failed = world.run_as(&fleet, &host).await.unwrap_err();
        let text = failed.to_string();
        assert!(
            text.contains("step private-network") && text.contains("not a recognized network service"),
            "{text}"
        );
        world.root("networksetup -deleteVLAN other en0 3548").await;
        assert_eq!(world.run_as(&fleet, &host).await.unwrap().changed, ["private-network"]);
    }
}

/// fail2ban closes the port to an address that was wrong too often: that is no verdict on the credentials that come next.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_blocks_this_address_is_not_taken_for_one_that_refuses_the_password() {
    // The first login of this world offers a key that is not there yet.
    let world = World::made(|options| options.quirks.fail2ban_after = 2).await;
    let right = || Auth::Password(Secret::new(world.mini().password));
    world.login(right()).await.unwrap();
    let wrong = world
        .login(Auth::Password(Secret::new("wrong-password".to_owned())))
        .await;
    assert!(matches!(wrong, Err(ssh::Error::AuthRejected { .. })));
    let blocked = world.login(right()).await.err().unwrap();
    assert!(!matches!(blocked, ssh::Error::AuthRejected { .. }), "{blocked}");
    world.mac().await.reboot().await;
    let opens = wait::until("the port to open", WITHIN, || async {
        world.login(right()).await?;
        Ok(Look::Done(()))
    });
    opens.await.unwrap();
}

/// Passwords are refused from then on; the key is not.
#[tokio::test(flavor = "multi_thread")]
async fn after_the_first_run_only_the_key_lets_anybody_in() {
    let world = World::new().await;
    let password = || Auth::Password(Secret::new(world.mini().password));
    world.login(password()).await.unwrap();
    world.run(&world.fleet(STAYS)).await.unwrap();
    world.login(password()).await.unwrap_err();
    world.session().await.unwrap();
}

/// Without a key of ours the host keeps what it has: nobody locks themselves out.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_passwords_stay() {
    let world = World::new().await;
    let mut host = world.host();
    host.login_keys.clear();
    world.run_as(&world.fleet(STAYS), &host).await.unwrap();
    world
        .login(Auth::Password(Secret::new(world.mini().password)))
        .await
        .unwrap();
}

/// What a host serves without does not make it fail: the log shipper once kept hosts from being set up.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_shipper_that_does_not_stay_is_told_and_fails_nothing() {
    let world = World::new().await;
    let mut fleet = world.full();
    fleet.logs.as_mut().unwrap().program = world.file("crashes", "#!/bin/bash\nexit 3\n");
    let report = world.run_as(&fleet, &world.full_host()).await.unwrap();
    let (step, why) = report.held.first().unwrap();
    assert_eq!(*step, "log-shipper");
    assert!(why.contains("does not stay up"), "{why}");
    assert!(!world.agent_pid().await.is_empty());
}

/// Strangers with half-open connections make launchd stop listening; nobody could log in to mend that.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_on_which_nothing_listens_for_ssh_any_more_opens_the_port_by_itself() {
    let world = World::new().await;
    world.run(&world.fleet(STAYS)).await.unwrap();
    let mac = world.mac().await;
    let opened = || {
        let calls = mac.calls();
        let opens = |call: &&russet_sim_mac::macos::Called| {
            call.tool == "launchctl" && call.args.iter().any(|word| word.ends_with("LaunchDaemons/ssh.plist"))
        };
        calls.iter().filter(opens).count()
    };
    assert_eq!(opened(), 0, "as long as the port is open it is left alone");
    world.root("launchctl bootout system/com.openssh.sshd").await;
    let opens = wait::until_true("the port to open", WITHIN, || async {
        Ok(opened() > 0 && world.session().await.is_ok())
    });
    opens.await.unwrap();
}
