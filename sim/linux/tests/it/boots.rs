//! Booting, logging in, user data, services, faults, and the end of it all.

use russet_cluster::node;
use russet_sim_linux::{CloudInit, Kind, Phase, Power, PrivateLeg};
use russet_sim_scaleway::Id;
use russet_skip::{can_run, test_name};

use crate::harness::{Site, Traces, eventually, mounts_below};

const USER_DATA: &str = r#"#cloud-config
write_files:
- path: /opt/hello.sh
  permissions: '0700'
  content: |
    #!/bin/bash
    set -euo pipefail
    echo "hello from $(hostname)" >/etc/greeting
    cat >/etc/systemd/system/beat.service <<'UNIT'
    [Service]
    EnvironmentFile=-/etc/default/beat
    ExecStart=/bin/sh -c 'echo started $WORD; exec sleep infinity'
    Restart=always
    RestartSec=100ms
    [Install]
    WantedBy=multi-user.target
    UNIT
    echo WORD=well >/etc/default/beat
    systemctl daemon-reload
    systemctl enable --now beat
    systemctl is-active --quiet beat
runcmd:
- [bash, /opt/hello.sh]
- echo the shell says $((1 + 1))
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_carries_out_its_user_data_once_and_leaves_nothing_behind() {
    if !can_run(test_name!(), node::check()) {
        return;
    }
    let site = Site::new().await;
    let mut row = site.row("box-1", 201);
    row.user_data = Some(USER_DATA.to_owned());
    site.fleet.apply(row.clone()).await;
    let state = site.until(&row, "cloud-init", |state| state.cloud_init.is_some()).await;
    assert_eq!(state.cloud_init, Some(CloudInit::Done), "{}", site.consoles());

    let greeting = site.ssh(&row, "cat /etc/greeting; id -un; hostname").await;
    let found = greeting.unwrap_or_else(|why| panic!("{why}\n{}", site.consoles()));
    assert_eq!(found, "hello from box-1\nroot\nbox-1\n");
    let output = site.ssh(&row, "cat /var/log/cloud-init-output.log").await.unwrap();
    assert!(output.contains("the shell says 2"), "{output}");
    assert!(
        !std::path::Path::new("/etc/greeting").exists(),
        "the host's files are not the server's"
    );
    let journal = site.ssh(&row, "journalctl -u beat -n 1 -o cat").await.unwrap();
    assert_eq!(journal, "started well\n");

    a_service_that_dies_is_started_again(&site, &row).await;
    stubs_refuse_what_they_do_not_know(&site, &row).await;

    let before = Traces::of(&site.fleet, &row).await.processes();
    row.boots += 1;
    site.fleet.apply(row.clone()).await;
    before.vanish().await;
    site.until(&row, "the second boot", |state| state.cloud_init.is_some())
        .await;
    let state = site.fleet.watch(&row.server_id).await.unwrap().borrow().clone();
    assert_eq!(
        state.cloud_init,
        Some(CloudInit::Nothing),
        "user data is for the first boot"
    );
    assert_eq!(site.ssh(&row, "systemctl is-active beat").await.unwrap(), "active\n");
    assert_eq!(site.ssh(&row, "cat /etc/greeting").await.unwrap(), "hello from box-1\n");

    // Another generation has nothing of the disk before.
    row.generation += 1;
    row.boots += 1;
    row.user_data = None;
    site.fleet.apply(row.clone()).await;
    site.booted(&row).await;
    assert!(site.ssh(&row, "cat /etc/greeting").await.is_err());

    let after = Traces::of(&site.fleet, &row).await;
    row.power = Power::Off;
    site.fleet.apply(row.clone()).await;
    after.vanish().await;
    site.fleet.remove(&row.server_id).await;
    assert_eq!(mounts_below(site.dir.path()), Vec::<String>::new());
}

async fn a_service_that_dies_is_started_again(site: &Site, row: &russet_sim_linux::Row) {
    site.ssh(row, "pkill -9 -f 'sleep infinity'").await.unwrap();
    eventually("the service is back", async || {
        site.ssh(
            row,
            "[ $(journalctl -u beat | grep -c 'started well') = 2 ] && systemctl is-active --quiet beat",
        )
        .await
        .is_ok()
    })
    .await;
}

async fn stubs_refuse_what_they_do_not_know(site: &Site, row: &russet_sim_linux::Row) {
    for (command, expected) in [
        ("systemctl isolate rescue.target", "does not know the verb isolate"),
        ("systemctl start nosuch", "nosuch.service could not be found"),
        ("apt-get install -y cowsay", "Unable to locate package cowsay"),
        ("apt-get install -y kubelet", "Unable to locate package kubelet"),
        ("modprobe floppy", "floppy not found"),
        ("sysctl -a", "does not know -a"),
        ("curl https://example.org/", "Could not resolve host: example.org"),
    ] {
        let said = site.ssh(row, command).await.expect_err(command);
        assert!(said.contains(expected), "{command}: {said}");
    }
    site.ssh(row, "sysctl -w net.ipv4.ip_forward=1 kernel.panic=77")
        .await
        .unwrap();
    assert_eq!(site.ssh(row, "cat /proc/sys/net/ipv4/ip_forward").await.unwrap(), "1\n");
    let ours = std::fs::read_to_string("/proc/sys/kernel/panic").unwrap();
    assert_ne!(ours.trim(), "77", "the host's kernel is its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_elastic_metal_server_has_an_account_with_sudo_and_a_vlan_on_its_card() {
    if !can_run(test_name!(), node::check()) {
        return;
    }
    let site = Site::new().await;
    let mut metal = site.row("metal-1", 201);
    metal.kind = Kind::Metal;
    metal.ssh_user = "ubuntu".to_owned();
    site.fleet.apply(metal.clone()).await;
    site.booted(&metal).await;
    let who = site
        .ssh(&metal, "id -un; sudo -n -- id -un; cat /etc/shadow || echo closed")
        .await;
    let found = who.unwrap_or_else(|why| panic!("{why}\n{}", site.consoles()));
    assert_eq!(found, "ubuntu\nroot\nclosed\n");

    // Attached while it runs.
    let leg = |last: u8, vlan| PrivateLeg {
        private_network_id: Id::named("pn-1"),
        address: format!("172.16.77.{last}/24"),
        mac: format!("02:00:00:00:77:{last:02x}"),
        vlan,
    };
    assert!(
        site.ssh(&metal, "sudo ip link add link ens2 name pn0 type vlan id 1234")
            .await
            .is_err()
    );
    metal.private = Some(leg(5, Some(1234)));
    site.fleet.apply(metal.clone()).await;
    assert!(
        site.ssh(&metal, "sudo ip link add link ens2 name pn0 type vlan id 1235")
            .await
            .is_err()
    );
    assert!(
        site.ssh(&metal, "ip -br link show")
            .await
            .unwrap()
            .lines()
            .all(|line| !line.contains("boxvlan"))
    );
    let vlan = "sudo ip link add link ens2 name pn0 type vlan id 1234 && sudo ip link set dev pn0 up && \
                sudo ip address replace 172.16.77.5/24 dev pn0 && ip -d -o link show dev pn0";
    let shown = site.ssh(&metal, vlan).await.unwrap();
    assert!(shown.contains("pn0@ens2") && shown.contains(" id 1234 "), "{shown}");

    // An Instance has a card, found by its address, and asks for the rest.
    let mut instance = site.row("box-2", 202);
    instance.private = Some(leg(6, None));
    site.fleet.apply(instance.clone()).await;
    site.booted(&instance).await;
    let card = site
        .ssh(
            &instance,
            "ip -br link show | awk '$3 == \"02:00:00:00:77:06\" && $1 !~ /@/ { print $1 }'",
        )
        .await
        .unwrap();
    assert_eq!(card, "ens5\n");
    let said = site
        .ssh(&instance, "apt-get install -y isc-dhcp-client && dhclient -4 -1 ens5")
        .await;
    said.unwrap_or_else(|why| panic!("{why}"));
    let reached = "timeout 5 bash -c 'exec 3<>/dev/tcp/172.16.77.5/22; read -r line <&3; echo $line'";
    let banner = site.ssh(&instance, reached).await.unwrap();
    assert!(banner.starts_with("SSH-2.0"), "{banner}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_user_data_fails_says_so_and_may_reboot_and_switch_off_from_inside() {
    if !can_run(test_name!(), node::check()) {
        return;
    }
    let site = Site::new().await;
    let mut row = site.row("box-1", 201);
    let user_data = "#cloud-config\nruncmd:\n- set -e\n- apt-get update\n- apt-get uninstall\n";
    row.user_data = Some(user_data.to_owned());
    let id = row.server_id.clone();
    site.fleet.apply(row.clone()).await;
    let state = site.until(&row, "cloud-init", |state| state.cloud_init.is_some()).await;
    assert!(matches!(state.cloud_init, Some(CloudInit::Failed(_))), "{state:?}");
    site.ssh(&row, "true")
        .await
        .unwrap_or_else(|why| panic!("{why}\n{}", site.consoles()));

    let boots = site.fleet.watch(&id).await.unwrap().borrow().boots;
    let _ = site.ssh(&row, "reboot").await;
    site.until(&row, "a reboot from inside", |state| {
        state.boots == boots + 1 && state.phase == Phase::Booted
    })
    .await;
    let _ = site.ssh(&row, "poweroff").await;
    site.until(&row, "the end from inside", |state| state.phase == Phase::Off)
        .await;
}
