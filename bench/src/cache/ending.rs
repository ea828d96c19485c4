//! However this program ends, its servers end too, and its data goes.
//!
//! Two nets. A signal that asks us to end (Ctrl-C, `kill`) is taken by a thread that ends every server and removes every folder it was told
//! of. And every server is started through [`follow`], so that the kernel ends it when this program ends in a way nobody can
//! take, `kill -9` for one.

use super::meter;
use super::system::wait;
use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal};
use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Servers that do not end within this time are killed.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Owned {
    servers: Vec<u32>,
    folders: Vec<PathBuf>,
}

static OWNED: Mutex<Owned> = Mutex::new(Owned {
    servers: Vec::new(),
    folders: Vec::new(),
});
static BEGUN: AtomicBool = AtomicBool::new(false);

fn owned() -> MutexGuard<'static, Owned> {
    OWNED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A server to end with us.
pub(crate) fn add_server(pid: u32) {
    owned().servers.push(pid);
}

/// It has ended.
pub(crate) fn forget_server(pid: u32) {
    owned().servers.retain(|server| *server != pid);
}

/// A folder to remove when we are ended.
pub(crate) fn add_folder(path: &Path) {
    owned().folders.push(path.to_owned());
}

/// From now on signals that ask us to end are obeyed in order: servers, folders, then we.
pub(crate) fn watch() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate, mut hangup) = {
        let _context = runtime.enter();
        (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        )
    };
    let obey = move || {
        let signal = runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => Signal::INT,
                _ = terminate.recv() => Signal::TERM,
                _ = hangup.recv() => Signal::HUP,
            }
        });
        BEGUN.store(true, Ordering::SeqCst);
        let _ = writeln!(std::io::stderr(), "ending: stopping the servers");
        end();
        // As a shell reports a program that a signal ended.
        std::process::exit(128 + signal.as_raw());
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(obey)
        .context("failed to start the thread that waits for signals")?;
    Ok(())
}

/// While the thread above ends the servers, whoever measures them sees them fail: that is no result, and no reason to be the first to leave.
pub(crate) fn leave_to_signal() {
    while BEGUN.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

fn end() {
    let (servers, folders) = {
        let owned = owned();
        (owned.servers.clone(), owned.folders.clone())
    };
    // Workers of a server that has to be killed would outlive it.
    let family: Vec<u32> = servers.iter().flat_map(|pid| meter::family(*pid)).collect();
    send(&servers, Signal::TERM);
    let gone = || Ok(family.iter().all(|pid| !meter::is_running(*pid)).then_some(()));
    if !matches!(wait(PATIENCE, gone), Ok(Some(()))) {
        send(&family, Signal::KILL);
        let _ = wait(PATIENCE, gone);
    }
    for folder in folders {
        // What cannot be removed is named by its prefix.
        let _ = std::fs::remove_dir_all(folder);
    }
}

fn send(pids: &[u32], signal: Signal) {
    for pid in pids {
        let pid = i32::try_from(*pid).ok().and_then(Pid::from_raw);
        // It may have ended by itself.
        let _ = pid.map(|pid| rustix::process::kill_process(pid, signal));
    }
}

/// How to start a program that ends when we do.
pub(crate) fn following(program: &Path) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("failed to find our own program")?);
    command.arg("follow").arg(std::process::id().to_string()).arg(program);
    Ok(command)
}

/// Becomes another program, which the kernel ends when the process `parent` does.
pub(crate) fn follow(parent: u32, program: &[OsString]) -> Result<()> {
    let Some((program, args)) = program.split_first() else {
        bail!("there is no program to become");
    };
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    // It may have ended before the kernel was told.
    let ours = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned());
    if ours != Some(parent) {
        bail!("the benchmark has ended");
    }
    let failed = Command::new(program).args(args).exec();
    Err(failed).with_context(|| format!("failed to become {}", program.display()))
}
