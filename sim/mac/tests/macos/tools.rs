//! The other tools of macOS.

use crate::harness::{World, shell, until_answers};

#[tokio::test]
async fn a_mac_says_what_it_is() {
    let (world, client) = World::and_client().await;
    let out = client
        .ok("sw_vers -productVersion; uname -sm; sysctl -n hw.ncpu; csrutil status; spctl --status; date -u +%Y")
        .await;
    assert!(
        out.contains("Darwin arm64\n") && out.contains("assessments enabled\n"),
        "{out}"
    );
    assert!(client.ok("sw_vers").await.starts_with("ProductName:\t\tmacOS\n"));
    shell!(client, "sw_vers --nonsense" => Ends(1));
    assert_eq!(world.mac().await.unexpected(), ["sw_vers --nonsense"]);
}

#[tokio::test]
async fn gnu_flags_fail_and_the_flags_of_a_mac_work() {
    let (_world, client) = World::and_client().await;
    shell!(client,
        "printf 'one\\n' > ~/f; sed -i '' 's/one/two/' ~/f" => Done,
        "cat ~/f; stat -f '%Su %Lp %z' ~/f; base64 -i ~/f; echo dHdvCg== | base64 -D" => Out("two\nm1 644 4\ndHdvCg==\ntwo\n"),
        "shasum -a 256 ~/f | cut -c1-12" => Out("27dd8ed44a83\n"),
    );
    shell!(client, "stat -c %U ~/f" => Begins(1, "stat: illegal option -- c"));
}

#[tokio::test]
async fn defaults_keeps_real_property_lists_and_asks_for_rights() {
    let (_world, client) = World::and_free_client().await;
    shell!(client,
        "defaults write com.example.x Answer -int 42; defaults write com.example.x Nets -array 10.0.0.0/8 plain" => Done,
        "defaults read com.example.x Answer" => Out("42\n"),
        "defaults read com.example.x Nets" => Out("(\n    \"10.0.0.0/8\",\n    plain\n)\n"),
        "plutil -lint ~/Library/Preferences/com.example.x.plist" => Out("/Users/m1/Library/Preferences/com.example.x.plist: OK\n"),
        "defaults read com.example.x Nothing" => Says(1, "The domain/default pair of (com.example.x, Nothing) does not exist"),
        "defaults write /Library/Preferences/com.example.y A -bool true" => Ends(1),
        "sudo defaults write /Library/Preferences/com.example.y A -bool true" => Done,
        "defaults read /Library/Preferences/com.example.y A" => Out("1\n"),
    );
}

#[tokio::test]
async fn the_local_network_exemption_counts_after_a_reboot() {
    let (world, client) = World::and_free_client().await;
    let mac = world.mac().await;
    client.ok("sudo defaults write com.apple.network.local-network AllowedEthernetLocalNetworkAddresses -array 10.0.0.0/8").await;
    assert!(mac.local_network_exempt().is_empty());
    mac.reboot().await;
    assert_eq!(mac.local_network_exempt(), ["10.0.0.0/8"]);
}

#[tokio::test]
async fn names_and_sleep_are_set_by_root_only_and_read_by_all() {
    let (_world, client) = World::and_free_client().await;
    shell!(client,
        "scutil --get HostName" => Err(1, "HostName: not set\n"),
        "sudo scutil --set HostName mac-1; sudo pmset -a sleep 0 displaysleep 0 disksleep 0" => Done,
        "scutil --get HostName; hostname" => Out("mac-1\nmac-1\n"),
        "pmset -g" => Shows(" sleep                0\n"),
        "pmset -a sleep 0" => Ends(77),
    );
}

#[tokio::test]
async fn pf_stays_off_until_enabled_and_bad_rules_change_nothing() {
    let (world, client) = World::and_free_client().await;
    let mac = world.mac().await;
    let status = client.ok("sudo pfctl -s info 2>/dev/null").await;
    assert!(status.starts_with("Status: Disabled"), "{status}");
    shell!(client, "sudo pfctl -E" => Says(0, "pf enabled\nToken : "));
    shell!(client, "sudo pfctl -e" => Ends(1));
    let rules = "block drop quick from 192.168.64.0/22 to 10.0.0.0/8\n";
    for (rules, says, code) in [
        (rules, "pfctl: Use of -f option", 0),
        ("allow everything\n", "stdin:1: syntax error", 1),
    ] {
        let load = "sudo pfctl -a com.apple/tuist.sshguard -f -";
        let ran = client.feed(load, rules.as_bytes()).await;
        assert!(ran.err.contains(says) && ran.code == Some(code), "{ran:?}");
    }
    assert_eq!(mac.pf_rules(Some("com.apple/tuist.sshguard")), [rules.trim()]);
    // A top-level anchor is not looked at before pf.conf names it.
    client.put("sudo pfctl -a tuist.runners -f -", rules.as_bytes()).await;
    assert!(mac.pf_rules(Some("tuist.runners")).is_empty());
    shell!(client, "echo 'anchor \"tuist.runners\"' | sudo tee -a /etc/pf.conf; sudo pfctl -f /etc/pf.conf" => Done);
    assert_eq!(mac.pf_rules(Some("tuist.runners")), [rules.trim()]);
    let refused = client.run("pfctl -s rules").await.err;
    assert_eq!(refused, "pfctl: /dev/pf: Permission denied\n");
}

#[tokio::test]
async fn a_vlan_comes_with_a_service_and_errors_go_to_standard_output() {
    let (_world, client) = World::and_free_client().await;
    shell!(client, "sudo networksetup -createVLAN pn en0 3548 && sudo networksetup -setdhcp 'pn Configuration'" => Done);
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
    let (_world, client) = World::and_client().await;
    shell!(client,
        "dscl . -read /Users/nobody2" => Err(56, "<dscl_cmd> DS Error: -14136 (eDSRecordNotFound)\n"),
        "dscl . -read /Users/m1 UniqueID Nothing" => Out("UniqueID: 501\nNo such key: Nothing\n"),
        "dseditgroup -o checkmember -m m1 wheel" => Ends(67),
    );
}

#[tokio::test]
async fn sysadminctl_over_ssh_says_zero_and_does_half() {
    let (_world, client) = World::and_free_client().await;
    shell!(client, "sudo sysadminctl -autologin set -userName m1 -password x" => Says(0, "SACSetAutoLoginPassword error:22"));
    shell!(client, "sudo test -e /etc/kcpassword" => Ends(1));
    let status = client.run("sysadminctl -screenLock status").await.err;
    assert!(status.contains("screenLock delay is immediate"), "{status}");
}

/// Homebrew ignores a tap nobody trusted, and an upgrade revokes what somebody once allowed on the screen.
#[tokio::test]
async fn an_upgrade_changes_the_signature_and_revokes_the_local_network_unless_pinned() {
    let (world, client) = World::and_client().await;
    let mac = world.mac().await;
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
    shell!(client,
        format!("{brew} list --pinned") => Out("packer\n"),
        format!("{brew} unpin packer; {brew} upgrade packer") => Done,
    );
    assert!(!mac.has_local_network("/opt/homebrew/bin/packer"));
    assert_eq!(mac.unexpected(), [""; 0]);
}

#[tokio::test]
async fn tailscale_needs_its_daemon_a_key_and_keeps_its_login() {
    let (world, client) = World::and_free_client().await;
    let mac = world.mac().await;
    shell!(client,
        "sudo mkdir -p /usr/local/bin /var/lib/tailscale; for n in tailscale tailscaled; do printf '#!/.sim/bin/%s\\n' $n | sudo tee /usr/local/bin/$n >/dev/null; sudo chmod 755 /usr/local/bin/$n; done" => Done,
        "/usr/local/bin/tailscale ip -4" => Begins(1, "failed to connect to local Tailscale service"),
    );
    let plist = "<plist version=\"1.0\"><dict><key>Label</key><string>com.tailscale.tailscaled</string><key>ProgramArguments</key><array>\
        <string>/usr/local/bin/tailscaled</string><string>--state=/var/lib/tailscale/tailscaled.state</string>\
        <string>--socket=/var/run/tailscaled.socket</string><string>--port=41641</string></array><key>KeepAlive</key><true/></dict></plist>";
    client.load("com.tailscale.tailscaled", plist).await;
    client
        .until_out("it answers", "/usr/local/bin/tailscale status", "Logged out.\n")
        .await;
    let none = client.run("/usr/local/bin/tailscale ip -4").await.err;
    assert_eq!(none, "no current Tailscale IPs; state: NeedsLogin\n");
    shell!(client,
        "/usr/local/bin/tailscale status --json" => Shows("\"BackendState\": \"NeedsLogin\""),
        "sudo /usr/local/bin/tailscale up --authkey=wrong" => Err(1, "backend error: invalid key: unable to validate API key\n"),
        "echo tskey-auth-x | sudo tee /tmp/key >/dev/null; sudo /usr/local/bin/tailscale up --auth-key=file:/tmp/key --hostname=mac-1" => Done,
    );
    let address = client.ok("/usr/local/bin/tailscale ip -4").await;
    assert!(address.starts_with("100.64."), "{address}");
    mac.set_faults(|faults| faults.tailscale_down = true);
    shell!(client, "/usr/local/bin/tailscale ip -4" => Ends(1));
    mac.set_faults(|faults| faults.tailscale_down = false);
    mac.reboot().await;
    let client = world.login().await;
    client
        .until_out("it is back with its login", "/usr/local/bin/tailscale ip -4", &address)
        .await;
}

#[tokio::test]
async fn a_mac_without_the_xcode_licence_says_69() {
    let (world, client) = World::and_free_client().await;
    assert!(client.ok("xcodebuild -version").await.starts_with("Xcode 26"));
    let mac = world.mac().await;
    mac.set_quirks(|quirks| quirks.xcode = russet_sim_mac::macos::Xcode::Unlicensed);
    shell!(client,
        "xcodebuild -version" => Ends(69),
        "sudo xcodebuild -license accept && xcodebuild -version" => Done,
    );
}

#[tokio::test]
async fn loginwindow_that_got_a_hangup_is_gone_until_it_is_kicked() {
    let (_world, client) = World::and_free_client().await;
    shell!(client,
        "sudo killall -HUP loginwindow" => Done,
        "sudo killall -HUP loginwindow" => Err(1, "No matching processes were found\n"),
        "sudo launchctl kickstart -k system/com.apple.loginwindow; sudo killall -HUP loginwindow" => Done,
    );
}

#[tokio::test]
async fn a_volume_is_added_once_and_found_again() {
    let (_world, client) = World::and_free_client().await;
    shell!(client,
        "diskutil info /System/Volumes/Data | awk '/APFS Container/ {print $3}'" => Out("disk3\n"),
        "sudo diskutil apfs addVolume disk3 APFS tuist-runner-cache -quota 100GiB && sudo diskutil enableOwnership /Volumes/tuist-runner-cache" => Done,
        "diskutil info /Volumes/tuist-runner-cache" => Shows("Owners:                    Enabled"),
        "sudo chown m1:staff /Volumes/tuist-runner-cache && touch /Volumes/tuist-runner-cache/mine" => Done,
    );
}

#[tokio::test]
async fn a_mac_that_is_told_to_reboot_goes_away_and_comes_back() {
    let (world, client) = World::and_free_client().await;
    let host = world.host(1);
    assert_eq!(client.run("shutdown -r now").await.err, "shutdown: NOT super-user\n");
    let gone = client.try_feed("sudo shutdown -r now", b"").await;
    assert!(gone.as_ref().map_or(true, |ran| ran.code.is_none()), "{gone:?}");
    until_answers(&host).await;
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
    until_answers(&host).await;
    world.login().await.ok("true").await;
}
