//! The supervisor itself: starts one process, waits for it, writes down how it ended.

use super::files::{self, Finished, Started};
use super::{Answer, GO, Order};
use crate::log;
use crate::process::Process;
use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::signal::unix::{self, SignalKind, signal};
use tokio::time::Instant;

/// Whoever only looks holds the lock for a moment, so it is tried more than once.
const TRIES: u32 = 200;
const BETWEEN: Duration = Duration::from_millis(10);
/// How often the end of a process is tried to be written, on a disk that is full.
const WRITE_AGAIN: Duration = Duration::from_secs(1);
/// How long the rest of what a process said may take to be written down.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long a guest may take to shut down while its host does: half of the 20 s that macOS is said to give between SIGTERM and SIGKILL,
/// so that a hard stop and a note of the end fit into the rest. A host in more of a hurry (the kernel's own code gives 3 s to what no
/// job of launchd owns) kills us and the VM; then nobody saw the end, which is never taken for a success.
const SHUT_DOWN: Duration = Duration::from_secs(10);
const PIECE: usize = 64 * 1024;

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
        let kept = runtime.block_on(keep(&order));
        // Somebody may hold the line of a process that has ended; nobody waits for that.
        runtime.shutdown_background();
        kept
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
    // Before there is anything to keep: one that dies of a signal leaves a process whose end nobody sees.
    let signals = Signals::listen()?;
    let (mut child, scribe) = match begin(order, &lock) {
        Ok((child, started, scribe)) => {
            answer(&Answer::Started(started));
            (child, scribe)
        }
        Err(error) => {
            answer(&Answer::Failed(error.to_string()));
            return Ok(ExitCode::FAILURE);
        }
    };
    let (status, told) = wait(&mut child, signals).await?;
    if let Some(scribe) = scribe {
        // Its last words are in the log before its end is known; somebody else may hold the line, and is not waited for.
        let _ = tokio::time::timeout(LAST_WORDS, tokio::task::spawn_blocking(|| scribe.join())).await;
    }
    let finished = Finished {
        code: status.code(),
        signal: status.signal(),
        told,
        at: Timestamp::now(),
    };
    // For as long as anybody may want to know. A folder that is gone means that nobody does.
    while let Err(error) = files::write(&order.dir, files::EXIT, &finished) {
        if error.kind() == io::ErrorKind::NotFound {
            break;
        }
        tokio::time::sleep(WRITE_AGAIN).await;
    }
    drop(lock);
    Ok(ExitCode::SUCCESS)
}

/// What a supervisor is told, and does not die of.
struct Signals {
    terminate: unix::Signal,
    hangup: unix::Signal,
    interrupt: unix::Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }
}

/// Waits for the end, and passes on that it is wanted: how it ended, and whether we were told to end before.
///
/// `tart run` does not know SIGTERM, of which it would just die. SIGUSR2 makes it ask the guest to shut down, SIGINT stops the VM hard.
/// Any other process dies of either.
async fn wait(child: &mut Child, mut signals: Signals) -> io::Result<(ExitStatus, bool)> {
    let process = child.id().and_then(Process::look_up);
    let send = |signal: Signal| process.iter().for_each(|process| process.signal(signal));
    let (mut told, mut patience) = (false, None);
    loop {
        tokio::select! {
            status = child.wait() => return Ok((status?, told)),
            _ = signals.hangup.recv() => {}
            // Once is enough; whoever says it again gets nothing faster.
            _ = signals.terminate.recv(), if !told => {
                told = true;
                patience = Some(Instant::now() + SHUT_DOWN);
                send(Signal::USR2);
            }
            () = until(patience) => {
                patience = None;
                send(Signal::INT);
            }
            _ = signals.interrupt.recv() => send(Signal::INT),
        }
    }
}

/// Waits for a moment that may never come.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
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
fn begin(order: &Order, lock: &File) -> io::Result<(Child, Started, Option<JoinHandle<()>>)> {
    for name in [files::STARTED, files::EXIT] {
        match std::fs::remove_file(order.dir.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let log_offset = log::length(&order.log)?;
    let (output, errors, scribe): (Stdio, Stdio, _) = if let Some(rotation) = order.rotation {
        let log = log::Writer::open(&order.log, rotation)?;
        let (reader, writer) = io::pipe()?;
        let scribe = std::thread::spawn(move || write_down(reader, log));
        (writer.try_clone()?.into(), writer.into(), Some(scribe))
    } else {
        let log = open(&order.log)?;
        (log.try_clone()?.into(), log.into(), None)
    };
    let mut child = Command::new(&order.program)
        .args(&order.words)
        .envs(&order.environment)
        // Nobody reads it; it is there to hold the lock as long as the process lives.
        .stdin(lock.try_clone()?)
        .stdout(output)
        .stderr(errors)
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
    if let Err(error) = files::write(&order.dir, files::STARTED, &started) {
        // It is told that this one did not start, and so it must not run.
        let _ = child.start_kill();
        return Err(error);
    }
    Ok((child, started, scribe))
}

/// Writes down what a process says and when, to its last word. What a full disk does not take is lost: a process that waits for it would be
/// worse.
fn write_down(mut from: io::PipeReader, mut log: log::Writer) {
    let mut piece = vec![0; PIECE];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return,
            Ok(count) => {
                log.said(Timestamp::now());
                let _ = log.write_all(piece.get(..count).unwrap_or_default());
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// One line. An agent that is gone reads nothing, and the process runs all the same.
fn answer(answer: &Answer) {
    if let Ok(mut text) = serde_json::to_vec(answer) {
        text.push(b'\n');
        let _ = io::stdout().write_all(&text);
    }
    let _ = io::stdout().flush();
}
