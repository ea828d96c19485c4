//! Status, as a function of what is known. Nothing here reads or writes.

use jiff::Timestamp;
use russet_api::ScalewayAppleSiliconMachineStatus as Status;
use russet_api::conditions::{self, Condition, ConditionStatus, Severity, reasons, types};
use russet_api::machine::{Intent, Phase};

use super::Context;
use super::Mac;
use crate::journal::{Journal, Work};
use crate::situation::more_reasons;

/// A status that is being written. Starts from what is stored, so that what is not ours stays.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) status: Status,
    deleting: bool,
    generation: Option<i64>,
    now: Timestamp,
}

impl Context {
    pub(super) fn draft(&self, mac: &Mac) -> Draft {
        Draft::new(mac, self.parts.clock.now())
    }
}

impl Draft {
    pub(super) fn new(mac: &Mac, now: Timestamp) -> Self {
        Self {
            status: mac.status.clone().unwrap_or_default(),
            deleting: mac.metadata.deletion_timestamp.is_some(),
            generation: mac.metadata.generation,
            now,
        }
    }

    pub(super) fn condition(&mut self, condition: Condition) {
        let condition = condition.observed_generation(self.generation);
        conditions::set(&mut self.status.conditions, condition, self.now);
    }

    /// What is being done to a host, and what to tell people about it.
    pub(super) fn journal(&mut self, journal: Option<&Journal>) {
        self.status.intent = journal.map(Intent::from);
        let Some(journal) = journal else { return };
        if matches!(journal.work, Work::Release(_)) && !self.deleting {
            give_back(&mut self.status.given_back, journal.server.as_str());
        }
        let (phase, type_, reason, message) = match &journal.work {
            Work::Claim(_) => (
                Phase::Adopting,
                types::PROVISIONED,
                more_reasons::CLAIMING,
                // The words of `Situation::Settling`, so that waiting for it costs no further write.
                "a host is marked as taken; it is used when nobody else has marked it for a while",
            ),
            Work::Release(_) => (
                if self.deleting {
                    Phase::Deleting
                } else {
                    Phase::Adopting
                },
                if self.deleting {
                    types::DELETING
                } else {
                    types::PROVISIONED
                },
                more_reasons::WIPING,
                "the host is being wiped before it goes back to its pool; this takes 5 to 15 minutes",
            ),
            Work::Over | Work::Restore { .. } | Work::Reboot => return,
        };
        self.status.phase = Some(phase);
        self.condition(
            Condition::new(type_, false, reason)
                .message(message)
                .severity(Severity::Info),
        );
    }

    /// The host is gone from this machine, and with it everything that was known about it.
    pub(super) fn forget_host(&mut self) {
        let status = &mut self.status;
        status.server_id = None;
        status.addresses.clear();
        status.intent = None;
        status.bootstrap_attempts = None;
        status.bootstrap_reboot_issued = None;
        status.steps.clear();
        status.host_config_hash = None;
        status.tart_kubelet_binary_sha = None;
        status.phase = Some(Phase::Pending);
        self.condition(
            Condition::new(types::BOOTSTRAPPED, false, reasons::apple_silicon::HOST_RELEASED)
                .message("the host went back to its pool; another is taken")
                .severity(Severity::Warning),
        );
        self.condition(
            Condition::new(types::PROVISIONED, false, reasons::apple_silicon::HOST_RELEASED)
                .message("the host went back to its pool; another is taken")
                .severity(Severity::Warning),
        );
    }

    /// The finished status.
    pub(super) fn finish(mut self) -> Status {
        self.status.observed_generation = self.generation;
        let paused = conditions::is_true(&self.status.conditions, types::PAUSED);
        let needed = [types::PROVISIONED, types::BOOTSTRAPPED];
        let ready = ready(&self.status.conditions, &needed, self.deleting);
        if !paused {
            self.condition(ready);
        }
        self.status
    }
}

/// Hosts that are remembered: more than a pool has that are broken.
const GIVEN_BACK: usize = 16;

/// Notes that a host is given back, before anything is done to it.
fn give_back(given_back: &mut Vec<String>, server: &str) {
    given_back.retain(|id| id != server);
    given_back.push(server.to_owned());
    let forgotten = given_back.len().saturating_sub(GIVEN_BACK);
    given_back.drain(..forgotten);
}

/// Whether a machine does what it is for, all life long: whether all of these hold. Core mirrors this to the Machine.
pub(crate) fn ready(all: &[Condition], needed: &[&str], deleting: bool) -> Condition {
    let of = |type_: &str| conditions::find(all, type_);
    if deleting {
        let message = of(types::DELETING).and_then(|condition| condition.message.clone());
        return Condition::new(types::READY, false, reasons::DELETING)
            .message(message.unwrap_or_default())
            .severity(Severity::Info);
    }
    for type_ in needed {
        match of(type_) {
            Some(condition) if condition.status == ConditionStatus::True => {}
            Some(condition) => {
                return Condition {
                    type_: types::READY.to_owned(),
                    last_transition_time: None,
                    ..condition.clone()
                };
            }
            None => {
                return Condition::new(types::READY, false, reasons::NOT_READY)
                    .message("nothing has been done yet")
                    .severity(Severity::Info);
            }
        }
    }
    Condition::new(types::READY, true, reasons::READY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac() -> Mac {
        let mut mac = Mac::new("m", russet_api::ScalewayAppleSiliconMachineSpec::default());
        mac.metadata.generation = Some(3);
        mac
    }

    fn ready_of(status: &Status) -> (ConditionStatus, &str) {
        let condition = conditions::find(&status.conditions, types::READY).unwrap();
        (condition.status, condition.reason.as_deref().unwrap())
    }

    #[test]
    fn ready_says_what_the_first_thing_that_is_wrong_says() {
        let mut draft = Draft::new(&mac(), Timestamp::UNIX_EPOCH);
        draft.condition(Condition::new(types::PROVISIONED, false, "NoAvailableHost").severity(Severity::Warning));
        let status = draft.finish();
        assert_eq!(ready_of(&status), (ConditionStatus::False, "NoAvailableHost"));
        assert_eq!(status.observed_generation, Some(3));

        let mut mac = mac();
        mac.status = Some(status);
        let mut draft = Draft::new(&mac, Timestamp::UNIX_EPOCH);
        draft.condition(Condition::new(types::PROVISIONED, true, "Ready"));
        draft.condition(Condition::new(types::BOOTSTRAPPED, false, "BootstrapFailed"));
        assert_eq!(ready_of(&draft.finish()), (ConditionStatus::False, "BootstrapFailed"));
        let mut draft = Draft::new(&mac, Timestamp::UNIX_EPOCH);
        draft.condition(Condition::new(types::PROVISIONED, true, "Ready"));
        draft.condition(Condition::new(types::BOOTSTRAPPED, true, "Ready"));
        assert_eq!(ready_of(&draft.finish()), (ConditionStatus::True, "Ready"));
    }

    /// What is written before the first call about a host that is given back is all that a restarted provider knows of it.
    #[test]
    fn a_host_is_noted_as_given_back_with_the_intent_to_do_so_and_stays_noted() {
        let release = |server: &str| {
            let work = Work::Release(crate::journal::Release {
                pool: "tuist-pool-".parse().unwrap(),
                from: "m".to_owned(),
                wipe: crate::journal::Wipe::Needed,
                image: None,
            });
            Journal::new(&server.parse().unwrap(), "id-1", work, Timestamp::UNIX_EPOCH)
        };
        let mut mac = mac();
        let write = |mac: &mut Mac, change: &dyn Fn(&mut Draft)| {
            let mut draft = Draft::new(mac, Timestamp::UNIX_EPOCH);
            change(&mut draft);
            let status = draft.finish();
            mac.status = Some(status.clone());
            status.given_back
        };
        assert_eq!(write(&mut mac, &|draft| draft.journal(Some(&release("s1")))), ["s1"]);
        assert_eq!(
            write(&mut mac, &|draft| draft.journal(Some(&release("s1")))),
            ["s1"],
            "once"
        );
        assert_eq!(write(&mut mac, &Draft::forget_host), ["s1"]);
        assert_eq!(
            write(&mut mac, &|draft| draft.journal(Some(&release("s2")))),
            ["s1", "s2"]
        );
        assert_eq!(
            write(&mut mac, &|draft| draft.journal(Some(&release("s1")))),
            ["s2", "s1"]
        );
        for number in 0..40 {
            write(&mut mac, &|draft| draft.journal(Some(&release(&format!("t{number}")))));
        }
        assert_eq!(write(&mut mac, &|_| {}).len(), GIVEN_BACK);
        mac.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            Timestamp::UNIX_EPOCH,
        ));
        let last = write(&mut mac, &|draft| draft.journal(Some(&release("gone"))));
        assert!(
            !last.contains(&"gone".to_owned()),
            "a deletion says nothing about the host"
        );
    }

    #[test]
    fn the_same_facts_make_the_same_status() {
        let mut object = mac();
        for _ in 0..2 {
            let mut draft = Draft::new(&object, Timestamp::now());
            draft.condition(Condition::new(types::PROVISIONED, true, "Ready"));
            let status = draft.finish();
            if object.status.is_some() {
                assert_eq!(
                    object.status.as_ref(),
                    Some(&status),
                    "a serving machine costs no write"
                );
            }
            object.status = Some(status);
        }
    }
}
