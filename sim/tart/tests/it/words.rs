//! Command lines, errors and exit codes (facts/macos-host.md 6.1, 6.3).

use crate::harness::{Host, IMAGE};

#[test]
fn the_version_is_printed_bare() {
    assert_eq!(Host::new().good(&["--version"]), "2.32.1\n");
}

#[test]
fn a_wrong_command_line_ends_with_64_and_says_how_to_get_help() {
    let host = Host::new();
    for (words, text) in [
        (vec!["list", "--colour"], "Error: Unknown option '--colour'"),
        (vec!["get"], "Error: Missing expected argument '<name>'"),
        (vec!["get", "a", "b"], "Error: Unexpected argument 'b'"),
        (vec!["set", "a", "--cpu"], "Error: Missing value for '--cpu <cpu>'"),
        (
            vec!["set", "a", "--cpu", "many"],
            "Error: The value 'many' is invalid for '--cpu <cpu>'",
        ),
        (vec!["explode"], "Error: Unexpected argument 'explode'"),
        (vec!["clone", IMAGE, "a/b"], "Error: <new-name> should be a local name"),
        (
            vec!["login", "ghcr.io", "--username", "u"],
            "Error: both --username and --password-stdin are required",
        ),
    ] {
        let said = host.tart(&words);
        assert_eq!(said.code, Some(64), "{words:?}: {said:?}");
        assert_eq!(said.err.lines().next(), Some(text), "{words:?}");
        let help = said.err.trim_end().ends_with("--help' for more information.");
        assert!(help, "{said:?}");
    }
}

#[test]
fn a_vm_that_does_not_exist_is_2_everywhere_but_in_run() {
    let host = Host::new();
    let text = "the specified VM \"ghost\" does not exist";
    for words in [
        vec!["get", "ghost"],
        vec!["set", "ghost", "--cpu", "8"],
        vec!["ip", "ghost"],
        vec!["stop", "ghost"],
        vec!["delete", "ghost"],
        vec!["exec", "ghost", "true"],
        vec!["clone", "ghost", "copy"],
    ] {
        host.bad(&words, text, 2);
    }
    host.bad(&["run", "ghost"], &format!("Error: {text}"), 1);
}

#[test]
fn options_of_run_that_exclude_each_other_are_refused() {
    let host = Host::with_vm();
    for more in [
        vec!["--graphics", "--no-graphics"],
        vec!["--vnc", "--vnc-experimental"],
        vec!["--net-host", "--net-bridged", "en0"],
        vec!["--net-softnet-allow", "10.0.0.0/8", "--net-host"],
        vec!["--root-disk-opts", "caching=sometimes"],
        vec!["--dir", "/tmp", "--dir", "/var"],
        vec!["--provisioning-opts", "x"],
    ] {
        let mut words = vec!["run", "vm"];
        words.extend(&more);
        assert_eq!(host.tart(&words).code, Some(64), "{more:?}");
    }
}

#[test]
fn what_is_not_running_cannot_be_stopped_and_suspend_stutters() {
    let host = Host::with_vm();
    host.bad(&["stop", "vm"], "VM \"vm\" is not running", 2);
    host.bad(&["exec", "vm", "true"], "VM \"vm\" is not running", 2);
    host.bad(&["suspend", "vm"], "VM \"VM \"vm\" is not running\" is not running", 2);
}

#[test]
fn set_refuses_less_than_the_minimum_and_a_smaller_disk() {
    let host = Host::with_vm();
    let cpus = "Error: LessThanMinimalResourcesError: VM should have 4 CPU cores at minimum (requested 2)";
    host.bad(&["set", "vm", "--cpu", "2"], cpus, 1);
    let disk = "new disk size of 40 GB should be larger than the current disk size of 50 GB";
    host.bad(&["set", "vm", "--disk-size", "40"], disk, 1);
    let more = ["set", "vm", "--cpu", "6", "--memory", "16384", "--disk-size", "60"];
    assert_eq!(host.good(&more), "");
    let value = host.get("vm");
    for (name, expected) in [("CPU", 6), ("Memory", 16384), ("Disk", 60)] {
        assert_eq!(value[name], expected, "{name}");
    }
}

#[test]
fn a_misspelt_switch_is_an_error_and_not_a_test_that_passes() {
    let host = Host::new();
    std::fs::write(host.control.home().join(".sim/switches.json"), r#"{"leek_slot": true}"#).unwrap();
    let said = host.tart(&["list"]);
    assert_eq!(said.code, Some(70));
    assert!(said.err.contains("leek_slot"), "{said:?}");
}

#[test]
fn a_failed_garbage_collection_is_mentioned_by_every_command_but_pull_and_clone() {
    let host = Host::new();
    host.switch(|switches| switches.gc_error = Some("no".into()));
    assert_eq!(host.tart(&["list"]).err, "Failed to perform garbage collection: no\n");
    assert_eq!(host.tart(&["pull", IMAGE]).err, "");
}
