//! Functions of the prelude, in the bash that is here.

use std::path::Path;
use std::process::{Command, Output};

use crate::mac::program::{self, Patience};

/// Runs a line after the prelude. Tools of macOS are stood in for by functions before it.
fn run(line: &str, folder: &Path) -> Output {
    let patience = Patience {
        settle: std::time::Duration::from_millis(10),
        pause: std::time::Duration::from_millis(10),
    };
    let frame = program::survey(&[], "", patience);
    let (prelude, _) = frame.expose().split_once("main() {").unwrap();
    let shims = "shasum() { shift 2; sha256sum \"$@\"; }\nown() { ls -A \"$(dirname \"$1\")\"; }\n";
    let text = format!("{prelude}\n{shims}STATE={}\n{line}\n", folder.display());
    Command::new("bash")
        .arg("-c")
        .arg(text)
        .current_dir(folder)
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// sshd reads every file of its folder that is not hidden. A host that lost its power in the middle of writing one of them was lost
/// with it: half a word is no setting, and sshd does not start.
#[test]
fn a_file_that_is_being_written_is_hidden_and_a_wrong_one_is_never_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("050-russet.conf");
    let sha = crate::mac::resource::hex(b"hello");
    let put = |sha: &str| {
        let line = format!(
            "echo aGVsbG8= | file_put '{}' -rw-r--r-- root:wheel {sha}",
            path.display()
        );
        run(&line, dir.path())
    };
    let wrong = put("0000");
    assert!(!wrong.status.success() && said(&wrong).contains("could not be written whole"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
    let right = put(&sha);
    assert!(right.status.success(), "{}", said(&right));
    assert_eq!(
        said(&right).trim(),
        ".050-russet.conf.russet-part",
        "what was there before it got its name"
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "hello");
}

#[test]
fn modes_are_what_ls_says_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let said = said(&run(
        "for bits in -rwxr-xr-x -rw------- -r--r----- drwxr-x--x; do octal $bits; echo; done",
        dir.path(),
    ));
    assert_eq!(
        said.split_whitespace().collect::<Vec<_>>(),
        ["755", "600", "440", "751"]
    );
}

/// A kickstart of a job that launchd put aside never returns.
#[test]
fn a_command_that_never_ends_is_ended() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(
        "at_most 3 sleep 100000; echo $?; at_most 3 false; echo $?; at_most 3 true; echo $?",
        dir.path(),
    );
    assert_eq!(said(&output).split_whitespace().collect::<Vec<_>>(), ["124", "1", "0"]);
}

/// A program whose connection was cut goes on; the next one waits for it, and does not wait for one that is gone.
#[test]
fn one_program_at_a_time_changes_a_host() {
    let dir = tempfile::tempdir().unwrap();
    let mut other = Command::new("sleep").arg("100000").spawn().unwrap();
    std::fs::write(dir.path().join("lock"), format!("{}\n", other.id())).unwrap();
    // It gives up waiting in the end: the number may be that of something else by now.
    let output = run(
        "tries() { :; }; sleep() { echo waits; }; lock; cat \"$STATE/lock\"; echo $$",
        dir.path(),
    );
    let text = said(&output);
    assert_eq!(text.matches("waits").count(), 60, "{text}");
    let tail: Vec<&str> = text.lines().filter(|line| *line != "waits").collect();
    assert_eq!(tail.first(), tail.last(), "the lock is ours: {text}");
    other.kill().unwrap();
    other.wait().unwrap();
    std::fs::write(dir.path().join("lock"), format!("{}\n", other.id())).unwrap();
    let output = run("sleep() { echo waits; }; lock; echo done", dir.path());
    assert_eq!(said(&output).trim(), "done");
    assert!(!dir.path().join("lock").exists(), "it is given back");
}
