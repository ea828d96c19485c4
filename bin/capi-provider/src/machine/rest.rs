//! Nothing to do now: saying why, and when to look again.

use std::time::Duration;

use russet_api::conditions::{self, Condition, ConditionStatus, Severity, reasons, types};
use russet_api::machine::Phase;
use russet_controller::Outcome;
use tracing::warn;

use super::status::Draft;
use super::update::Kept;
use super::write::is_move_blocked;
use super::{Context, Error, Mac};
use crate::decide::Machine;
use crate::journal::Unreadable;
use crate::situation::{Report, Retry, Situation};
use crate::surroundings::key;
use crate::waiting::Waiting;

impl Context {
    fn outcome(&self, retry: Retry) -> Outcome {
        match retry {
            Retry::After(delay) => Outcome::After(delay),
            Retry::At(until) => Outcome::After(self.parts.clock.requeue_at(until) + Duration::from_millis(50)),
            Retry::OnEvent => Outcome::Done,
        }
    }

    pub(super) async fn rest(&self, mac: &Mac, machine: &Machine, situation: &Situation) -> Result<Outcome, Error> {
        // A list that could not be read lately says nothing about what is free now; why it could not be read does.
        let unread = match situation {
            Situation::NoAvailableHost { .. } => self.parts.inventories.ask(&machine.zone).read().error().cloned(),
            _ => None,
        };
        if let Some(error) = unread {
            self.parts.inventories.wait(&machine.zone, &key(mac));
            let report = Situation::Scaleway(Box::new(error)).report(machine.standing.deleting);
            let retry = self.outcome(report.retry);
            self.report(mac, machine, report).await?;
            return Ok(retry);
        }
        let report = situation.report(machine.standing.deleting);
        let mut retry = self.outcome(report.retry);
        match situation {
            Situation::Waiting(Waiting::Gone) => {
                self.gone(mac);
                return Ok(Outcome::Done);
            }
            // Whether Scaleway answers says nothing about a host that serves.
            Situation::Scaleway(error) if machine.setup.bootstrapped && !machine.standing.deleting => {
                warn!(%error, "the host could not be looked at; it is left as it is");
                return Ok(retry);
            }
            Situation::MissingPassword => {
                if let Some(server) = &machine.server
                    && self.secrets.has_password(mac, server).await?
                {
                    self.note_credentials(mac).await?;
                    return Ok(super::reconcile::NOW);
                }
            }
            Situation::NoAvailableHost { .. } => self.parts.inventories.wait(&machine.zone, &key(mac)),
            _ => {}
        }
        if machine.journal.is_none() && is_move_blocked(mac) && !machine.standing.paused {
            self.unblock_move(mac).await?;
            return Ok(super::reconcile::NOW);
        }
        if matches!(situation, Situation::Serving) {
            let trouble = self.keep_egress(mac, machine).await;
            match self.keep_up_to_date(mac, machine).await? {
                Kept::Done(outcome) => return Ok(outcome),
                Kept::Same(again) => {
                    let soonest = again.into_iter().chain(trouble).min();
                    retry = soonest.map_or(retry, Outcome::After);
                }
            }
        }
        self.report(mac, machine, report).await?;
        Ok(retry)
    }

    /// Writes a report into the status, if it is news.
    pub(super) async fn report(&self, mac: &Mac, machine: &Machine, report: Report) -> Result<(), Error> {
        let mut draft = self.draft(mac);
        // A phase that says that somebody has to come stays until they did.
        if let Some(phase) = report.phase
            && draft.status.phase != Some(Phase::Failed)
        {
            draft.status.phase = Some(phase);
        }
        paused(&mut draft, machine.standing.paused);
        let condition = report.condition;
        let news = is_news(&draft, &condition);
        draft.condition(condition.clone());
        if machine.setup.bootstrapped && !machine.standing.paused {
            draft.condition(self.node_ready(mac));
        }
        if self.write_draft(mac, draft).await?.is_some() && news {
            self.bad_news(
                mac,
                condition.reason.as_deref().unwrap_or_default(),
                condition.message.clone().unwrap_or_default(),
            )
            .await;
        }
        Ok(())
    }

    /// A record of another release, or one that somebody edited: nothing is done, and people are told.
    pub(super) async fn rest_unreadable(&self, mac: &Mac, unreadable: &Unreadable) -> Result<Outcome, Error> {
        let mut draft = self.draft(mac);
        let condition = Condition::new(types::PROVISIONED, false, reasons::INTERNAL_ERROR)
            .message(unreadable.to_string())
            .severity(Severity::Error);
        draft.condition(condition);
        self.write_draft(mac, draft).await?;
        Ok(Outcome::Done)
    }

    /// The object is gone for us.
    pub(super) fn gone(&self, mac: &Mac) {
        let uid = mac.metadata.uid.as_deref().unwrap_or_default();
        let key = key(mac);
        self.memory.forget(uid);
        self.parts.pool.forget(uid);
        self.parts.registry.forget(&key);
        self.parts.metrics.retain(|other| *other != key);
    }

    /// Sees to the egress Service; says when to try again if that failed.
    async fn keep_egress(&self, mac: &Mac, machine: &Machine) -> Option<Duration> {
        let egress = self.parts.services.egress.as_ref()?;
        let holder = &machine.holder;
        if self.memory.has_egress(&holder.uid) {
            return None;
        }
        match egress.ensure(holder, mac.spec.fleet_name.as_deref()).await {
            Ok(()) => {
                self.memory.egress_ensured(&holder.uid);
                None
            }
            Err(problem) => {
                let reason = russet_api::events::apple_silicon::EGRESS_SERVICE_FAILED;
                self.bad_news(mac, reason, problem.message).await;
                Some(problem.retry)
            }
        }
    }

    /// Whether the Node of the host is there and well.
    pub(super) fn node_ready(&self, mac: &Mac) -> Condition {
        let name = key(mac).name;
        let no = |reason: &str, message: &str| {
            Condition::new(types::NODE_READY, false, reason)
                .message(message)
                .severity(Severity::Warning)
        };
        match self.surroundings.nodes.get(None, &name) {
            None => no(
                reasons::apple_silicon::NODE_MISSING,
                "there is no Node of this name; look at the log of tart-kubelet on the host, or delete the Machine to have another host take its place",
            ),
            Some(node) if node.is_ready() => Condition::new(types::NODE_READY, true, reasons::READY),
            Some(_) => no(
                reasons::NOT_READY,
                "the Node is not Ready; look at its conditions and at the log of tart-kubelet on the host",
            ),
        }
    }
}

fn paused(draft: &mut Draft, paused: bool) {
    if !paused && conditions::find(&draft.status.conditions, types::PAUSED).is_some() {
        draft.condition(Condition::new(types::PAUSED, false, reasons::NOT_PAUSED));
    }
}

/// Whether people should hear of a condition as an event: it is bad, and was not before.
fn is_news(draft: &Draft, condition: &Condition) -> bool {
    let bad = condition.status == ConditionStatus::False
        && matches!(condition.severity.as_deref(), Some("Warning" | "Error"));
    let before = conditions::find(&draft.status.conditions, &condition.type_);
    bad && before.is_none_or(|before| before.reason != condition.reason)
}
