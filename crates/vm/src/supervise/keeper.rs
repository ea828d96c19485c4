//! The supervisor itself: starts one process, waits for it, writes down how it ended.

use super::files::{self, Finished, Started};
use super::{Answer, GO, Order};
use crate::process::Process;
use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

/// Whoever only looks holds the lock for a moment, so it is tried more than once.
const TRIES: u32 = 200;
const BETWEEN: Duration = Duration::from_millis(10);
/// How long the end of a process is tried to be written, once a second, on a disk that is full.
const WRITES: u32 = 120;

/// Runs one process to its end. The order comes by standard input.
pub fn main() -> ExitCode {
    // Away from the agent's session: what kills that must not kill this.
    let _ = rustix::process::setsid();
    let run = || -> io::Result<ExitCode> {
        let mut line = String::new();
        io::stdin().read_line(&mut line)?;
        // Half an order means that the agent died while it wrote.
        let order: Order = serde_json::from_str(&line)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(keep(&order))
    };
    run().unwrap_or(ExitCode::FAILURE)
}

async fn keep(order: &Order) -> io::Result<ExitCode> {
    let lock = match claim(order).await {
        Ok(Some(lock)) => lock,
        Ok(None) => {
            answer(&Answer::Busy);
            return Ok(ExitCode::FAILURE);
        }
        Err(error) => {
            answer(&Answer::Failed(error.to_string()));
            return Ok(ExitCode::FAILURE);
        }
    };
    answer(&Answer::Ready);
    let mut word = String::new();
    io::stdin().read_line(&mut word)?;
    if word != GO {
        // Nobody wants it any more.
        return Ok(ExitCode::FAILURE);
    }
    let mut child = match begin(order, &lock) {
        Ok((child, started)) => {
            answer(&Answer::Started(started));
            child
        }
        Err(error) => {
            answer(&Answer::Failed(error.to_string()));
            return Ok(ExitCode::FAILURE);
        }
    };
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let process = child.id().and_then(Process::look_up);
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            _ = hangup.recv() => {}
            // The host goes down. `tart` does not know SIGTERM; an interrupt ends its VM in order.
            _ = terminate.recv() => process.iter().for_each(|process| process.signal(rustix::process::Signal::INT)),
            _ = interrupt.recv() => process.iter().for_each(|process| process.signal(rustix::process::Signal::INT)),
        }
    };
    let finished = Finished {
        code: status.code(),
        signal: status.signal(),
        at: Timestamp::now(),
    };
    for _ in 0..WRITES {
        if files::write(&order.dir, files::EXIT, &finished).is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    drop(lock);
    Ok(ExitCode::SUCCESS)
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .read(true)
        .mode(0o600)
        .open(path)
}

/// Takes the lock. `None` if another supervisor or its process has it.
async fn claim(order: &Order) -> io::Result<Option<File>> {
    DirBuilder::new().recursive(true).mode(0o700).create(&order.dir)?;
    let lock = open(&order.dir.join(files::LOCK))?;
    for _ in 0..TRIES {
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(lock)),
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            Err(error) => return Err(error.into()),
        }
        // With those who only look the lock can be shared; with one who holds it, not.
        match flock(&lock, FlockOperation::NonBlockingLockShared) {
            Ok(()) => flock(&lock, FlockOperation::Unlock)?,
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(BETWEEN).await;
    }
    Ok(None)
}

/// Starts the process.
fn begin(order: &Order, lock: &File) -> io::Result<(Child, Started)> {
    for name in [files::STARTED, files::EXIT] {
        match std::fs::remove_file(order.dir.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let log = open(&order.log)?;
    let log_offset = log.metadata()?.len();
    let child = Command::new(&order.program)
        .args(&order.words)
        .envs(&order.environment)
        // Nobody reads it; it is there to hold the lock as long as the process lives.
        .stdin(lock.try_clone()?)
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .map_err(|error| io::Error::other(format!("cannot start {}: {error}", order.program.display())))?;
    let pid = child.id().unwrap_or_default();
    // A process that has ended already is remembered with what is left: its number.
    let process = Process::look_up(pid).unwrap_or(Process {
        pid,
        started: String::new(),
    });
    let started = Started {
        process,
        at: Timestamp::now(),
        log_offset,
    };
    files::write(&order.dir, files::STARTED, &started)?;
    Ok((child, started))
}

/// One line. An agent that is gone reads nothing, and the process runs all the same.
fn answer(answer: &Answer) {
    if let Ok(mut text) = serde_json::to_vec(answer) {
        text.push(b'\n');
        let _ = io::stdout().write_all(&text);
    }
    let _ = io::stdout().flush();
}
