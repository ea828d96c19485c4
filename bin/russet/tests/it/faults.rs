//! What goes wrong before a cluster starts: each with its own message and exit code, and nothing damaged.

use crate::sandbox::{Ran, Sandbox};
use std::fs;
use std::process::Command;

#[test]
fn nothing_running_is_exit_code_3_and_says_how_to_start() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&["status"]).expect(3);
    assert!(ran.stdout.contains("start it with `russet up`"), "{ran:?}");
    let json: serde_json::Value = serde_json::from_str(&sandbox.run(&["status", "--json"]).expect(3).stdout).unwrap();
    assert_eq!(json.get("state").unwrap(), "stopped");
    assert!(!sandbox.layout().root().exists(), "looking must not make anything");
}

#[test]
fn a_directory_of_somebody_else_is_neither_used_nor_removed() {
    let sandbox = Sandbox::new();
    let precious = sandbox.path().join("photos");
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join("wedding.jpg"), "x").unwrap();
    for command in [["up", "--dir", "photos"], ["down", "--dir", "photos"]] {
        let ran = sandbox.run(&command).expect(1);
        assert!(ran.stderr.contains("was not made by russet"), "{ran:?}");
    }
    assert!(precious.join("wedding.jpg").exists());
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&["up", "--dir", "/proc/russet"]).expect(1);
    assert!(ran.stderr.contains("cannot write in /proc/russet"), "{ran:?}");
    assert!(ran.stderr.contains("--dir"), "{ran:?}");
}

#[test]
fn no_toolchain_and_no_network_names_the_ways_out() {
    let sandbox = Sandbox::new();
    let empty = sandbox.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let output = sandbox
        .command(&["up"])
        .env("PATH", &empty)
        .env("RUSSET_CACHE_DIR", sandbox.path().join("cache"))
        .env("RUSSET_PARTS_OFFLINE", "1")
        .env_remove("RUSSET_PARTS_DIR")
        .env_remove("KUBEBUILDER_ASSETS")
        .output()
        .unwrap();
    let ran = Ran::from(output).expect(1);
    for way_out in ["RUSSET_PARTS_DIR", "--kubeconfig", "Go"] {
        assert!(
            ran.stderr.contains(way_out),
            "{way_out} is not mentioned:\n{}",
            ran.stderr
        );
    }
}

#[test]
fn state_of_a_newer_russet_is_refused_and_kept() {
    let sandbox = Sandbox::new();
    let layout = sandbox.layout();
    russet::state::home::prepare(&layout).unwrap();
    let newer = r#"{"schema": 99, "russet": "9.9.9"}"#;
    fs::write(layout.record(), newer).unwrap();
    let ran = sandbox.run(&["up"]).expect(1);
    assert!(ran.stderr.contains("written by a newer russet (9.9.9"), "{ran:?}");
    assert_eq!(fs::read_to_string(layout.record()).unwrap(), newer);
}

#[test]
fn data_of_a_newer_kubernetes_is_refused() {
    let sandbox = Sandbox::new();
    let layout = sandbox.layout();
    russet::state::home::prepare(&layout).unwrap();
    let newer = r#"{"schema": 1, "russet": "0.9.0", "parts": {"kube-apiserver": "v1.99.0"}}"#;
    fs::write(layout.record(), newer).unwrap();
    let ran = sandbox.run(&["up"]).expect(1);
    assert!(ran.stderr.contains("was written by kube-apiserver v1.99.0"), "{ran:?}");
    assert!(ran.stderr.contains("russet down"), "{ran:?}");
}

/// A file system of 20 MiB in a mount namespace of its own; only root may make one.
#[test]
fn a_full_disk_is_found_before_anything_starts() {
    let sandbox = Sandbox::new();
    let mount = sandbox.path().join("small");
    fs::create_dir(&mount).unwrap();
    let script = r#"mount -t tmpfs -o size=20m tmpfs "$1" || exit 77; shift; exec "$@""#;
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(&mount)
        .arg(env!("CARGO_BIN_EXE_russet"))
        .args(["up", "--dir"])
        .arg(mount.join(".russet"))
        .output();
    let Ok(output) = output else {
        return russet_skip::skipped(russet_skip::test_name!(), "there is no unshare");
    };
    let ran = Ran::from(output);
    if ran.code == Some(77) || ran.stderr.contains("unshare") {
        return russet_skip::skipped(russet_skip::test_name!(), &format!("no right to mount: {}", ran.stderr));
    }
    let ran = ran.expect(1);
    assert!(ran.stderr.contains("20 MiB left"), "{ran:?}");
    assert!(ran.stderr.contains("free some space"), "{ran:?}");
}

#[test]
fn a_kubeconfig_that_leads_nowhere_leaves_no_trace() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&["up", "--kubeconfig", "missing"]).expect(1);
    assert!(ran.stderr.contains("failed to read the kubeconfig"), "{ran:?}");

    // Port 9 (discard) is not listened on.
    let config = "{apiVersion: v1, kind: Config, current-context: c, \
                  clusters: [{name: c, cluster: {server: 'https://127.0.0.1:9'}}], \
                  users: [{name: u, user: {}}], contexts: [{name: c, context: {cluster: c, user: u}}]}";
    fs::write(sandbox.path().join("nowhere"), config).unwrap();
    let ran = sandbox.run(&["up", "--kubeconfig", "nowhere"]).expect(1);
    let unreached = "failed to reach the API server at https://127.0.0.1:9";
    assert!(ran.stderr.contains(unreached), "{ran:?}");
    let ran = sandbox.run(&["up", "--kubeconfig", "nowhere", "--context", "other"]);
    let ran = ran.expect(1);
    assert!(ran.stderr.contains("other"), "{ran:?}");
    assert!(!sandbox.layout().root().exists());
}

#[test]
fn commands_that_need_a_cluster_say_so() {
    let sandbox = Sandbox::new();
    let refused = |args: &[&str]| sandbox.run(args).expect(1).stderr;
    assert!(refused(&["kubectl", "get", "crd"]).contains("start one with `russet up`"));
    assert!(refused(&["logs", "etcd"]).contains("`russet up` writes them"));
    assert!(sandbox.run(&["down"]).expect(0).stderr.contains("nothing to do"));
}

#[test]
fn mistyped_names_are_answered_with_the_right_ones() {
    let sandbox = Sandbox::new();
    assert!(sandbox.run(&["stauts"]).expect(2).stderr.contains("'status'"));
    let mistyped = sandbox.run(&["parts", "path", "kubctl"]).expect(1).stderr;
    assert!(mistyped.contains("did you mean `kubectl`"));
}

#[test]
fn every_shell_has_completions_and_every_version_is_listed() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let completions = sandbox.run(&["completions", shell]).expect(0).stdout;
        assert!(completions.contains("kubectl"), "{shell}");
    }
    let json: serde_json::Value = serde_json::from_str(&sandbox.run(&["version", "--json"]).expect(0).stdout).unwrap();
    let parts = json.get("parts").unwrap().as_array().unwrap();
    assert!(parts.iter().any(|part| part["name"] == "etcd"));
    assert!(sandbox.run(&["--help"]).expect(0).stdout.contains("Exit codes:"));
}
