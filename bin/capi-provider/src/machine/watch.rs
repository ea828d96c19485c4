//! Looks at what changes on a host by itself.
//!
//! Drift is a comparison of hashes and costs the host nothing; it cannot see that somebody upgraded Packer over VNC, and macOS took its
//! access to the local network back. So builders, which have such tools, are looked at now and then: one command that changes nothing.
//! What is found becomes a step that waits, which a condition tells of and the next run of the plan sees to.

use std::sync::Arc;

use russet_api::machine::Step;
use russet_controller::Outcome;
use russet_telemetry::Secret;
use tracing::warn;

use super::bootstrapping::reach;
use super::reconcile::NOW;
use super::update::{up_to_date, waits};
use super::{Context, Error, Mac};
use crate::bootstrap::{Done, Job, Trouble, Work};
use crate::decide::Machine;
use crate::host::Host;
use crate::rollout::Verdict;
use crate::surroundings::key;

impl Context {
    /// Whether something on its host changes by itself: what builders have comes from Homebrew.
    pub(super) fn is_watched(&self, mac: &Mac) -> bool {
        mac.spec.gh_actions_runner.is_some() && !self.parts.rules.look_every.is_zero()
    }

    /// Looks at a host that has what it should have; a step that is found to wait is seen to by whoever waits for it.
    pub(super) fn watch(&self, mac: &Mac, machine: &Machine) -> bool {
        let uid = machine.holder.uid.as_str();
        if waits(mac) || !self.is_watched(mac) || !self.memory.may_look(uid, self.parts.rules.look_every) {
            return false;
        }
        let Some(host) = self.known_host(machine) else {
            return false;
        };
        let steps = mac.status.clone().unwrap_or_default().steps;
        let work = self.glance(mac, machine, &host);
        self.parts.pool.start(uid, &key(mac), &host.id, steps, work);
        true
    }

    /// Writes down what a look found.
    pub(super) async fn looked(&self, mac: &Mac, machine: &Machine, steps: Vec<Step>) -> Result<Outcome, Error> {
        let mut draft = self.draft(mac);
        draft.status.steps = steps;
        if !self.rollout_host(mac).drifted() {
            let condition = up_to_date(&Verdict::UpToDate, &draft.status.steps);
            draft.condition(condition);
        }
        self.write_draft(mac, draft).await?;
        self.parts.pool.acknowledge(&machine.holder.uid);
        Ok(NOW)
    }

    /// A look at a host that serves, as one piece of work for the pool. A host that cannot be looked at is told about by its Node.
    fn glance(&self, mac: &Mac, machine: &Machine, host: &Host) -> Work {
        let reader = self.reader(mac.clone(), host.id.clone());
        let (services, bootstrapper) = (self.parts.services.clone(), Arc::clone(&self.parts.bootstrapper));
        let (mac, machine, host) = (mac.clone(), machine.clone(), host.clone());
        Box::new(move |progress, stop| {
            Box::pin(async move {
                let looked = async {
                    let job = reach(&services, &mac, &machine, &host, reader.await?).await;
                    let runner = mac.spec.gh_actions_runner.clone();
                    let job = Job {
                        // What a look compares holds no secret.
                        join_kubeconfig: Some(Secret::new(String::new())),
                        runner: runner.map(|runner| (runner, Secret::new(String::new()))),
                        ..job.map_err(Trouble::Preparation)?
                    };
                    bootstrapper.look(job, progress, stop).await.map_err(Trouble::Host)
                };
                match looked.await {
                    Err(trouble @ Trouble::NoCredentials) => return Err(trouble),
                    Err(trouble) => {
                        warn!(host = %host.id, ?trouble, "the host could not be looked at; it is tried again");
                    }
                    Ok(()) => {}
                }
                Ok(Done {
                    looked: true,
                    ..Done::default()
                })
            })
        })
    }
}
