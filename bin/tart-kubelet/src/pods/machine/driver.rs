//! The way of a VM from the plan to its start, and from its end to nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use russet_pod::facts::reasons;
use russet_vm::{Error, PodVm, Power, Process, Retry, VmName};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Life, Plan, Shop};
use crate::ledger::{Ending, Entry, LedgerError, Shared, Stage};
use crate::places::Place;
use crate::pods::folder::Room;

/// A file or a process of ours that fails for a moment.
const AGAIN: Duration = Duration::from_secs(1);
const SLOWEST_AGAIN: Duration = Duration::from_secs(30);
/// How long one waits that could not be written down: a disk that is full stays so for a while.
const UNWRITTEN: Duration = Duration::from_secs(30);

/// Why a step did not succeed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error(transparent)]
    Vm(#[from] Error),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("what the container is started with could not be written: {0}")]
    Files(#[from] std::io::Error),
    /// A guest that was waited for long enough.
    #[error("{0}")]
    Silent(String),
}

/// What a step led to.
pub(super) enum Next {
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

/// Why it did not come to run.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    reason: &'static str,
    message: String,
    pause: Duration,
}

pub(super) struct Driver {
    pub(super) vm: PodVm,
    pub(super) name: VmName,
    pub(super) shop: Shop,
    pub(super) room: Room,
    pub(super) plan: Plan,
    pub(super) life: watch::Sender<Life>,
    pub(super) stop: watch::Receiver<Option<Instant>>,
    pub(super) place: Option<Place>,
    /// When this agent began to start it.
    pub(super) started: Option<Instant>,
    /// It failed, and is being given up.
    pub(super) failure: Option<Failure>,
}

impl Driver {
    pub(super) async fn run(mut self) {
        self.place = self.shop.places.keep(&self.vm);
        let mut pause = AGAIN;
        loop {
            // What was said before a step is heard by it; what is said later is news to whoever waits below.
            self.stop.mark_unchanged();
            let done = match self.step().await {
                Ok(Next::Step) => Ok(()),
                Ok(Next::Over) => return,
                Ok(Next::Failed { reason, message, pause }) => {
                    self.failure = Some(Failure { reason, message, pause });
                    Ok(())
                }
                Err(trouble) => Err(trouble),
            };
            match done {
                Ok(()) => pause = AGAIN,
                Err(trouble) => {
                    tracing::warn!(vm = %self.vm, error = %trouble, "a step of a virtual machine failed; it is tried again");
                    let why = in_full(&trouble);
                    self.held_up(match &self.failure {
                        Some(failure) => format!("{}; what is left of it cannot be removed: {why}", failure.message),
                        None => why,
                    });
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        // A sooner end is tried at once, and only once. Without anybody to say more, nobody is left to do it for.
                        changed = self.stop.changed() => if changed.is_err() { return },
                    }
                    pause = (pause * 2).min(SLOWEST_AGAIN);
                }
            }
        }
    }

    pub(super) fn held_up(&self, why: String) {
        self.life.send_if_modified(|life| {
            let waits = Life::Making(Some(why));
            let news = matches!(life, Life::Making(_)) && *life != waits;
            if news {
                *life = waits;
            }
            news
        });
    }

    fn over(&self, ending: Ending, gone: bool) {
        let address = self.life.borrow().address();
        self.life.send_replace(Life::Ended { ending, gone, address });
    }

    pub(super) fn entry(&self) -> Option<Entry> {
        self.shop.ledger.get(&self.vm)
    }

    pub(super) fn advance(&self, stage: Stage) -> Result<(), LedgerError> {
        tracing::debug!(vm = %self.vm, ?stage, "a virtual machine goes on");
        self.shop.ledger.advance(&self.vm, |entry| entry.stage = stage)
    }

    /// One step from wherever it is.
    async fn step(&mut self) -> Result<Next, Trouble> {
        // Whatever is left of it: to look at that anew would find another reason, or none.
        if let Some(failure) = self.failure.clone() {
            self.give_up(failure).await?;
            return Ok(Next::Over);
        }
        match self.entry().map(|entry| entry.stage) {
            None => self.make().await,
            // By an earlier agent: this one would know how far it came.
            Some(Stage::Planned) => Ok(Next::Failed {
                reason: reasons::CREATE,
                message: "the agent was restarted while the virtual machine was made".to_owned(),
                pause: Duration::ZERO,
            }),
            Some(Stage::Cloned) => self.boot().await,
            Some(Stage::Running { process, .. }) => self.live(&process).await,
            Some(Stage::Stopped(ending)) => {
                self.over(ending.clone(), false);
                self.remove().await?;
                self.advance(Stage::Deleted(ending))?;
                Ok(Next::Step)
            }
            Some(Stage::Deleted(ending)) => {
                self.place = None;
                self.over(ending, true);
                Ok(Next::Over)
            }
        }
    }

    /// Leaves nothing behind but, for one that an earlier agent planned, the name, which is not used again.
    async fn give_up(&mut self, failure: Failure) -> Result<(), Trouble> {
        let Failure { reason, message, pause } = failure;
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
        runtime.delete(&self.name).await?;
        // Not before: a start that was given up, or whose agent died, may come as late as this.
        self.place = None;
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
        let full = |names: BTreeSet<String>| {
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
                shares: self.plan.launch.shares.iter().map(Shared::from).collect(),
                stage: Stage::Planned,
                running: None,
                given_up: false,
            },
        )?;
        let begun = Instant::now();
        let made = async {
            let mut cloned = self.shop.runtime.clone_vm(&source, &self.name).await;
            if matches!(cloned, Err(Error::NoSpace(_))) && self.shop.images.make_room(true).await {
                cloned = self.shop.runtime.clone_vm(&source, &self.name).await;
            }
            cloned?;
            self.shop.runtime.configure(&self.name, self.plan.hardware).await
        };
        match made.await {
            Ok(()) => {
                let tally = &self.plan.tally;
                let took = tally.fetched + begun.elapsed();
                self.shop.meters.worked(&tally.pool, tally.fresh, took);
                Ok(match self.advance(Stage::Cloned) {
                    Ok(()) => Next::Step,
                    // The clone may be what filled the disk, so it does not wait here for room.
                    Err(error) => Next::Failed {
                        reason: reasons::CREATE,
                        message: in_full(&error),
                        pause: UNWRITTEN,
                    },
                })
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
            Some(Power::Ended(exit)) => return self.ended(Some(exit), None).await,
            Some(Power::Off) => {}
        }
        if self.stopping() || !self.take_place().await? {
            return Ok(Next::unwanted());
        }
        self.started = Some(Instant::now());
        if let Some(created) = self.plan.tally.first_start() {
            // The API server has a clock of its own, which may be ahead.
            let waited = Duration::try_from(Timestamp::now().duration_since(created)).unwrap_or_default();
            self.shop.meters.provisioned(&self.plan.tally.pool, waited);
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
}

/// An error with its cause: that a disk is full is what somebody has to know.
fn in_full(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// Waits for the word to stop.
pub(super) async fn told(stop: &mut watch::Receiver<Option<Instant>>) {
    if stop.wait_for(Option::is_some).await.is_err() {
        // Nobody is left to say it.
        std::future::pending::<()>().await;
    }
}

pub(super) fn missing_is_fine(error: Error) -> Result<(), Error> {
    match error {
        Error::Missing(_) | Error::NotRunning(_) => Ok(()),
        other => Err(other),
    }
}
