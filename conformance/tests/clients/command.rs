//! `russet cache try`, as a user types it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The program beside the tests; a workspace build puts it there.
fn russet() -> PathBuf {
    let ours = std::env::current_exe().unwrap();
    ours.ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("russet"))
        .find(|path| path.is_file())
        .expect("there is no russet beside this test; make it with `cargo build --package russet --package kura`")
}

fn run(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(russet());
    command.args(["cache", "try"]).args(args).current_dir(dir);
    command.env_remove("RUSSET_CACHE_TOKEN").env_remove("RUSSET_DIR");
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn both_builds_are_shown_as_the_tool_and_the_server_saw_them() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &["ccache", "--start"]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    let line = |start: &str| {
        out.lines()
            .find(|line| line.starts_with(start))
            .unwrap_or_default()
            .to_owned()
    };
    assert!(line("ccache 1").contains("0 from cache, 2 done here"), "{out}");
    assert!(line("ccache 2").contains("2 from cache, 0 done here"), "{out}");
    assert!(out.contains("ccache works with this cache"), "{out}");
    assert!(err.contains("ccache: build 2, from nothing"), "{err}");
    assert!(!dir.path().join(".russet").exists(), "a try leaves nothing behind");
}

#[test]
fn without_a_cache_the_ways_to_one_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &["ccache"]);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    for way in ["russet up", "--url", "--start"] {
        assert!(err.contains(way), "{way} is not named: {err}");
    }
}

#[test]
fn a_cache_that_does_not_answer_is_an_error_and_not_a_build() {
    let dir = tempfile::tempdir().unwrap();
    // Nobody listens on the discard port here.
    let output = run(dir.path(), &["ccache", "--url", "http://127.0.0.1:9"]);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("http://127.0.0.1:9/metrics"), "{err}");
}

#[test]
fn a_mistyped_tool_is_answered_with_the_right_one() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &["gradel", "--start"]);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("did you mean `gradle`"), "{err}");
}
