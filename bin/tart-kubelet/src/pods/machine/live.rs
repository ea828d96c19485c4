//! The time between the start of a VM and its end.

use std::net::Ipv4Addr;
use std::time::Duration;

use jiff::Timestamp;
use russet_pod::facts::reasons;
use russet_vm::{Error, ExecRequest, Exit, GuestCommand, Power, Process, StartFailure, Step, collect};
use tokio::time::Instant;

use super::driver::{Driver, Next, Trouble, missing_is_fine, told};
use super::{Life, ending};
use crate::host::LostCount;
use crate::ledger::{Ending, Stage};
use crate::pods::journal::Witness;
use crate::pods::{folder, guest};

/// The name of the container's own program among those of its VM.
const MAIN: &str = "main";
/// How often the host is asked for the end of a program.
const LOOK: Duration = Duration::from_millis(250);
/// How long a container counts as just started.
const YOUNG: Duration = Duration::from_mins(1);
/// Asking for an address starts a process, so a guest that takes long to have one is asked less often.
const SLOWEST_LOOK: Duration = Duration::from_secs(2);
/// A guest that is asked to run something and does not answer within this is asked again.
const ANSWER: Duration = Duration::from_secs(5);
/// A guest that takes longer than this to come up has its owner told of that: four times what macOS takes.
const WORRY: Duration = Duration::from_mins(1);
/// A guest that takes longer than this will not come up: its VM is taken away, and makes room for others until it is tried again.
const GIVE_UP: Duration = Duration::from_mins(10);
/// How long one that did not come up waits before it is tried again.
const AFTER_SILENCE: Duration = Duration::from_mins(1);
/// How long one waits that macOS would not start.
const REFUSED: Duration = Duration::from_secs(10);
/// The same when macOS has lost count, which nothing but a reboot may cure.
const COUNT_LOST: Duration = Duration::from_secs(30);
/// How long the end of a VM may take to show after the line to its guest broke.
const SETTLE: Duration = Duration::from_secs(5);

impl Driver {
    /// A VM that runs, until it does not, or what runs in it.
    pub(super) async fn live(&mut self, process: &Process) -> Result<Next, Trouble> {
        tracing::debug!(vm = %self.vm, pid = process.pid, "watching a virtual machine");
        let mut halt = self.stop.clone();
        let up = async {
            let address = self.come_up().await?;
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
                self.ended(exit, step).await
            }
            step = up => match step {
                // The line to the guest may be the first to notice that its VM ends.
                Ok(Step::Lost) => {
                    let exit = tokio::time::timeout(SETTLE, self.shop.runtime.ended(&self.name)).await;
                    self.ended(exit.ok().and_then(Result::ok), Some(Step::Lost)).await
                }
                Ok(step) => self.ended(None, Some(step)).await,
                // It ended meanwhile, and the next look sees how.
                Err(Trouble::Vm(Error::NotRunning(_))) => Ok(Next::Step),
                Err(Trouble::Silent(message)) => Ok(Next::Failed {
                    reason: reasons::RUN,
                    message,
                    pause: AFTER_SILENCE,
                }),
                Err(trouble) => Err(trouble),
            },
            () = told(&mut halt) => {
                let ending = self.put_down().await?;
                self.advance(Stage::Stopped(ending))?;
                Ok(Next::Step)
            }
        }
    }

    /// Writes down how it ended. One that never came up is no end of a container.
    pub(super) async fn ended(&self, exit: Option<Exit>, step: Option<Step>) -> Result<Next, Trouble> {
        let ran = self.entry().is_some_and(|entry| entry.running.is_some());
        if let Some(why) = exit.as_ref().filter(|_| !ran).and_then(ending::not_started) {
            return self.not_started(why).await;
        }
        self.advance(Stage::Stopped(self.ending(exit, step)))?;
        Ok(Next::Step)
    }

    /// Says why it did not start, and tells the host's Node if macOS has lost count.
    pub(super) async fn not_started(&self, why: &StartFailure) -> Result<Next, Trouble> {
        let (mut message, mut pause) = (why.to_string(), REFUSED);
        if matches!(why, StartFailure::TooMany(_)) {
            let (running, limit) = (self.others().await?, self.shop.places.limit());
            if running < limit {
                let lost = LostCount { running, limit };
                self.shop.board.set_lost_count(Some(lost));
                (message, pause) = (lost.to_string(), COUNT_LOST);
            }
        }
        Ok(Next::Failed {
            reason: reasons::RUN,
            message,
            pause,
        })
    }

    /// How many other VMs run, or are about to.
    async fn others(&self) -> Result<usize, Error> {
        Ok(self.shop.places.others(&self.vm).await?.len())
    }

    /// Waits for the guest, and starts the container's program in it. Does both only if that was not done.
    async fn come_up(&self) -> Result<Option<Ipv4Addr>, Trouble> {
        let runtime = &self.shop.runtime;
        let known = self.entry().and_then(|entry| entry.running);
        let begun = Instant::now();
        let mut located = None;
        if self.plan.command && runtime.step(&self.name, MAIN).await?.is_none() {
            self.answered(begun).await?;
            if let Some(stand_in) = self.plan.late {
                let address = self.located(begun).await?;
                guest::fill_in(&self.room.env(), stand_in, address)?;
                located = Some(address);
            }
            let command = GuestCommand {
                words: guest::start(),
                log: self.room.log(),
                rotation: Some(self.shop.logs),
            };
            match runtime.spawn(&self.name, MAIN, &command).await {
                Ok(()) | Err(Error::Running(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let address = if located.is_some() {
            located
        } else if known.is_some() || self.plan.command {
            runtime.address(&self.name).await?
        } else {
            Some(self.located(begun).await?)
        };
        if let (Some(stand_in), Some(address)) = (self.plan.late, address) {
            // For an image that starts by itself this is the first moment at which it can be told.
            guest::fill_in(&self.room.env(), stand_in, address)?;
        }
        let since = known.unwrap_or_else(Timestamp::now);
        if known.is_none() {
            // Of one that an earlier agent started, only the end was seen.
            if self.plan.source.is_some() {
                self.shop.pace.took(begun.elapsed());
            }
            if let Some(started) = self.started {
                self.shop.meters.booted(&self.plan.tally.pool, started.elapsed());
            }
            self.shop
                .ledger
                .advance(&self.vm, |entry| entry.running = Some(since))?;
            // It runs beside as many as it would not have before.
            if let Some(lost) = self.shop.board.lost_count()
                && self.others().await? >= lost.running
            {
                self.shop.board.set_lost_count(None);
            }
        }
        self.life.send_replace(Life::Running { since, address });
        Ok(address)
    }

    /// Waits until the guest has an address.
    async fn located(&self, begun: Instant) -> Result<Ipv4Addr, Trouble> {
        let mut said = false;
        loop {
            if let Some(address) = self.shop.runtime.address(&self.name).await? {
                return Ok(address);
            }
            self.not_up(begun, &mut said, "it has no address").await?;
        }
    }

    /// Waits until the guest runs programs. A program that nobody listens to would leave its complaint in the container's log.
    async fn answered(&self, begun: Instant) -> Result<(), Trouble> {
        let mut said = false;
        loop {
            let request = ExecRequest {
                words: vec!["true".to_owned()],
                ..ExecRequest::default()
            };
            let asked = async { collect(self.shop.runtime.exec(&self.name, request).await?, b"", 1024).await };
            let why = match tokio::time::timeout(ANSWER, asked).await {
                Ok(Ok(outcome)) if outcome.code == 0 => return Ok(()),
                Ok(Ok(outcome)) => format!("`true` ended with {}", outcome.code),
                Ok(Err(Error::NoAgent { why, .. })) => why,
                // It runs, as far as we know, who are told at once when it does not: macOS lost the lock by which `tart` knows it.
                Ok(Err(error @ Error::NotRunning(_))) => error.to_string(),
                Ok(Err(error)) => return Err(error.into()),
                Err(_) => format!("it took longer than {ANSWER:?}"),
            };
            let why = format!("the guest agent does not answer: {why}");
            self.not_up(begun, &mut said, &why).await?;
        }
    }

    /// Waits before a guest that is not up is asked again. Says once that it takes long, as what is said of a container is written
    /// to the API server each time it changes; and gives up in the end, as it has a place that others wait for.
    async fn not_up(&self, begun: Instant, said: &mut bool, why: &str) -> Result<(), Trouble> {
        let so_far = begun.elapsed();
        if so_far >= GIVE_UP {
            let minutes = GIVE_UP.as_secs() / 60;
            let message = format!("the guest did not come up within {minutes} minutes: {why}");
            return Err(Trouble::Silent(message));
        }
        if so_far >= WORRY && !std::mem::replace(said, true) {
            tracing::info!(vm = %self.vm, why, "a guest takes long to come up");
            self.held_up(format!(
                "the virtual machine runs, but its guest has not come up yet: {why}"
            ));
        }
        tokio::time::sleep(self.shop.pace.pause(so_far)).await;
        Ok(())
    }

    /// Waits for the end of the container's program; one without a program ends with its VM.
    async fn watch(&self, mut address: Option<Ipv4Addr>) -> Result<Step, Trouble> {
        let mut pause = LOOK;
        let begun = Instant::now();
        let witness = || Witness::new(self.room.left_log(), self.room.marks());
        let mut witness = (!self.plan.command).then(witness);
        loop {
            if let Some(Err(error)) = witness.as_mut().map(|witness| witness.look(Timestamp::now())) {
                tracing::debug!(vm = %self.vm, %error, "when a container said something could not be written down");
            }
            if self.plan.command {
                match self.shop.runtime.step(&self.name, MAIN).await? {
                    Some(Step::Running { .. }) => {}
                    Some(over) => return Ok(over),
                    None => return Ok(Step::Lost),
                }
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
                // What has run for a while is not looked at for its first word or its early end.
                if begun.elapsed() < YOUNG { LOOK } else { LOOK * 2 }
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
            let over = async {
                while let Some(Step::Running { .. }) = runtime.step(&self.name, MAIN).await? {
                    tokio::time::sleep(LOOK).await;
                }
                Ok(())
            };
            tokio::pin!(over);
            // The program may not have begun yet, and a guest that does not listen is ended all the same.
            let told = async { collect(runtime.exec(&self.name, request).await?, b"", 1024).await };
            tokio::select! {
                ended = &mut over => return ended,
                _ = told => {}
            }
            over.await
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
        let log = if self.plan.command {
            self.room.log()
        } else {
            self.room.left_log()
        };
        let told = ending::Told {
            command: self.plan.command,
            exit,
            step,
            code: self.room.exit_code(),
            policy: self.plan.message_policy.clone(),
            last_words: self.room.left(guest::LAST_WORDS, ending::LAST_WORDS),
            log: folder::tail(&log, ending::LAST_WORDS).unwrap_or_default(),
            now: Timestamp::now(),
        };
        told.ending()
    }
}
