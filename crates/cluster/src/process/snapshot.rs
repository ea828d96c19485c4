//! What is known about a process at one moment, for people and status files.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Where a process is in its life. The diagram is in the documentation of the parent module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum State {
    /// Runs, and its probe has not passed yet.
    Starting,
    /// Runs and was ready.
    Running,
    /// Ended and waits to be started again.
    BackingOff,
    /// Ended because it was told to.
    Stopped,
    /// Ended and will not be started again.
    Failed,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Starting => "Starting",
            Self::Running => "Running",
            Self::BackingOff => "BackingOff",
            Self::Stopped => "Stopped",
            Self::Failed => "Failed",
        })
    }
}

/// One process, at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The name of its [`super::Spec`].
    pub name: String,
    /// Where it is in its life.
    pub state: State,
    /// Its process id while it runs.
    pub pid: Option<u32>,
    /// How often it was started again since `start`.
    pub restarts: u32,
    /// When the current (or last) attempt began.
    pub started_at: Timestamp,
    /// Its log.
    pub log: PathBuf,
    /// How the last attempt ended, with the last line of the log when it was not asked to end.
    pub last_exit: Option<String>,
    /// How long the current (or last) attempt took to become ready.
    pub ready_after: Option<Duration>,
}
