//! What a Pod's task begins with: what earlier agents left, and whether the Node takes the Pod on at all.

use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt as _;
use russet_api::labels::RUNNER_POOL;
use russet_pod::lifecycle;
use russet_pod::status::Phase;
use russet_vm::PodVm;
use tokio::time::Instant;

use super::{AGAIN, Wanted, Worker, start};
use crate::ledger::Stage;
use crate::pods::machine::{Machine, Plan, Tally};

impl Worker {
    /// Goes on with the VMs of earlier agents.
    pub(super) fn adopt(&mut self) {
        self.clear_out();
        for (vm, entry) in self.host.shop.ledger.of_pod(&self.uid) {
            let container = vm.container().to_owned();
            let present = self.kept.record.attempts.get(&container) == Some(&vm.attempt());
            if matches!(entry.stage, Stage::Deleted(_)) || !present {
                continue;
            }
            let command = start::has_command(&self.pod, &container);
            let spec = russet_pod::spec::container(&self.pod, &container);
            let plan = Plan {
                message_policy: start::message_policy(&self.pod, &container),
                late: spec.and_then(|(_, spec)| start::late(spec, &self.uid)),
                ..Plan::adopted(&entry, command)
            };
            let machine = self.machine(vm, plan);
            // Who told it to end is gone, and so is what would have seen to that.
            let facts = &self.kept.record.facts;
            if let Some(left) = lifecycle::left_to_stop(&self.pod, facts, &container, Timestamp::now()) {
                machine.stop_by(Instant::now() + left);
            }
            self.machines.insert(container, machine);
        }
        if self.is_over() && self.machines.is_empty() {
            self.kept.record.finished = true;
            self.silent = self.kept.is_new() || self.kept.record.refused;
            // Whoever wrote its end may have had no time for this, or may not have been on this host at all.
            if let Err(error) = self.host.folders.clear_secrets(&self.uid) {
                tracing::warn!(uid = self.uid, %error, "what a Pod was given could not be removed");
            }
        } else if self.kept.record.refused {
            // Nobody heard of it yet, so it is asked again.
            (self.kept.record.refused, self.kept.record.finished) = (false, false);
        }
        // What was begun was taken on, whatever is left of the memory of that.
        self.kept.record.taken_on |= !self.kept.record.facts.containers.is_empty();
        if self.kept.record.taken_on && !self.kept.record.finished {
            self.host.roster.add(&self.uid, &self.pod);
        }
    }

    /// Removes what starts left that came to nothing: each lies in a folder of its own, with all that its container was to be told.
    /// Such a start is in no ledger, as it is written there when it has a place, which can take hours; and the next one has another
    /// number.
    fn clear_out(&self) {
        let entries = self.host.shop.ledger.of_pod(&self.uid);
        let wanted = |container: &str, attempt| {
            let entered = |(vm, _): &(PodVm, _)| vm.container() == container && vm.attempt() == attempt;
            entries.iter().any(entered) || self.kept.record.shows(container, attempt)
        };
        if let Err(error) = self.host.folders.remove_rooms(&self.uid, wanted) {
            tracing::warn!(uid = self.uid, %error, "what starts of a Pod left could not be removed");
        }
    }

    /// Whether the Node takes the Pod on, asked once. `false` if the Pod is gone before that is decided.
    pub(super) async fn admitted(&mut self) -> bool {
        if self.kept.record.taken_on || self.kept.record.finished {
            return true;
        }
        loop {
            let verdict = {
                let admission = self.host.roster.admit(&self.host, &self.uid, &self.pod);
                tokio::select! {
                    verdict = admission => verdict,
                    changed = self.wanted.changed() => match changed.map(|()| self.wanted.borrow().clone()) {
                        Ok(Wanted::Pod(pod)) => {
                            self.pod = pod;
                            continue;
                        }
                        _ => return false,
                    },
                }
            };
            match verdict {
                Ok(Ok(())) => {
                    self.kept.record.taken_on = true;
                    return true;
                }
                Ok(Err(refusal)) => {
                    self.tell_once(&refusal.reason, &refusal.message);
                    self.refusal = Some(refusal);
                    (self.kept.record.refused, self.kept.record.finished) = (true, true);
                    return true;
                }
                Err(error) => {
                    tracing::debug!(uid = self.uid, %error, "a Pod waits to be taken on");
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }

    pub(super) fn machine(&self, vm: PodVm, plan: Plan) -> Machine {
        let room = self.host.folders.room(&vm);
        let tally = Tally {
            pool: self.pod.labels().get(RUNNER_POOL).cloned().unwrap_or_default(),
            created: Arc::clone(&self.created),
            ..plan.tally
        };
        Machine::start(self.host.shop.clone(), vm, room, Plan { tally, ..plan })
    }

    /// Whether the API server already knows of an end.
    fn is_over(&self) -> bool {
        let phase = self.pod.status.as_ref().and_then(|status| status.phase.as_deref());
        phase.and_then(Phase::parse).is_some_and(Phase::is_terminal)
    }
}
