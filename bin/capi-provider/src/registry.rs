//! Which machines there are, as the reconciles saw them: who has to be woken when something around them changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use russet_api::values::{PoolPrefix, ServerId};
use russet_controller::runner::Handle;
use russet_controller::scope::Namespaced;

/// Namespace and name of a machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What a machine depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ties {
    /// Its Cluster.
    pub cluster: Option<String>,
    /// Its hosts.
    pub servers: BTreeSet<ServerId>,
    /// The pool it takes hosts from.
    pub pool: Option<PoolPrefix>,
}

/// The machines. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Registry(Arc<Inner>);

/// Wakes a machine.
type Wake = Box<dyn Fn(&Key) + Send + Sync>;

#[derive(Default)]
struct Inner {
    machines: Mutex<BTreeMap<Key, Ties>>,
    wake: OnceLock<Wake>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("machines", &self.machines)
            .finish_non_exhaustive()
    }
}

impl Registry {
    /// From now on machines can be woken. Only the first handle counts.
    pub fn connect<K: Namespaced>(&self, handle: Handle<K>) {
        let wake = move |key: &Key| handle.request(&key.namespace, &key.name);
        let _ = self.0.wake.set(Box::new(wake));
    }

    /// Notes what a machine depends on.
    pub fn note(&self, key: &Key, ties: Ties) {
        let mut machines = self.lock();
        if machines.get(key) != Some(&ties) {
            machines.insert(key.clone(), ties);
        }
    }

    /// A machine is gone.
    pub fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }

    /// All of them.
    pub fn keys(&self) -> Vec<Key> {
        self.lock().keys().cloned().collect()
    }

    /// The pools they take hosts from.
    pub fn pools(&self) -> BTreeSet<PoolPrefix> {
        self.lock().values().filter_map(|ties| ties.pool.clone()).collect()
    }

    /// Those of a Cluster.
    pub fn of_cluster(&self, namespace: &str, cluster: &str) -> Vec<Key> {
        self.find(|key, ties| key.namespace == namespace && ties.cluster.as_deref() == Some(cluster))
    }

    /// Those of this name, in any namespace.
    pub fn named(&self, name: &str) -> Vec<Key> {
        self.find(|key, _| key.name == name)
    }

    /// Those that depend on one of these hosts.
    pub fn with_servers(&self, servers: &BTreeSet<ServerId>) -> Vec<Key> {
        self.find(|_, ties| !ties.servers.is_disjoint(servers))
    }

    /// Has a machine looked at soon.
    pub fn wake(&self, key: &Key) {
        if let Some(wake) = self.0.wake.get() {
            wake(key);
        }
    }

    fn find(&self, pick: impl Fn(&Key, &Ties) -> bool) -> Vec<Key> {
        self.lock()
            .iter()
            .filter(|(key, ties)| pick(key, ties))
            .map(|(key, _)| key.clone())
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Ties>> {
        self.0.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
