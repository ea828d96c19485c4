//! A Mac that is on, seen from the emulator: the namespaces, and the processes in them.
//!
//! Everything inside hangs on one socket. When this value is dropped, or the emulator ends in whatever way, the socket ends,
//! process 1 ends with it, and the kernel kills all others and undoes the mounts (see docs/adr/0002).

use super::error::MacError;
use super::frame;
use super::memory::MemoryDisk;
use super::orders::{Ending, Layout, Notice, Order, RunAs, Start};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};

/// Mounting takes milliseconds; on a machine with a hundred things to do it may take longer.
const LONGEST_BOOT: Duration = Duration::from_mins(2);
/// The end takes as long as the kernel needs to kill a few processes.
const LONGEST_END: Duration = Duration::from_secs(30);

/// What to run inside.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) program: String,
    pub(super) argv: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) folder: String,
    pub(super) run_as: RunAs,
    /// Standard input, output, error.
    pub(super) files: Vec<OwnedFd>,
}

/// A process inside.
#[derive(Debug)]
pub(super) struct Process {
    /// As the Mac numbers it.
    pub(super) pid: i32,
    /// Fires at its end; closed without a value when the power was cut.
    pub(super) ended: oneshot::Receiver<Ending>,
}

/// An order, and the files that go along.
type Parcel = (Order, Vec<OwnedFd>);
type Started = oneshot::Sender<Result<Process, String>>;

#[derive(Debug, Default)]
struct Waiting {
    starts: HashMap<u64, Started>,
    ends: HashMap<i32, oneshot::Sender<Ending>>,
}

/// The namespaces of one Mac, from power on to power off.
#[derive(Debug)]
pub(super) struct Boot {
    /// None when the power was cut.
    orders: Mutex<Option<mpsc::UnboundedSender<Parcel>>>,
    waiting: Arc<Mutex<Waiting>>,
    holder: tokio::sync::Mutex<Child>,
    next: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Boot {
    /// Makes the namespaces and waits until process 1 has arranged the files.
    pub(super) async fn start(
        launchd: &Path,
        layout: Layout,
        as_root: bool,
        disk: Option<&MemoryDisk>,
    ) -> Result<Self, MacError> {
        let failed = |error: std::io::Error| MacError::Boot(error.to_string());
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let mut command = match disk {
            Some(disk) => {
                let mut command = Command::new("nsenter");
                command.args(disk.enter()).arg("unshare");
                command
            }
            None => Command::new("unshare"),
        };
        if !as_root && disk.is_none() {
            command.args(["--user", "--map-root-user"]);
        }
        let mut holder = command
            .args(["--mount", "--pid", "--ipc", "--fork", "--kill-child=KILL", "--"])
            .arg(launchd)
            .env_clear()
            .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let mut socket = UnixStream::from_std(ours).map_err(failed)?;
        let said = holder.stderr.take();
        let booted = async {
            frame::post(&mut socket, &Order::Boot(layout), &[]).await?;
            frame::take::<Notice>(&mut socket).await
        };
        match tokio::time::timeout(LONGEST_BOOT, booted).await {
            Ok(Ok(Some((Notice::Booted, _)))) => {}
            Ok(Ok(Some((Notice::NotBooted(why), _)))) => return Err(MacError::Boot(why)),
            Ok(answer) => {
                let mut text = String::new();
                if let Some(mut said) = said {
                    let _ = tokio::io::AsyncReadExt::read_to_string(&mut said, &mut text).await;
                }
                let why = match answer {
                    Err(error) if text.is_empty() => error.to_string(),
                    _ => text.trim().to_owned(),
                };
                return Err(MacError::Boot(why));
            }
            Err(_) => return Err(MacError::Boot("it hangs".to_owned())),
        }
        let (reader, writer) = socket.into_split();
        let (orders, queue) = mpsc::unbounded_channel();
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        tokio::spawn(send(writer, queue));
        tokio::spawn(listen(reader, Arc::clone(&waiting)));
        Ok(Self {
            orders: Mutex::new(Some(orders)),
            waiting,
            holder: tokio::sync::Mutex::new(holder),
            next: AtomicU64::new(1),
        })
    }

    fn order(&self, order: Order, files: Vec<OwnedFd>) -> Result<(), MacError> {
        lock(&self.orders)
            .as_ref()
            .and_then(|orders| orders.send((order, files)).ok())
            .ok_or(MacError::Off)
    }

    /// Starts a program.
    pub(super) async fn run(&self, job: Job) -> Result<Process, MacError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (started, answer) = oneshot::channel();
        lock(&self.waiting).starts.insert(id, started);
        let program = job.program.clone();
        let start = Start {
            id,
            program: job.program,
            argv: job.argv,
            env: job.env,
            folder: job.folder,
            run_as: job.run_as,
        };
        self.order(Order::Start(Box::new(start)), job.files)?;
        match answer.await {
            Ok(Ok(process)) => Ok(process),
            Ok(Err(error)) => Err(MacError::Start { program, error }),
            Err(_) => Err(MacError::Off),
        }
    }

    /// Sends a signal; a process that is gone does not mind.
    pub(super) fn signal(&self, pid: i32, group: bool, signal: i32) {
        // No power, no processes.
        let _ = self.order(Order::Signal { pid, group, signal }, Vec::new());
    }

    /// Cuts the power. On return nothing of the Mac runs.
    pub(super) async fn halt(&self) {
        lock(&self.orders).take();
        let mut holder = self.holder.lock().await;
        if tokio::time::timeout(LONGEST_END, holder.wait()).await.is_err() {
            tracing::warn!("an emulated Mac did not end by itself");
            if let Err(error) = holder.kill().await {
                tracing::error!(%error, "an emulated Mac cannot be ended");
            }
        }
    }
}

async fn send(mut writer: OwnedWriteHalf, mut queue: mpsc::UnboundedReceiver<Parcel>) {
    while let Some((order, files)) = queue.recv().await {
        if let Err(error) = frame::post(&mut writer, &order, &files).await {
            tracing::debug!(%error, "process 1 of an emulated Mac is gone");
            return;
        }
    }
}

async fn listen(mut reader: OwnedReadHalf, waiting: Arc<Mutex<Waiting>>) {
    while let Ok(Some(notice)) = frame::take_plain::<Notice>(&mut reader).await {
        let mut waiting = lock(&waiting);
        match notice {
            Notice::Started { id, pid } => {
                if let Some(started) = waiting.starts.remove(&id) {
                    let (end, ended) = oneshot::channel();
                    waiting.ends.insert(pid, end);
                    // Whoever asked may have gone; the process runs all the same.
                    let _ = started.send(Ok(Process { pid, ended }));
                }
            }
            Notice::NotStarted { id, error } => {
                if let Some(started) = waiting.starts.remove(&id) {
                    let _ = started.send(Err(error));
                }
            }
            Notice::Ended { pid, how } => {
                if let Some(end) = waiting.ends.remove(&pid) {
                    let _ = end.send(how);
                }
            }
            Notice::Booted | Notice::NotBooted(_) => {}
        }
    }
    // The power is off: everybody who waits hears it.
    *lock(&waiting) = Waiting::default();
}
