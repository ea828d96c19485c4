//! One VM, from the plan to its deletion: a task of its own, so that no VM waits for another.
//!
//! ```text
//! take a place ─▶ planned ─▶ clone, configure ─▶ cloned ─▶ start ─▶ running ─▶ command ─┬─▶ ended by itself ─┐
//!      │               │                            │                  │                └─▶ told to stop ────┤
//!      ▼               ▼ failed, or told to stop    ▼                  ▼ did not come up                     ▼
//!   nothing is left ◀──┴────────────────────────────┴──────────────────┘     deleted ◀─ delete ◀─ stop ◀─ stopped(how)
//! ```
//!
//! The task begins wherever the ledger and the host say an earlier agent was. A VM that was only planned then is given up, and
//! another is made under another name: the clone of the agent that died may still be on its way.

mod ending;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use russet_pod::facts::reasons;
use russet_vm::{
    Error, ExecRequest, Exit, GuestCommand, Hardware, Launch, PodVm, Power, Process, Retry, Runtime, Source, Step,
    VmName, collect,
};
use tokio::sync::watch;
use tokio::time::Instant;

use super::folder::Room;
use super::guest;
use super::journal::Marker;
use crate::ledger::{Ending, Entry, Ledger, LedgerError, Stage};
use crate::meters::Meters;
use crate::places::{Place, Places};

/// The name of the container's own program among those of its VM.
pub(crate) const MAIN: &str = "main";
/// How often a guest that boots is asked for its address, and the host for the end of a program.
const LOOK: Duration = Duration::from_millis(250);
/// Asking for an address starts a process, so a guest that takes long is asked less often.
const SLOWEST_LOOK: Duration = Duration::from_secs(2);
/// A guest that is asked to run something and does not answer within this is asked again.
const ANSWER: Duration = Duration::from_secs(5);
/// How long the end of a VM may take to show after the line to its guest broke.
const SETTLE: Duration = Duration::from_secs(5);
/// A file or a process of ours that fails for a moment.
const AGAIN: Duration = Duration::from_secs(1);
const SLOWEST_AGAIN: Duration = Duration::from_secs(30);

/// What a VM is made from.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The whole name of its Pod.
    pub(crate) pod: String,
    /// What it is cloned from; not needed for one that is there.
    pub(crate) source: Option<Source>,
    /// The image by its digest.
    pub(crate) image: String,
    /// What it has.
    pub(crate) hardware: Hardware,
    /// How it starts.
    pub(crate) launch: Launch,
    /// Whether a program is started in it, or the image does all by itself.
    pub(crate) command: bool,
    /// What stands in for last words; see `terminationMessagePolicy`.
    pub(crate) message_policy: Option<String>,
}

impl Plan {
    /// For a VM that an earlier agent made.
    pub(crate) fn adopted(entry: &Entry, command: bool) -> Self {
        Self {
            pod: entry.pod.clone(),
            source: None,
            image: entry.image.clone(),
            hardware: Hardware::default(),
            launch: Launch::default(),
            command,
            message_policy: None,
        }
    }
}

/// How far a VM is, for those who watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// It is being made. What holds it up, if anything does, in a sentence.
    Making(Option<String>),
    /// The container runs.
    Running {
        /// Since when.
        since: Timestamp,
        /// Where the VM is reached.
        address: Option<Ipv4Addr>,
    },
    /// It did not come to run, and nothing of it is left.
    Failed {
        /// A word of Kubernetes.
        reason: &'static str,
        /// A sentence.
        message: String,
        /// How long another attempt should wait.
        pause: Duration,
    },
    /// The container has ended.
    Ended {
        /// How.
        ending: Ending,
        /// Whether its VM is gone, too.
        gone: bool,
    },
}

/// The parts of a host that all VMs share.
#[derive(Clone, Debug)]
pub(crate) struct Shop {
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) ledger: Ledger,
    pub(crate) places: Arc<Places>,
    pub(crate) meters: Arc<Meters>,
}

/// A VM's task, as its Pod sees it.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) vm: PodVm,
    pub(crate) life: watch::Receiver<Life>,
    stop: watch::Sender<Option<Instant>>,
    task: tokio::task::JoinHandle<()>,
}

impl Machine {
    /// Begins, or goes on.
    pub(crate) fn start(shop: Shop, vm: PodVm, room: Room, plan: Plan) -> Self {
        let (life, watched) = watch::channel(Life::Making(None));
        let (stop, stopped) = watch::channel(None);
        let driver = Driver {
            name: VmName::from(vm.clone()),
            vm: vm.clone(),
            shop,
            room,
            plan,
            life,
            stop: stopped,
            place: None,
        };
        Self {
            vm,
            life: watched,
            stop,
            task: tokio::spawn(driver.run()),
        }
    }

    /// Ends the container by then. A later word counts only if it is for sooner.
    pub(crate) fn stop_by(&self, deadline: Instant) {
        self.stop.send_if_modified(|by| {
            let sooner = by.is_none_or(|by| deadline < by);
            if sooner {
                *by = Some(deadline);
            }
            sooner
        });
    }

    pub(crate) fn now(&self) -> Life {
        self.life.borrow().clone()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The VM goes on; the next agent finds it.
        self.task.abort();
    }
}

/// Why a step did not succeed.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Vm(#[from] Error),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// What a step led to.
enum Next {
    /// Another step, or the same one again.
    Step,
    /// It did not come to run, and what is left of it has to go.
    Failed {
        reason: &'static str,
        message: String,
        pause: Duration,
    },
    /// Nothing is left to do.
    Over,
}

impl Next {
    fn failed(reason: &'static str, error: &Error) -> Self {
        let pause = match error.class() {
            Retry::Later(pause) => pause,
            Retry::UntilChanged => Duration::from_mins(1),
        };
        Self::Failed {
            reason,
            message: error.to_string(),
            pause,
        }
    }

    fn unwanted() -> Self {
        Self::Failed {
            reason: reasons::CREATING,
            message: "it was not needed any more".to_owned(),
            pause: Duration::ZERO,
        }
    }
}

struct Driver {
    vm: PodVm,
    name: VmName,
    shop: Shop,
    room: Room,
    plan: Plan,
    life: watch::Sender<Life>,
    stop: watch::Receiver<Option<Instant>>,
    place: Option<Place>,
}

impl Driver {
    async fn run(mut self) {
        self.place = self.shop.places.keep(&self.vm);
        let mut pause = AGAIN;
        loop {
            let done = match self.step().await {
                Ok(Next::Step) => Ok(false),
                Ok(Next::Over) => return,
                Ok(Next::Failed { reason, message, pause }) => {
                    self.give_up(reason, message, pause).await.map(|()| true)
                }
                Err(trouble) => Err(trouble),
            };
            match done {
                Ok(true) => return,
                Ok(false) => pause = AGAIN,
                Err(trouble) => {
                    tracing::warn!(vm = %self.vm, error = %trouble, "a step of a virtual machine failed; it is tried again");
                    self.held_up(trouble.to_string());
                    let mut stop = self.stop.clone();
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        changed = stop.changed() => if changed.is_err() { return },
                    }
                    pause = (pause * 2).min(SLOWEST_AGAIN);
                }
            }
        }
    }

    fn held_up(&self, why: String) {
        self.life.send_if_modified(|life| {
            let waits = Life::Making(Some(why));
            let news = matches!(life, Life::Making(_)) && *life != waits;
            if news {
                *life = waits;
            }
            news
        });
    }

    fn entry(&self) -> Option<Entry> {
        self.shop.ledger.get(&self.vm)
    }

    fn advance(&self, stage: Stage) -> Result<(), LedgerError> {
        tracing::debug!(vm = %self.vm, ?stage, "a virtual machine goes on");
        self.shop.ledger.advance(&self.vm, |entry| entry.stage = stage)
    }

    /// One step from wherever it is.
    async fn step(&mut self) -> Result<Next, Trouble> {
        match self.entry().map(|entry| entry.stage) {
            None => self.make().await,
            Some(Stage::Planned) => Ok(Next::Failed {
                reason: reasons::CREATE,
                message: "the agent was restarted while the virtual machine was made".to_owned(),
                pause: Duration::ZERO,
            }),
            Some(Stage::Cloned) => self.boot().await,
            Some(Stage::Running { process, at }) => self.live(&process, at).await,
            Some(Stage::Stopped(ending)) => {
                self.life.send_replace(Life::Ended {
                    ending: ending.clone(),
                    gone: false,
                });
                self.remove().await?;
                self.advance(Stage::Deleted(ending))?;
                Ok(Next::Step)
            }
            Some(Stage::Deleted(ending)) => {
                self.place = None;
                self.life.send_replace(Life::Ended { ending, gone: true });
                Ok(Next::Over)
            }
        }
    }

    /// Leaves nothing behind but, for one that an earlier agent planned, the name, which is not used again.
    async fn give_up(&mut self, reason: &'static str, message: String, pause: Duration) -> Result<(), Trouble> {
        self.remove().await?;
        if self.plan.source.is_some() {
            self.shop.ledger.forget(&self.vm)?;
        } else {
            let ending = Ending::failed(0, reason, message.clone(), Timestamp::now());
            self.shop.ledger.advance(&self.vm, |entry| {
                entry.stage = Stage::Deleted(ending);
                entry.given_up = true;
            })?;
        }
        self.life.send_replace(Life::Failed { reason, message, pause });
        Ok(())
    }

    async fn remove(&mut self) -> Result<(), Trouble> {
        let runtime = &self.shop.runtime;
        runtime
            .stop(&self.name, Duration::ZERO)
            .await
            .or_else(missing_is_fine)?;
        self.place = None;
        runtime.delete(&self.name).await?;
        if let Err(error) = self.room.clear_secrets() {
            tracing::warn!(vm = %self.vm, %error, "what a container was started with could not be removed");
        }
        Ok(())
    }

    fn stopping(&self) -> bool {
        self.stop.borrow().is_some()
    }

    /// Takes a place; `false` if it was told to stop before there was one.
    async fn take_place(&mut self) -> Result<bool, Trouble> {
        if self.place.is_some() {
            return Ok(true);
        }
        let mut stop = self.stop.clone();
        let full = |names: std::collections::BTreeSet<String>| {
            let names: Vec<String> = names.into_iter().collect();
            self.held_up(format!(
                "the host runs as many virtual machines as macOS allows ({}); this one starts when one of them ends",
                names.join(", ")
            ));
        };
        let taken = tokio::select! {
            taken = self.shop.places.take(&self.vm, full) => Some(taken?),
            () = told(&mut stop) => None,
        };
        self.place = taken;
        self.life.send_replace(Life::Making(None));
        Ok(self.place.is_some())
    }

    /// From nothing to a VM that can be started.
    async fn make(&mut self) -> Result<Next, Trouble> {
        let Some(source) = self.plan.source.clone() else {
            return Ok(Next::unwanted());
        };
        if self.stopping() || !self.take_place().await? {
            return Ok(Next::unwanted());
        }
        self.shop.ledger.write(
            &self.vm,
            Entry {
                pod: self.plan.pod.clone(),
                planned: Timestamp::now(),
                image: self.plan.image.clone(),
                stage: Stage::Planned,
                running: None,
                given_up: false,
            },
        )?;
        let made = async {
            self.shop.runtime.clone_vm(&source, &self.name).await?;
            self.shop.runtime.configure(&self.name, self.plan.hardware).await
        };
        match made.await {
            Ok(()) => {
                self.advance(Stage::Cloned)?;
                Ok(Next::Step)
            }
            Err(error) => Ok(Next::failed(reasons::CREATE, &error)),
        }
    }

    /// From a VM that is there to one that runs.
    async fn boot(&mut self) -> Result<Next, Trouble> {
        match self.shop.runtime.power(&self.name).await? {
            None => return Ok(Next::failed(reasons::CREATE, &Error::Missing(self.name.to_string()))),
            Some(Power::Running(process)) => return self.found_running(process),
            // It was started, and has ended before anybody wrote that down.
            Some(Power::Ended(exit)) => return self.ended(Some(exit), None),
            Some(Power::Off) => {}
        }
        if self.stopping() || !self.take_place().await? {
            return Ok(Next::unwanted());
        }
        match self.shop.runtime.start(&self.name, &self.plan.launch).await {
            Ok(process) => {
                let at = Timestamp::now();
                self.advance(Stage::Running { process, at })?;
                Ok(Next::Step)
            }
            // By an agent that died meanwhile; the next look finds it.
            Err(Error::Running(_)) => Ok(Next::Step),
            Err(error) => Ok(Next::failed(reasons::RUN, &error)),
        }
    }

    fn found_running(&self, process: Option<Process>) -> Result<Next, Trouble> {
        let process = process.unwrap_or(Process {
            pid: 0,
            started: String::new(),
        });
        tracing::info!(vm = %self.vm, "a virtual machine runs already; going on with it");
        let at = Timestamp::now();
        self.advance(Stage::Running { process, at })?;
        Ok(Next::Step)
    }

    /// A VM that runs, until it does not, or what runs in it.
    async fn live(&mut self, process: &Process, at: Timestamp) -> Result<Next, Trouble> {
        tracing::debug!(vm = %self.vm, pid = process.pid, "watching a virtual machine");
        let mut stop = self.stop.clone();
        let up = async {
            let address = self.come_up(at).await?;
            self.watch(address).await
        };
        let ended = async {
            match self.shop.runtime.ended(&self.name).await {
                Ok(exit) => Ok(Some(exit)),
                // Gone, with everything that was known of it.
                Err(Error::Missing(_) | Error::NotRunning(_)) => Ok(None),
                Err(error) => Err(error),
            }
        };
        tokio::select! {
            biased;
            exit = ended => {
                let exit = exit?;
                // A program that took its VM down with it was seen to end first.
                let step = self.shop.runtime.step(&self.name, MAIN).await?;
                self.ended(exit, step)
            }
            step = up => match step {
                // The line to the guest may be the first to notice that its VM ends.
                Ok(Step::Lost) => {
                    let exit = tokio::time::timeout(SETTLE, self.shop.runtime.ended(&self.name)).await;
                    self.ended(exit.ok().and_then(Result::ok), Some(Step::Lost))
                }
                Ok(step) => self.ended(None, Some(step)),
                // It ended meanwhile, and the next look sees how.
                Err(Trouble::Vm(Error::NotRunning(_))) => Ok(Next::Step),
                Err(trouble) => Err(trouble),
            },
            () = told(&mut stop) => {
                let ending = self.put_down().await?;
                self.advance(Stage::Stopped(ending))?;
                Ok(Next::Step)
            }
        }
    }

    /// Writes down how it ended. One that never came up is no end of a container.
    fn ended(&self, exit: Option<Exit>, step: Option<Step>) -> Result<Next, Trouble> {
        let ran = self.entry().is_some_and(|entry| entry.running.is_some());
        if let Some(why) = exit.as_ref().filter(|_| !ran).and_then(ending::not_started) {
            return Ok(Next::Failed {
                reason: reasons::RUN,
                message: why,
                pause: Duration::from_secs(10),
            });
        }
        self.advance(Stage::Stopped(self.ending(exit, step)))?;
        Ok(Next::Step)
    }

    /// Waits for the guest, and starts the container's program in it. Does both only if that was not done.
    async fn come_up(&self, at: Timestamp) -> Result<Option<Ipv4Addr>, Trouble> {
        let runtime = &self.shop.runtime;
        let known = self.entry().and_then(|entry| entry.running);
        if self.plan.command && runtime.step(&self.name, MAIN).await?.is_none() {
            self.answered().await?;
            let command = GuestCommand {
                words: guest::start(),
                log: self.room.log(),
            };
            match runtime.spawn(&self.name, MAIN, &command).await {
                Ok(()) | Err(Error::Running(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut pause = LOOK;
        let address = loop {
            match runtime.address(&self.name).await? {
                Some(address) => break Some(address),
                None if known.is_some() || self.plan.command => break None,
                None => {}
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(SLOWEST_LOOK);
        };
        let since = known.unwrap_or_else(Timestamp::now);
        if known.is_none() {
            self.shop.meters.booted(since.duration_since(at).unsigned_abs());
            self.shop
                .ledger
                .advance(&self.vm, |entry| entry.running = Some(since))?;
        }
        self.life.send_replace(Life::Running { since, address });
        Ok(address)
    }

    /// Waits until the guest runs programs. A program that nobody listens to would leave its complaint in the container's log.
    async fn answered(&self) -> Result<(), Trouble> {
        let mut pause = LOOK;
        loop {
            let request = ExecRequest {
                words: vec!["true".to_owned()],
                ..ExecRequest::default()
            };
            let asked = async { collect(self.shop.runtime.exec(&self.name, request).await?, b"", 1024).await };
            match tokio::time::timeout(ANSWER, asked).await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(Error::NoAgent { .. })) | Err(_) => {}
                Ok(Err(error)) => return Err(error.into()),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(SLOWEST_LOOK);
        }
    }

    /// Waits for the end of the container's program; one without a program ends with its VM.
    async fn watch(&self, mut address: Option<Ipv4Addr>) -> Result<Step, Trouble> {
        let mut pause = LOOK;
        let mut marker = Marker::new(self.room.log(), self.room.marks());
        loop {
            if let Err(error) = marker.look(Timestamp::now()) {
                tracing::debug!(vm = %self.vm, %error, "when a container said something could not be written down");
            }
            if self.plan.command {
                match self.shop.runtime.step(&self.name, MAIN).await? {
                    Some(Step::Running { .. }) => {}
                    Some(over) => return Ok(over),
                    None => return Ok(Step::Lost),
                }
            } else if address.is_some() {
                std::future::pending::<()>().await;
            }
            if address.is_none()
                && let Ok(Some(found)) = self.shop.runtime.address(&self.name).await
            {
                address = Some(found);
                self.life.send_modify(|life| {
                    if let Life::Running { address, .. } = life {
                        *address = Some(found);
                    }
                });
            }
            tokio::time::sleep(pause).await;
            pause = if address.is_some() {
                LOOK
            } else {
                (pause * 2).min(SLOWEST_LOOK)
            };
        }
    }

    /// Ends what runs, within the time it was given.
    async fn put_down(&self) -> Result<Ending, Trouble> {
        let runtime = &self.shop.runtime;
        if self.plan.command {
            self.end_program().await?;
        } else {
            let grace = self.left();
            if !grace.is_zero() {
                self.within_grace(async { runtime.stop(&self.name, grace).await.or_else(missing_is_fine) })
                    .await?;
            }
        }
        let step = runtime.step(&self.name, MAIN).await?;
        runtime
            .stop(&self.name, Duration::ZERO)
            .await
            .or_else(missing_is_fine)?;
        let exit = match runtime.power(&self.name).await? {
            Some(Power::Ended(exit)) if !self.plan.command => Some(exit),
            _ => None,
        };
        Ok(ending::by_us(self.ending(exit, step)))
    }

    /// Asks the container's program to end, and waits as long as it may take.
    async fn end_program(&self) -> Result<(), Trouble> {
        let runtime = &self.shop.runtime;
        let Some(Step::Running { .. }) = runtime.step(&self.name, MAIN).await? else {
            return Ok(());
        };
        self.within_grace(async {
            let request = ExecRequest {
                words: guest::terminate(),
                ..ExecRequest::default()
            };
            let told = async { collect(runtime.exec(&self.name, request).await?, b"", 1024).await };
            // A guest that does not listen is ended all the same.
            let _ = tokio::time::timeout(ANSWER, told).await;
            while let Some(Step::Running { .. }) = runtime.step(&self.name, MAIN).await? {
                tokio::time::sleep(LOOK).await;
            }
            Ok(())
        })
        .await
    }

    fn left(&self) -> Duration {
        let by = *self.stop.borrow();
        by.map_or(Duration::ZERO, |by| by.saturating_duration_since(Instant::now()))
    }

    /// Lets something take as long as it was given, which may become less.
    async fn within_grace(&self, work: impl Future<Output = Result<(), Error>>) -> Result<(), Trouble> {
        tokio::pin!(work);
        let mut stop = self.stop.clone();
        loop {
            tokio::select! {
                done = &mut work => return Ok(done?),
                () = tokio::time::sleep(self.left()) => return Ok(()),
                changed = stop.changed() => if changed.is_err() { return Ok(()) },
            }
        }
    }

    fn ending(&self, exit: Option<Exit>, step: Option<Step>) -> Ending {
        let told = ending::Told {
            command: self.plan.command,
            exit,
            step,
            code: self.room.exit_code(),
            policy: self.plan.message_policy.clone(),
            last_words: self.room.left(guest::LAST_WORDS, ending::LAST_WORDS),
            log: super::folder::tail(&self.room.log(), ending::LAST_WORDS).unwrap_or_default(),
            now: Timestamp::now(),
        };
        told.ending()
    }
}

/// Waits for the word to stop.
async fn told(stop: &mut watch::Receiver<Option<Instant>>) {
    if stop.wait_for(Option::is_some).await.is_err() {
        // Nobody is left to say it.
        std::future::pending::<()>().await;
    }
}

fn missing_is_fine(error: Error) -> Result<(), Error> {
    match error {
        Error::Missing(_) | Error::NotRunning(_) => Ok(()),
        other => Err(other),
    }
}
