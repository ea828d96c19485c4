//! What a decision is turned into. Nothing here waits.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::LifecycleHandler;
use kube::ResourceExt as _;
use russet_pod::facts::Hook;
use russet_pod::lifecycle::{Stop, StopWhy};
use russet_vm::PodVm;
use tokio::time::Instant;

use super::hooks::Within;
use super::parting::part;
use super::{Happened, REFRESH, SLOWEST_AGAIN, Worker, objects, start};
use crate::pods::machine::{Life, Machine};
use crate::pods::watched::Held;

impl Worker {
    pub(super) fn prepare(&mut self) {
        let waits = self.later.is_some_and(|later| Instant::now() < later);
        if self.preparing.is_some() || waits {
            return;
        }
        self.refresh = Instant::now() + REFRESH;
        let (host, pod, sources) = (self.host.clone(), Arc::clone(&self.pod), self.sources.clone());
        let facts = self.kept.record.facts.clone();
        let vms: Vec<PodVm> = self.machines.values().map(|machine| machine.vm.clone()).collect();
        let task = self.tasks.spawn(async move {
            Happened::Prepared(if facts.prepared {
                objects::refresh(&host, &pod, &facts, &sources, &vms).await
            } else {
                objects::prepare(&host, &pod, &facts, &sources).await
            })
        });
        self.preparing = Some(task);
    }

    /// Volumes follow what they are made of for as long as somebody may read them.
    pub(super) fn refresh(&mut self) {
        let live = self.kept.record.facts.prepared && !self.machines.is_empty();
        if live && Instant::now() >= self.refresh {
            self.prepare();
        }
    }

    pub(super) fn start(&mut self, container: &str) {
        let entries = self.host.shop.ledger.of_pod(&self.uid);
        let attempt = self.kept.record.next_attempt(container, &entries);
        let namespace = self.pod.namespace().unwrap_or_default();
        let vm = match PodVm::new(&namespace, &self.pod.name_any(), container, &self.uid, attempt) {
            Ok(vm) => vm,
            Err(error) => {
                // No API server gives such a name out; nothing will change it.
                let retry = Timestamp::now() + SLOWEST_AGAIN;
                let facts = self.kept.record.facts.container_mut(container);
                facts.stuck(russet_pod::facts::reasons::CREATE, error.to_string(), retry);
                return;
            }
        };
        self.kept.record.attempts.insert(container.to_owned(), attempt);
        let image = russet_pod::spec::container(&self.pod, container).and_then(|(_, found)| found.image.clone());
        let facts = self.kept.record.facts.container_mut(container);
        if facts.is_outdated(image.as_deref()) {
            self.kept.record.pulls.remove(container);
        }
        facts.begun(Timestamp::now());
        facts.image = image;
        // Before the first effect, so that no later agent uses the number again.
        if let Err(error) = self.kept.save() {
            self.unsaved(&error);
            let facts = self.kept.record.facts.container_mut(container);
            facts.abandoned();
            facts.note = Some(format!("its start could not be written down on the host: {error}"));
            return;
        }
        let (host, pod, name) = (self.host.clone(), Arc::clone(&self.pod), container.to_owned());
        let (facts, sources) = (self.kept.record.facts.clone(), self.sources.clone());
        let task = self.tasks.spawn(async move {
            let ready = start::ready(&host, &pod, &name, vm, &facts, &sources).await;
            Happened::Ready(name, Box::new(ready))
        });
        self.starting.insert(container.to_owned(), task);
    }

    pub(super) fn greet(&mut self, container: String, hook: LifecycleHandler) {
        let Some(machine) = self.machines.get(&container) else {
            return;
        };
        // Where the VM of an earlier agent is has to be found out anew, and one that has just come up may have no address yet; the hook
        // is asked for again when that is known.
        let Life::Running { address, .. } = machine.now() else {
            return;
        };
        if address.is_none() && hook.http_get.is_some() {
            return;
        }
        self.kept.record.facts.container_mut(&container).post_start = Hook::Running;
        let within = self.within(machine);
        let (pod, attempt) = (Arc::clone(&self.pod), machine.vm.attempt());
        self.tasks.spawn(async move {
            let done = within.hook(&pod, &container, &hook).await;
            Happened::Greeted(container, attempt, done)
        });
    }

    fn within(&self, machine: &Machine) -> Within {
        let address = match machine.now() {
            Life::Running { address, .. } => address,
            _ => None,
        };
        Within::new(&self.host.shop.runtime, &machine.vm, address)
    }

    pub(super) fn stop(&mut self, stop: Stop) {
        let facts = self.kept.record.facts.container_mut(&stop.container);
        let first = facts.stopping.is_none();
        facts.told_to_stop(stop.deadline);
        facts.replaced |= stop.why == StopWhy::Changed;
        let Some(machine) = self.machines.get(&stop.container) else {
            if let Some(task) = self.starting.remove(&stop.container) {
                task.abort();
                self.winding.push(task);
            }
            facts.abandoned();
            return;
        };
        let by = Instant::now() + stop.grace;
        let (message, container) = (stop.message(), stop.container.clone());
        match stop.pre_stop {
            None if self.partings.hurry(&container, by) => {}
            None => machine.stop_by(by),
            Some(hook) => {
                let (within, by) = (self.within(machine), self.partings.begin(&container, by));
                let (host, pod, attempt) = (self.host.clone(), Arc::clone(&self.pod), machine.vm.attempt());
                self.tasks.spawn(async move {
                    let hook = within.hook(&pod, &stop.container, &hook);
                    if !matches!(part(hook, by).await, Some(Ok(()))) {
                        host.server
                            .tell(&pod, "Warning", "FailedPreStopHook", "PreStopHook failed");
                    }
                    Happened::Parted(stop.container, attempt)
                });
            }
        }
        if first {
            self.tell_of(&container, "Killing", &message);
        }
    }

    /// Removes what the Pod was given, once nobody can write it again. Volumes that were being refreshed when the last container
    /// ended were written after they had been removed, with the Secrets in them, and stayed for as long as the Pod.
    pub(super) fn finish(&mut self) {
        if let Some(task) = self.preparing.take() {
            task.abort();
            self.winding.push(task);
        }
        // Each of them wakes the loop when it has ended.
        self.winding.retain(|task| !task.is_finished());
        if self.machines.is_empty() && self.starting.is_empty() && self.winding.is_empty() {
            self.kept.record.finished = true;
            self.kept.record.facts.prepared = false;
            self.host.roster.remove(&self.uid);
            self.sources.held = Held::default();
            if let Err(error) = self.host.folders.clear_secrets(&self.uid) {
                tracing::warn!(uid = self.uid, %error, "what a Pod was given could not be removed");
            }
        }
    }
}
