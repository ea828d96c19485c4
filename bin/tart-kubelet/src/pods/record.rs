//! What is known of a Pod, on disk: restarts, ends and back-offs must not begin anew with each agent.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use russet_pod::backoff::Backoff;
use russet_pod::facts::{Exit, PodFacts, State};
use russet_vm::{PodVm, VmName};
use serde::{Deserialize, Serialize};

use super::folder;
use crate::file;
use crate::ledger::{Entry, Stage};

const FILE: &str = "facts.json";
const SCHEME: &str = "tart://";

/// What is known of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// What is decided from.
    pub(crate) facts: PodFacts,
    /// Which start of each container is the present one; numbers are never used twice.
    #[serde(default)]
    pub(crate) attempts: BTreeMap<String, u32>,
    /// The Node did not take it on.
    #[serde(default)]
    pub(crate) refused: bool,
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
    /// What earlier agents knew of a Pod, brought up to what the ledger says. Of a Pod that nothing is known of here, what was
    /// published is believed.
    pub(crate) fn open(dir: &Path, pod: &Pod, entries: &[(PodVm, Entry)], now: Timestamp) -> Self {
        let path = dir.join(FILE);
        let written: Option<Record> = std::fs::read(&path)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let mut record = written.clone().unwrap_or_else(|| Record {
            facts: PodFacts::recovered(pod, now),
            ..Record::default()
        });
        record.catch_up(entries, now);
        Self { path, written, record }
    }

    /// Whether nothing of it was written down so far.
    pub(crate) fn is_new(&self) -> bool {
        self.written.is_none()
    }

    /// Writes it down if it changed.
    pub(crate) fn save(&mut self) -> io::Result<()> {
        if self.written.as_ref() == Some(&self.record) {
            return Ok(());
        }
        if let Some(dir) = self.path.parent() {
            folder::make(dir)?;
        }
        file::write(&self.path, &serde_json::to_vec(&self.record)?)?;
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

    /// Whether this VM is the one that is waited for. A start that was called off may have been done before it heard of that, and
    /// comes here all the same: it must not become a VM, beside the next one or of a Pod that is over.
    pub(crate) fn awaits(&self, vm: &PodVm) -> bool {
        let present = self.attempts.get(vm.container()) == Some(&vm.attempt());
        let over = self.finished || self.facts.ending.is_some();
        present && !over && self.starts(vm.container())
    }

    /// Whether this start of a container is one of the two whose log may be asked for. The entry of one that ran can be lost, its
    /// log with it must not be.
    pub(crate) fn shows(&self, container: &str, attempt: u32) -> bool {
        let facts = self.facts.container(container);
        let present = match &facts.state {
            State::Running { id, .. } => Some(id),
            State::Exited(exit) => Some(&exit.id),
            State::Absent | State::Starting { .. } | State::Stuck(_) => None,
        };
        let last = facts.last.as_ref().map(|exit| &exit.id);
        present.into_iter().chain(last).any(|id| {
            let name = id.strip_prefix(SCHEME).and_then(VmName::parse);
            matches!(name, Some(VmName::Pod(vm)) if vm.container() == container && vm.attempt() == attempt)
        })
    }

    /// Whether a container is being started.
    pub(crate) fn starts(&self, container: &str) -> bool {
        matches!(self.facts.container(container).state, State::Starting { .. })
    }

    /// Believes the ledger: it is written before each effect, and this record at leisure.
    fn catch_up(&mut self, entries: &[(PodVm, Entry)], now: Timestamp) {
        // In the order of attempts, so that the last one counts.
        for (vm, entry) in entries {
            let container = vm.container();
            if self.attempts.get(container).is_some_and(|known| vm.attempt() < *known) {
                continue;
            }
            self.attempts.insert(container.to_owned(), vm.attempt());
            let facts = self.facts.container_mut(container);
            let gone = matches!(entry.stage, Stage::Deleted(_));
            match (facts.state.is_live(), is_end_of(&facts.state, vm)) {
                (false, false) => facts.begun(entry.planned),
                // It was taken for over, and is not.
                (false, true) if !gone => facts.state = State::Starting { since: entry.planned },
                _ => {}
            }
            if let Stage::Deleted(ending) = &entry.stage
                && facts.state.is_live()
            {
                if entry.given_up {
                    facts.vanished(now);
                } else {
                    facts.exited(exit(vm, entry, ending));
                }
            }
        }
        for (name, facts) in &mut self.facts.containers {
            let there = entries
                .iter()
                .any(|(vm, _)| vm.container() == name && self.attempts.get(name) == Some(&vm.attempt()));
            if !there {
                facts.vanished(now);
            }
            facts.lost_hook();
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
    format!("{SCHEME}{}", VmName::from(vm.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Ending;
    use russet_pod::facts::{self, Hook};
    use serde_json::json;
    use std::time::Duration;

    fn vm(attempt: u32) -> PodVm {
        PodVm::new("ci", "job", "main", "0b5d7f3c", attempt).unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn entry(stage: Stage) -> Entry {
        Entry {
            pod: "job".to_owned(),
            planned: at(10),
            image: String::new(),
            shares: Vec::new(),
            stage,
            running: Some(at(20)),
            given_up: false,
        }
    }

    fn open(pod: &Pod, entries: &[(PodVm, Entry)]) -> Record {
        let dir = tempfile::tempdir().unwrap();
        Kept::open(dir.path(), pod, entries, at(100)).record
    }

    #[test]
    fn an_end_that_only_the_ledger_knows_is_told() {
        let ended = entry(Stage::Deleted(Ending::exited(5, at(30))));
        let record = open(&Pod::default(), &[(vm(0), ended)]);
        let State::Exited(exit) = &record.facts.container("main").state else {
            panic!("{record:?}")
        };
        assert_eq!((exit.code, exit.started), (5, Some(at(20))));
        assert_eq!(record.next_attempt("main", &[]), 1);
    }

    /// Its clone may still be on its way, so its name is not used again; it never was a start.
    #[test]
    fn a_vm_that_was_given_up_is_no_start_and_its_number_is_used_up() {
        let given_up = Entry {
            given_up: true,
            ..entry(Stage::Deleted(Ending::exited(0, at(30))))
        };
        let entries = [(vm(0), given_up)];
        let record = open(&Pod::default(), &entries);
        assert_eq!(record.facts.container("main").state, State::Absent);
        assert_eq!(record.facts.container("main").restarts, 0);
        assert_eq!(record.next_attempt("main", &entries), 1);
    }

    #[test]
    fn what_was_begun_and_left_no_trace_never_was() {
        let mut record = Record::default();
        record.facts.container_mut("main").begun(at(1));
        record.attempts.insert("main".to_owned(), 0);
        record.catch_up(&[], at(100));
        assert_eq!(record.facts.container("main").state, State::Absent);
    }

    #[test]
    fn a_start_is_shown_if_it_ran_last_or_before_that() {
        let mut record = running();
        assert!(record.shows("main", 0) && !record.shows("main", 1) && !record.shows("side", 0));
        record.catch_up(&[], at(100));
        assert!(record.shows("main", 0), "its entry is lost, its log is there");
        record.facts.container_mut("main").begun(at(110));
        record.attempts.insert("main".to_owned(), 1);
        assert!(record.shows("main", 0) && !record.shows("main", 1));
    }

    /// A record of a container that runs.
    fn running() -> Record {
        let mut record = Record::default();
        record.attempts.insert("main".to_owned(), 0);
        let facts = record.facts.container_mut("main");
        facts.begun(at(10));
        facts.running(id(&vm(0)), at(20));
        record
    }

    /// The entry of a VM was lost with a part of the disk. Its container was then one that never was, and a job that may run once
    /// ran again.
    #[test]
    fn what_ran_and_left_no_trace_has_ended_and_nobody_saw_how() {
        let mut record = running();
        record.catch_up(&[], at(100));
        let State::Exited(exit) = &record.facts.container("main").state else {
            panic!("{record:?}")
        };
        assert_ne!(exit.code, 0);
        assert_eq!(
            (exit.started, exit.finished, &exit.id),
            (Some(at(20)), at(100), &id(&vm(0)))
        );
        // The same if all that is left of it is its name.
        let mut record = running();
        let given_up = Entry {
            given_up: true,
            ..entry(Stage::Deleted(Ending::exited(0, at(30))))
        };
        record.catch_up(&[(vm(0), given_up)], at(100));
        assert!(matches!(&record.facts.container("main").state, State::Exited(exit) if exit.code != 0));
    }

    /// An agent was replaced while it ran the hook of a container. The next one took it for running, and waited for its end: the
    /// container was never ready, and what came after it never started.
    #[test]
    fn a_hook_that_was_cut_off_with_its_agent_is_run_again() {
        let dir = tempfile::tempdir().unwrap();
        let entries = [(vm(0), entry(Stage::Cloned))];
        let open = || Kept::open(dir.path(), &Pod::default(), &entries, at(100));
        let mut kept = open();
        kept.record = running();
        kept.record.facts.container_mut("main").post_start = Hook::Running;
        kept.save().unwrap();
        assert_eq!(open().record.facts.container("main").post_start, Hook::Waiting);
        kept.record.facts.container_mut("main").post_start = Hook::Done;
        kept.save().unwrap();
        assert_eq!(open().record.facts.container("main").post_start, Hook::Done);
    }

    /// What a container is started from was there, and before anybody heard of that its Pod was deleted, or its image was changed.
    /// It was heard of later, and the job of a Pod that was gone began, or one VM took the place of the next and ran on unseen.
    #[test]
    fn a_start_that_was_called_off_is_not_waited_for() {
        let mut record = Record::default();
        record.attempts.insert("main".to_owned(), 3);
        record.facts.container_mut("main").begun(at(10));
        assert!(record.awaits(&vm(3)));
        assert!(!record.awaits(&vm(2)), "another one was begun since");
        let with = |change: fn(&mut Record)| {
            let mut record = record.clone();
            change(&mut record);
            record.awaits(&vm(3))
        };
        assert!(!with(|record| record.facts.container_mut("main").abandoned()));
        assert!(!with(|record| record
            .facts
            .container_mut("main")
            .running("tart://x", at(20))));
        assert!(!with(|record| record.finished = true));
        assert!(!with(|record| {
            record.facts.ending = Some(facts::Ending::evicted("disk", Duration::ZERO, at(20)));
        }));
    }

    /// The memory of a Pod is lost, its VM is not: it must not be started twice.
    #[test]
    fn a_vm_that_runs_is_no_end_although_nobody_remembers_it() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "job"},
            "status": {"containerStatuses": [{
                "name": "main", "image": "i", "imageID": "", "ready": true, "restartCount": 2,
                "containerID": id(&vm(7)), "state": {"running": {"startedAt": "1970-01-01T00:00:20Z"}},
            }]},
        }))
        .unwrap();
        let record = open(&pod, &[(vm(7), entry(Stage::Cloned))]);
        let facts = record.facts.container("main");
        assert!(facts.state.is_live(), "{facts:?}");
        assert_eq!(facts.restarts, 2);
        // Without the VM it is an end that nobody saw.
        let alone = open(&pod, &[]);
        assert!(matches!(&alone.facts.container("main").state, State::Exited(exit) if exit.code != 0));
    }
}
