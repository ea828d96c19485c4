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
mod reconcile;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use entry::{Ending, Entry, Shared, Stage};
pub(crate) use reconcile::reconcile;
use russet_vm::{PodVm, VmName};

/// Why the ledger cannot be used. Without it no VM is started.
#[derive(Debug, thiserror::Error)]
#[error("the ledger of virtual machines at {} cannot be {what}", path.display())]
pub struct LedgerError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// The ledger of one host. Cheap to copy.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    dir: PathBuf,
    entries: Arc<Mutex<BTreeMap<PodVm, Entry>>>,
}

impl Ledger {
    /// Reads what earlier agents wrote. A file that cannot be understood is set aside: its VM is then known by its name alone.
    pub(crate) fn open(dir: impl Into<PathBuf>) -> Result<Self, LedgerError> {
        let dir = dir.into();
        let failed = |what| {
            let path = dir.clone();
            move |source| LedgerError { what, path, source }
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .map_err(failed("made"))?;
        let mut entries = BTreeMap::new();
        for file in std::fs::read_dir(&dir).map_err(failed("read"))? {
            let path = file.map_err(failed("read"))?.path();
            let Some(name) = named(&path) else { continue };
            let bytes = std::fs::read(&path).map_err(failed("read"))?;
            match serde_json::from_slice(&bytes) {
                Ok(entry) => {
                    entries.insert(name, entry);
                }
                Err(error) => {
                    tracing::warn!(vm = %name, %error, "what was written of this VM is damaged; its name has to do");
                    std::fs::rename(&path, path.with_extension("damaged")).map_err(failed("mended"))?;
                }
            }
        }
        Ok(Self {
            dir,
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
        let path = self.path(vm);
        replace(&self.dir, &path, &entry).map_err(|source| LedgerError {
            what: "written",
            path,
            source,
        })?;
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
        let path = self.path(vm);
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(LedgerError {
                    what: "shortened",
                    path,
                    source,
                });
            }
            _ => {}
        }
        self.entries().remove(vm);
        Ok(())
    }

    fn path(&self, vm: &PodVm) -> PathBuf {
        self.dir.join(format!("{vm}.json"))
    }
}

/// The VM a file is about. What else lies there is left alone.
fn named(path: &Path) -> Option<PodVm> {
    match VmName::parse(path.file_name()?.to_str()?.strip_suffix(".json")?)? {
        VmName::Pod(vm) => Some(vm),
        VmName::Golden(_) => None,
    }
}

fn replace(dir: &Path, path: &Path, entry: &Entry) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&fresh)?;
    file.write_all(&serde_json::to_vec(entry)?)?;
    file.sync_all()?;
    std::fs::rename(fresh, path)?;
    File::open(dir)?.sync_all()
}
