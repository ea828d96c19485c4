//! Services as they run: one task per service keeps it as its unit says.
//!
//! ```text
//!   start ──▶ activating ──ready──▶ active ──exit──▶ Restart=? ──no──▶ failed or inactive
//!                 ▲                                    │ yes, after RestartSec
//!                 └────────────────────────────────────┘
//! ```

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::net::UnixDatagram;
use tokio::process::{Child, Command};
use tokio::sync::{oneshot, watch};

use super::unit::{BadUnit, Exec, Kind, Restart, Unit, environment_file, load};

/// Where what services say is kept, one file per unit.
pub(crate) const JOURNAL: &str = "/var/log/journal-box";
/// Where services say that they are ready.
const NOTIFY: &str = "/run/russet-box/notify";
/// What services and cloud-init find programs with.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// As systemd has it.
const START_LIMIT: Duration = Duration::from_secs(90);
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// As `systemctl is-active` says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Inactive,
    Activating,
    Active,
    Failed,
}

impl State {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Inactive => "inactive",
            Self::Activating => "activating",
            Self::Active => "active",
            Self::Failed => "failed",
        }
    }
}

/// All services of the machine.
#[derive(Debug, Default)]
pub(crate) struct Services {
    running: Mutex<BTreeMap<String, Service>>,
}

#[derive(Debug)]
struct Service {
    state: watch::Receiver<State>,
    pid: Arc<Mutex<Option<u32>>>,
    stop: Option<oneshot::Sender<()>>,
}

impl Services {
    /// Starts a unit and what it needs, and waits until it is up.
    pub(crate) async fn start(self: &Arc<Self>, name: &str) -> Result<(), String> {
        let mut order = Vec::new();
        plan(name, &mut order).map_err(|error| error.to_string())?;
        let last = order.len().saturating_sub(1);
        for (position, unit) in order.into_iter().enumerate() {
            let unit_name = unit.name.clone();
            let started = self.start_one(unit).await;
            // What is merely wanted may fail.
            if position == last {
                return started;
            }
            if let Err(why) = started {
                say(&unit_name, &why);
            }
        }
        Ok(())
    }

    async fn start_one(self: &Arc<Self>, unit: Unit) -> Result<(), String> {
        let name = unit.name.clone();
        if let Some(path) = unit.condition_paths.iter().find(|path| !condition_holds(path)) {
            say(&name, &format!("not started: condition on {path} is not met"));
            return Ok(());
        }
        let mut state = {
            let mut running = self.lock();
            match running.get(&name) {
                Some(service) if matches!(*service.state.borrow(), State::Active | State::Activating) => {
                    service.state.clone()
                }
                _ => {
                    let (sender, state) = watch::channel(State::Activating);
                    let (stop, stopped) = oneshot::channel();
                    let pid = Arc::new(Mutex::new(None));
                    tokio::spawn(keep(unit, sender, Arc::clone(&pid), stopped));
                    running.insert(
                        name.clone(),
                        Service {
                            state: state.clone(),
                            pid,
                            stop: Some(stop),
                        },
                    );
                    state
                }
            }
        };
        let settled = state.wait_for(|state| *state != State::Activating);
        match tokio::time::timeout(START_LIMIT, settled).await {
            Ok(Ok(state)) if *state == State::Failed => Err(format!(
                "Job for {name} failed because the control process exited with error code.\nSee \"journalctl -u {name}\".{}",
                tail(&name)
            )),
            Ok(_) => Ok(()),
            Err(_) => Err(format!(
                "Job for {name} failed because a timeout was exceeded.{}",
                tail(&name)
            )),
        }
    }

    /// Stops a unit; one that does not run is fine.
    pub(crate) async fn stop(&self, name: &str) {
        let Some(mut service) = self.lock().remove(name) else {
            return;
        };
        drop(service.stop.take());
        let _ = service
            .state
            .wait_for(|state| matches!(state, State::Inactive | State::Failed))
            .await;
    }

    pub(crate) fn state(&self, name: &str) -> State {
        self.lock()
            .get(name)
            .map_or(State::Inactive, |service| *service.state.borrow())
    }

    pub(crate) fn pid(&self, name: &str) -> Option<u32> {
        let running = self.lock();
        let service = running.get(name)?;
        *service.pid.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Service>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The unit after everything it needs. One that is needed and not there is left out, as systemd does for what is wanted.
fn plan(name: &str, order: &mut Vec<Unit>) -> Result<(), BadUnit> {
    let unit = load(Path::new("/"), name)?;
    if order.iter().any(|known| known.name == unit.name) {
        return Ok(());
    }
    for need in unit.needs.clone() {
        // Depth is bounded by the number of unit files: a unit that is in the list is not entered again.
        if need != unit.name && load(Path::new("/"), &need).is_ok_and(|need| !need.needs.contains(&unit.name)) {
            plan(&need, order)?;
        }
    }
    order.push(unit);
    Ok(())
}

fn condition_holds(path: &str) -> bool {
    match path.strip_prefix('!') {
        Some(absent) => !Path::new(absent).exists(),
        None => Path::new(path).exists(),
    }
}

/// Runs a service until it is told to stop, or ends for good.
async fn keep(
    unit: Unit,
    state: watch::Sender<State>,
    pid: Arc<Mutex<Option<u32>>>,
    mut stopped: oneshot::Receiver<()>,
) {
    loop {
        let outcome = run_once(&unit, &state, &pid, &mut stopped).await;
        *pid.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let again = match outcome {
            Outcome::Stopped => {
                state.send_replace(State::Inactive);
                return;
            }
            Outcome::Remains => {
                state.send_replace(State::Active);
                let _ = (&mut stopped).await;
                commands(&unit, &unit.stop, &environment(&unit).unwrap_or_default())
                    .await
                    .ok();
                state.send_replace(State::Inactive);
                return;
            }
            Outcome::Ended { success, ref why } => {
                say(&unit.name, why);
                let again = match unit.restart {
                    Restart::No => false,
                    Restart::Always => unit.kind != Kind::Oneshot || !success,
                    Restart::OnFailure => !success,
                };
                if !again {
                    state.send_replace(if success { State::Inactive } else { State::Failed });
                }
                again
            }
        };
        if !again {
            return;
        }
        state.send_replace(State::Activating);
        tokio::select! {
            () = tokio::time::sleep(unit.restart_after) => {}
            _ = &mut stopped => {
                state.send_replace(State::Inactive);
                return;
            }
        }
    }
}

enum Outcome {
    Stopped,
    /// A oneshot that is over and stays active.
    Remains,
    Ended {
        success: bool,
        why: String,
    },
}

fn failed(why: impl Into<String>) -> Outcome {
    Outcome::Ended {
        success: false,
        why: why.into(),
    }
}

async fn run_once(
    unit: &Unit,
    state: &watch::Sender<State>,
    pid: &Mutex<Option<u32>>,
    stopped: &mut oneshot::Receiver<()>,
) -> Outcome {
    let mut environment = match environment(unit) {
        Ok(environment) => environment,
        Err(why) => return failed(why),
    };
    for directory in &unit.runtime_directories {
        let _ = std::fs::create_dir_all(Path::new("/run").join(directory));
    }
    if let Err(why) = commands(unit, &unit.start_pre, &environment).await {
        return failed(why);
    }
    if unit.kind == Kind::Oneshot {
        let running = commands(unit, &unit.start, &environment);
        return tokio::select! {
            ran = running => match ran {
                Err(why) => failed(why),
                Ok(()) if unit.remain_after_exit => Outcome::Remains,
                Ok(()) => Outcome::Ended { success: true, why: "Deactivated successfully.".to_owned() },
            },
            _ = stopped => Outcome::Stopped,
        };
    }
    let notifications = match notification_socket(unit) {
        Ok(socket) => socket,
        Err(error) => return failed(format!("cannot listen for notifications: {error}")),
    };
    if let Some((path, _)) = &notifications {
        environment.insert("NOTIFY_SOCKET".to_owned(), path.to_string_lossy().into_owned());
    }
    let Some(exec) = unit.start.first() else {
        return failed("no command");
    };
    let mut child = match spawn(unit, exec, &environment) {
        Ok(child) => child,
        Err(why) => return failed(why),
    };
    *pid.lock().unwrap_or_else(PoisonError::into_inner) = child.id();
    let socket = notifications.map(|(_, socket)| socket);
    tokio::select! {
        ended = child.wait() => return ending(exec, ended),
        () = ready(socket.as_ref()) => {}
        _ = &mut *stopped => return stop(unit, child).await,
    }
    if let Err(why) = commands(unit, &unit.start_post, &environment).await {
        stop(unit, child).await;
        return failed(why);
    }
    state.send_replace(State::Active);
    tokio::select! {
        ended = child.wait() => ending(exec, ended),
        _ = stopped => stop(unit, child).await,
    }
}

fn ending(exec: &Exec, ended: std::io::Result<ExitStatus>) -> Outcome {
    match ended {
        Ok(status) => Outcome::Ended {
            success: status.success() || exec.tolerant,
            why: format!("Main process exited, {status}"),
        },
        Err(error) => failed(format!("lost the main process: {error}")),
    }
}

fn notification_socket(unit: &Unit) -> std::io::Result<Option<(PathBuf, UnixDatagram)>> {
    if unit.kind != Kind::Notify {
        return Ok(None);
    }
    std::fs::create_dir_all(NOTIFY)?;
    let path = Path::new(NOTIFY).join(&unit.name);
    let _ = std::fs::remove_file(&path);
    let socket = UnixDatagram::bind(&path)?;
    Ok(Some((path, socket)))
}

async fn ready(socket: Option<&UnixDatagram>) {
    let Some(socket) = socket else {
        return;
    };
    let mut buffer = vec![0; 4096];
    loop {
        match socket.recv(&mut buffer).await {
            Ok(length) => {
                let text = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default()).into_owned();
                if text.lines().any(|line| line == "READY=1") {
                    return;
                }
            }
            Err(_) => return std::future::pending().await,
        }
    }
}

async fn stop(unit: &Unit, mut child: Child) -> Outcome {
    if let Ok(environment) = environment(unit) {
        commands(unit, &unit.stop, &environment).await.ok();
    }
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let Some(group) = group else {
        return Outcome::Stopped;
    };
    signal(unit, group, Signal::TERM);
    if tokio::time::timeout(STOP_LIMIT, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
    // Whatever of the group did not listen.
    signal(unit, group, Signal::KILL);
    Outcome::Stopped
}

fn signal(unit: &Unit, pid: Pid, signal: Signal) {
    let _ = if unit.kill_main_only {
        kill_process(pid, signal)
    } else {
        kill_process_group(pid, signal)
    };
}

/// The environment of a unit's commands.
fn environment(unit: &Unit) -> Result<BTreeMap<String, String>, String> {
    let mut environment = BTreeMap::from([
        ("PATH".to_owned(), PATH.to_owned()),
        ("LANG".to_owned(), "C.UTF-8".to_owned()),
    ]);
    environment.extend(unit.environment.iter().cloned());
    for (path, optional) in &unit.environment_files {
        match std::fs::read_to_string(path) {
            Ok(text) => environment.extend(environment_file(&text)),
            Err(_) if *optional => {}
            Err(error) => return Err(format!("Failed to load environment files: {}: {error}", path.display())),
        }
    }
    Ok(environment)
}

/// Runs commands one after the other.
async fn commands(unit: &Unit, list: &[Exec], environment: &BTreeMap<String, String>) -> Result<(), String> {
    for exec in list {
        let status = match spawn(unit, exec, environment) {
            Ok(mut child) => child.wait().await.map_err(|error| error.to_string())?,
            Err(_) if exec.tolerant => continue,
            Err(why) => return Err(why),
        };
        if !status.success() && !exec.tolerant {
            let argv = exec.argv(environment);
            return Err(format!("{}: {status}", argv.first().map_or("", String::as_str)));
        }
    }
    Ok(())
}

fn spawn(unit: &Unit, exec: &Exec, environment: &BTreeMap<String, String>) -> Result<Child, String> {
    let words = exec.argv(environment);
    let (program, args) = words.split_first().ok_or("empty command")?;
    let log = journal(&unit.name).map_err(|error| format!("cannot write the journal: {error}"))?;
    let both = log.try_clone().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .envs(environment)
        .current_dir(unit.working_directory.as_deref().unwrap_or(Path::new("/")))
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(both)
        .process_group(0);
    command
        .spawn()
        .map_err(|error| format!("Failed at step EXEC spawning {program}: {error}"))
}

fn journal(unit: &str) -> std::io::Result<std::fs::File> {
    std::fs::create_dir_all(JOURNAL)?;
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(Path::new(JOURNAL).join(format!("{unit}.log")))
}

/// Writes a line of the service manager into a unit's journal.
fn say(unit: &str, what: &str) {
    if let Ok(mut log) = journal(unit) {
        let _ = writeln!(log, "systemd[1]: {unit}: {what}");
    }
}

/// The end of a unit's journal, for an error.
fn tail(unit: &str) -> String {
    let text = std::fs::read(Path::new(JOURNAL).join(format!("{unit}.log"))).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    let last = lines.get(lines.len().saturating_sub(5)..).unwrap_or_default();
    last.iter().flat_map(|line| ["\n  ", line]).collect()
}
