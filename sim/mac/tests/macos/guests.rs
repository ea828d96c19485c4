//! An emulated `tart` on an emulated Mac: installed from an archive, run by the owner of the desktop.

use crate::harness::{Client, World, shell, until};
use russet_sim_tart::Image;
use std::process::Command;

const IMAGE: &str = "ghcr.io/acme/mac:v1";

/// What the set-up of a Mac does with the archive of `tart`.
async fn install(client: &Client, host: &russet_sim_scaleway::Host) {
    let dir = tempfile::tempdir().unwrap();
    russet_sim_tart::write_bundle(dir.path(), &[(IMAGE, Image::default())]).unwrap();
    let packed = Command::new("tar")
        .args(["--create", "--gzip", "--file=-", "--directory"])
        .arg(dir.path())
        .arg(russet_sim_tart::BUNDLE)
        .output()
        .unwrap();
    client.free_sudo(host).await;
    client.ok("sudo mkdir -p /usr/local/lib /usr/local/bin").await;
    let unpack = client.feed("sudo tar -xzf - -C /usr/local/lib", &packed.stdout).await;
    unpack.ok();
    let wrapper = "#!/bin/bash\nexec /usr/local/lib/tart.app/Contents/MacOS/tart \"$@\"\n";
    client
        .put("sudo tee /usr/local/bin/tart >/dev/null", wrapper.as_bytes())
        .await;
    client.ok("sudo chmod 755 /usr/local/bin/tart").await;
}

async fn boot(client: &Client, name: &str) {
    client.ok(&format!("/usr/local/bin/tart clone {IMAGE} {name}")).await;
    let run = format!("nohup /usr/local/bin/tart run --no-graphics {name} >/tmp/{name}.log 2>&1 &");
    client.ok(&run).await;
    until("the guest answers", || async {
        client.run(&format!("/usr/local/bin/tart exec {name} true")).await.code == Some(0)
    })
    .await;
}

#[tokio::test]
async fn a_guest_runs_on_a_mac_with_an_address_of_its_own() {
    let world = World::with(2).await;
    let mut addresses = Vec::new();
    for number in [1, 2] {
        let host = world.host(number);
        let client = Client::login(&host).await.unwrap();
        install(&client, &host).await;
        client.sit_down(&host.password).await;
        boot(&client, "one").await;
        let tart = "/usr/local/bin/tart";
        let guest = client
            .ok(&format!("{tart} exec one sh -c 'id -un; sw_vers -productVersion; pwd'"))
            .await;
        assert_eq!(guest, "root\n26.0\n/Users/admin\n");
        let awk = client
            .ok(&format!("{tart} exec one awk 'BEGIN {{ print 6 * 7 }}'"))
            .await;
        assert_eq!(awk, "42\n", "programs that go by several names are there, too");
        let terminal = client.ok(&format!("{tart} exec -t one tty")).await;
        assert!(terminal.starts_with("/dev/pts/"), "{terminal}");
        addresses.push(client.ok(&format!("{tart} ip one --wait 60")).await);
        // How the set-up knows that tart must not be exchanged now.
        client
            .ok("pgrep -f 'tart.app/Contents/MacOS/tart run' >/dev/null")
            .await;
        client.ok(&format!("{tart} stop one")).await;
        client.ok(&format!("{tart} delete one")).await;
    }
    assert_ne!(addresses.first(), addresses.last(), "all Macs share one loopback");
    for mac in world.macs.all().await {
        assert!(mac.unexpected().is_empty(), "{:?}", mac.unexpected());
    }
}

/// Virtualization.framework makes the key of a VM only for the user of a desktop session, and `tart` asks the launchd of this Mac.
#[tokio::test]
async fn a_guest_needs_somebody_at_the_screen() {
    let world = World::with(1).await;
    let host = world.host(1);
    let client = world.login().await;
    install(&client, &host).await;
    client.ok(&format!("/usr/local/bin/tart clone {IMAGE} one")).await;
    let refused = client.run("/usr/local/bin/tart run --no-graphics one").await;
    assert!(refused.err.contains("Failed to create new HostKey"), "{refused:?}");
}

#[tokio::test]
async fn a_guest_ends_with_the_power_of_its_mac_and_its_disk_stays() {
    let world = World::made(1, |options| options.quirks.headless = false).await;
    let host = world.host(1);
    let client = world.login().await;
    install(&client, &host).await;
    client.sit_down(&host.password).await;
    boot(&client, "one").await;
    shell!(client, "/usr/local/bin/tart exec one sh -c 'echo kept >/Users/admin/file'" => Done);
    world.mac().await.reboot().await;
    let client = world.login().await;
    let seen = client.ok("/usr/local/bin/tart list --source local --format json").await;
    assert!(seen.contains("\"one\"") && !seen.contains("\"running\""), "{seen}");
    let run = "nohup /usr/local/bin/tart run --no-graphics one >/tmp/one.log 2>&1 &";
    client.ok(run).await;
    client
        .until_out(
            "the guest answers",
            "/usr/local/bin/tart exec one cat /Users/admin/file",
            "kept\n",
        )
        .await;
}
