//! What this host does with VMs, on disk, so that an agent that was killed anywhere goes on where it was.
//!
//! ```text
//! planned ──clone──▶ cloned ──start──▶ running(pid, start) ──end──▶ stopped(how) ──delete──▶ deleted(how)
//! ```
//!
//! One file per VM. An intention is written before its effect and a result after it, each whole or not at all: at any moment the
//! file is at most one step behind the host, and which step is found by looking ([`reconcile`]). A VM that is deleted leaves its
//! entry, since its exit code may not have reached the API server yet; the entry goes with its Pod.

mod entry;
mod files;
mod reconcile;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use entry::{Ending, Entry, Shared, Stage};
use files::Files;
pub(crate) use reconcile::reconcile;
use russet_vm::PodVm;

/// Why the ledger cannot be used. Without it no VM is started.
#[derive(Debug, thiserror::Error)]
#[error("the ledger of virtual machines at {} cannot be {what}", path.display())]
pub struct LedgerError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl LedgerError {
    pub(crate) fn new(what: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self {
            what,
            path: path.into(),
            source,
        }
    }
}

/// Where entries survive the agent. Each call is whole or not at all, and done for good when it returns.
pub(crate) trait Shelf: fmt::Debug + Send + Sync {
    /// Everything that earlier agents wrote.
    fn load(&self) -> Result<BTreeMap<PodVm, Entry>, LedgerError>;
    /// Writes an entry, or writes it anew.
    fn put(&self, vm: &PodVm, entry: &Entry) -> Result<(), LedgerError>;
    /// Removes an entry; one that is not there is fine.
    fn remove(&self, vm: &PodVm) -> Result<(), LedgerError>;
}

/// The ledger of one host. Cheap to copy.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    shelf: Arc<dyn Shelf>,
    entries: Arc<Mutex<BTreeMap<PodVm, Entry>>>,
}

impl Ledger {
    /// Reads what earlier agents wrote into this folder.
    pub(crate) fn open(dir: impl Into<PathBuf>) -> Result<Self, LedgerError> {
        Self::on(Arc::new(Files::new(dir)))
    }

    /// The same from wherever it was kept.
    pub(crate) fn on(shelf: Arc<dyn Shelf>) -> Result<Self, LedgerError> {
        let entries = shelf.load()?;
        Ok(Self {
            shelf,
            entries: Arc::new(Mutex::new(entries)),
        })
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<PodVm, Entry>> {
        // Entries are put in whole, so a panic elsewhere left nothing half done.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a VM.
    pub(crate) fn get(&self, vm: &PodVm) -> Option<Entry> {
        self.entries().get(vm).cloned()
    }

    /// Everything.
    pub(crate) fn all(&self) -> Vec<(PodVm, Entry)> {
        self.entries()
            .iter()
            .map(|(vm, entry)| (vm.clone(), entry.clone()))
            .collect()
    }

    /// The VMs of a Pod, in the order of containers and attempts.
    pub(crate) fn of_pod(&self, uid: &str) -> Vec<(PodVm, Entry)> {
        let mut all = self.all();
        all.retain(|(vm, _)| vm.uid() == uid);
        all
    }

    /// Writes down what is about to be, or is, true of a VM. When this returns it survives a power cut.
    pub(crate) fn write(&self, vm: &PodVm, entry: Entry) -> Result<(), LedgerError> {
        self.shelf.put(vm, &entry)?;
        self.entries().insert(vm.clone(), entry);
        Ok(())
    }

    /// Moves a VM on to a stage. One that is not known cannot be moved.
    pub(crate) fn advance(&self, vm: &PodVm, change: impl FnOnce(&mut Entry)) -> Result<(), LedgerError> {
        let Some(mut entry) = self.get(vm) else {
            return Ok(());
        };
        change(&mut entry);
        self.write(vm, entry)
    }

    /// Forgets a VM.
    pub(crate) fn forget(&self, vm: &PodVm) -> Result<(), LedgerError> {
        self.shelf.remove(vm)?;
        self.entries().remove(vm);
        Ok(())
    }
}
