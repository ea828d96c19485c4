//! What others may know of the Pods here: those who ask for logs, for a shell, for a port.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use russet_vm::{PodVm, Runtime};
use tokio::sync::watch;

use super::folder::Folders;
use super::lock::Lock;
use super::machine::Life;
use crate::ledger::{Ledger, Stage};

/// A container's VM.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) vm: PodVm,
    pub(crate) life: watch::Receiver<Life>,
}

impl Instance {
    /// Where it is reached, once its container runs.
    pub(crate) fn address(&self) -> Option<Ipv4Addr> {
        match &*self.life.borrow() {
            Life::Running { address, .. } => *address,
            _ => None,
        }
    }

    pub(crate) fn runs(&self) -> bool {
        matches!(&*self.life.borrow(), Life::Running { .. })
    }
}

/// A Pod.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) pod: Arc<Pod>,
    /// By the container's name.
    pub(crate) instances: BTreeMap<String, Instance>,
}

/// The Pods. Cheap to copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directory(Arc<Mutex<BTreeMap<String, Shown>>>);

impl Directory {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Shown>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn put(&self, uid: &str, shown: Shown) {
        self.all().insert(uid.to_owned(), shown);
    }

    pub(super) fn remove(&self, uid: &str) {
        self.all().remove(uid);
    }

    pub(crate) fn list(&self) -> Vec<Shown> {
        self.all().values().cloned().collect()
    }

    /// A Pod by its name, or one incarnation of it.
    pub(crate) fn find(&self, namespace: &str, name: &str, uid: Option<&str>) -> Option<Shown> {
        let fits = |shown: &&Shown| {
            shown.pod.namespace().as_deref() == Some(namespace)
                && shown.pod.metadata.name.as_deref() == Some(name)
                && uid.is_none_or(|uid| shown.pod.metadata.uid.as_deref() == Some(uid))
        };
        // Of two of one name, the one that does not go is meant.
        let all = self.all();
        let mut found: Vec<&Shown> = all.values().filter(fits).collect();
        found.sort_by_key(|shown| shown.pod.metadata.deletion_timestamp.is_some());
        found.first().map(|shown| Shown::clone(shown))
    }
}

/// What the kubelet API is answered from. Cheap to copy.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(crate) node: String,
    pub(crate) directory: Directory,
    pub(crate) ledger: Ledger,
    pub(crate) folders: Folders,
    pub(crate) runtime: Arc<dyn Runtime>,
    /// An agent that ends has its callers told first, and its successor waits for that.
    pub(crate) _lock: Arc<Lock>,
}

impl Handle {
    /// How many VMs run, or may.
    pub(crate) fn running(&self) -> usize {
        let all = self.ledger.all();
        let runs = |stage: &Stage| matches!(stage, Stage::Cloned | Stage::Running { .. });
        all.iter().filter(|(_, entry)| runs(&entry.stage)).count()
    }
}
