//! What came of it.

use std::sync::Arc;

use jiff::Timestamp;
use russet_pod::facts::Hook;
use russet_pod::lifecycle;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::start::{Ready, Refused};
use super::{AGAIN, Happened, Worker};

impl Worker {
    pub(super) fn hear(&mut self, happened: Happened) {
        match happened {
            Happened::Prepared(done) => {
                self.preparing = None;
                match done {
                    // It was done before it could be told not to.
                    _ if self.kept.record.finished => {}
                    Ok(()) => {
                        self.kept.record.facts.prepared = true;
                        self.pause = AGAIN;
                    }
                    // What is there stays as it is.
                    Err(refused) if self.kept.record.facts.prepared => {
                        tracing::info!(
                            uid = self.uid,
                            why = refused.message,
                            "the volumes of a Pod were not refreshed"
                        );
                        self.tell_once("FailedMount", &refused.message);
                    }
                    Err(refused) => {
                        self.tell_once("FailedMount", &refused.message);
                        let pod = Arc::clone(&self.pod);
                        for (_, container) in russet_pod::spec::containers(&pod) {
                            self.kept.record.facts.container_mut(&container.name).note = Some(refused.message.clone());
                        }
                        self.try_later();
                    }
                }
            }
            Happened::Ready(container, ready) => match *ready {
                Ok(ready) => self.ready(container, ready),
                Err(refused) => {
                    // It does not say of which start it speaks; but one that still goes on did not say it.
                    let ended = self.starting.get(&container).is_some_and(AbortHandle::is_finished);
                    if ended && self.kept.record.starts(&container) {
                        self.starting.remove(&container);
                        self.refuse(&container, &refused);
                    }
                }
            },
            Happened::Greeted(container, attempt, done) => {
                if self.is_present(&container, attempt) {
                    let facts = self.kept.record.facts.container_mut(&container);
                    facts.post_start = match done {
                        Ok(()) => Hook::Done,
                        Err(why) => Hook::Failed(why),
                    };
                }
            }
            Happened::Parted(container, attempt) => {
                if let Some(machine) = self
                    .machines
                    .get(&container)
                    .filter(|machine| machine.vm.attempt() == attempt)
                {
                    let now = Instant::now();
                    let by = self.partings.over(&container).unwrap_or(now);
                    machine.stop_by(now + lifecycle::after_hook(by.saturating_duration_since(now)));
                }
            }
            Happened::Probed(probed) => self.probed(&probed),
            Happened::Wrote(wrote) => self.wrote(*wrote),
            Happened::Deleted(done) => {
                self.deleting = done;
                if !done {
                    self.try_later();
                }
            }
        }
    }

    /// A container that can be given its VM gets it, if anybody still waits for that.
    fn ready(&mut self, container: String, Ready { vm, plan, pulled }: Ready) {
        let record = &self.kept.record;
        let awaited = record.awaits(&vm);
        let present = record.attempts.get(&container) == Some(&vm.attempt());
        if present {
            self.starting.remove(&container);
        }
        if !awaited {
            tracing::debug!(%vm, "a start that was called off has come to its end");
            self.leave(&vm);
            // Nobody told it to stop yet, since others of its Pod have to end first; but nothing is left to be told.
            if present && self.kept.record.starts(&container) {
                self.kept.record.facts.container_mut(&container).abandoned();
            }
            return;
        }
        let facts = self.kept.record.facts.container_mut(&container);
        facts.pulled(plan.image.clone());
        self.tell_of(&container, "Pulled", &pulled);
        self.tell_of(&container, "Created", &format!("Created container: {container}"));
        let machine = self.machine(vm, plan);
        self.machines.insert(container, machine);
    }

    fn is_present(&self, container: &str, attempt: u32) -> bool {
        self.machines
            .get(container)
            .is_some_and(|machine| machine.vm.attempt() == attempt)
    }

    /// A container that could not be given a VM, and when it is tried again.
    fn refuse(&mut self, container: &str, refused: &Refused) {
        let now = Timestamp::now();
        let facts = self.kept.record.facts.container_mut(container);
        let retry = if refused.pulls {
            self.kept
                .record
                .pulls
                .entry(container.to_owned())
                .or_default()
                .failed(now)
        } else {
            now + refused.pause
        };
        if facts.stopping.is_some() {
            facts.abandoned();
        } else {
            facts.stuck(refused.reason, refused.message.clone(), retry);
        }
        self.tell_of(container, "Failed", &refused.message);
    }
}
