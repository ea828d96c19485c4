//! The other tools of macOS.

use crate::harness::{World, until};

async fn free(world: &World) -> crate::harness::Client {
    let client = world.login().await;
    client.free_sudo(&world.host(1)).await;
    client
}

#[tokio::test]
async fn a_mac_says_what_it_is() {
    let world = World::with(1).await;
    let client = world.login().await;
    let out = client
        .ok("sw_vers -productVersion; uname -sm; sysctl -n hw.ncpu; csrutil status; spctl --status; date -u +%Y")
        .await;
    assert!(
        out.contains("Darwin arm64\n") && out.contains("assessments enabled\n"),
        "{out}"
    );
    assert!(client.ok("sw_vers").await.starts_with("ProductName:\t\tmacOS\n"));
    assert_eq!(client.run("sw_vers --nonsense").await.code, Some(1));
    assert_eq!(world.mac().await.unexpected(), ["sw_vers --nonsense"]);
}

#[tokio::test]
async fn gnu_flags_fail_and_the_flags_of_a_mac_work() {
    let world = World::with(1).await;
    let client = world.login().await;
    client.ok("printf 'one\\n' > ~/f; sed -i '' 's/one/two/' ~/f").await;
    assert_eq!(
        client
            .ok("cat ~/f; stat -f '%Su %Lp %z' ~/f; base64 -i ~/f; echo dHdvCg== | base64 -D")
            .await,
        "two\nm1 644 4\ndHdvCg==\ntwo\n"
    );
    assert_eq!(client.ok("shasum -a 256 ~/f | cut -c1-12").await, "27dd8ed44a83\n");
    let ran = client.run("stat -c %U ~/f").await;
    assert!(
        ran.code == Some(1) && ran.err.starts_with("stat: illegal option -- c"),
        "{ran:?}"
    );
}

#[tokio::test]
async fn defaults_keeps_real_property_lists_and_asks_for_rights() {
    let world = World::with(1).await;
    let client = free(&world).await;
    client
        .ok("defaults write com.example.x Answer -int 42; defaults write com.example.x Nets -array 10.0.0.0/8 plain")
        .await;
    assert_eq!(client.ok("defaults read com.example.x Answer").await, "42\n");
    assert_eq!(
        client.ok("defaults read com.example.x Nets").await,
        "(\n    \"10.0.0.0/8\",\n    plain\n)\n"
    );
    assert_eq!(
        client
            .ok("plutil -lint ~/Library/Preferences/com.example.x.plist")
            .await,
        "/Users/m1/Library/Preferences/com.example.x.plist: OK\n"
    );
    let ran = client.run("defaults read com.example.x Nothing").await;
    assert!(
        ran.err
            .contains("The domain/default pair of (com.example.x, Nothing) does not exist")
            && ran.code == Some(1),
        "{ran:?}"
    );
    assert_eq!(
        client
            .run("defaults write /Library/Preferences/com.example.y A -bool true")
            .await
            .code,
        Some(1)
    );
    client
        .ok("sudo defaults write /Library/Preferences/com.example.y A -bool true")
        .await;
    assert_eq!(
        client.ok("defaults read /Library/Preferences/com.example.y A").await,
        "1\n"
    );
}

#[tokio::test]
async fn the_local_network_exemption_counts_after_a_reboot() {
    let world = World::with(1).await;
    let mac = world.mac().await;
    let client = free(&world).await;
    client.ok("sudo defaults write com.apple.network.local-network AllowedEthernetLocalNetworkAddresses -array 10.0.0.0/8").await;
    assert!(mac.local_network_exempt().is_empty());
    mac.reboot().await;
    assert_eq!(mac.local_network_exempt(), ["10.0.0.0/8"]);
}

#[tokio::test]
async fn names_and_sleep_are_set_by_root_only_and_read_by_all() {
    let world = World::with(1).await;
    let client = free(&world).await;
    let ran = client.run("scutil --get HostName").await;
    assert_eq!((ran.err.as_str(), ran.code), ("HostName: not set\n", Some(1)));
    client
        .ok("sudo scutil --set HostName mac-1; sudo pmset -a sleep 0 displaysleep 0 disksleep 0")
        .await;
    assert_eq!(client.ok("scutil --get HostName; hostname").await, "mac-1\nmac-1\n");
    assert!(client.ok("pmset -g").await.contains(" sleep                0\n"));
    assert_eq!(client.run("pmset -a sleep 0").await.code, Some(77));
}

#[tokio::test]
async fn pf_stays_off_until_enabled_and_bad_rules_change_nothing() {
    let world = World::with(1).await;
    let (mac, client) = (world.mac().await, free(&world).await);
    assert!(
        client
            .ok("sudo pfctl -s info 2>/dev/null")
            .await
            .starts_with("Status: Disabled")
    );
    let ran = client.run("sudo pfctl -E").await;
    assert!(
        ran.err.contains("pf enabled\nToken : ") && ran.code == Some(0),
        "{ran:?}"
    );
    assert_eq!(client.run("sudo pfctl -e").await.code, Some(1));
    let rules = "block drop quick from 192.168.64.0/22 to 10.0.0.0/8\n";
    let ran = client
        .feed("sudo pfctl -a com.apple/tuist.sshguard -f -", rules.as_bytes())
        .await;
    assert!(
        ran.err.contains("pfctl: Use of -f option") && ran.code == Some(0),
        "{ran:?}"
    );
    let ran = client
        .feed("sudo pfctl -a com.apple/tuist.sshguard -f -", b"allow everything\n")
        .await;
    assert!(
        ran.err.contains("stdin:1: syntax error") && ran.code == Some(1),
        "{ran:?}"
    );
    assert_eq!(mac.pf_rules(Some("com.apple/tuist.sshguard")), [rules.trim()]);
    // A top-level anchor is not looked at before pf.conf names it.
    client
        .feed("sudo pfctl -a tuist.runners -f -", rules.as_bytes())
        .await
        .ok();
    assert!(mac.pf_rules(Some("tuist.runners")).is_empty());
    client
        .ok("echo 'anchor \"tuist.runners\"' | sudo tee -a /etc/pf.conf; sudo pfctl -f /etc/pf.conf")
        .await;
    assert_eq!(mac.pf_rules(Some("tuist.runners")), [rules.trim()]);
    assert_eq!(
        client.run("pfctl -s rules").await.err,
        "pfctl: /dev/pf: Permission denied\n"
    );
}

#[tokio::test]
async fn a_vlan_comes_with_a_service_and_errors_go_to_standard_output() {
    let world = World::with(1).await;
    let client = free(&world).await;
    client
        .ok("sudo networksetup -createVLAN pn en0 3548 && sudo networksetup -setdhcp 'pn Configuration'")
        .await;
    let out = client.ok("networksetup -listVLANs").await;
    assert!(out.contains("Device (\"Hardware\" Port): vlan0\nTag: 3548\n"), "{out}");
    assert!(client.ok("ipconfig getifaddr vlan0").await.starts_with("172.16."));
    let ran = client.run("sudo networksetup -setdhcp nobody").await;
    assert!(
        ran.out
            .starts_with("nobody is not a recognized network service.\n** Error:")
            && ran.err.is_empty(),
        "{ran:?}"
    );
}

#[tokio::test]
async fn a_missing_user_and_a_missing_key_are_told_apart() {
    let world = World::with(1).await;
    let client = world.login().await;
    let ran = client.run("dscl . -read /Users/nobody2").await;
    assert_eq!(
        (ran.err.as_str(), ran.code),
        ("<dscl_cmd> DS Error: -14136 (eDSRecordNotFound)\n", Some(56))
    );
    assert_eq!(
        client.ok("dscl . -read /Users/m1 UniqueID Nothing").await,
        "UniqueID: 501\nNo such key: Nothing\n"
    );
    assert_eq!(
        client.run("dseditgroup -o checkmember -m m1 wheel").await.code,
        Some(67)
    );
}

#[tokio::test]
async fn sysadminctl_over_ssh_says_zero_and_does_half() {
    let world = World::with(1).await;
    let client = free(&world).await;
    let ran = client
        .run("sudo sysadminctl -autologin set -userName m1 -password x")
        .await;
    assert!(
        ran.err.contains("SACSetAutoLoginPassword error:22") && ran.code == Some(0),
        "{ran:?}"
    );
    assert_eq!(client.run("sudo test -e /etc/kcpassword").await.code, Some(1));
    assert!(
        client
            .run("sysadminctl -screenLock status")
            .await
            .err
            .contains("screenLock delay is immediate")
    );
}

/// Homebrew ignores a tap nobody trusted, and an upgrade revokes what somebody once allowed on the screen.
#[tokio::test]
async fn an_upgrade_changes_the_signature_and_revokes_the_local_network_unless_pinned() {
    let world = World::with(1).await;
    let (mac, client) = (world.mac().await, world.login().await);
    let brew = "/opt/homebrew/bin/brew";
    client.ok(&format!("{brew} tap hashicorp/tap")).await;
    let ran = client.run(&format!("{brew} install packer")).await;
    assert!(
        ran.err
            .starts_with("Error: Refusing to load formula hashicorp/tap/packer from untrusted tap"),
        "{ran:?}"
    );
    client.ok(&format!("{brew} install hashicorp/tap/packer")).await;
    mac.grant_local_network("/opt/homebrew/bin/packer");
    client.ok(&format!("{brew} pin packer; {brew} upgrade")).await;
    assert!(mac.has_local_network("/opt/homebrew/bin/packer"));
    assert_eq!(client.ok(&format!("{brew} list --pinned")).await, "packer\n");
    client.ok(&format!("{brew} unpin packer; {brew} upgrade packer")).await;
    assert!(!mac.has_local_network("/opt/homebrew/bin/packer"));
    assert_eq!(mac.unexpected(), [""; 0]);
}

#[tokio::test]
async fn tailscale_needs_its_daemon_a_key_and_keeps_its_login() {
    let world = World::with(1).await;
    let (mac, client) = (world.mac().await, free(&world).await);
    client.ok("sudo mkdir -p /usr/local/bin /var/lib/tailscale; for n in tailscale tailscaled; do printf '#!/.sim/bin/%s\\n' $n | sudo tee /usr/local/bin/$n >/dev/null; sudo chmod 755 /usr/local/bin/$n; done").await;
    let ran = client.run("/usr/local/bin/tailscale ip -4").await;
    assert!(
        ran.err.starts_with("failed to connect to local Tailscale service") && ran.code == Some(1),
        "{ran:?}"
    );
    let plist = "<plist version=\"1.0\"><dict><key>Label</key><string>com.tailscale.tailscaled</string><key>ProgramArguments</key><array>\
        <string>/usr/local/bin/tailscaled</string><string>--state=/var/lib/tailscale/tailscaled.state</string>\
        <string>--socket=/var/run/tailscaled.socket</string><string>--port=41641</string></array><key>KeepAlive</key><true/></dict></plist>";
    client
        .feed(
            "sudo tee /Library/LaunchDaemons/com.tailscale.tailscaled.plist >/dev/null",
            plist.as_bytes(),
        )
        .await
        .ok();
    client
        .ok("sudo launchctl bootstrap system /Library/LaunchDaemons/com.tailscale.tailscaled.plist")
        .await;
    until("it answers", || async {
        client.run("/usr/local/bin/tailscale status").await.out == "Logged out.\n"
    })
    .await;
    assert_eq!(
        client.run("/usr/local/bin/tailscale ip -4").await.err,
        "no current Tailscale IPs; state: NeedsLogin\n"
    );
    assert!(
        client
            .ok("/usr/local/bin/tailscale status --json")
            .await
            .contains("\"BackendState\": \"NeedsLogin\"")
    );
    let ran = client.run("sudo /usr/local/bin/tailscale up --authkey=wrong").await;
    assert_eq!(
        (ran.err.as_str(), ran.code),
        ("backend error: invalid key: unable to validate API key\n", Some(1))
    );
    client.ok("echo tskey-auth-x | sudo tee /tmp/key >/dev/null; sudo /usr/local/bin/tailscale up --auth-key=file:/tmp/key --hostname=mac-1").await;
    let address = client.ok("/usr/local/bin/tailscale ip -4").await;
    assert!(address.starts_with("100.64."), "{address}");
    mac.set_faults(|faults| faults.tailscale_down = true);
    assert_eq!(client.run("/usr/local/bin/tailscale ip -4").await.code, Some(1));
    mac.set_faults(|faults| faults.tailscale_down = false);
    mac.reboot().await;
    let client = world.login().await;
    until("it is back with its login", || async {
        client.run("/usr/local/bin/tailscale ip -4").await.out == address
    })
    .await;
}

#[tokio::test]
async fn a_mac_without_the_xcode_licence_says_69() {
    let world = World::with(1).await;
    let client = free(&world).await;
    assert!(client.ok("xcodebuild -version").await.starts_with("Xcode 26"));
    world
        .mac()
        .await
        .set_quirks(|quirks| quirks.xcode = russet_sim_mac::macos::Xcode::Unlicensed);
    assert_eq!(client.run("xcodebuild -version").await.code, Some(69));
    client
        .ok("sudo xcodebuild -license accept && xcodebuild -version")
        .await;
}

#[tokio::test]
async fn loginwindow_that_got_a_hangup_is_gone_until_it_is_kicked() {
    let world = World::with(1).await;
    let client = free(&world).await;
    client.ok("sudo killall -HUP loginwindow").await;
    let ran = client.run("sudo killall -HUP loginwindow").await;
    assert_eq!(
        (ran.err.as_str(), ran.code),
        ("No matching processes were found\n", Some(1))
    );
    client
        .ok("sudo launchctl kickstart -k system/com.apple.loginwindow; sudo killall -HUP loginwindow")
        .await;
}

#[tokio::test]
async fn a_volume_is_added_once_and_found_again() {
    let world = World::with(1).await;
    let client = free(&world).await;
    assert_eq!(
        client
            .ok("diskutil info /System/Volumes/Data | awk '/APFS Container/ {print $3}'")
            .await,
        "disk3\n"
    );
    client.ok("sudo diskutil apfs addVolume disk3 APFS tuist-runner-cache -quota 100GiB && sudo diskutil enableOwnership /Volumes/tuist-runner-cache").await;
    assert!(
        client
            .ok("diskutil info /Volumes/tuist-runner-cache")
            .await
            .contains("Owners:                    Enabled")
    );
    client
        .ok("sudo chown m1:staff /Volumes/tuist-runner-cache && touch /Volumes/tuist-runner-cache/mine")
        .await;
}

#[tokio::test]
async fn a_mac_that_is_told_to_reboot_goes_away_and_comes_back() {
    let world = World::with(1).await;
    let (client, host) = (free(&world).await, world.host(1));
    assert_eq!(client.run("shutdown -r now").await.err, "shutdown: NOT super-user\n");
    let gone = client.try_feed("sudo shutdown -r now", b"").await;
    assert!(gone.as_ref().map_or(true, |ran| ran.code.is_none()), "{gone:?}");
    until("it answers", || async {
        crate::harness::Client::connect(&host).await.is_ok()
    })
    .await;
    world.login().await.ok("true").await;
}

#[tokio::test]
async fn the_power_can_go_at_the_nth_command() {
    let world = World::with(1).await;
    let (mac, client, host) = (world.mac().await, world.login().await, world.host(1));
    mac.set_faults(|faults| faults.reboot_at_command = Some(2));
    client.ok("true").await;
    let gone = client.try_feed("true", b"").await;
    assert!(gone.as_ref().map_or(true, |ran| ran.code.is_none()), "{gone:?}");
    until("it answers", || async {
        crate::harness::Client::connect(&host).await.is_ok()
    })
    .await;
    world.login().await.ok("true").await;
}
