//! The handle, and the thread behind it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle as Task, JoinSet};

use super::driver::{Driver, Shared};
use super::ledger::{Ledger, sweep};
use super::{Error, Snapshot, Spec};

/// When the last handle goes, nobody waits for an orderly end: a panic or an early return should not take long.
const DROP_GRACE: Duration = Duration::from_secs(2);

/// Keeps processes alive. Cheap to clone; the children end when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Supervisor {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// `None` only while dropping.
    commands: Option<mpsc::UnboundedSender<Command>>,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
enum Command {
    Start(Box<Spec>, oneshot::Sender<Result<(), Error>>),
    Stop(String, oneshot::Sender<Result<(), Error>>),
    Shutdown(oneshot::Sender<()>),
}

impl Supervisor {
    /// A supervisor whose ledger is in `state_dir`. What a dead run left there is ended before the first process starts.
    ///
    /// One supervisor per directory: [`Supervisor::start`] fails with [`Error::InUse`] when another one is alive.
    pub fn new(state_dir: &Path) -> Self {
        let shared = Arc::new(Shared::new());
        let (commands, inbox) = mpsc::unbounded_channel();
        let keeper = Keeper {
            dir: state_dir.to_owned(),
            shared: shared.clone(),
            children: Vec::new(),
            stopping: JoinSet::new(),
        };
        // Without a thread every command answers `ShutDown`; the log line says why.
        let thread = std::thread::Builder::new()
            .name("russet-supervisor".to_owned())
            .spawn(move || keeper.run(inbox))
            .inspect_err(|error| tracing::error!(%error, "could not start the supervisor thread"))
            .ok();
        Self {
            inner: Arc::new(Inner {
                commands: Some(commands),
                shared,
                thread: Mutex::new(thread),
            }),
        }
    }

    /// Starts a process and waits until it is ready. An error means that it does not run.
    ///
    /// Several may be started at the same time. Dropping the future does not stop the process: it belongs to the supervisor.
    pub async fn start(&self, spec: Spec) -> Result<(), Error> {
        self.ask(|answer| Command::Start(Box::new(spec), answer)).await?
    }

    /// Stops a process: SIGTERM to its group, the grace of its spec, SIGKILL. Stopping an ended process does nothing.
    pub async fn stop(&self, name: &str) -> Result<(), Error> {
        self.ask(|answer| Command::Stop(name.to_owned(), answer)).await?
    }

    /// Stops everything, last started first. Afterwards nothing can be started. May be called again.
    pub async fn shutdown(&self) {
        // An error means the thread is gone, and the children with it.
        let _ = self.ask(Command::Shutdown).await;
    }

    /// All processes, in start order.
    pub fn snapshot(&self) -> Vec<Snapshot> {
        self.inner.shared.snapshots()
    }

    /// Changes whenever a snapshot does.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.inner.shared.subscribe()
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, Error> {
        let (answer, mut reply) = oneshot::channel();
        let commands = self.inner.commands.as_ref().ok_or(Error::ShutDown)?;
        commands.send(command(answer)).map_err(|_| Error::ShutDown)?;
        // A command that is sent in the moment in which the thread ends may stay in the channel, unanswered, for as long as we have
        // our end of it.
        let replied = tokio::select! {
            biased;
            replied = &mut reply => replied.ok(),
            () = commands.closed() => reply.try_recv().ok(),
        };
        replied.ok_or(Error::ShutDown)
    }
}

impl Drop for Inner {
    /// Bounded: each child gets [`DROP_GRACE`], then SIGKILL.
    fn drop(&mut self) {
        drop(self.commands.take());
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the supervisor thread panicked");
        }
    }
}

/// The thread's side.
struct Keeper {
    dir: PathBuf,
    shared: Arc<Shared>,
    /// In start order.
    children: Vec<Managed>,
    /// Those that were told to stop one by one, and may not have ended yet.
    stopping: JoinSet<()>,
}

struct Managed {
    name: String,
    grace: Duration,
    stop: watch::Sender<Option<Duration>>,
    task: Task<()>,
}

impl Keeper {
    fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Command>) {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return tracing::error!(%error, "could not start the supervisor's runtime"),
        };
        runtime.block_on(async {
            if let Err(error) = self.take_directory().await {
                return refuse(inbox, error).await;
            }
            while let Some(command) = inbox.recv().await {
                match command {
                    Command::Start(spec, answer) => self.start(*spec, answer),
                    Command::Stop(name, answer) => self.stop(&name, answer),
                    Command::Shutdown(answer) => {
                        self.stop_all(None).await;
                        let _ = answer.send(());
                        break;
                    }
                }
            }
            self.stop_all(Some(DROP_GRACE)).await;
            let _ = self.shared.ledger(|ledger| {
                ledger.finish();
                Ok(())
            });
        });
    }

    async fn take_directory(&self) -> Result<(), Error> {
        sweep(&self.dir).await?;
        self.shared.set_ledger(Ledger::take(&self.dir)?);
        Ok(())
    }

    fn start(&mut self, spec: Spec, answer: oneshot::Sender<Result<(), Error>>) {
        if let Some(position) = self.children.iter().position(|child| child.name == spec.name) {
            if !self
                .children
                .get(position)
                .is_some_and(|child| child.task.is_finished())
            {
                let _ = answer.send(Err(Error::AlreadyRunning { name: spec.name }));
                return;
            }
            self.children.remove(position);
        }
        let (stop, stopped) = watch::channel(None);
        let (name, grace) = (spec.name.clone(), spec.stop_grace);
        // On this thread's own runtime: see the module documentation for why that matters.
        let task = tokio::spawn(Driver::new(spec, self.shared.clone(), stopped, answer).run());
        self.children.push(Managed {
            name,
            grace,
            stop,
            task,
        });
    }

    fn stop(&mut self, name: &str, answer: oneshot::Sender<Result<(), Error>>) {
        let Some(position) = self.children.iter().position(|child| child.name == name) else {
            let known = self.shared.snapshots().iter().any(|snapshot| snapshot.name == name);
            let _ = answer.send(if known {
                Ok(())
            } else {
                Err(Error::Unknown { name: name.to_owned() })
            });
            return;
        };
        let child = self.children.remove(position);
        // Waited for elsewhere, so that a slow process does not hold up other commands.
        self.stopping.spawn(async move {
            child.stop(None).await;
            let _ = answer.send(Ok(()));
        });
    }

    /// Last started, first stopped: what depends on another part goes before it.
    async fn stop_all(&mut self, grace: Option<Duration>) {
        while let Some(child) = self.children.pop() {
            child.stop(grace).await;
        }
        while self.stopping.join_next().await.is_some() {}
    }
}

impl Managed {
    async fn stop(self, grace: Option<Duration>) {
        let _ = self.stop.send(Some(grace.unwrap_or(self.grace)));
        if let Err(error) = self.task.await {
            tracing::error!(name = self.name, %error, "a driver panicked");
        }
    }
}

/// The directory cannot be used: the first to ask learns why, the others that nothing can be started.
async fn refuse(mut inbox: mpsc::UnboundedReceiver<Command>, error: Error) {
    let mut error = Some(error);
    while let Some(command) = inbox.recv().await {
        match command {
            Command::Start(_, answer) => {
                let _ = answer.send(Err(error.take().unwrap_or(Error::ShutDown)));
            }
            Command::Stop(name, answer) => {
                let _ = answer.send(Err(Error::Unknown { name }));
            }
            Command::Shutdown(answer) => {
                let _ = answer.send(());
                return;
            }
        }
    }
}
