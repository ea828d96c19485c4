//! Probes of the containers of a Pod, each asked in its time and beside everything else.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use russet_pod::facts::State;
use russet_pod::probe::{Answer, Kind, Probes};
use russet_pod::spec;

use super::hooks::{Within, needs_address};
use super::{Happened, Worker};
use crate::pods::machine::Life;

/// The probes of one instance.
pub(super) struct Rounds {
    attempt: u32,
    probes: Probes,
    /// One question of a kind at a time; a slow answer to one holds up no other.
    asking: BTreeSet<Kind>,
}

/// What a probe was answered.
pub(super) struct Probed {
    container: String,
    attempt: u32,
    kind: Kind,
    asked: Timestamp,
    answer: Answer,
}

impl Worker {
    /// Asks what is due. When the next is.
    pub(super) fn probe(&mut self, now: Timestamp) -> Option<Timestamp> {
        let pod = Arc::clone(&self.pod);
        let mut wake: Option<Timestamp> = None;
        self.rounds.retain(|name, rounds| {
            self.machines
                .get(name)
                .is_some_and(|machine| machine.vm.attempt() == rounds.attempt)
        });
        for (name, machine) in &self.machines {
            let Some((_, container)) = spec::container(&pod, name) else {
                continue;
            };
            let facts = self.kept.record.facts.container_mut(name);
            let State::Running { since, .. } = facts.state else {
                continue;
            };
            let attempt = machine.vm.attempt();
            let rounds = self.rounds.entry(name.clone()).or_insert_with(|| Rounds {
                attempt,
                probes: Probes::adopted(container, since, facts),
                asking: BTreeSet::new(),
            });
            if facts.stopping.is_some() {
                rounds.probes.end();
            }
            rounds.probes.report(facts);
            // Where the VM of an earlier agent is has to be found out anew. A container that was asked before that had no address,
            // and with a probe of one failure it was ended for the restart of its agent.
            let Life::Running { address, .. } = machine.now() else {
                continue;
            };
            let Rounds { probes, asking, .. } = rounds;
            for due in probes.dues(now) {
                // The change of the address wakes whoever waits for it.
                if asking.contains(&due.kind) || address.is_none() && needs_address(due.probe) {
                    continue;
                }
                if due.at > now {
                    wake = Some(wake.map_or(due.at, |wake| wake.min(due.at)));
                    continue;
                }
                let within = Within::new(&self.host.shop.runtime, &machine.vm, address);
                let (kind, probe, timeout) = (due.kind, due.probe.clone(), due.timeout);
                let (pod, container) = (Arc::clone(&pod), name.clone());
                asking.insert(kind);
                self.tasks.spawn(async move {
                    let answer = within.ask(&pod, &container, &probe, timeout).await;
                    Happened::Probed(Probed {
                        container,
                        attempt,
                        kind,
                        asked: now,
                        answer,
                    })
                });
            }
        }
        wake
    }

    pub(super) fn probed(&mut self, probed: &Probed) {
        let Some(rounds) = self.rounds.get_mut(&probed.container) else {
            return;
        };
        if rounds.attempt != probed.attempt {
            return;
        }
        rounds.asking.remove(&probed.kind);
        rounds.probes.observe(probed.kind, &probed.answer, probed.asked);
        let facts = self.kept.record.facts.container_mut(&probed.container);
        if matches!(facts.state, State::Running { .. }) {
            rounds.probes.report(facts);
        }
        if let Some(message) = probed.answer.event(probed.kind) {
            self.tell_of(&probed.container, "Unhealthy", &message);
        }
    }
}
