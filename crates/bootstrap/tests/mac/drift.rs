//! What somebody changed on a host, and what nobody wants any more.

use crate::harness::{STAYS, World, api_server};
use russet_bootstrap::mac::{Step, desired, plan};

/// What breaks each step. Nothing that a job of ours would mend by itself before we look.
const BROKEN: [(&str, &str); 20] = [
    (
        "ssh-hardening",
        "echo PasswordAuthentication yes >/etc/ssh/sshd_config.d/050-russet.conf",
    ),
    (
        "auto-login",
        "defaults write /Library/Preferences/com.apple.loginwindow autoLoginUser other",
    ),
    ("sleep", "pmset -a sleep 10"),
    (
        "ssh-reachability",
        "rm /Library/LaunchDaemons/dev.tuist.ssh-reachability.plist",
    ),
    ("hostname", "scutil --set HostName other"),
    ("tart", "rm /usr/local/bin/tart"),
    ("cache-volume", "chmod 700 /Volumes/tuist-runner-cache"),
    ("private-network", "networksetup -deleteVLAN pn en0 3548"),
    ("firewall", "echo pass all >>/etc/pf.anchors/tuist.runners"),
    ("vm-nat", "chmod 700 /usr/local/bin/tuist-pf-vmnat"),
    ("tailscale", "/usr/local/bin/tailscale logout"),
    ("resolver", "rm /etc/resolver/ts.net"),
    (
        "local-network",
        "defaults delete com.apple.network.local-network AllowedWiFiLocalNetworkAddresses",
    ),
    ("ssh-guard", "rm /etc/pf.anchors/tuist.sshguard"),
    ("node-exporter", "launchctl bootout system/dev.tuist.node-exporter"),
    ("kubeconfig", "chmod 644 /etc/tart-kubelet/kubeconfig"),
    ("api-server", "rm /etc/tart-kubelet/cluster-info"),
    ("tart-kubelet", "echo x >>/usr/local/bin/tart-kubelet"),
    ("tart-kubelet-job", "launchctl bootout system/dev.tuist.tart-kubelet"),
    ("log-shipper", "rm /usr/local/bin/tuist-log-shipper"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_host_with_everything_is_set_up_and_whatever_is_changed_on_it_is_mended() {
    let world = World::new().await;
    let (fleet, host) = (world.full(), world.full_host());
    let first = world.run_as(&fleet, &host).await.unwrap();
    assert_eq!(first.held, [], "{first:?}");
    let again = world.run_as(&fleet, &host).await.unwrap();
    assert_eq!(
        (again.changed.as_slice(), again.uploaded),
        ([].as_slice(), 0),
        "{again:?}"
    );
    assert!(again.commands <= 3, "{again:?}");

    for (step, command) in BROKEN {
        world.root(command).await;
        let healed = world.run_as(&fleet, &host).await.unwrap();
        assert!(healed.changed.contains(&step), "{step}: {healed:?}");
        assert!(healed.changed.len() <= 2, "{step}: {healed:?}");
    }
    let after = world.run_as(&fleet, &host).await.unwrap();
    assert_eq!(after.changed, [""; 0], "{after:?}");
    let names: Vec<_> = plan(&fleet, &host).iter().map(Step::name).collect();
    for name in names.iter().filter(|name| !["sudo", "github-runner"].contains(name)) {
        assert!(BROKEN.iter().any(|(step, _)| step == name), "nothing breaks {name}");
    }

    // The rule of sudo: the password is needed once more.
    world.root(&format!("rm /etc/sudoers.d/{}-nopasswd", host.user)).await;
    assert_eq!(world.run_as(&fleet, &host).await.unwrap().changed, ["sudo"]);

    let mac = world.mac().await;
    assert_eq!(mac.unexpected(), [""; 0], "every tool was called as macOS has it");
    assert!(mac.pf_rules(Some("com.apple/tuist.sshguard")).len() > 3);
    assert!(!mac.pf_rules(Some("com.apple/tuist.runners")).is_empty());
    assert!(!mac.pf_rules(Some("com.apple/tuist.vmnat")).is_empty());
    mac.reboot().await;
    assert!(mac.local_network_exempt().contains(&"192.168.0.0/16".to_owned()));
    world.holds_no_secret_but_where_it_must().await;
}

/// What a fleet does not want any more goes away, jobs and programs both.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_fleet_no_longer_has_is_taken_off_its_hosts() {
    let world = World::new().await;
    world.run_as(&world.full(), &world.full_host()).await.unwrap();
    let fleet = world.fleet(STAYS);
    let taken = world.run(&fleet).await.unwrap();
    for step in [
        "tailscale",
        "resolver",
        "ssh-guard",
        "node-exporter",
        "log-shipper",
        "private-network",
    ] {
        assert!(taken.changed.contains(&step), "{step}: {taken:?}");
    }
    let mac = world.mac().await;
    for label in [
        "com.tailscale.tailscaled",
        "dev.tuist.node-exporter",
        "dev.tuist.log-shipper",
    ] {
        assert_eq!(mac.daemon_pid(label), None, "{label}");
    }
    assert_eq!(mac.pf_rules(Some("com.apple/tuist.sshguard")), [""; 0]);
    for path in [
        "usr/local/bin/node_exporter",
        "usr/local/bin/tuist-log-shipper",
        "usr/local/bin/tailscaled",
        "private/etc/resolver/ts.net",
        "Library/LaunchDaemons/com.tailscale.tailscaled.plist",
    ] {
        assert!(!mac.root().join(path).exists(), "{path}");
    }
    assert_eq!(world.run(&fleet).await.unwrap().changed, [""; 0]);
}

/// Tags of the tailnet are part of the hash; a host that was on it counted as done, whatever its tags.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_on_the_tailnet_follows_the_tags_of_its_fleet() {
    let world = World::new().await;
    let (mut fleet, host) = (world.full(), world.full_host());
    world.run_as(&fleet, &host).await.unwrap();
    fleet.tailnet.as_mut().unwrap().tags = vec!["tag:tuist-macmini-canary".to_owned()];
    assert_eq!(world.run_as(&fleet, &host).await.unwrap().changed, ["tailscale"]);
    let status = world.root("/usr/local/bin/tailscale status --json").await;
    assert!(status.contains("tag:tuist-macmini-canary"), "{status}");
}

/// Hosts kept the address of the API server that they were told when they joined, and were lost when it moved. It is part of what a
/// host is set up with: the file is another one, the job is started again, and launchd is told nothing new.
#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_moved_is_told_to_a_host_without_loading_its_job_again() {
    let world = World::new().await;
    let mut fleet = world.fleet(STAYS);
    fleet.api_server = Some(api_server("https://203.0.113.7:6443"));
    let before = desired(&fleet);
    world.run(&fleet).await.unwrap();
    let (mac, pid) = (world.mac().await, world.agent_pid().await);
    let loads = || {
        let calls = mac.calls();
        let loads = calls.iter().filter(|call| call.tool == "launchctl");
        loads
            .filter(|call| call.args.first().is_some_and(|verb| verb == "bootstrap"))
            .count()
    };
    let loaded = loads();

    fleet.api_server = Some(api_server("https://203.0.113.8:6443"));
    assert_ne!(
        desired(&fleet),
        before,
        "a host that was told the old place has drifted"
    );
    let moved = world.run(&fleet).await.unwrap();
    assert_eq!(moved.changed, ["api-server", "tart-kubelet-job"]);
    assert_eq!(moved.uploaded, 0);
    assert_ne!(world.agent_pid().await, pid, "the agent was started again");
    assert_eq!(loads(), loaded, "what launchd has is not loaded again");
    let told = world.root("cat /etc/tart-kubelet/cluster-info").await;
    assert!(told.contains("https://203.0.113.8:6443"), "{told}");
    assert_eq!(world.run(&fleet).await.unwrap().changed, [""; 0]);
}
