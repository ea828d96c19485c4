//! What the kernel knows of running VMs: the slots of the two-VM limit, and who runs which guest.

use crate::failure::Failure;
use crate::locks;
use crate::store::Home;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::PathBuf;

/// One VM of the kernel's count. It is given back when the process ends, however it ends; unless it leaks.
#[derive(Debug)]
pub(crate) struct Slot {
    _lock: File,
    leak: PathBuf,
}

impl Slot {
    /// The first free slot; none when the limit is reached.
    pub(crate) fn take(home: &Home, limit: u32) -> Result<Option<Self>, Failure> {
        for index in 0..limit {
            let folder = home.sim().join("slots");
            let leak = folder.join(format!("{index}.leaked"));
            if leak.exists() {
                continue;
            }
            if let Some(lock) = locks::try_exclusive(&folder.join(index.to_string()))? {
                return Ok(Some(Self { _lock: lock, leak }));
            }
        }
        Ok(None)
    }

    /// The kernel forgets to count down.
    pub(crate) fn leak(self) -> Result<(), Failure> {
        Ok(std::fs::write(&self.leak, "")?)
    }
}

/// Notes of a `tart run`, for the one who stages faults.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Note {
    /// The `tart run` process.
    pub(crate) run: u32,
    /// The holder of the guest's processes.
    pub(crate) guest: u32,
    /// The pid namespace in which these have their numbers.
    pub(crate) counted_in: String,
}

fn path(home: &Home, name: &str) -> PathBuf {
    home.sim().join("running").join(name)
}

impl Note {
    pub(crate) fn write(&self, home: &Home, name: &str) -> Result<(), Failure> {
        std::fs::create_dir_all(home.sim().join("running"))?;
        Ok(std::fs::write(path(home, name), serde_json::to_vec(self)?)?)
    }

    pub(crate) fn read(home: &Home, name: &str) -> Result<Option<Self>, Failure> {
        match std::fs::read(path(home, name)) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn remove(home: &Home, name: &str) {
        let _ = std::fs::remove_file(path(home, name));
    }
}
