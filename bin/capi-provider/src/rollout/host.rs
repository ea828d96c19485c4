//! One host, as far as its configuration is concerned.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use russet_api::apple_silicon_machine::ScalewayAppleSiliconMachineStatus;
use russet_api::conditions::{self, reasons, types};

use super::policy::Policy;

/// Pods of a host that its update would disturb.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// Namespace and name of each; none: they could not be listed, and there may be some.
    pub pods: Vec<String>,
    /// Since when the host is waited for.
    pub since: Timestamp,
}

/// A host and what is known about its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, each read from another place"
)]
pub struct Host {
    /// Name of its machine, unique in the fleet.
    pub name: String,
    /// What it should be set up with.
    pub desired: String,
    /// What it was last set up with: `status.hostConfigHash`.
    pub current: Option<String>,
    /// What it last failed to be set up with: `status.failedHostConfigHash`.
    pub failed: Option<String>,
    /// How often that failed: `status.tartKubeletUpdateAttempts`.
    pub attempts: u32,
    /// When it last failed: `status.lastUpdateFailureTime`.
    pub last_failure: Option<Timestamp>,
    /// It gave up: `status.failureReason` is `TartKubeletUpdateExceededRetries`.
    pub gave_up: bool,
    /// Since when it is up to date, or not: the last transition of the condition `UpToDate`.
    pub changed: Option<Timestamp>,
    /// It was set up once; before that there is nothing to update.
    pub set_up: bool,
    /// Its Node serves.
    pub ready: bool,
    /// Since when its Node is there and does not, if that is known.
    pub lost_since: Option<Timestamp>,
    /// An update of it runs right now.
    pub updating: bool,
    /// Its machine is being deleted.
    pub deleting: bool,
    /// Its machine, or the Cluster, is paused.
    pub paused: bool,
    /// What runs on it, if anything does.
    pub work: Option<Work>,
}

/// What the machine's status does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, each read from another place"
)]
pub struct Facts {
    /// Its Node serves.
    pub ready: bool,
    /// Since when its Node is there and does not, if that is known.
    pub lost_since: Option<Timestamp>,
    /// An update of it runs right now.
    pub updating: bool,
    /// Its machine is being deleted.
    pub deleting: bool,
    /// Its machine, or the Cluster, is paused.
    pub paused: bool,
    /// What runs on it, if anything does.
    pub work: Option<Work>,
}

impl Host {
    /// A host as its machine's status and the objects around it show it.
    pub fn of(name: &str, desired: &str, status: &ScalewayAppleSiliconMachineStatus, facts: Facts) -> Self {
        let up_to_date = conditions::find(&status.conditions, types::UP_TO_DATE);
        Self {
            name: name.to_owned(),
            desired: desired.to_owned(),
            current: filled(status.host_config_hash.as_ref()),
            failed: filled(status.failed_host_config_hash.as_ref()),
            attempts: status
                .tart_kubelet_update_attempts
                .and_then(|attempts| attempts.try_into().ok())
                .unwrap_or(0),
            last_failure: status.last_update_failure_time.as_ref().map(|time| time.0),
            gave_up: status.failure_reason.as_deref() == Some(reasons::apple_silicon::UPDATE_EXCEEDED_RETRIES),
            changed: up_to_date
                .and_then(|condition| condition.last_transition_time.as_ref())
                .map(|time| time.0),
            set_up: conditions::is_true(&status.conditions, types::BOOTSTRAPPED),
            ready: facts.ready,
            lost_since: facts.lost_since,
            updating: facts.updating,
            deleting: facts.deleting,
            paused: facts.paused,
            work: facts.work,
        }
    }

    /// Whether it should be set up with something else than it is.
    pub fn drifted(&self) -> bool {
        self.set_up && self.current.as_ref() != Some(&self.desired)
    }

    /// Whether the configuration it should have failed on it, and did not succeed since.
    pub fn is_failing(&self) -> bool {
        self.failed.as_ref() == Some(&self.desired)
    }

    /// Whether nobody has heard of its Node for so long that an update can take nothing from it. A Node that is not there at all says
    /// nothing: whoever begins to look has not seen any yet.
    pub fn is_lost(&self, policy: &Policy, now: Timestamp) -> bool {
        let lost = self.lost_since.filter(|_| !self.ready);
        lost.is_some_and(|since| later(since, policy.lost_after) <= now)
    }

    /// How often that failed, as far as it counts: failures with another configuration do not, nor do those after which
    /// somebody cleared `failureReason`.
    pub fn tries(&self, policy: &Policy) -> u32 {
        let exhausted = policy.max_attempts > 0 && self.attempts >= policy.max_attempts;
        if self.is_failing() && (self.gave_up || !exhausted) {
            self.attempts
        } else {
            0
        }
    }

    /// Until when it has given up on the configuration it should have; none if it has not, or no longer.
    pub fn given_up_until(&self, policy: &Policy, now: Timestamp) -> Option<Timestamp> {
        let gave_up = self.gave_up && self.is_failing();
        let until = later(self.failed_at(now).filter(|_| gave_up)?, policy.terminal_retry_after);
        (until > now).then_some(until)
    }

    /// When the next try is due after a failure; none if it is now.
    pub(super) fn retry_at(&self, policy: &Policy, now: Timestamp) -> Option<Timestamp> {
        let failed = self
            .failed_at(now)
            .filter(|_| self.tries(policy) > 0 && !self.gave_up)?;
        let at = later(failed, policy.retry_delay);
        (at > now).then_some(at)
    }

    /// When it last failed. A time that has not come yet is that of another clock; nobody waits longer for it.
    fn failed_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.last_failure.map(|failure| failure.min(now))
    }
}

/// An empty text in a status is no hash.
fn filled(text: Option<&String>) -> Option<String> {
    text.filter(|text| !text.is_empty()).cloned()
}

/// A time plus a while, stopping at the end of time.
pub(super) fn later(at: Timestamp, by: Duration) -> Timestamp {
    SignedDuration::try_from(by)
        .ok()
        .and_then(|by| at.checked_add(by).ok())
        .unwrap_or(Timestamp::MAX)
}
