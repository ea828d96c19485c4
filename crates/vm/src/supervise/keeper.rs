//! The supervisor itself: starts one process, waits for it, writes down how it ended.

use super::files::{self, Finished, Started};
use super::{Answer, Order};
use crate::process::Process;
use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitCode;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

/// Whoever only looks holds the lock for a moment, so one refusal means nothing.
const TRIES: u32 = 40;
const BETWEEN: Duration = Duration::from_millis(50);
/// How long the end of a process is tried to be written, once a second, on a disk that is full.
const WRITES: u32 = 120;

/// Runs one process to its end. The order comes by standard input.
pub fn main() -> ExitCode {
    // Away from the agent's session: what kills that must not kill this.
    let _ = rustix::process::setsid();
    let run = || -> io::Result<ExitCode> {
        let mut text = Vec::new();
        io::stdin().read_to_end(&mut text)?;
        // Half an order means that the agent died while it wrote.
        let order: Order = serde_json::from_slice(&text)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(keep(&order))
    };
    run().unwrap_or(ExitCode::FAILURE)
}

async fn keep(order: &Order) -> io::Result<ExitCode> {
    let (lock, mut child) = match begin(order).await {
        Ok(Some((lock, child, started))) => {
            answer(&Answer::Started(started));
            (lock, child)
        }
        Ok(None) => {
            answer(&Answer::Busy);
            return Ok(ExitCode::FAILURE);
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

/// Takes the lock and starts the process. `None` if somebody else has the lock.
async fn begin(order: &Order) -> io::Result<Option<(File, Child, Started)>> {
    DirBuilder::new().recursive(true).mode(0o700).create(&order.dir)?;
    let open = |path: &std::path::Path| {
        OpenOptions::new()
            .create(true)
            .append(true)
            .read(true)
            .mode(0o600)
            .open(path)
    };
    let lock = open(&order.dir.join(files::LOCK))?;
    let mut tries = 0;
    while let Err(error) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        tries += 1;
        if error != rustix::io::Errno::WOULDBLOCK {
            return Err(error.into());
        }
        if tries == TRIES {
            return Ok(None);
        }
        tokio::time::sleep(BETWEEN).await;
    }
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
    Ok(Some((lock, child, started)))
}

/// One line. An agent that is gone reads nothing, and the process runs all the same.
fn answer(answer: &Answer) {
    if let Ok(mut text) = serde_json::to_vec(answer) {
        text.push(b'\n');
        let _ = io::stdout().write_all(&text);
    }
    let _ = io::stdout().flush();
}
