//! The whole state as one JSON file, whole or absent: written beside its place and renamed over it, readable by its owner only.

use crate::world::World;
use jiff::Timestamp;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The version this build writes and reads.
const VERSION: u32 = 1;

/// Everything that survives a restart. Emulated time stands still in between.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
pub struct Snapshot {
    version: u32,
    pub(crate) now: Timestamp,
    pub(crate) world: World,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot")
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

/// Read before the rest, which another version may spell otherwise.
#[derive(serde::Deserialize)]
struct Head {
    version: u32,
}

/// Why a state file could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The file system said no.
    #[error("could not {action} the state file {}", path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    /// The file is not one of ours.
    #[error("{} is not a state of this emulator; remove it to start afresh", path.display())]
    Format {
        path: PathBuf,
        /// What the parser said.
        source: serde_json::Error,
    },
    /// The file is from another time.
    #[error("the state has version {found}, this build reads {VERSION}; remove it to start afresh")]
    Version {
        /// What it has.
        found: u32,
    },
}

impl Snapshot {
    pub(crate) fn new(now: Timestamp, world: World) -> Self {
        Self {
            version: VERSION,
            now,
            world,
        }
    }

    pub(crate) fn check(self) -> Result<Self, SnapshotError> {
        if self.version == VERSION {
            Ok(self)
        } else {
            Err(SnapshotError::Version { found: self.version })
        }
    }

    /// Reads a file; none if there is none.
    pub fn read(path: &Path) -> Result<Option<Self>, SnapshotError> {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(failed("read", path, source)),
        };
        let wrong = |source| SnapshotError::Format {
            path: path.to_owned(),
            source,
        };
        let head: Head = serde_json::from_slice(&bytes).map_err(wrong)?;
        if head.version != VERSION {
            return Err(SnapshotError::Version { found: head.version });
        }
        serde_json::from_slice(&bytes).map(Some).map_err(wrong)
    }

    /// Writes a file.
    pub fn write(&self, path: &Path) -> Result<(), SnapshotError> {
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let write = |source| failed("write", path, source);
        std::fs::create_dir_all(folder).map_err(write)?;
        // The temporary file is 0600 from its first byte, and stays so under its new name.
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(write)?;
        serde_json::to_writer(std::io::BufWriter::new(&mut file), self).map_err(|error| write(error.into()))?;
        file.flush().map_err(write)?;
        file.as_file().sync_all().map_err(write)?;
        file.persist(path).map_err(|error| write(error.error))?;
        Ok(())
    }
}

fn failed(action: &'static str, path: &Path, source: std::io::Error) -> SnapshotError {
    SnapshotError::Io {
        action,
        path: path.to_owned(),
        source,
    }
}
