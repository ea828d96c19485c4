//! The program, run.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use russet_bootstrap::linux::{
    Data, Form, Join, JoinReport, JoinState, NodeAddress, PrivateNet, Taint, exit, parse_report, render, steps,
};
use russet_telemetry::Secret;

use crate::{linux_box::LinuxBox, parts};

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

#[test]
fn a_file_that_changed_restarts_its_service_even_if_the_run_that_changed_it_was_killed() {
    let node = LinuxBox::new(TOKEN);
    assert_eq!(code(&node.run(&program(&elastic_metal()))), exit::DONE);
    let calls = node.take_calls();
    let changed = Join {
        cluster_domain: "other.local".to_owned(),
        ..elastic_metal()
    };
    // The last call before the kubelet would restart.
    let restart = calls
        .iter()
        .position(|call| call == "systemctl restart kubelet")
        .unwrap();
    assert!(restart > 0);
    let dry = LinuxBox::new(TOKEN);
    assert_eq!(code(&dry.run(&program(&elastic_metal()))), exit::DONE);
    dry.take_calls();
    assert_eq!(code(&dry.run(&program(&changed))), exit::DONE);
    let calls = dry.take_calls();
    let restart = calls
        .iter()
        .position(|call| call == "systemctl restart kubelet")
        .unwrap();
    node.write("var/shim/kill", "");
    node.write("var/shim/fail-at", &(restart + 1).to_string());
    let killed = node.run(&program(&changed));
    assert_eq!(killed.status.code(), None, "{}", text(&killed));
    assert!(
        node.read("var/lib/kubelet/config.yaml").contains("other.local"),
        "the file was written"
    );
    node.take_calls();
    assert_eq!(code(&node.run(&program(&changed))), exit::DONE);
    assert!(node.take_calls().contains(&"systemctl restart kubelet".to_owned()));
}

/// Every command fails once, and the program is killed once at every command; each time the next run finishes the job.
#[test]
fn failing_or_dying_at_any_command_leaves_a_report_and_the_next_run_converges() {
    let clean = LinuxBox::new(TOKEN);
    let script = program(&elastic_metal());
    assert_eq!(code(&clean.run(&script)), exit::DONE);
    let calls = clean.take_calls();
    let wanted = essence(&clean);
    let names: Vec<_> = steps(&elastic_metal()).iter().map(|step| step.name).collect();
    let mut failed_steps = std::collections::BTreeSet::new();

    for number in 1..=calls.len() {
        let call = &calls[number - 1];
        // Dying where the program only looks is dying at the call before.
        if only_looks(call) || calls[..number - 1].contains(call) {
            continue;
        }
        let node = LinuxBox::new(TOKEN);
        node.write("var/shim/fail-at", &number.to_string());
        let failed = node.run(&script);
        let seen = report(&node);
        if code(&failed) == exit::DONE {
            // Without the quota the node works, not every kernel knows every key, and DHCP is asked again.
            let tolerated = ["xfs_quota", "98-tuist-panic", "dhclient"];
            assert!(
                tolerated.iter().any(|part| call.contains(part)),
                "{call} failed and nobody noticed"
            );
            assert_eq!(seen.state, JoinState::Done);
        } else {
            assert_eq!(code(&failed), exit::FAILED, "{call}: {}", text(&failed));
            assert_eq!(seen.state, JoinState::Failed, "{call}");
            assert!(names.contains(&seen.step.as_str()), "{call}: {}", seen.step);
            assert!(!seen.tail.trim().is_empty(), "{call} left no output");
            assert!(text(&failed).contains(&seen.step), "{call}: {}", text(&failed));
            failed_steps.insert(seen.step.clone());
        }
        assert_no_secret_got_out(&node, &[&failed]);

        node.take_calls();
        node.write("var/shim/kill", "");
        node.write("var/shim/fail-at", &number.to_string());
        let killed = node.run(&script);
        if killed.status.code().is_none() {
            assert_eq!(report(&node).state, JoinState::Running, "{call}");
        }
        assert_no_secret_got_out(&node, &[&killed]);
        node.take_calls();
        let last = node.run(&script);
        assert_eq!(
            code(&last),
            exit::DONE,
            "{call}: {}\n{}",
            text(&last),
            node.read("var/lib/tuist/join/log")
        );
        assert_eq!(differences(&wanted, &essence(&node)), [""; 0], "after {call}");
        assert_no_secret_got_out(&node, &[&last]);
    }
    for step in [
        "swap",
        "kernel",
        "data",
        "private-network",
        "containerd",
        "kubelet-package",
        "kubelet",
    ] {
        assert!(failed_steps.contains(step), "{step} never failed: {failed_steps:?}");
    }
}

fn only_looks(call: &str) -> bool {
    ["--version", "is-active", "findmnt", "lsattr", " show "]
        .iter()
        .any(|part| call.contains(part))
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

fn essence(node: &LinuxBox) -> BTreeMap<String, (u32, String)> {
    node.snapshot()
        .iter()
        .map(|(path, entry)| (path.clone(), entry.essence()))
        .collect()
}

#[test]
fn a_node_that_gets_no_certificate_is_not_joined_and_the_journal_is_shown_without_its_secrets() {
    let node = LinuxBox::new(TOKEN);
    node.write("var/shim/no-certificate", "");
    let output = node.run(&program(&plain()));
    assert_eq!(code(&output), exit::FAILED);
    let report = report(&node);
    assert_eq!((report.step.as_str(), report.state), ("joined", JoinState::Failed));
    assert!(
        report.tail.contains("kubelet: unauthorized, said [redacted]"),
        "{}",
        report.tail
    );
    assert!(report.tail.contains("signing request"), "{}", report.tail);
    assert_no_secret_got_out(&node, &[&output]);
}

#[test]
fn a_data_disk_of_the_wrong_kind_ends_the_join_before_anything_is_bound() {
    let node = LinuxBox::new(TOKEN);
    node.write("var/shim/mounts", "/dev/md1 /data ext4 rw\n");
    let output = node.run(&program(&elastic_metal()));
    assert_eq!(code(&output), exit::FAILED);
    assert_eq!(report(&node).step, "data");
    assert!(
        report(&node).tail.contains("install the server with an XFS partition"),
        "{}",
        report(&node).tail
    );
    assert!(!node.read("etc/fstab").contains("bind"));
}

#[test]
fn two_runs_do_not_overlap() {
    let node = LinuxBox::new(TOKEN);
    let script = program(&plain());
    node.write("var/shim/apt-waits", "");
    let first = node.spawn(&script);
    wait_until("the first run is under way", || node.exists("var/shim/apt-is-waiting"));
    let second = node.run(&script);
    assert_eq!(code(&second), exit::BUSY, "{}", text(&second));
    assert_eq!(
        report(&node).state,
        JoinState::Running,
        "the report stays that of the first"
    );
    node.remove("var/shim/apt-waits");
    assert_eq!(code(&first.wait_with_output().unwrap()), exit::DONE);
}

#[test]
fn the_work_goes_on_when_whoever_started_it_goes_away() {
    let node = LinuxBox::new(TOKEN);
    node.write("var/shim/apt-waits", "");
    let mut child = node.spawn(&program(&plain()));
    wait_until("the run is under way", || node.exists("var/shim/apt-is-waiting"));
    drop(child.stdout.take());
    drop(child.stderr.take());
    node.remove("var/shim/apt-waits");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(report(&node).state, JoinState::Done);
}

#[test]
fn a_program_that_arrives_in_half_does_nothing() {
    let node = LinuxBox::new(TOKEN);
    let script = program(&plain());
    for part in [1, 2, 3] {
        let cut = &script[..script.len() * part / 4];
        node.write("program", cut);
        let _ = node.command(&["bash", "/program"]).output().unwrap();
        assert!(!node.exists("var/lib/tuist"), "a quarter times {part} did something");
    }
}

/// As over SSH: the program is the standard input, and no command may eat the rest of it.
#[test]
fn the_program_runs_from_standard_input() {
    let node = LinuxBox::new(TOKEN);
    let mut child = node.command(&["bash", "-s"]).stdin(Stdio::piped()).spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(program(&plain()).as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), exit::DONE, "{}", text(&output));
    assert!(text(&output).ends_with("joined\n"), "{}", text(&output));
}

/// `runcmd` of cloud-init runs under sh, which is dash on Ubuntu, and dash knows no `pipefail`: the first join programs
/// ended on their first line and the node never came.
#[test]
fn under_dash_the_program_finds_bash_or_says_that_it_needs_it() {
    let node = LinuxBox::new(TOKEN);
    if !std::path::Path::new("/usr/bin/dash").exists() {
        eprintln!("SKIPPED: there is no dash here");
        return;
    }
    node.write("program", &program(&plain()));
    let output = node.command(&["dash", "/program"]).output().unwrap();
    assert_eq!(code(&output), exit::DONE, "{}", text(&output));

    let mut child = node.command(&["dash", "-s"]).stdin(Stdio::piped()).spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(program(&plain()).as_bytes());
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), exit::NOT_BASH, "{}", text(&output));
    assert!(text(&output).contains("needs bash"), "{}", text(&output));
}

#[test]
fn tracing_the_program_shows_no_secret() {
    let node = LinuxBox::new(TOKEN);
    node.write("program", &program(&plain()));
    let output = node.command(&["bash", "-x", "/program"]).output().unwrap();
    assert_eq!(code(&output), exit::DONE, "{}", text(&output));
    assert_no_secret_got_out(&node, &[&output]);
}

#[test]
fn an_ordinary_user_is_sent_away() {
    let node = LinuxBox::new(TOKEN);
    node.write("program", &program(&plain()));
    let output = node
        .command(&["bash", "-c", "id() { echo 1000; }; . /program"])
        .output()
        .unwrap();
    assert_eq!(code(&output), exit::NOT_ROOT, "{}", text(&output));
    assert!(!node.exists("var/lib/tuist"));
}

#[tokio::test]
async fn shellcheck_and_bash_find_nothing_to_complain_about() {
    let shellcheck = parts::program("shellcheck").await;
    for join in [elastic_metal(), instance(), plain()] {
        let script = program(&join);
        lint(Command::new("bash").arg("-n"), &script);
        // Values are quoted on purpose, and steps are called by their names.
        let style = ["--shell=bash", "--severity=style", "--exclude=SC2016,SC2329", "-"];
        lint(Command::new(&shellcheck).args(style), &script);
    }
    for helper in [
        include_str!("../../src/linux/steps/_pn0-up.sh"),
        include_str!("../../src/linux/steps/_pn0-lease.sh"),
    ] {
        lint(
            Command::new(&shellcheck).args(["--shell=bash", "--severity=style", "-"]),
            helper,
        );
    }
}

fn lint(command: &mut Command, script: &str) {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(2);
    while !condition() {
        assert!(Instant::now() < deadline, "did not happen: {what}");
        std::thread::yield_now();
    }
}
