//! What is written down of one VM.

use std::path::PathBuf;

use jiff::Timestamp;
use russet_vm::{Access, Process, Share};
use serde::{Deserialize, Serialize};

/// What is written down of one VM. Fields are added, never renamed: the next release reads what this one wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The Pod's whole name; that of the VM may be cut.
    pub pod: String,
    /// When it was decided that there shall be such a VM.
    pub planned: Timestamp,
    /// The image by its digest, once it is known.
    #[serde(default)]
    pub image: String,
    /// Which folders of the host its guest sees. A VM that was not started yet is started with them, by whichever agent.
    #[serde(default)]
    pub shares: Vec<Shared>,
    /// How far it is.
    pub stage: Stage,
    /// Since when the container in it runs; a VM takes a while to boot.
    #[serde(default)]
    pub running: Option<Timestamp>,
    /// It never came to run, so it is no end of a container; what is left is a name that is not used again.
    #[serde(default)]
    pub given_up: bool,
}

/// A folder of the host that a guest sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shared {
    /// As what.
    pub name: String,
    /// Which.
    pub path: PathBuf,
    /// Whether the guest may write.
    pub writable: bool,
}

impl From<&Share> for Shared {
    fn from(share: &Share) -> Self {
        Self {
            name: share.name.clone(),
            path: share.path.clone(),
            writable: share.access == Access::ReadWrite,
        }
    }
}

impl From<&Shared> for Share {
    fn from(shared: &Shared) -> Self {
        Self {
            name: shared.name.clone(),
            path: shared.path.clone(),
            access: if shared.writable {
                Access::ReadWrite
            } else {
                Access::ReadOnly
            },
        }
    }
}

/// How far a VM is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub(crate) enum Stage {
    /// It shall be cloned; it may have been.
    Planned,
    /// It is there and shall start; it may have.
    Cloned,
    /// It was started as this process.
    Running {
        /// Which.
        process: Process,
        /// When.
        at: Timestamp,
    },
    /// What ran in it has ended; it shall be deleted, and may have been.
    Stopped(Ending),
    /// It is gone.
    Deleted(Ending),
}

impl Stage {
    /// How it ended, if it has.
    pub(crate) fn ending(&self) -> Option<&Ending> {
        match self {
            Self::Stopped(ending) | Self::Deleted(ending) => Some(ending),
            Self::Planned | Self::Cloned | Self::Running { .. } => None,
        }
    }
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ending {
    /// Its exit code.
    pub code: i32,
    /// One word.
    pub reason: String,
    /// A sentence, or what the container left for its owner.
    #[serde(default)]
    pub message: String,
    /// When.
    pub finished: Timestamp,
}

impl Ending {
    /// It exited by itself.
    pub(crate) fn exited(code: i32, finished: Timestamp) -> Self {
        Self {
            code,
            reason: if code == 0 { "Completed" } else { "Error" }.to_owned(),
            message: String::new(),
            finished,
        }
    }

    /// Something else ended it.
    pub(crate) fn failed(code: i32, reason: &str, message: impl Into<String>, finished: Timestamp) -> Self {
        Self {
            code,
            reason: reason.to_owned(),
            message: message.into(),
            finished,
        }
    }

    /// Nobody saw how. Never a success.
    pub(crate) fn unknown(message: impl Into<String>, finished: Timestamp) -> Self {
        Self::failed(137, "ContainerStatusUnknown", message, finished)
    }
}
