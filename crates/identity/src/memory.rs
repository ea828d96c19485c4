//! What is known about credentials, bounded and shared between threads.
//!
//! Credentials someone vouched for and strangers are kept apart, so a flood of made-up tokens pushes out other made-up
//! tokens and never the builds that run. Locks are held for the length of a look-up; no call waits under one.

use std::collections::HashMap;
use std::collections::hash_map;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::credential::Fingerprint;
use crate::denial::Denial;
use crate::evidence::Entry;
use crate::lru::Lru;
use crate::observer::Stage;
use crate::scope::{Access, Scope};

/// Fewer entries than this are not worth configuring, and divide badly.
const MIN_ENTRIES: usize = 16;

/// How a flight ended: for its own target, the decision.
pub(crate) type Landing = Option<(Stage, Result<(), Denial>)>;

/// A question under way about a credential. Whoever needs the same answer waits for it instead of asking.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) scope: Scope<'static>,
    pub(crate) access: Access,
    pub(crate) landing: watch::Receiver<Landing>,
}

#[derive(Debug)]
pub(crate) struct Shard {
    members: Lru<Fingerprint, Entry>,
    strangers: Lru<Fingerprint, Entry>,
    pub(crate) flights: HashMap<Fingerprint, Flight>,
}

impl Shard {
    pub(crate) fn entry(&mut self, fingerprint: &Fingerprint) -> Option<&mut Entry> {
        match self.members.get_mut(fingerprint) {
            Some(entry) => Some(entry),
            None => self.strangers.get_mut(fingerprint),
        }
    }

    /// Files an entry where it belongs now.
    pub(crate) fn file(&mut self, fingerprint: Fingerprint, entry: Entry) {
        if entry.vouched() {
            self.strangers.remove(&fingerprint);
            self.members.insert(fingerprint, entry);
        } else {
            self.members.remove(&fingerprint);
            self.strangers.insert(fingerprint, entry);
        }
    }

    /// Takes an entry out, to be changed and filed again.
    pub(crate) fn take(&mut self, fingerprint: &Fingerprint) -> Option<Entry> {
        self.members
            .remove(fingerprint)
            .or_else(|| self.strangers.remove(fingerprint))
    }

    /// Whether a flight could be entered, or one is under way.
    pub(crate) fn vacant(
        &mut self,
        fingerprint: Fingerprint,
    ) -> Option<hash_map::VacantEntry<'_, Fingerprint, Flight>> {
        match self.flights.entry(fingerprint) {
            hash_map::Entry::Vacant(vacant) => Some(vacant),
            hash_map::Entry::Occupied(_) => None,
        }
    }
}

/// All shards.
#[derive(Debug)]
pub(crate) struct Memory {
    shards: Box<[Mutex<Shard>]>,
}

impl Memory {
    pub(crate) fn new(entries: usize) -> Self {
        let entries = entries.max(MIN_ENTRIES);
        // Few entries are not divided, since the fullest shard would decide about the bound.
        let count = if entries < 4096 { 1 } else { 16 };
        let each = entries / count;
        let strangers = each / 8;
        let shard = |_| {
            Mutex::new(Shard {
                members: Lru::new(each - strangers),
                strangers: Lru::new(strangers),
                flights: HashMap::new(),
            })
        };
        Self {
            shards: (0..count).map(shard).collect(),
        }
    }

    /// The shard of a credential. A panic elsewhere cannot leave an entry half changed, so poison is ignored.
    pub(crate) fn shard(&self, fingerprint: &Fingerprint) -> Option<MutexGuard<'_, Shard>> {
        let at = usize::from(fingerprint.bytes()[0]) % self.shards.len();
        self.shards
            .get(at)
            .map(|s| s.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn len(&self) -> usize {
        self.each(|shard| shard.members.len() + shard.strangers.len()).sum()
    }

    pub(crate) fn clear(&self) {
        self.each(|shard| {
            shard.members.clear();
            shard.strangers.clear();
        })
        .for_each(drop);
    }

    fn each<'m, T>(&'m self, visit: impl Fn(&mut Shard) -> T + 'm) -> impl Iterator<Item = T> + 'm {
        self.shards
            .iter()
            .map(move |shard| visit(&mut shard.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock as _, SystemClock};
    use crate::grants::Grants;
    use crate::jwt::Signed;

    fn entry(signed: Signed) -> Entry {
        Entry::new(signed, SystemClock.now(), 0)
    }

    fn member() -> Entry {
        entry(Signed::Valid {
            grants: Grants::default(),
            until: u64::MAX,
        })
    }

    #[test]
    fn a_flood_of_strangers_is_bounded_and_pushes_out_no_member() {
        for entries in [1, 16, 1000, 100_000] {
            let memory = Memory::new(entries);
            let kept = Fingerprint::of("a real token");
            memory.shard(&kept).unwrap().file(kept, member());
            for stranger in 0..2 * entries.min(20_000) {
                let fingerprint = Fingerprint::of(&stranger.to_string());
                memory
                    .shard(&fingerprint)
                    .unwrap()
                    .file(fingerprint, entry(Signed::Unknown { until: None }));
            }
            let bounded = memory.len() <= entries.max(MIN_ENTRIES);
            assert!(bounded, "{} of {entries}", memory.len());
            assert!(memory.shard(&kept).unwrap().entry(&kept).is_some());
            memory.clear();
            assert_eq!(memory.len(), 0);
        }
    }

    #[test]
    fn members_are_bounded_too() {
        let memory = Memory::new(64);
        for token in 0..1000 {
            let fingerprint = Fingerprint::of(&token.to_string());
            memory.shard(&fingerprint).unwrap().file(fingerprint, member());
        }
        assert!(memory.len() <= 64);
    }
}
