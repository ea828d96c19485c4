//! One agent per state folder.
//!
//! Two agents on one host choose the same name for the VM of a new Pod. The second finds it taken, gives it up, and deletes the VM
//! of the first. `launchctl kickstart` can leave such a pair: the old process goes on, and a new one comes beside it. (incident
//! noop-kickstart)
//!
//! The lock is a `flock`, which the kernel frees with the process, however that ends; so there is no stale one to recognise. What
//! the agent starts does not inherit it: supervisors of VMs outlive their agent, and would keep the next one out.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, retry_on_intr};

use super::folder;

const FILE: &str = "agent.lock";
/// An agent that is told to stop has its callers told, which takes seconds; its successor waits for that.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);

/// Why a state folder is not ours.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another agent has it.
    #[error(
        "another tart-kubelet of this host works with {}, and two would delete each other's virtual machines; end that one, or give \
         this one another --state-dir",
        state.display()
    )]
    Taken {
        /// The folder.
        state: PathBuf,
    },
    /// The lock cannot be had at all.
    #[error("{} cannot be locked for this agent alone; make it a folder that its user may write to: {source}", state.display())]
    Io {
        /// The folder.
        state: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A state folder is ours, until this is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Waits so long for whoever has it. Blocks, for nothing else of an agent may begin before this.
    pub(crate) fn take(state: &Path, patience: Duration) -> Result<Self, LockError> {
        match locked(state, patience) {
            Ok(Some(file)) => Ok(Self { _file: file }),
            Ok(None) => Err(LockError::Taken {
                state: state.to_owned(),
            }),
            Err(source) => Err(LockError::Io {
                state: state.to_owned(),
                source,
            }),
        }
    }
}

/// The file, if the lock could be had in time.
fn locked(state: &Path, patience: Duration) -> io::Result<Option<File>> {
    folder::make(state)?;
    // It is never removed: somebody may wait with it open. Files of Rust are closed on exec.
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(state.join(FILE))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => return Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => {}
        Err(error) => return Err(error.into()),
    }
    tracing::info!(state = %state.display(), "another agent has the state folder; waiting for its end");
    let (tell, told) = mpsc::channel();
    // One that comes too late finds nobody to tell, and frees the lock with the file.
    std::thread::Builder::new().name("lock".to_owned()).spawn(move || {
        let taken = retry_on_intr(|| flock(&file, FlockOperation::LockExclusive));
        tell.send(taken.map(|()| file)).ok()
    })?;
    match told.recv_timeout(patience) {
        Ok(taken) => Ok(Some(taken?)),
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A new agent beside an old one took the VM of a new Pod for a leftover of its own, and deleted it. (incident noop-kickstart)
    #[test]
    fn a_second_agent_is_told_in_one_sentence_to_stay_away() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("not/there/yet");
        let first = Lock::take(&state, Duration::ZERO).unwrap();
        let refused = Lock::take(&state, Duration::from_millis(1)).unwrap_err();
        assert!(matches!(refused, LockError::Taken { .. }), "{refused:?}");
        let words = refused.to_string();
        assert!(
            words.contains("not/there/yet") && words.contains("end that one"),
            "{words}"
        );
        assert!(!words.contains('\n'));
        drop(first);
        // Whoever gave up waiting may have it for the moment it takes to let go.
        Lock::take(&state, Duration::from_mins(1)).unwrap();
        Lock::take(&dir.path().join("another"), Duration::ZERO).unwrap();
    }

    #[test]
    fn a_successor_waits_for_an_agent_that_is_about_to_end() {
        let dir = tempfile::tempdir().unwrap();
        let first = Lock::take(dir.path(), Duration::ZERO).unwrap();
        let state = dir.path().to_owned();
        let second = std::thread::spawn(move || Lock::take(&state, Duration::from_mins(1)));
        drop(first);
        second.join().unwrap().unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_had_is_an_error_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let refused = Lock::take(&file, Duration::ZERO).unwrap_err();
        assert!(matches!(refused, LockError::Io { .. }), "{refused:?}");
    }

    /// A supervisor outlives its agent. With the lock in its hands no agent could follow.
    #[test]
    fn what_an_agent_starts_does_not_hold_its_lock() {
        let dir = tempfile::tempdir().unwrap();
        let lock = Lock::take(dir.path(), Duration::ZERO).unwrap();
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        drop(lock);
        let next = Lock::take(dir.path(), Duration::from_mins(1));
        child.kill().unwrap();
        child.wait().unwrap();
        next.unwrap();
    }
}
