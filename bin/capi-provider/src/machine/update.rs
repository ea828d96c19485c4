//! A host that serves: bringing it up to date when its turn comes, and having it join again when its Node is gone.
//!
//! Whose turn it is follows from [`crate::rollout`]. Nothing here disturbs a host that has what it should have.

use std::sync::PoisonError;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt as _;
use russet_api::annotations::cluster_api::PAUSED;
use russet_api::conditions::{self, Condition, Severity, reasons, types};
use russet_api::machine::{Phase, Step, StepState};
use russet_controller::Outcome;
use russet_scaleway::apple_silicon::Password;
use tracing::info;

use super::look::Sights;
use super::reconcile::NOW;
use super::status::Draft;
use super::{Context, Error, Mac};
use crate::bootstrap::{Done, Kind, LOGIN_STEP, Seat, Trouble};
use crate::capi;
use crate::decide::Machine;
use crate::journal::later;
use crate::rollout::{self, Facts, Host, Marks, Plan, Verdict, Wait};
use crate::surroundings::key;

/// Whoever waits for its turn looks again this often; ends of updates wake it earlier.
const LOOK_AGAIN: Duration = Duration::from_mins(1);

/// How a look at a host that serves ended.
pub(super) enum Kept {
    /// Something was done; the rest comes next time.
    Done(Outcome),
    /// Nothing was, and this is when to look again; none: when something happens.
    Same(Option<Duration>),
}

/// One word for the condition `UpToDate`.
fn reason(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::UpToDate => reasons::READY,
        Verdict::Update { .. } | Verdict::Wait(Wait::Updating) => reasons::IN_PROGRESS,
        Verdict::Wait(Wait::GaveUp { .. }) => reasons::apple_silicon::UPDATE_EXCEEDED_RETRIES,
        Verdict::Wait(Wait::Retry { .. }) => "UpdateFailed",
        Verdict::Wait(Wait::Failing { .. }) => "RolloutPaused",
        Verdict::Wait(_) => "UpdatePending",
    }
}

/// What a condition says of a host: how the rollout stands, and what of the set-up that is over had to wait, or waits for somebody.
pub(super) fn up_to_date(verdict: &Verdict, steps: &[Step]) -> Condition {
    if *verdict == Verdict::UpToDate
        && let Some((step, why)) = held(steps).next()
    {
        return Condition::new(types::UP_TO_DATE, false, "StepHeld")
            .message(format!("step {step}: {why}"))
            .severity(Severity::Warning);
    }
    let severity = match verdict {
        Verdict::Wait(Wait::GaveUp { .. }) => Severity::Error,
        Verdict::Wait(Wait::Retry { .. } | Wait::Failing { .. }) => Severity::Warning,
        _ => Severity::Info,
    };
    let condition = Condition::new(types::UP_TO_DATE, *verdict == Verdict::UpToDate, reason(verdict));
    if *verdict == Verdict::UpToDate {
        return condition;
    }
    let mut message = verdict.to_string();
    // That it is tried again is no news without what went wrong.
    if let Verdict::Wait(Wait::Retry { .. } | Wait::GaveUp { .. }) = verdict
        && let Some((step, why)) = in_state(steps, StepState::Failed).next()
    {
        message = format!("{message}. Step {step}: {why}");
    }
    condition.message(message).severity(severity)
}

/// Puts what a rollout knows of a host into its status. A host that gave up is shown as failed until it did not.
fn put(draft: &mut Draft, marks: &Marks, message: &str) {
    let was = draft.status.failure_reason.clone();
    marks.write(&mut draft.status, message);
    if marks.gave_up {
        draft.status.phase = Some(Phase::Failed);
    } else if was.is_some() && draft.status.failure_reason.is_none() {
        draft.status.phase = Some(Phase::Ready);
    }
}

/// Steps that had to wait, and why.
fn held(steps: &[Step]) -> impl Iterator<Item = (&str, &str)> {
    in_state(steps, StepState::Pending)
}

/// Steps that are in a state and say why.
fn in_state(steps: &[Step], state: StepState) -> impl Iterator<Item = (&str, &str)> {
    let found = steps.iter().filter(move |step| step.state == state);
    found.filter_map(|step| Some((step.name.as_str(), step.message.as_deref()?)))
}

/// Whether steps of a set-up that is over had to wait.
pub(super) fn waits(mac: &Mac) -> bool {
    let steps = mac.status.as_ref().map(|status| status.steps.as_slice());
    held(steps.unwrap_or_default()).next().is_some()
}

/// Whether a machine is of the same fleet.
fn is_mate(mac: &Mac, other: &Mac) -> bool {
    mac.namespace() == other.namespace() && mac.spec.fleet_name == other.spec.fleet_name
}

impl Context {
    /// Sees to the configuration of a host that serves, and to its Node.
    pub(super) async fn keep_up_to_date(&self, mac: &Mac, machine: &Machine) -> Result<Kept, Error> {
        let Some(server) = &machine.server else {
            return Ok(Kept::Same(None));
        };
        let uid = machine.holder.uid.as_str();
        let seat = self.parts.pool.look(uid, server);
        if let Seat::Ended(steps, result) = seat {
            let outcome = match &*result {
                Ok(done) if done.looked => self.looked(mac, machine, steps).await?,
                Ok(done) => self.updated(mac, machine, steps, done).await?,
                Err(trouble) => self.not_updated(mac, machine, steps, trouble).await?,
            };
            self.wake_fleet(mac);
            return Ok(Kept::Done(outcome));
        }
        if let Seat::Running(_) = seat {
            return Ok(Kept::Same(Some(LOOK_AGAIN)));
        }
        // Without it nobody can say what the host should have, nor could it join.
        if self.learn().await.is_err() {
            return Ok(Kept::Same(Some(LOOK_AGAIN)));
        }
        if matches!(seat, Seat::Free) && (self.rejoin(mac, machine) || self.finish(mac, machine)) {
            return Ok(Kept::Same(Some(LOOK_AGAIN)));
        }
        let now = self.parts.clock.now();
        let mut me = self.rollout_host(mac);
        if me.drifted() {
            // Pods are looked for only on a host that would be updated without them.
            me.work = None;
            if self.plan(mac, &me, now).is_update(&me.name) {
                me.work = self.look_for_work(mac, now).await;
            }
        } else {
            self.memory.note_work(uid, None, now);
        }
        let marks = rollout::marks(&me, &self.parts.rollout, now);
        let (verdict, wake) = if me.drifted() {
            self.take_turn(mac, machine, &me, matches!(seat, Seat::Free), now)
        } else {
            (Verdict::UpToDate, None)
        };
        let mut draft = self.draft(mac);
        let message = draft.status.failure_message.clone().unwrap_or_default();
        put(&mut draft, &marks, &message);
        let condition = up_to_date(&verdict, &draft.status.steps);
        draft.condition(condition);
        if self.write_draft(mac, draft).await?.is_some() {
            return Ok(Kept::Done(NOW));
        }
        if verdict != Verdict::UpToDate {
            let left = wake.and_then(|wake| Duration::try_from(wake.duration_since(now)).ok());
            let rest = if let Seat::Resting(rest) = seat {
                rest
            } else {
                LOOK_AGAIN
            };
            let again = left.unwrap_or(LOOK_AGAIN).max(Duration::from_millis(50)).min(rest);
            return Ok(Kept::Same(Some(again)));
        }
        if matches!(seat, Seat::Free) && self.watch(mac, machine) {
            return Ok(Kept::Same(Some(LOOK_AGAIN)));
        }
        let rules = &self.parts.rules;
        let missing = self.surroundings.nodes.get(None, &mac.name_any()).is_none();
        let held = waits(mac).then_some(rules.held_again);
        let watched = self.is_watched(mac).then_some(rules.look_every.min(LOOK_AGAIN));
        Ok(Kept::Same(missing.then_some(rules.rejoin_after).or(held).or(watched)))
    }

    /// Makes the plan for the fleet and begins the update of this host if it says so; both at once, so that the next plan sees it.
    fn take_turn(
        &self,
        mac: &Mac,
        machine: &Machine,
        me: &Host,
        free: bool,
        now: Timestamp,
    ) -> (Verdict, Option<Timestamp>) {
        let _planning = self.planning.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = self.plan(mac, me, now);
        let verdict = plan.verdict(&me.name).cloned().unwrap_or(Verdict::Wait(Wait::NotSetUp));
        if matches!(verdict, Verdict::Update { .. }) && free {
            info!(hash = me.desired, "{verdict}");
            self.begin_update(mac, machine);
        }
        if matches!(verdict, Verdict::Wait(Wait::Busy { .. })) {
            // Others were told that it was this one's turn.
            self.wake(|other| is_mate(mac, other) && plan.is_update(&other.name_any()));
        }
        (verdict, plan.wake)
    }

    /// The plan for the fleet of this host.
    fn plan(&self, mac: &Mac, me: &Host, now: Timestamp) -> Plan {
        let mut hosts: Vec<Host> = self
            .fleet
            .filter(|other| is_mate(mac, other))
            .iter()
            .map(|other| self.rollout_host(other))
            .collect();
        // The cache may lag behind what was just read of this one.
        hosts.retain(|host| host.name != me.name);
        hosts.push(me.clone());
        rollout::plan(&hosts, &self.parts.rollout, now)
    }

    fn wake_fleet(&self, mac: &Mac) {
        self.wake(|other| is_mate(mac, other));
    }

    fn wake(&self, which: impl Fn(&Mac) -> bool) {
        for other in self.fleet.filter(which) {
            self.parts.registry.wake(&key(&other));
        }
    }

    /// A host as a plan needs it.
    pub(super) fn rollout_host(&self, mac: &Mac) -> Host {
        let status = mac.status.clone().unwrap_or_default();
        let uid = mac.uid().unwrap_or_default();
        let cluster = self.surroundings.of(mac).cluster;
        let node = self.surroundings.nodes.get(None, &mac.name_any());
        let facts = Facts {
            ready: node.as_ref().is_some_and(capi::Node::is_ready),
            lost_since: node.as_ref().and_then(capi::Node::lost_since),
            updating: self.parts.pool.is_busy(&uid),
            deleting: mac.metadata.deletion_timestamp.is_some(),
            paused: mac.annotations().contains_key(PAUSED) || cluster.as_ref().is_some_and(capi::Cluster::is_paused),
            work: self.memory.work(&uid),
        };
        let desired = self.parts.bootstrapper.desired(&self.facts(mac));
        Host::of(&mac.name_any(), desired.as_str(), &status, facts)
    }

    /// The host of a machine as the shared poll shows it.
    pub(super) fn known_host(&self, machine: &Machine) -> Option<crate::host::Host> {
        let zone = self.parts.inventories.ask(&machine.zone);
        let zone = zone.read();
        zone.inventory()?.get(machine.server.as_ref()?).cloned()
    }

    /// Begins; whether the host is known well enough for that.
    fn begin_update(&self, mac: &Mac, machine: &Machine) -> bool {
        let Some(host) = self.known_host(machine) else {
            return false;
        };
        let steps = mac.status.clone().unwrap_or_default().steps;
        let work = self.work(mac, machine, &host, Kind::Update);
        self.memory.note_work(&machine.holder.uid, None, self.parts.clock.now());
        self.parts
            .pool
            .start(&machine.holder.uid, &key(mac), &host.id, steps, work);
        true
    }

    /// Has a host whose Node is gone for a while join again, without setting it up from nothing: what runs on it goes on.
    fn rejoin(&self, mac: &Mac, machine: &Machine) -> bool {
        if self.surroundings.nodes.get(None, &mac.name_any()).is_some() {
            return false;
        }
        let status = mac.status.clone().unwrap_or_default();
        let missing = conditions::find(&status.conditions, types::NODE_READY)
            .filter(|condition| condition.reason.as_deref() == Some(reasons::apple_silicon::NODE_MISSING));
        let patience = self.parts.rules.rejoin_after;
        let since = missing.and_then(|condition| condition.last_transition_time.as_ref());
        if since.is_none_or(|since| self.parts.clock.now() < later(since.0, patience)) {
            return false;
        }
        if !self.memory.may_rejoin(&machine.holder.uid, patience) {
            return false;
        }
        info!("the Node is gone; the host is asked to join again");
        self.begin_update(mac, machine)
    }

    /// Goes on with steps that had to wait, such as a program that is not exchanged under a virtual machine.
    fn finish(&self, mac: &Mac, machine: &Machine) -> bool {
        if !waits(mac) || !self.memory.may_rejoin(&machine.holder.uid, self.parts.rules.held_again) {
            return false;
        }
        info!("steps of the host had to wait; they are tried again");
        self.begin_update(mac, machine)
    }

    async fn updated(&self, mac: &Mac, machine: &Machine, steps: Vec<Step>, done: &Done) -> Result<Outcome, Error> {
        let uid = machine.holder.uid.as_str();
        if let (Some(fingerprint), Some(server)) = (&done.fingerprint, &machine.server) {
            self.secrets.store_fingerprint(mac, server, fingerprint).await?;
        }
        let hash = self.memory.last_started(uid).unwrap_or_default();
        let mut draft = self.draft(mac);
        draft.status.steps = steps;
        draft.status.tart_kubelet_binary_sha.clone_from(&done.kubelet_sha);
        put(&mut draft, &rollout::succeeded(&hash), "");
        if self.rollout_host(mac).desired == hash {
            let condition = up_to_date(&Verdict::UpToDate, &draft.status.steps);
            draft.condition(condition);
        }
        self.write_draft(mac, draft).await?;
        self.parts.pool.acknowledge(uid);
        info!(hash, "the host is up to date");
        Ok(NOW)
    }

    /// A host that does not know us, or is not the one we know, may have been installed again: then Scaleway knows another password.
    async fn refresh_credentials(&self, mac: &Mac, machine: &Machine) -> Result<(), Error> {
        let Some(server) = &machine.server else {
            return Ok(());
        };
        if let Ok((_, Some(seen))) = self.see(machine, server).await
            && let Password::Known(password) = seen.password()
        {
            self.secrets.store(mac, server, &seen.ssh_username, &password).await?;
        }
        Ok(())
    }

    async fn not_updated(
        &self,
        mac: &Mac,
        machine: &Machine,
        steps: Vec<Step>,
        trouble: &Trouble,
    ) -> Result<Outcome, Error> {
        let uid = machine.holder.uid.as_str();
        let mut draft = self.draft(mac);
        draft.status.steps = steps;
        let mut news = None;
        match trouble {
            Trouble::Host(failed) => {
                if failed.step == LOGIN_STEP {
                    self.refresh_credentials(mac, machine).await?;
                }
                let hash = self.memory.last_started(uid).unwrap_or_default();
                let me = self.rollout_host(mac);
                let marks = rollout::failed(&me, &hash, &self.parts.rollout, self.parts.clock.now());
                put(&mut draft, &marks, &failed.to_string());
                let message = format!("updating the host failed: {failed}");
                let tail = format!("{message} (attempt {})", marks.attempts);
                draft.condition(
                    Condition::new(types::UP_TO_DATE, false, "UpdateFailed")
                        .message(tail.clone())
                        .severity(Severity::Warning),
                );
                news = Some(("UpdateFailed", tail));
            }
            Trouble::Preparation(problem) => {
                draft.condition(
                    Condition::new(types::UP_TO_DATE, false, problem.reason)
                        .message(problem.message.clone())
                        .severity(Severity::Warning),
                );
                news = Some((problem.reason, problem.message.clone()));
            }
            Trouble::NoCredentials | Trouble::Stopped => {}
        }
        self.write_draft(mac, draft).await?;
        self.parts.pool.acknowledge(uid);
        if let (Trouble::NoCredentials, Some(server)) = (trouble, &machine.server) {
            let live = self.live(mac).await?;
            let mac = live.as_ref().unwrap_or(mac);
            // Boxed, since that may end in a rest, and this is part of one.
            return Box::pin(self.fetch_credentials(mac, machine, server, &Sights::default())).await;
        }
        if let Some((reason, message)) = news {
            self.bad_news(mac, reason, message).await;
        }
        Ok(NOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::note_step;

    /// A builder whose Packer lost its access to the local network served on, and only who read its steps could know.
    /// (incident packer-upgrade-revokes-tcc)
    #[test]
    fn a_step_that_waits_is_in_a_condition_though_the_host_is_up_to_date() {
        let mut steps = Vec::new();
        let told = |steps: &[Step]| {
            let condition = up_to_date(&Verdict::UpToDate, steps);
            (condition.status, condition.reason, condition.message)
        };
        let fine = told(&steps);
        let mut note = |state, message: Option<&str>| {
            let message = message.map(ToOwned::to_owned);
            note_step(&mut steps, "github-runner", state, message, Timestamp::UNIX_EPOCH);
            told(&steps)
        };
        let (status, reason, message) = note(StepState::Pending, Some("packer has another code signature"));
        assert_eq!(status, conditions::ConditionStatus::False);
        assert_eq!(reason.as_deref(), Some("StepHeld"));
        let message = message.unwrap();
        assert_eq!(message, "step github-runner: packer has another code signature");
        assert_eq!(note(StepState::Succeeded, None), fine);
    }

    /// While the next try was waited for, the condition said when that is, and no longer what had failed.
    #[test]
    fn who_waits_for_the_next_try_is_told_what_failed() {
        let mut steps = Vec::new();
        let why = Some("it is still the process from before".to_owned());
        note_step(
            &mut steps,
            "tart-kubelet-job",
            StepState::Failed,
            why,
            Timestamp::UNIX_EPOCH,
        );
        let at = Timestamp::UNIX_EPOCH;
        let told = up_to_date(&Verdict::Wait(Wait::Retry { tries: 2, at }), &steps);
        let message = told.message.unwrap();
        assert!(message.contains("failed 2 times"), "{message}");
        assert!(
            message.ends_with("Step tart-kubelet-job: it is still the process from before"),
            "{message}"
        );
    }
}
