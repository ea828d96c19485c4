//! Nothing to do now: saying why, and when to look again. And what people hear besides the status.

use std::time::Duration;

use kube::ResourceExt as _;
use kube::runtime::events::{Event, EventType};
use russet_api::conditions::{self, Condition, ConditionStatus, Severity, reasons, types};
use russet_api::machine::Phase;
use russet_controller::Outcome;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::act::node_ready;
use super::status::Draft;
use super::write::is_move_blocked;
use super::{Context, Error};
use crate::journal::Unreadable;
use crate::linux::decide::Machine;
use crate::linux::kind::{LinuxKind, Status};
use crate::linux::situation::{Pace, Situation};
use crate::machine::reconcile::NOW;
use crate::situation::{Report, Retry};
use crate::surroundings::key;
use crate::waiting::Waiting;

impl Context {
    fn outcome(&self, retry: Retry, situation: &Situation) -> Outcome {
        match retry {
            // What waits for somebody to change something may be told to look more often than seldom.
            Retry::After(delay)
                if !matches!(situation, Situation::Serving { .. } | Situation::Waiting(Waiting::Gone)) =>
            {
                Outcome::After(delay.min(self.parts.slowest_retry))
            }
            Retry::After(delay) => Outcome::After(delay),
            Retry::At(until) => Outcome::After(self.parts.clock.requeue_at(until) + Duration::from_millis(50)),
            Retry::OnEvent => Outcome::Done,
        }
    }

    pub(super) async fn rest<K: LinuxKind>(
        &self,
        object: &K,
        machine: &Machine,
        situation: &Situation,
    ) -> Result<Outcome, Error> {
        let report = situation.report(machine.standing.deleting);
        let retry = self.outcome(report.retry, situation);
        match situation {
            Situation::Waiting(Waiting::Gone) => {
                self.gone(object);
                return Ok(Outcome::Done);
            }
            // Whether Scaleway answers says nothing about a server that serves.
            Situation::Scaleway(error) if machine.progress.joined && !machine.standing.deleting => {
                warn!(%error, "the server could not be looked at; it is left as it is");
                return Ok(retry);
            }
            Situation::NoAdoptableServer { .. } => self.parts.zones.wait(&machine.zone, &key(object)),
            situation if situation.pace() == Pace::Quick => self.parts.zones.hurry(&machine.zone),
            _ => {}
        }
        if machine.journal.is_none() && is_move_blocked(object) && machine.progress.joined {
            self.unblock_move(object).await?;
            return Ok(NOW);
        }
        self.report(object, machine, report, situation).await?;
        Ok(retry)
    }

    /// Writes a report into the status, if it is news.
    async fn report<K: LinuxKind>(
        &self,
        object: &K,
        machine: &Machine,
        report: Report,
        situation: &Situation,
    ) -> Result<(), Error> {
        let mut draft = self.draft(object);
        if let Some(phase) = report.phase {
            draft.status.phase = Some(phase);
        }
        if !machine.standing.paused && conditions::find(&draft.status.conditions, types::PAUSED).is_some() {
            draft.condition(Condition::new(types::PAUSED, false, reasons::NOT_PAUSED));
        }
        let condition = report.condition;
        // What is beyond retrying is said for old readers too, and taken back when its cause is gone.
        if !machine.standing.deleting {
            let failure = situation.failure();
            draft.status.failure_reason = failure.map(ToOwned::to_owned);
            draft.status.failure_message = failure.and_then(|_| condition.message.clone());
        }
        let news = is_news(&draft, &condition);
        // A join that failed is worth more than that it is waited for again.
        let told = matches!(situation, Situation::WaitingForNode { .. })
            && draft.status.bootstrap_attempts.is_some_and(|attempts| attempts > 0);
        if !told {
            draft.condition(condition.clone());
        }
        let servers = matches!(
            situation,
            Situation::Serving { .. } | Situation::NodeMissing | Situation::Stopped
        );
        if machine.progress.joined && servers {
            draft.condition(node_ready(&machine.node));
            if !matches!(situation, Situation::Stopped) {
                draft.condition(Condition::new(types::PROVISIONED, true, reasons::READY));
            }
        }
        if matches!(
            situation,
            Situation::WaitingForNode { .. } | Situation::WaitingForPrivateAddress
        ) {
            draft.condition(Condition::new(types::PROVISIONED, true, reasons::READY));
        }
        if self.write_draft(object, draft).await?.is_some() && news {
            let reason = condition.reason.as_deref().unwrap_or_default();
            self.bad_news(object, reason, condition.message.clone().unwrap_or_default())
                .await;
        }
        Ok(())
    }

    /// A record of another release, or one that somebody edited: nothing is done, and people are told.
    pub(super) async fn rest_unreadable<K: LinuxKind>(
        &self,
        object: &K,
        unreadable: &Unreadable,
    ) -> Result<Outcome, Error> {
        let mut draft = self.draft(object);
        let condition = Condition::new(types::PROVISIONED, false, reasons::INTERNAL_ERROR)
            .message(unreadable.to_string())
            .severity(Severity::Error);
        draft.condition(condition);
        self.write_draft(object, draft).await?;
        Ok(Outcome::Done)
    }

    /// The object is gone for us.
    pub(super) fn gone<K: LinuxKind>(&self, object: &K) {
        let uid = object.uid().unwrap_or_default();
        let key = key(object);
        self.memory.forget(&uid);
        self.parts.pool.forget(&uid);
        self.parts.zones.sightings().forget(&uid, Instant::now());
        self.parts.registry.forget(&key);
        self.parts.metrics.forget(K::PRODUCT, &key);
    }

    /// Something went as it should.
    pub(super) async fn good_news<K: LinuxKind>(&self, object: &K, reason: &str, note: String) {
        self.tell(object, EventType::Normal, reason, note).await;
    }

    /// Something did not.
    pub(super) async fn bad_news<K: LinuxKind>(&self, object: &K, reason: &str, note: String) {
        self.tell(object, EventType::Warning, reason, note).await;
    }

    async fn tell<K: LinuxKind>(&self, object: &K, type_: EventType, reason: &str, note: String) {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            // The API server takes a thousand characters.
            note: Some(note.chars().take(1000).collect()),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        // An event that is lost is no reason to do anything twice.
        if let Err(error) = self.recorder.publish(&event, &object.object_ref(&())).await {
            debug!(%error, reason, "an event could not be written");
        }
    }

    /// Shows the phase to whoever scrapes.
    pub(super) fn show_phase<K: LinuxKind>(&self, object: &K, status: &Status) {
        let phase = status.phase.clone().unwrap_or(Phase::Pending);
        let failure = status.failure_reason.as_deref().unwrap_or_default();
        let fleet = object.fleet().unwrap_or_default();
        self.parts
            .metrics
            .phase(K::PRODUCT, &key(object), fleet, phase.as_str(), failure);
    }
}

/// Whether people should hear of a condition as an event: it is bad, and was not before.
fn is_news(draft: &Draft, condition: &Condition) -> bool {
    let bad = condition.status == ConditionStatus::False
        && matches!(condition.severity.as_deref(), Some("Warning" | "Error"));
    let before = conditions::find(&draft.status.conditions, &condition.type_);
    bad && before.is_none_or(|before| before.reason != condition.reason)
}
