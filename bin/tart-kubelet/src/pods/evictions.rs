//! Pods that have to go because of the disk: said by those who look at it, heard by the Pods' own tasks.

use std::collections::BTreeMap;

use russet_pod::facts::Why;
use tokio::sync::watch;

/// Which Pods have to go, and why. Cheap to copy.
#[derive(Clone, Debug)]
pub(crate) struct Evictions(watch::Sender<BTreeMap<String, Why>>);

impl Default for Evictions {
    fn default() -> Self {
        Self(watch::channel(BTreeMap::new()).0)
    }
}

impl Evictions {
    /// A Pod has to go. The first cause stays.
    pub(crate) fn evict(&self, uid: &str, why: Why) {
        self.0.send_if_modified(|all| {
            let news = !all.contains_key(uid);
            all.entry(uid.to_owned()).or_insert(why);
            news
        });
    }

    /// Whether a Pod has to go, and is not gone yet.
    pub(crate) fn pending(&self, uid: &str) -> bool {
        self.0.borrow().contains_key(uid)
    }

    pub(super) fn forget(&self, uid: &str) {
        self.0.send_if_modified(|all| {
            all.remove(uid);
            false
        });
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<BTreeMap<String, Why>> {
        self.0.subscribe()
    }
}
