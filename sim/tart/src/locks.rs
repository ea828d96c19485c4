//! Locks between processes, the same kinds that the real one uses (facts 6.2).

use crate::failure::Failure;
use crate::vm::VmDir;
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::process::{Flock, FlockOffsetType, FlockType, Pid, fcntl_getlk};
use std::fs::{File, OpenOptions};
use std::path::Path;

/// The process that holds the write lock on a VM's `config.json`, which is what "running" means to `tart`.
pub(crate) fn runner(dir: &VmDir) -> Option<Pid> {
    let file = File::open(dir.config_path()).ok()?;
    let probe = Flock {
        start: 0,
        length: 0,
        pid: None,
        typ: FlockType::WriteLock,
        offset_type: FlockOffsetType::Set,
    };
    fcntl_getlk(&file, &probe).ok()??.pid
}

/// Takes the lock that says "running". A record lock: the process loses it when it closes any handle of that file.
pub(crate) fn become_runner(dir: &VmDir) -> Result<Option<File>, Failure> {
    let file = OpenOptions::new().read(true).write(true).open(dir.config_path())?;
    match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::ACCESS | rustix::io::Errno::AGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn open(path: &Path) -> Result<File, Failure> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    Ok(OpenOptions::new().create(true).truncate(false).write(true).open(path)?)
}

/// Waits for the lock on a file.
pub(crate) fn exclusive(path: &Path) -> Result<File, Failure> {
    let file = open(path)?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

/// Takes the lock on a file if nobody holds it.
pub(crate) fn try_exclusive(path: &Path) -> Result<Option<File>, Failure> {
    let file = open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::AGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
