//! What the controller remembers between reconciles. All of it can be lost: a restart repeats something harmless.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::{Resource, ResourceExt as _};
use tokio::time::Instant;

use crate::rollout::Work;

/// A fleet's key is looked after this often while its machines take hosts.
const KEY_FOR: Duration = Duration::from_mins(10);
/// An egress Service is looked after this often.
const EGRESS_FOR: Duration = Duration::from_hours(1);

#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The version our last write of an object led to.
    versions: HashMap<String, u64>,
    /// Machines whose Node, identity and Secrets are gone.
    cleaned: HashSet<String>,
    keys: HashMap<String, Instant>,
    egress: HashMap<String, Instant>,
    /// What the set-up that runs for a machine brings its host to.
    started: HashMap<String, String>,
    rejoined: HashMap<String, Instant>,
    looked: HashMap<String, Instant>,
    /// What hosts had to run when last looked at, if anything.
    work: HashMap<String, Work>,
    /// What was last said about a machine in a dry run.
    said: HashMap<String, String>,
}

impl Memory {
    /// Notes a write of ours.
    pub(crate) fn wrote<K: Resource>(&self, object: &K) {
        if let (Some(uid), Some(version)) = (object.uid(), version(object)) {
            self.lock().versions.insert(uid, version);
        }
    }

    /// Whether a cache shows this object as it was before our last write. The event of that write is on its way.
    pub(crate) fn is_stale<K: Resource>(&self, object: &K) -> bool {
        let written = object.uid().and_then(|uid| self.lock().versions.get(&uid).copied());
        matches!((version(object), written), (Some(seen), Some(written)) if seen < written)
    }

    pub(crate) fn clean(&self, uid: &str) {
        self.lock().cleaned.insert(uid.to_owned());
    }

    pub(crate) fn is_clean(&self, uid: &str) -> bool {
        self.lock().cleaned.contains(uid)
    }

    pub(crate) fn has_key(&self, fleet: &str) -> bool {
        self.lock().keys.get(fleet).is_some_and(|at| at.elapsed() < KEY_FOR)
    }

    pub(crate) fn key_ensured(&self, fleet: &str) {
        self.lock().keys.insert(fleet.to_owned(), Instant::now());
    }

    pub(crate) fn has_egress(&self, uid: &str) -> bool {
        self.lock().egress.get(uid).is_some_and(|at| at.elapsed() < EGRESS_FOR)
    }

    pub(crate) fn egress_ensured(&self, uid: &str) {
        self.lock().egress.insert(uid.to_owned(), Instant::now());
    }

    /// A set-up to this configuration begins.
    pub(crate) fn started(&self, uid: &str, hash: &str) {
        self.lock().started.insert(uid.to_owned(), hash.to_owned());
    }

    /// What the last set-up was to. The machine may want something else by now.
    pub(crate) fn last_started(&self, uid: &str) -> Option<String> {
        self.lock().started.get(uid).cloned()
    }

    /// Whether a host was not asked to join again for this long; if so, it is asked now.
    pub(crate) fn may_rejoin(&self, uid: &str, pause: Duration) -> bool {
        is_due(&mut self.lock().rejoined, uid, pause)
    }

    /// Whether a host was not looked at for this long; if so, it is looked at now.
    pub(crate) fn may_look(&self, uid: &str, pause: Duration) -> bool {
        is_due(&mut self.lock().looked, uid, pause)
    }

    /// Notes which Pods run on a host; none: none do. The wait for them goes on however they change.
    pub(crate) fn note_work(&self, uid: &str, pods: Option<Vec<String>>, now: Timestamp) -> Option<Work> {
        let mut inner = self.lock();
        let Some(pods) = pods else {
            inner.work.remove(uid);
            return None;
        };
        let since = inner.work.get(uid).map_or(now, |work| work.since);
        let work = Work { pods, since };
        inner.work.insert(uid.to_owned(), work.clone());
        Some(work)
    }

    pub(crate) fn work(&self, uid: &str) -> Option<Work> {
        self.lock().work.get(uid).cloned()
    }

    /// Whether this is news about a machine.
    pub(crate) fn is_news(&self, uid: &str, text: &str) -> bool {
        self.lock().said.insert(uid.to_owned(), text.to_owned()).as_deref() != Some(text)
    }

    pub(crate) fn forget(&self, uid: &str) {
        let mut inner = self.lock();
        inner.versions.remove(uid);
        inner.cleaned.remove(uid);
        inner.egress.remove(uid);
        inner.said.remove(uid);
        inner.started.remove(uid);
        inner.rejoined.remove(uid);
        inner.looked.remove(uid);
        inner.work.remove(uid);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_due(last: &mut HashMap<String, Instant>, uid: &str, pause: Duration) -> bool {
    if last.get(uid).is_some_and(|at| at.elapsed() < pause) {
        return false;
    }
    last.insert(uid.to_owned(), Instant::now());
    true
}

/// Versions of one object grow; the API promises that they can be compared.
fn version<K: Resource>(object: &K) -> Option<u64> {
    object.resource_version()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use russet_api::ScalewayAppleSiliconMachine as Mac;

    use super::*;

    fn mac(version: &str) -> Mac {
        let mut mac = Mac::new("m", russet_api::ScalewayAppleSiliconMachineSpec::default());
        mac.metadata.uid = Some("u".into());
        mac.metadata.resource_version = Some(version.into());
        mac
    }

    #[test]
    fn the_wait_for_pods_begins_once_however_they_change_and_anew_after_there_were_none() {
        let memory = Memory::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        let pods = |name: &str| Some(vec![name.to_owned()]);
        let since = |work: Option<Work>| work.map(|work| work.since);
        assert_eq!(since(memory.note_work("u", pods("a"), at(1))), Some(at(1)));
        assert_eq!(since(memory.note_work("u", pods("b"), at(2))), Some(at(1)));
        assert_eq!(memory.note_work("u", None, at(3)), None);
        assert_eq!(since(memory.note_work("u", pods("c"), at(4))), Some(at(4)));
    }

    #[test]
    fn a_cache_that_lags_behind_our_own_write_is_noticed() {
        let memory = Memory::default();
        assert!(!memory.is_stale(&mac("7")));
        memory.wrote(&mac("9"));
        assert!(memory.is_stale(&mac("7")));
        assert!(!memory.is_stale(&mac("9")));
        assert!(!memory.is_stale(&mac("10")), "somebody else wrote after us");
        memory.forget("u");
        assert!(!memory.is_stale(&mac("7")));
    }
}
