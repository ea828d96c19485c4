//! One task per child: starts it, watches it, starts it again. Owns everything about that child; others read snapshots.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use rustix::process::Signal;
use tokio::process::Child;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::environment::{Environment, is_executable};
use super::ledger::{self, Ledger};
use super::restart::{Ending, Verdict, decide};
use super::{Error, Snapshot, Spec, State, log, probe};
use crate::files;

/// How often a log is checked for its bound.
const HOUSEKEEPING: Duration = Duration::from_secs(10);

/// A killed process that has not gone after this long sits in the kernel; waiting longer would not help.
const AFTER_KILL: Duration = Duration::from_secs(5);

/// Less than this and etcd and its friends fail in confusing ways.
const MIN_FREE_BYTES: u64 = 32 << 20;

/// What the drivers of one supervisor share with its handles.
#[derive(Debug)]
pub(super) struct Shared {
    /// In start order.
    snapshots: Mutex<Vec<Snapshot>>,
    changed: watch::Sender<u64>,
    ledger: Mutex<Option<Ledger>>,
    environment: Environment,
}

impl Shared {
    pub(super) fn new() -> Self {
        Self {
            snapshots: Mutex::default(),
            changed: watch::Sender::new(0),
            ledger: Mutex::default(),
            environment: Environment::of_this_process(),
        }
    }

    pub(super) fn snapshots(&self) -> Vec<Snapshot> {
        self.snapshots.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(super) fn set_ledger(&self, ledger: Ledger) {
        *self.ledger.lock().unwrap_or_else(PoisonError::into_inner) = Some(ledger);
    }

    /// Runs `change` on the ledger, if there is one yet.
    pub(super) fn ledger(&self, change: impl FnOnce(&mut Ledger) -> Result<(), Error>) -> Result<(), Error> {
        self.ledger
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_mut()
            .map_or(Ok(()), change)
    }

    /// Puts a new process at the end, in place of an ended one of the same name.
    fn insert(&self, snapshot: Snapshot) {
        let mut snapshots = self.snapshots.lock().unwrap_or_else(PoisonError::into_inner);
        snapshots.retain(|other| other.name != snapshot.name);
        snapshots.push(snapshot);
        drop(snapshots);
        self.bump();
    }

    fn update(&self, name: &str, change: impl FnOnce(&mut Snapshot)) {
        let mut snapshots = self.snapshots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(snapshot) = snapshots.iter_mut().find(|snapshot| snapshot.name == name) {
            change(snapshot);
        }
        drop(snapshots);
        self.bump();
    }

    fn bump(&self) {
        self.changed.send_modify(|version| *version = version.wrapping_add(1));
    }
}

/// Set once to the grace period when the process shall end.
pub(super) type StopSignal = watch::Receiver<Option<Duration>>;

/// How one attempt ended.
enum Outcome {
    /// As asked.
    Stopped,
    /// By itself, or because it was not ready in time.
    Ended {
        error: Error,
        exit: String,
        ready_for: Option<Duration>,
    },
}

pub(super) struct Driver {
    spec: Spec,
    shared: Arc<Shared>,
    stop: StopSignal,
    /// Answered once: ready, or why not.
    ready: Option<oneshot::Sender<Result<(), Error>>>,
}

impl Driver {
    pub(super) fn new(
        spec: Spec,
        shared: Arc<Shared>,
        stop: StopSignal,
        ready: oneshot::Sender<Result<(), Error>>,
    ) -> Self {
        shared.insert(Snapshot {
            name: spec.name.clone(),
            state: State::Starting,
            pid: None,
            restarts: 0,
            started_at: Timestamp::now(),
            log: spec.log.clone(),
            last_exit: None,
            ready_after: None,
        });
        Self {
            spec,
            shared,
            stop,
            ready: Some(ready),
        }
    }

    /// Until it is stopped or given up.
    pub(super) async fn run(mut self) {
        let mut was_ever_ready = false;
        let mut failures = 0;
        if let Err(error) = log::rotate(&self.spec.log) {
            return self.give_up(error.into(), None);
        }
        loop {
            let (error, exit, ready_for) = match self.attempt().await {
                Outcome::Stopped => return self.stopped(),
                Outcome::Ended { error, exit, ready_for } => (error, exit, ready_for),
            };
            was_ever_ready |= ready_for.is_some();
            match decide(
                self.spec.restart,
                Ending {
                    was_ever_ready,
                    ready_for,
                    failures,
                },
            ) {
                Verdict::GiveUp => return self.give_up(error, Some(exit)),
                Verdict::Again { delay, failures: now } => {
                    failures = now;
                    tracing::warn!(
                        name = self.spec.name,
                        exit,
                        ?delay,
                        "a process ended and will be started again"
                    );
                    self.shared.update(&self.spec.name, |snapshot| {
                        snapshot.state = State::BackingOff;
                        snapshot.pid = None;
                        snapshot.last_exit = Some(exit);
                    });
                    tokio::select! {
                        () = sleep(delay) => {}
                        _ = stop_requested(&mut self.stop) => return self.stopped(),
                    }
                    self.shared.update(&self.spec.name, |snapshot| {
                        snapshot.restarts = snapshot.restarts.saturating_add(1);
                        snapshot.state = State::Starting;
                        snapshot.started_at = Timestamp::now();
                        snapshot.ready_after = None;
                    });
                }
            }
        }
    }

    async fn attempt(&mut self) -> Outcome {
        let began = Instant::now();
        let mut child = match self.spawn() {
            Ok(child) => child,
            Err(error) => {
                let exit = error.to_string();
                return Outcome::Ended {
                    error,
                    exit,
                    ready_for: None,
                };
            }
        };
        let pid = child.id();
        let outcome = self.attend(&mut child, began).await;
        if let Some(pid) = pid {
            // Whatever the process left in its group goes with it.
            ledger::signal(pid, Signal::KILL);
            self.note(|ledger| ledger.remove(pid));
        }
        outcome
    }

    fn spawn(&self) -> Result<Child, Error> {
        let Spec {
            name,
            program,
            args,
            env,
            log: log_path,
            listens,
            ..
        } = &self.spec;
        // Checked here, because the launcher that starts the program reports neither in a way we could tell apart.
        if !is_executable(program) {
            return Err(Error::ProgramMissing {
                name: name.clone(),
                program: program.clone(),
            });
        }
        if let Some(address) = listens
            .iter()
            .find(|address| std::net::TcpListener::bind(address).is_err())
        {
            return Err(Error::PortTaken {
                name: name.clone(),
                address: *address,
            });
        }
        if let Some(full) = disk_full(name, log_path) {
            return Err(full);
        }
        let output = log::open(log_path)?;
        let errors = output
            .try_clone()
            .map_err(|source| files::Error::new("open", log_path, source))?;
        let mut command = self.shared.environment.command(program);
        command
            .args(args)
            .envs(env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .process_group(0)
            .kill_on_drop(true);
        let child = command.spawn().map_err(|source| Error::Spawn {
            name: name.clone(),
            source,
        })?;
        let pid = child.id();
        if let Some(pid) = pid {
            let words = std::iter::once(program.display().to_string())
                .chain(args.iter().cloned())
                .collect();
            self.note(|ledger| ledger.add(name, pid, words));
        }
        tracing::debug!(name, pid, "started");
        self.shared.update(name, |snapshot| snapshot.pid = pid);
        Ok(child)
    }

    /// Watches a running child until it ends or is stopped.
    async fn attend(&mut self, child: &mut Child, began: Instant) -> Outcome {
        let mut ready_at: Option<Instant> = None;
        let mut last_probe = String::from("none yet");
        let ready_probe = self.spec.probe.clone();
        let outcome = {
            let mut probing = pin!(probe::wait(&ready_probe, &mut last_probe));
            let mut deadline = pin!(sleep(self.spec.ready_within));
            let mut housekeeping = interval(HOUSEKEEPING);
            housekeeping.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    biased;
                    status = child.wait() => break Some(status),
                    grace = stop_requested(&mut self.stop) => {
                        terminate(child, grace).await;
                        return Outcome::Stopped;
                    }
                    () = &mut probing, if ready_at.is_none() => {
                        let now = Instant::now();
                        ready_at = Some(now);
                        self.became_ready(now - began);
                    }
                    () = &mut deadline, if ready_at.is_none() => {
                        terminate(child, Duration::ZERO).await;
                        break None;
                    }
                    _ = housekeeping.tick() => {
                        if let Err(error) = log::bound(&self.spec.log, log::MAX_BYTES) {
                            tracing::debug!(name = self.spec.name, %error, "could not bound a log");
                        }
                    }
                }
            }
        };
        self.explain(outcome, ready_at.map(|at| at.elapsed()), last_probe)
    }

    fn explain(
        &self,
        status: Option<std::io::Result<ExitStatus>>,
        ready_for: Option<Duration>,
        last_probe: String,
    ) -> Outcome {
        let name = self.spec.name.clone();
        let tail = log::tail(&self.spec.log);
        let (error, exit) = if let Some(status) = status {
            let ended = status.map_or_else(|error| error.to_string(), describe);
            let exit = match tail.lines.last() {
                Some(line) => format!("{ended}: {line}"),
                None => ended.clone(),
            };
            let error = Error::ExitedEarly {
                name,
                exit: ended,
                tail,
            };
            (error, exit)
        } else {
            let limit = self.spec.ready_within;
            let exit = format!("not ready within {} s: {last_probe}", limit.as_secs());
            let error = Error::NotReady {
                name,
                limit,
                probe: last_probe,
                tail,
            };
            (error, exit)
        };
        // A part on a full disk fails in its own words; ours are clearer.
        let error = disk_full(&self.spec.name, &self.spec.log).unwrap_or(error);
        Outcome::Ended { error, exit, ready_for }
    }

    fn became_ready(&mut self, after: Duration) {
        tracing::debug!(name = self.spec.name, ?after, "ready");
        self.shared.update(&self.spec.name, |snapshot| {
            snapshot.state = State::Running;
            snapshot.ready_after = Some(after);
        });
        self.answer(Ok(()));
    }

    fn stopped(mut self) {
        self.shared.update(&self.spec.name, |snapshot| {
            snapshot.state = State::Stopped;
            snapshot.pid = None;
        });
        let name = self.spec.name.clone();
        self.answer(Err(Error::Stopped { name }));
    }

    fn give_up(mut self, error: Error, exit: Option<String>) {
        let exit = exit.unwrap_or_else(|| error.to_string());
        self.shared.update(&self.spec.name, |snapshot| {
            snapshot.state = State::Failed;
            snapshot.pid = None;
            snapshot.last_exit = Some(exit);
        });
        self.answer(Err(error));
    }

    fn answer(&mut self, result: Result<(), Error>) {
        if let Some(ready) = self.ready.take() {
            // Nobody waits any more when the caller of `start` was cancelled.
            let _ = ready.send(result);
        }
    }

    /// The ledger only matters to a later run: failing to write it must not stop this one.
    fn note(&self, change: impl FnOnce(&mut Ledger) -> Result<(), Error>) {
        if let Err(error) = self.shared.ledger(change) {
            tracing::warn!(name = self.spec.name, %error, "could not write the process ledger");
        }
    }
}

/// Completes with the grace period once the process shall end. A supervisor that is gone wants that too.
async fn stop_requested(stop: &mut StopSignal) -> Duration {
    stop.wait_for(Option::is_some)
        .await
        .map_or(Duration::ZERO, |grace| grace.unwrap_or_default())
}

/// SIGTERM, `grace`, SIGKILL, to the process group.
async fn terminate(child: &mut Child, grace: Duration) {
    let Some(pid) = child.id() else { return };
    if !grace.is_zero() {
        ledger::signal(pid, Signal::TERM);
        if timeout(grace, child.wait()).await.is_ok() {
            return;
        }
    }
    ledger::signal(pid, Signal::KILL);
    if timeout(AFTER_KILL, child.wait()).await.is_err() {
        tracing::error!(pid, "a killed process does not end");
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

fn disk_full(name: &str, log: &Path) -> Option<Error> {
    let dir = log.parent().unwrap_or(log);
    let free = rustix::fs::statvfs(dir)
        .map(|fs| fs.f_bavail.saturating_mul(fs.f_frsize))
        .ok()?;
    (free < MIN_FREE_BYTES).then(|| Error::disk_full(name, dir, free))
}
