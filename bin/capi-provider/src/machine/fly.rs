//! One call to Scaleway, as [`crate::flight`] asks for it.

use jiff::Timestamp;
use russet_api::events::apple_silicon as events;
use russet_api::values::ServerId;
use russet_controller::Outcome;
use tracing::{info, warn};

use super::reconcile::NOW;
use super::write::is_move_blocked;
use super::{Context, Error, Mac};
use crate::clock::left;
use crate::decide::Machine;
use crate::flight::{Answer, Crew, HostCall, Plan, fly};
use crate::host::Sight;
use crate::journal::{Journal, Step, Work, later};

impl Context {
    pub(super) async fn fly(&self, mac: &Mac, machine: &Machine, plan: Plan) -> Result<Outcome, Error> {
        if !is_move_blocked(mac) {
            self.block_move(mac).await?;
            return Ok(NOW);
        }
        let begins = machine.journal.is_none();
        let (step, work) = (plan.attempt.step, plan.journal.work.clone());
        let rules = &self.parts.rules;
        let mut pilot = Pilot {
            context: self,
            machine,
            live: mac.clone(),
            send_by: later(later(plan.attempt.at, rules.send_within), self.parts.call_timeout),
        };
        fly(plan, rules, self.parts.clock.as_ref(), &mut pilot).await?;
        self.tell_step(mac, machine, step, &work, begins).await;
        Ok(NOW)
    }

    /// Writes what became of an attempt, unless another attempt is stored by now.
    async fn settle(&self, live: &Mac, attempt: &str, journal: &Journal) -> Result<(), Error> {
        let mut live = live.clone();
        loop {
            let stored = live.status.as_ref().and_then(|status| status.intent.as_ref());
            let stored = stored.and_then(|intent| Journal::try_from(intent).ok());
            if stored
                .and_then(|journal| journal.attempt)
                .is_none_or(|stored| stored.id != attempt)
            {
                return Ok(());
            }
            let mut draft = self.draft(&live);
            draft.journal(Some(journal));
            match self.write_draft(&live, draft).await {
                Err(error) if error.is_conflict() => match self.live(&live).await? {
                    Some(newer) => live = newer,
                    None => return Ok(()),
                },
                other => return other.map(drop),
            }
        }
    }

    async fn tell_step(&self, mac: &Mac, machine: &Machine, step: Step, work: &Work, begins: bool) {
        match (work, step) {
            (Work::Release(_), Step::Mark) if begins && !machine.standing.deleting => {
                let note = format!(
                    "setting up the host failed {} times; it goes back to its pool",
                    machine.setup.attempts
                );
                self.bad_news(mac, events::BOOTSTRAP_EXHAUSTED, note).await;
            }
            (Work::Release(_), Step::Mark) if begins => {
                let note = "the host goes back to its pool; it is wiped first".to_owned();
                self.good_news(mac, events::RELEASING, note).await;
            }
            (Work::Reboot, _) => {
                let note = format!(
                    "setting up the host failed {} times; it is rebooted once",
                    machine.setup.attempts
                );
                self.bad_news(mac, events::REBOOTING_FOR_RECOVERY, note).await;
            }
            _ => {}
        }
    }
}

/// Does for one machine what a flight asks for.
struct Pilot<'a> {
    context: &'a Context,
    machine: &'a Machine,
    live: Mac,
    send_by: Timestamp,
}

impl Crew<Plan> for Pilot<'_> {
    type Error = Error;

    async fn write(&mut self, journal: &Journal) -> Result<bool, Error> {
        let mut draft = self.context.draft(&self.live);
        draft.journal(Some(journal));
        // The attempt has an id of its own, so there is always something to write.
        let Some(written) = self.context.write_draft(&self.live, draft).await? else {
            return Ok(false);
        };
        self.live = written;
        Ok(true)
    }

    async fn look(&mut self, server: &ServerId) -> Option<Sight> {
        let sight = self.context.see(self.machine, server).await;
        if let Err(error) = &sight {
            warn!(%server, %error, "the host could not be read right before a call; nothing is sent");
        }
        sight.ok().map(|(sight, _)| sight)
    }

    async fn send(&mut self, server: &ServerId, call: &HostCall) -> Answer {
        let parts = &self.context.parts;
        let within = left(self.send_by, parts.clock.now());
        let answer = parts.inventories.send(&self.machine.zone, server, call, within).await;
        info!(%server, ?call, ?answer, "called Scaleway");
        answer
    }

    async fn settle(&mut self, attempt: &str, journal: &Journal) -> Result<(), Error> {
        self.context.settle(&self.live, attempt, journal).await
    }
}
