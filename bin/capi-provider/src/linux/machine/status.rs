//! The status as a function of what is known. Nothing here reads or writes.

use jiff::Timestamp;
use russet_api::conditions::{self, Condition, ConditionStatus, Severity, reasons, types};
use russet_api::machine::{Intent, Phase, StepState};

use super::Context;
use crate::bootstrap::note_step;
use crate::linux::journal::{How, Journal, Work};
use crate::linux::kind::{LinuxKind, Status};
use crate::machine::ready;
use crate::situation::more_reasons;

/// A status that is being written. Starts from what is stored, so that what is not ours stays.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) status: Status,
    deleting: bool,
    generation: Option<i64>,
    pub(super) now: Timestamp,
}

impl Context {
    pub(super) fn draft<K: LinuxKind>(&self, object: &K) -> Draft {
        Draft {
            status: object.status(),
            deleting: object.meta().deletion_timestamp.is_some(),
            generation: object.meta().generation,
            now: self.parts.clock.now(),
        }
    }
}

impl Draft {
    pub(super) fn condition(&mut self, condition: Condition) {
        let condition = condition.observed_generation(self.generation);
        conditions::set(&mut self.status.conditions, condition, self.now);
    }

    pub(super) fn step(&mut self, name: &str, state: StepState, message: Option<String>) {
        note_step(&mut self.status.steps, name, state, message, self.now);
    }

    /// What is being done, and what to tell people about it.
    pub(super) fn journal(&mut self, journal: Option<&Journal>) {
        self.status.intent = journal.map(Intent::from);
        let Some(journal) = journal else { return };
        if let Some(attempt) = &journal.attempt {
            self.step(&attempt.step, StepState::Running, None);
        }
        if let Some(refusal) = &journal.refusal {
            self.step(&refusal.step, StepState::Failed, Some(refusal.message.clone()));
        }
        let (phase, type_, reason, message) = match &journal.work {
            Work::Release(release) if self.deleting => (
                Phase::Deleting,
                types::DELETING,
                more_reasons::HOST_BUSY,
                match release.how {
                    How::Delete => "the server is being given up, with its volumes and addresses",
                    How::Free(_) => "the server is being wiped and freed",
                },
            ),
            Work::Adopt(_) => (
                Phase::Adopting,
                types::PROVISIONED,
                more_reasons::CLAIMING,
                "an installed server is being taken",
            ),
            Work::Step if self.status.phase.is_none() || self.status.phase == Some(Phase::Pending) => (
                Phase::Provisioning,
                types::PROVISIONED,
                reasons::IN_PROGRESS,
                "the server is being made",
            ),
            Work::Step | Work::Release(_) => return,
        };
        self.status.phase = Some(phase);
        self.condition(
            Condition::new(type_, false, reason)
                .message(message)
                .severity(Severity::Info),
        );
    }

    /// The server is gone from this machine.
    pub(super) fn forget_server(&mut self) {
        let status = &mut self.status;
        status.server_id = None;
        status.addresses.clear();
        status.intent = None;
        status.steps.clear();
        status.private_network_id = None;
        status.private_network_vlan = None;
        status.kubelet_config_hash = None;
    }

    /// The finished status.
    pub(super) fn finish(mut self) -> Status {
        self.status.observed_generation = self.generation;
        let paused = conditions::is_true(&self.status.conditions, types::PAUSED);
        let needed = [types::PROVISIONED, types::BOOTSTRAPPED, types::NODE_READY];
        let ready = ready(&self.status.conditions, &needed, self.deleting);
        if !paused {
            self.status.ready = Some(ready.status == ConditionStatus::True);
            self.condition(ready);
        }
        self.status
    }
}
