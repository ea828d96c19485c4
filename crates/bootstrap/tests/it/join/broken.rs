//! Runs that fail, die, overlap or find what they cannot work with.

use super::{TOKEN, assert_no_secret_got_out, code, differences, elastic_metal, plain, program, report, text};
use russet_bootstrap::linux::{Join, JoinState, exit, steps};
use russet_draw::Draw;
use russet_linux_box::LinuxBox;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

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

    let draw = Draw::of("commands at which the join program fails or dies", "");
    let mut whole = true;
    for number in 1..=calls.len() {
        let call = &calls[number - 1];
        // Dying where the program only looks is dying at the call before.
        if only_looks(call) || calls[..number - 1].contains(call) {
            continue;
        }
        if !draw.takes(call) {
            whole = false;
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
    draw.report();
    for step in [
        "swap",
        "kernel",
        "data",
        "private-network",
        "containerd",
        "kubelet-package",
        "kubelet",
    ] {
        assert!(
            !whole || failed_steps.contains(step),
            "{step} never failed: {failed_steps:?}"
        );
    }
}

fn only_looks(call: &str) -> bool {
    ["--version", "is-active", "findmnt", "lsattr", " show "]
        .iter()
        .any(|part| call.contains(part))
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

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(2);
    while !condition() {
        assert!(Instant::now() < deadline, "did not happen: {what}");
        std::thread::yield_now();
    }
}
