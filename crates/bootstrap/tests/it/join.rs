//! The program, run.

mod broken;
mod shells;

use russet_bootstrap::linux::{
    Data, Form, Join, JoinReport, JoinState, NodeAddress, PrivateNet, Taint, exit, parse_report, render,
};
use russet_linux_box::LinuxBox;
use russet_telemetry::Secret;
use std::collections::BTreeMap;
use std::process::Output;

const TOKEN: &str = "canary.0123456789abcdef";

fn elastic_metal() -> Join {
    Join {
        node_name: "kura-1".to_owned(),
        provider_id: "scaleway://baremetal/fr-par-1/1".to_owned(),
        labels: BTreeMap::from([("node.cluster.x-k8s.io/instance-type".to_owned(), "scaleway".to_owned())]),
        taints: vec![Taint {
            key: "tuist.dev/runner-cache".to_owned(),
            value: "true".to_owned(),
            effect: "NoSchedule".to_owned(),
        }],
        bootstrap_kubeconfig: Secret::new(format!(
            "clusters: [{{name: c}}]\nusers: [{{name: u, user: {{token: {TOKEN}}}}}]\ncontexts: [{{name: x}}]\n"
        )),
        cluster_ca_pem: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned(),
        cluster_dns: vec!["10.96.0.10".parse().unwrap()],
        cluster_domain: "cluster.local".to_owned(),
        kubernetes: "v1.35".parse().unwrap(),
        private_network: PrivateNet::Vlan {
            id: 2319,
            address: None,
        },
        node_address: NodeAddress::PrivateNetwork,
        data: Data::Nvme { images_gib: 64 },
        form: Form::Ssh,
    }
}

fn instance() -> Join {
    Join {
        private_network: PrivateNet::Nic {
            mac: "02:00:00:AB:CD:EF".to_owned(),
            address: None,
        },
        data: Data::None,
        form: Form::CloudInit,
        ..elastic_metal()
    }
}

fn plain() -> Join {
    Join {
        private_network: PrivateNet::None,
        data: Data::None,
        ..elastic_metal()
    }
}

fn program(join: &Join) -> String {
    render(join).unwrap().script.expose().clone()
}

fn report(node: &LinuxBox) -> JoinReport {
    parse_report(&node.read("var/lib/tuist/join/status"))
        .unwrap()
        .expect("there is a report")
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn code(output: &Output) -> u32 {
    u32::try_from(
        output
            .status
            .code()
            .unwrap_or_else(|| panic!("no exit code: {output:?}")),
    )
    .unwrap()
}

/// The token may be in the one file that needs it, for root only, and nowhere else.
fn assert_no_secret_got_out(node: &LinuxBox, outputs: &[&Output]) {
    for output in outputs {
        assert!(!text(output).contains(TOKEN), "in the output:\n{}", text(output));
    }
    for path in ["status", "log", "log.1"].map(|name| format!("var/lib/tuist/join/{name}")) {
        assert!(
            !node.exists(&path) || !node.read(&path).contains(TOKEN),
            "in {path}:\n{}",
            node.read(&path)
        );
    }
    assert!(
        !node.read("var/shim/environments").contains(TOKEN),
        "in the environment of a command"
    );
    for (path, entry) in node.snapshot() {
        if entry.essence().1.contains(TOKEN) {
            assert_eq!(path, "var/lib/kubelet/bootstrap-kubeconfig");
            assert_eq!(entry.mode & 0o777, 0o600);
        }
    }
}

#[test]
fn a_server_joins_and_a_second_run_changes_nothing() {
    for join in [elastic_metal(), instance(), plain()] {
        let node = LinuxBox::new(TOKEN);
        let script = program(&join);
        let first = node.run(&script);
        assert_eq!(
            code(&first),
            exit::DONE,
            "{}\n{}",
            text(&first),
            node.read("var/lib/tuist/join/log")
        );
        assert_eq!(report(&node).state, JoinState::Done);
        assert_eq!(report(&node).step, "joined");
        assert_eq!(report(&node).config_hash, render(&join).unwrap().config_hash);
        let calls = node.take_calls();
        assert!(
            calls.iter().any(|call| call == "systemctl restart kubelet"),
            "{calls:#?}"
        );
        assert!(
            calls.iter().all(|call| !call.contains(TOKEN)),
            "in the arguments of a command"
        );

        let before = node.snapshot();
        let second = node.run(&script);
        assert_eq!(code(&second), exit::DONE, "{}", text(&second));
        assert_eq!(
            differences(&before, &node.snapshot()),
            [""; 0],
            "the second run wrote something"
        );
        let changing = |call: &&String| {
            ["restart", "install", "link add", "project", "curl", "mount /"]
                .iter()
                .any(|word| call.contains(word))
        };
        assert_eq!(
            node.take_calls().iter().find(changing),
            None,
            "the second run changed something"
        );
        assert_no_secret_got_out(&node, &[&first, &second]);
    }
}

#[test]
fn the_files_of_a_node_say_what_they_should() {
    let node = LinuxBox::new(TOKEN);
    let output = node.run(&program(&elastic_metal()));
    assert_eq!(code(&output), exit::DONE, "{}", text(&output));

    assert_eq!(
        node.read("var/lib/tuist/pn0-cidr"),
        "172.16.0.5/22\n",
        "the address that DHCP gave"
    );
    assert_eq!(
        node.read("var/lib/tuist/kubelet.env"),
        "TUIST_KUBELET_ARGS=--node-ip=172.16.0.5\n"
    );
    let fstab = node.read("etc/fstab");
    assert_eq!(
        fstab,
        "# made by the installer\nUUID=1 / ext4 defaults 0 1\n#UUID=2 none swap sw 0 0\nUUID=3 /data xfs defaults,prjquota,nofail 0 0\n\
         /data/kubelet /var/lib/kubelet none bind,nofail,x-systemd.requires-mounts-for=/data 0 0\n\
         /data/local-path-provisioner /opt/local-path-provisioner none bind,nofail,x-systemd.requires-mounts-for=/data 0 0\n"
    );
    let unit = node.read("etc/systemd/system/kubelet.service");
    assert!(
        unit.contains("--register-with-taints=tuist.dev/runner-cache=true:NoSchedule"),
        "{unit}"
    );
    assert!(unit.contains("--provider-id=scaleway://baremetal/fr-par-1/1"), "{unit}");
    assert!(unit.contains("EnvironmentFile=-/etc/default/kubelet"), "{unit}");
    assert!(
        node.read("etc/containerd/config.toml")
            .contains("root = \"/data/containerd\"")
    );
    assert_eq!(node.mode("var/lib/kubelet/bootstrap-kubeconfig"), 0o600);
    assert_eq!(node.mode("var/lib/tuist/join/status"), 0o644);
    assert_eq!(node.mode("var/lib/tuist/join/log"), 0o600);
    assert_eq!(
        node.mode("etc/apt/keyrings"),
        0o755,
        "apt reads the key as another user"
    );
    assert_eq!(node.mode("var/lib/tuist"), 0o755, "the report is read by another user");

    let calls = node.take_calls();
    let position = |part: &str| {
        calls
            .iter()
            .position(|call| call.contains(part))
            .unwrap_or_else(|| panic!("{part} in {calls:#?}"))
    };
    assert!(
        position("umount /data") < position("mount /var/lib/kubelet"),
        "quotas before binds"
    );
    assert!(
        position("mount /var/lib/kubelet") < position("kubelet=1.35.*"),
        "binds before the package"
    );
    assert!(position("kubelet=1.35.*") < position("apt-mark hold kubelet"), "held");

    for line in node.read("var/shim/modes").lines() {
        assert!(
            line.starts_with("600 "),
            "a file was readable before it had its mode: {line}"
        );
    }
}

#[test]
fn on_a_resolved_system_the_kubelet_is_told_the_real_resolver() {
    let node = LinuxBox::new(TOKEN);
    std::fs::create_dir_all(node.path("run/systemd/resolve")).unwrap();
    node.write("run/systemd/resolve/resolv.conf", "nameserver 10.0.0.1\n");
    let output = node.run(&program(&plain()));
    assert_eq!(code(&output), exit::DONE, "{}", text(&output));
    assert_eq!(
        node.read("var/lib/tuist/kubelet.env"),
        "TUIST_KUBELET_ARGS=--resolv-conf=/run/systemd/resolve/resolv.conf\n"
    );
}

#[test]
fn the_address_is_the_one_we_know_or_the_one_the_image_has_before_dhcp_is_asked() {
    let node = LinuxBox::new(TOKEN);
    node.write("var/shim/dhcp-by-image", "");
    let output = node.run(&program(&instance()));
    assert_eq!(code(&output), exit::DONE, "{}", text(&output));
    assert_eq!(node.read("var/lib/tuist/pn0-cidr"), "172.16.0.77/22\n");
    let calls = node.take_calls();
    assert!(!calls.iter().any(|call| call.starts_with("dhclient")), "{calls:#?}");
    assert!(
        calls.contains(&"ip address replace 172.16.0.77/22 dev ens2".to_owned()),
        "{calls:#?}"
    );

    // Scaleway's address management now says otherwise, and is right.
    let known = Join {
        private_network: PrivateNet::Nic {
            mac: "02:00:00:ab:cd:ef".to_owned(),
            address: Some("172.16.0.9/22".to_owned()),
        },
        ..instance()
    };
    let output = node.run(&program(&known));
    assert_eq!(code(&output), exit::DONE, "{}", text(&output));
    assert_eq!(node.read("var/lib/tuist/pn0-cidr"), "172.16.0.9/22\n");
    assert_eq!(
        node.read("var/lib/tuist/kubelet.env"),
        "TUIST_KUBELET_ARGS=--node-ip=172.16.0.9\n"
    );
    assert!(
        node.take_calls().contains(&"systemctl restart kubelet".to_owned()),
        "a new address wants a restart"
    );
}

#[test]
fn another_vlan_replaces_the_card_and_its_address() {
    let node = LinuxBox::new(TOKEN);
    assert_eq!(code(&node.run(&program(&elastic_metal()))), exit::DONE);
    node.take_calls();
    let moved = Join {
        private_network: PrivateNet::Vlan { id: 7, address: None },
        ..elastic_metal()
    };
    let output = node.run(&program(&moved));
    assert_eq!(code(&output), exit::DONE, "{}", text(&output));
    let calls = node.take_calls();
    assert!(calls.contains(&"ip link delete dev pn0".to_owned()), "{calls:#?}");
    assert!(
        calls.contains(&"ip link add link ens1 name pn0 type vlan id 7".to_owned()),
        "{calls:#?}"
    );
    assert!(
        calls.iter().any(|call| call.starts_with("dhclient")),
        "the old network's address is not kept"
    );
}

/// Names of what is not the same in both.
fn differences<T: PartialEq>(before: &BTreeMap<String, T>, after: &BTreeMap<String, T>) -> Vec<String> {
    let names: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    names
        .into_iter()
        .filter(|name| before.get(*name) != after.get(*name))
        .cloned()
        .collect()
}
