//! The ledger as a folder with a file per VM.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use russet_vm::{PodVm, VmName};

use super::{Entry, LedgerError, Shelf};
use crate::file;

/// A folder that only its owner can look into.
#[derive(Debug)]
pub(super) struct Files {
    dir: PathBuf,
}

impl Files {
    pub(super) fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    fn path(&self, vm: &PodVm) -> PathBuf {
        self.dir.join(format!("{vm}.json"))
    }
}

impl Shelf for Files {
    /// A file that cannot be understood is set aside: its VM is then known by its name alone.
    fn load(&self) -> Result<BTreeMap<PodVm, Entry>, LedgerError> {
        let failed = |what| move |source| LedgerError::new(what, &self.dir, source);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)
            .map_err(failed("made"))?;
        let mut entries = BTreeMap::new();
        for file in std::fs::read_dir(&self.dir).map_err(failed("read"))? {
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
        Ok(entries)
    }

    /// When this returns it survives a power cut.
    fn put(&self, vm: &PodVm, entry: &Entry) -> Result<(), LedgerError> {
        let path = self.path(vm);
        let written = serde_json::to_vec(entry)
            .map_err(io::Error::from)
            .and_then(|bytes| file::write_durably(&path, &bytes));
        written.map_err(|source| LedgerError::new("written", path, source))
    }

    fn remove(&self, vm: &PodVm) -> Result<(), LedgerError> {
        let path = self.path(vm);
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(LedgerError::new("shortened", path, source)),
            _ => Ok(()),
        }
    }
}

/// The VM a file is about. What else lies there is left alone.
fn named(path: &Path) -> Option<PodVm> {
    match VmName::parse(path.file_name()?.to_str()?.strip_suffix(".json")?)? {
        VmName::Pod(vm) => Some(vm),
        VmName::Golden(_) => None,
    }
}
