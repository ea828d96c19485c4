//! What is known of a Pod, on disk: restarts, ends and back-offs must not begin anew with each agent.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use russet_pod::backoff::Backoff;
use russet_pod::facts::{Exit, PodFacts, State};
use russet_vm::{PodVm, VmName};
use serde::{Deserialize, Serialize};

use super::folder;
use crate::ledger::{Entry, Stage};

const FILE: &str = "facts.json";

/// What is known of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// What is decided from.
    pub(crate) facts: PodFacts,
    /// Which start of each container is the present one; numbers are never used twice.
    #[serde(default)]
    pub(crate) attempts: BTreeMap<String, u32>,
    /// The Node has taken it on.
    #[serde(default)]
    pub(crate) taken_on: bool,
    /// How long each container waits before its image is pulled again.
    #[serde(default)]
    pub(crate) pulls: BTreeMap<String, Backoff>,
    /// The Pod is over, and its VMs are gone: nothing is ever started for it again.
    #[serde(default)]
    pub(crate) finished: bool,
}

/// The record of one Pod, and where it is kept.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    path: PathBuf,
    written: Option<Record>,
    pub(crate) record: Record,
}

impl Kept {
    /// What earlier agents knew of a Pod, brought up to what the ledger says.
    pub(crate) fn open(dir: &Path, entries: &[(PodVm, Entry)]) -> Self {
        let path = dir.join(FILE);
        let written: Option<Record> = std::fs::read(&path)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let mut record = written.clone().unwrap_or_default();
        record.catch_up(entries);
        Self { path, written, record }
    }

    /// Writes it down if it changed.
    pub(crate) fn save(&mut self) -> io::Result<()> {
        if self.written.as_ref() == Some(&self.record) {
            return Ok(());
        }
        if let Some(dir) = self.path.parent() {
            folder::make(dir)?;
        }
        folder::write(&self.path, &serde_json::to_vec(&self.record)?)?;
        self.written = Some(self.record.clone());
        Ok(())
    }
}

impl Record {
    /// The number of the next start of a container.
    pub(crate) fn next_attempt(&self, container: &str, entries: &[(PodVm, Entry)]) -> u32 {
        let used = entries
            .iter()
            .filter(|(vm, _)| vm.container() == container)
            .map(|(vm, _)| vm.attempt().saturating_add(1));
        let known = self.attempts.get(container).map(|attempt| attempt.saturating_add(1));
        used.chain(known).max().unwrap_or(0)
    }

    /// Believes the ledger: it is written before each effect, and this record at leisure.
    fn catch_up(&mut self, entries: &[(PodVm, Entry)]) {
        // In the order of attempts, so that the last one counts.
        for (vm, entry) in entries {
            let container = vm.container();
            if self.attempts.get(container).is_some_and(|known| vm.attempt() < *known) {
                continue;
            }
            self.attempts.insert(container.to_owned(), vm.attempt());
            let facts = self.facts.container_mut(container);
            if !facts.state.is_live() && !is_end_of(&facts.state, vm) {
                facts.begun(entry.planned);
            }
            if let Stage::Deleted(ending) = &entry.stage
                && facts.state.is_live()
            {
                if entry.given_up {
                    facts.abandoned();
                } else {
                    facts.exited(exit(vm, entry, ending));
                }
            }
        }
        // What was begun and left no trace never was.
        for (name, facts) in &mut self.facts.containers {
            let there = entries
                .iter()
                .any(|(vm, _)| vm.container() == name && self.attempts.get(name) == Some(&vm.attempt()));
            if facts.state.is_live() && !there {
                facts.abandoned();
            }
        }
    }
}

/// Whether a container's end is the one of this VM.
fn is_end_of(state: &State, vm: &PodVm) -> bool {
    matches!(state, State::Exited(exit) if exit.id == id(vm))
}

/// How a container ended, in the words of a Pod's status.
pub(crate) fn exit(vm: &PodVm, entry: &Entry, ending: &crate::ledger::Ending) -> Exit {
    Exit {
        code: ending.code,
        reason: ending.reason.clone(),
        message: Some(ending.message.clone()).filter(|message| !message.is_empty()),
        started: entry.running,
        finished: ending.finished,
        id: id(vm),
    }
}

/// How a VM is named in a Pod's status.
pub(crate) fn id(vm: &PodVm) -> String {
    format!("tart://{}", VmName::from(vm.clone()))
}
