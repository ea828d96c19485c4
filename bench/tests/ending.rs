//! However a benchmark ends, nothing it started goes on.
//!
//! The server is a program that never answers, so that the benchmark is sure to be waiting for it when it is ended.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_mins(1);

fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Not there, or waiting to be buried by whoever inherits it.
fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

/// Two cores this test may use, if there are two.
fn cores() -> Option<[String; 2]> {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let mut cores = (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    Some([cores.next()?.to_string(), cores.next()?.to_string()])
}

/// A server that says who it is and who its child is, and ends only when it is told to.
fn script(dir: &Path, ignores: &str) -> std::path::PathBuf {
    let path = dir.join("server.sh");
    let text = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && echo kura 0 && exit\n{ignores}\nsleep 1000 &\n\
         echo $$ $! > {dir}/pids.new && mv {dir}/pids.new {dir}/pids\nwait\nwait\n",
        dir = dir.display()
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

struct Run {
    bench: Child,
    server: u32,
    child: u32,
}

fn start(dir: &Path, ignores: &str, [server, loader]: &[String; 2]) -> Run {
    fs::create_dir(dir.join("data")).unwrap();
    let bench = Command::new(env!("CARGO_BIN_EXE_russet-bench"))
        .args(["cache", "--only", "idle", "--rounds", "1"])
        .args(["--server-core", server, "--loader-core", loader])
        .arg("--kura")
        .arg(script(dir, ignores))
        .arg("--dir")
        .arg(dir.join("data"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pids = wait("the server", || fs::read_to_string(dir.join("pids")).ok());
    let pids: Vec<u32> = pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    Run {
        bench,
        server: pids[0],
        child: pids[1],
    }
}

fn end(run: &mut Run, signal: Signal) -> ExitStatus {
    assert!(!has_ended(run.server) && !has_ended(run.child));
    kill_process(Pid::from_child(&run.bench), signal).unwrap();
    wait("the benchmark to end", || run.bench.try_wait().unwrap())
}

/// Benchmarks that were interrupted left their nginx and kura running, on the cores and in the memory of the next one.
#[test]
fn a_signal_ends_the_servers_too_and_removes_their_data() {
    let Some(cores) = cores() else { return };
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let dir = tempfile::tempdir().unwrap();
        let mut run = start(dir.path(), "trap 'kill $!; exit 0' TERM", &cores);
        let status = end(&mut run, signal);
        assert_eq!(status.code(), Some(128 + signal.as_raw()));
        assert!(has_ended(run.server) && has_ended(run.child), "{signal:?}");
        assert_eq!(fs::read_dir(dir.path().join("data")).unwrap().count(), 0, "{signal:?}");
    }
}

#[test]
fn servers_that_do_not_obey_are_killed_with_all_they_started() {
    let Some(cores) = cores() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut run = start(dir.path(), "trap '' TERM", &cores);
    let status = end(&mut run, Signal::TERM);
    assert_eq!(status.code(), Some(128 + Signal::TERM.as_raw()));
    assert!(has_ended(run.server) && has_ended(run.child));
    assert_eq!(fs::read_dir(dir.path().join("data")).unwrap().count(), 0);
}

#[test]
fn a_benchmark_that_is_killed_takes_its_servers_with_it() {
    let Some(cores) = cores() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut run = start(dir.path(), "trap 'kill $!; exit 0' TERM", &cores);
    let status = end(&mut run, Signal::KILL);
    assert_eq!(status.signal(), Some(Signal::KILL.as_raw()));
    wait("the servers to end", || {
        (has_ended(run.server) && has_ended(run.child)).then_some(())
    });
}
