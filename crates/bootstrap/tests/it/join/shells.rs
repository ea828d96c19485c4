//! How the program is started, and what a shell or a linter says to it.

use super::{TOKEN, assert_no_secret_got_out, code, elastic_metal, instance, plain, program, text};
use crate::parts;
use russet_bootstrap::linux::exit;
use russet_linux_box::LinuxBox;
use std::io::Write as _;
use std::process::{Command, Stdio};

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
        russet_skip::skipped(russet_skip::test_name!(), "there is no dash");
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
        include_str!("../../../src/linux/steps/_pn0-up.sh"),
        include_str!("../../../src/linux/steps/_pn0-lease.sh"),
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
