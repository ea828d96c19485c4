//! What a supervisor leaves on disk.

use crate::error::Error;
use crate::process::Process;
use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

pub(super) const LOCK: &str = "alive";
pub(super) const STARTED: &str = "started.json";
pub(super) const EXIT: &str = "exit.json";

/// A process that was started.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Started {
    /// Which.
    pub process: Process,
    /// When.
    pub at: Timestamp,
    /// Where in the log its output begins.
    pub log_offset: u64,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Finished {
    /// Its exit code; none after a signal.
    pub code: Option<i32>,
    /// The signal that killed it.
    pub signal: Option<i32>,
    /// Its supervisor was told to end before, as everybody is when the host goes down: it may have ended well, but not by itself.
    #[serde(default)]
    pub told: bool,
    /// When.
    pub at: Timestamp,
}

/// What is known of the process of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// None was started.
    Never,
    /// It runs; which one is not known if its supervisor was killed at the wrong moment.
    Running(Option<Started>),
    /// It has ended; how is not known if nobody was left to see it.
    Ended(Started, Option<Finished>),
}

/// What is known of the process of a folder.
pub fn look(dir: &Path) -> Result<Seen, Error> {
    let runs = || open(&dir.join(LOCK))?.map_or(Ok(false), |lock| is_held(&lock));
    let attempt = || -> io::Result<Seen> {
        // The end is written before the lock goes, so an end that is missing while the lock is free can be on its way in between.
        for last in [false, true] {
            let finished = read::<Finished>(&dir.join(EXIT))?;
            let started = read::<Started>(&dir.join(STARTED))?;
            match (finished, started) {
                (Some(finished), Some(started)) => return Ok(Seen::Ended(started, Some(finished))),
                (_, started) if runs()? => return Ok(Seen::Running(started)),
                (_, Some(started)) if last => return Ok(Seen::Ended(started, None)),
                _ => {}
            }
        }
        Ok(Seen::Never)
    };
    attempt().map_err(Error::file(dir))
}

/// A process that runs, watched for its end. It is asked for ten times a second for as long as a VM runs, and everything that
/// [`look`] reads stays the same until then.
#[derive(Debug)]
pub(super) struct Pulse {
    exit: PathBuf,
    lock: File,
}

impl Pulse {
    /// `None` if there is nothing to watch.
    pub(super) fn of(dir: &Path) -> Result<Option<Self>, Error> {
        let lock = open(&dir.join(LOCK)).map_err(Error::file(dir))?;
        let exit = dir.join(EXIT);
        Ok(lock.map(|lock| Self { exit, lock }))
    }

    /// Whether [`look`] would say that it runs. It may say so once more after this did not; the other way round it is never late.
    pub(super) fn beats(&self) -> Result<bool, Error> {
        let attempt = || -> io::Result<bool> {
            // A folder that somebody removed says nothing of what is put in its place.
            let removed = self.lock.metadata()?.nlink() == 0;
            Ok(!removed && !self.exit.try_exists()? && is_held(&self.lock)?)
        };
        attempt().map_err(Error::file(&self.exit))
    }
}

/// Whether anybody holds the lock. For the moment of the question we hold it, too; a supervisor tries more than once.
fn is_held(lock: &File) -> io::Result<bool> {
    match flock(lock, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            flock(lock, FlockOperation::Unlock)?;
            Ok(false)
        }
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a file that is either whole or not there, also after a power cut.
pub(super) fn write<T: Serialize>(dir: &Path, name: &str, value: &T) -> io::Result<()> {
    let fresh = dir.join(format!("{name}.tmp"));
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&fresh)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    file.sync_all()?;
    std::fs::rename(fresh, dir.join(name))?;
    File::open(dir)?.sync_all()
}
