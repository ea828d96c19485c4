//! The supervisor, with shells and sleeps as children.

use std::{
    net::TcpListener,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use russet_cluster::{
    Supervisor,
    process::{Error, Probe, Restart, Spec, State},
};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{eventually, find, in_state, is_gone, pids};

const QUICK: Restart = Restart::Backoff {
    initial: Duration::from_millis(10),
    max: Duration::from_millis(50),
};

/// `sh -c script`.
fn shell(dir: &Path, name: &str, script: &str) -> Spec {
    Spec::new(name, "/bin/sh", dir.join(format!("logs/{name}.log"))).args(["-c", script])
}

fn fresh() -> (tempfile::TempDir, Supervisor) {
    let dir = tempfile::tempdir().unwrap();
    let supervisor = Supervisor::new(dir.path());
    (dir, supervisor)
}

async fn runs(supervisor: &Supervisor, spec: Spec) {
    supervisor.start(spec).await.unwrap();
}

async fn refused(supervisor: &Supervisor, spec: Spec) -> Error {
    supervisor.start(spec).await.unwrap_err()
}

fn kill(pid: u32) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap();
}

#[tokio::test]
async fn start_returns_when_the_probe_passes() {
    let (dir, supervisor) = fresh();
    let ready = dir.path().join("ready");
    let script = format!("sleep 0.2; touch {}; exec sleep 60", ready.display());
    supervisor
        .start(shell(dir.path(), "part", &script).probe(Probe::File(ready.clone())))
        .await
        .unwrap();
    assert!(ready.exists());
    let snapshot = find(&supervisor, "part");
    assert_eq!((snapshot.state, snapshot.restarts), (State::Running, 0));
    assert!(snapshot.ready_after.unwrap() >= Duration::from_millis(200));
    assert!(matches!(
        refused(&supervisor, shell(dir.path(), "part", "true")).await,
        Error::AlreadyRunning { .. }
    ));
}

#[tokio::test]
async fn a_part_that_ends_at_start_explains_itself_with_its_log() {
    let (dir, supervisor) = fresh();
    let spec = shell(dir.path(), "part", "echo bad flag --frob >&2; exit 3").restart(QUICK);
    let error = supervisor
        .start(spec.probe(Probe::File("/nonexistent".into())))
        .await
        .unwrap_err();
    let early = matches!(&error, Error::ExitedEarly { exit, .. } if exit == "exit code 3");
    assert!(early, "{error}");
    assert!(error.to_string().contains("bad flag --frob"), "{error}");
    let snapshot = find(&supervisor, "part");
    assert_eq!((snapshot.state, snapshot.pid), (State::Failed, None));
    assert_eq!(snapshot.last_exit.as_deref(), Some("exit code 3: bad flag --frob"));
}

#[tokio::test]
async fn a_part_that_never_gets_ready_is_stopped() {
    let (dir, supervisor) = fresh();
    let spec = shell(dir.path(), "part", "echo $$; exec sleep 60").ready_within(Duration::from_millis(300));
    let error = supervisor
        .start(spec.probe(Probe::File("/nonexistent/socket".into())))
        .await
        .unwrap_err();
    let Error::NotReady { probe, tail, .. } = &error else {
        panic!("{error}")
    };
    assert!(probe.contains("/nonexistent/socket"), "{probe}");
    assert!(is_gone(tail.lines[0].parse().unwrap()));
}

#[tokio::test]
async fn a_missing_program_and_a_taken_port_are_named() {
    let (dir, supervisor) = fresh();
    let error = refused(
        &supervisor,
        Spec::new("etcd", "/nonexistent/etcd", dir.path().join("l")),
    )
    .await;
    assert!(matches!(error, Error::ProgramMissing { .. }), "{error}");
    let squatter = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = squatter.local_addr().unwrap();
    let error = refused(&supervisor, shell(dir.path(), "etcd", "sleep 60").listens(address)).await;
    assert_eq!(error.taken_port(), Some(address), "{error}");
}

#[tokio::test]
async fn a_killed_part_is_started_again_and_counted() {
    let (dir, supervisor) = fresh();
    runs(&supervisor, shell(dir.path(), "part", "exec sleep 60").restart(QUICK)).await;
    let first = find(&supervisor, "part").pid.unwrap();
    kill(first);
    let now = || find(&supervisor, "part").pid;
    eventually("a new process", async || now().is_some_and(|pid| pid != first)).await;
    let snapshot = in_state(&supervisor, "part", State::Running).await;
    assert_eq!(snapshot.restarts, 1);
    assert_eq!(snapshot.last_exit.as_deref(), Some("killed by signal 9"));
}

#[tokio::test]
async fn a_crash_loop_waits_longer_and_longer_and_shows_why() {
    let (dir, supervisor) = fresh();
    let restart = Restart::Backoff {
        initial: Duration::from_millis(1),
        max: Duration::from_mins(10),
    };
    runs(
        &supervisor,
        shell(dir.path(), "part", "echo out of luck; exit 1").restart(restart),
    )
    .await;
    eventually("several restarts", async || find(&supervisor, "part").restarts >= 5).await;
    let snapshot = in_state(&supervisor, "part", State::BackingOff).await;
    assert_eq!(snapshot.last_exit.as_deref(), Some("exit code 1: out of luck"));
    // Stopping does not wait for the back-off.
    supervisor.stop("part").await.unwrap();
    assert_eq!(find(&supervisor, "part").state, State::Stopped);
}

#[tokio::test]
async fn shutdown_goes_in_reverse_order_and_is_idempotent() {
    let (dir, supervisor) = fresh();
    let order = dir.path().join("order");
    for name in ["etcd", "apiserver", "scheduler"] {
        let ready = dir.path().join(name);
        let (order, made) = (order.display(), ready.display());
        let script = format!("trap 'echo {name} >> {order}; exit 0' TERM; touch {made}; while :; do sleep 0.05; done");
        runs(&supervisor, shell(dir.path(), name, &script).probe(Probe::File(ready))).await;
    }
    let pids = pids(&supervisor);
    assert_eq!(pids.len(), 3);
    supervisor.shutdown().await;
    supervisor.shutdown().await;
    assert_eq!(std::fs::read_to_string(&order).unwrap(), "scheduler\napiserver\netcd\n");
    assert!(pids.into_iter().all(is_gone));
    let parts = supervisor.snapshot();
    assert!(parts.iter().all(|snapshot| snapshot.state == State::Stopped));
    assert!(!dir.path().join("pids.json").exists());
    assert!(matches!(
        refused(&supervisor, shell(dir.path(), "late", "true")).await,
        Error::ShutDown
    ));
}

/// The second of two commands could arrive in the moment in which the thread ended, and was never answered: `russet up` would
/// have hung at its end.
#[tokio::test]
async fn whoever_asks_while_the_supervisor_ends_gets_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..300 {
        let supervisor = Supervisor::new(&dir.path().join(round.to_string()));
        let asks = (0..4).map(|_| supervisor.shutdown());
        let all = futures::future::join_all(asks);
        let answered = tokio::time::timeout(Duration::from_mins(1), all).await;
        answered.expect("every shutdown is answered");
        assert!(matches!(
            refused(&supervisor, shell(dir.path(), "late", "true")).await,
            Error::ShutDown
        ));
    }
}

#[tokio::test]
async fn stopping_a_part_takes_its_children_and_its_stubbornness() {
    let (dir, supervisor) = fresh();
    let child = dir.path().join("child");
    let path = child.display();
    let script = format!("trap '' TERM; sleep 61 & echo $! > {path}.tmp; mv {path}.tmp {path}; wait");
    let spec = shell(dir.path(), "part", &script).probe(Probe::File(child.clone()));
    runs(&supervisor, spec.stop_grace(Duration::from_millis(200))).await;
    let grandchild: u32 = std::fs::read_to_string(&child).unwrap().trim().parse().unwrap();
    assert!(!is_gone(grandchild));
    supervisor.stop("part").await.unwrap();
    eventually("the grandchild ends", async || is_gone(grandchild)).await;
    assert!(matches!(supervisor.stop("nobody").await, Err(Error::Unknown { .. })));
    // The name is free again.
    runs(&supervisor, shell(dir.path(), "part", "exec sleep 60")).await;
}

#[tokio::test]
async fn dropping_the_last_handle_leaves_nothing_even_in_a_panic() {
    let (dir, supervisor) = fresh();
    let clone = supervisor.clone();
    runs(&supervisor, shell(dir.path(), "part", "exec sleep 60")).await;
    let pid = find(&supervisor, "part").pid.unwrap();
    drop(supervisor);
    assert!(!is_gone(pid), "a clone is still alive");
    let panicked = std::thread::spawn(move || {
        let _held = clone;
        panic!("a test fails here");
    });
    assert!(panicked.join().is_err());
    assert!(is_gone(pid));
}

#[tokio::test]
async fn children_inherit_no_credentials() {
    let (dir, supervisor) = fresh();
    let out = dir.path().join("env");
    let script = format!("env > {0}.tmp; mv {0}.tmp {0}; exec sleep 60", out.display());
    let spec = shell(dir.path(), "part", &script)
        .env("GIVEN", "yes")
        .probe(Probe::File(out.clone()));
    supervisor.start(spec).await.unwrap();
    let env = std::fs::read_to_string(&out).unwrap();
    assert!(env.contains("GIVEN=yes") && env.contains("PATH="), "{env}");
    // Cargo sets dozens of these for every test.
    assert!(!env.contains("CARGO"), "{env}");
}

#[tokio::test]
async fn two_supervisors_do_not_share_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let first = Supervisor::new(dir.path());
    let sleep = Spec::new("part", "/bin/sleep", dir.path().join("part.log")).args(["60"]);
    runs(&first, sleep).await;
    let second = Supervisor::new(dir.path());
    let error = refused(&second, shell(dir.path(), "other", "exec sleep 60")).await;
    let ours = matches!(error, Error::InUse { pid, .. } if pid == std::process::id());
    assert!(ours, "{error}");
    drop(second);
    assert_eq!(find(&first, "part").state, State::Running);
}

/// How the test below gets a process that it can kill: the test binary, running only the test after it.
const HOLD: &str = "RUSSET_TEST_HOLD";

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_parent_killed_outright_leaves_no_process() {
    let dir = tempfile::tempdir().unwrap();
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "supervisor::hold_children_until_killed", "--ignored"])
        .env(HOLD, dir.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let ready = dir.path().join("ready");
    eventually("the holder has children", async || ready.exists()).await;
    let children = std::fs::read_to_string(&ready).unwrap();
    let children: Vec<u32> = children.lines().map(|line| line.parse().unwrap()).collect();
    assert!(children.len() == 2 && !children.iter().any(|pid| is_gone(*pid)));
    // Its directory is not ours to take while it lives.
    let swept = russet_cluster::process::sweep(dir.path()).await;
    assert!(matches!(swept, Err(Error::InUse { .. })));
    holder.kill().unwrap();
    assert_eq!(holder.wait().unwrap().signal(), Some(9));
    eventually("the children are gone", async || {
        children.iter().all(|pid| is_gone(*pid))
    })
    .await;
    // The stale ledger does not stand in the way of the next run.
    let next = Supervisor::new(dir.path());
    next.start(shell(dir.path(), "part", "exec sleep 60")).await.unwrap();
}

#[tokio::test]
#[ignore = "run by a_parent_killed_outright_leaves_no_process"]
async fn hold_children_until_killed() {
    let Some(dir) = std::env::var_os(HOLD).map(PathBuf::from) else {
        return;
    };
    let supervisor = Supervisor::new(&dir);
    supervisor.start(shell(&dir, "plain", "exec sleep 600")).await.unwrap();
    runs(
        &supervisor,
        shell(&dir, "stubborn", "trap '' TERM HUP; exec sleep 600").restart(QUICK),
    )
    .await;
    let pids: Vec<String> = pids(&supervisor).iter().map(u32::to_string).collect();
    std::fs::write(dir.join("ready.tmp"), pids.join("\n")).unwrap();
    std::fs::rename(dir.join("ready.tmp"), dir.join("ready")).unwrap();
    std::future::pending::<()>().await;
}
