//! What can go wrong with a child process, said so that one knows what to do next.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::files;

/// The end of a process's log. Displays as an indented block that names the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogTail {
    /// The whole log.
    pub path: PathBuf,
    /// Its last lines.
    pub lines: Vec<String>,
}

impl fmt::Display for LogTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lines.is_empty() {
            return write!(f, "\n  {} is empty", self.path.display());
        }
        write!(f, "\n  the end of {}:", self.path.display())?;
        for line in &self.lines {
            write!(f, "\n    {line}")?;
        }
        Ok(())
    }
}

/// Why a process could not be started, stopped or swept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program is not there, or is not executable.
    #[error("cannot start {name}: {} is not an executable file; `russet parts fetch` obtains missing parts", program.display())]
    ProgramMissing {
        /// The process.
        name: String,
        /// Where it should have been.
        program: PathBuf,
    },
    /// An address it wants is in use.
    #[error(
        "cannot start {name}: {address} is taken by another process; stop that one, or start again to get another port"
    )]
    PortTaken {
        /// The process.
        name: String,
        /// The address.
        address: SocketAddr,
    },
    /// The disk is full, found before or after a failed start.
    #[error("cannot run {name}: only {free_mib} MiB are free at {}; free some space and start again", path.display())]
    DiskFull {
        /// The process.
        name: String,
        /// A directory on the full file system.
        path: PathBuf,
        /// What is left.
        free_mib: u64,
    },
    /// The system refused to start it.
    #[error("cannot start {name}")]
    Spawn {
        /// The process.
        name: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// It ended before it was ready.
    #[error("{name} ended before it was ready ({exit}){tail}")]
    ExitedEarly {
        /// The process.
        name: String,
        /// How it ended.
        exit: String,
        /// The end of its log.
        tail: LogTail,
    },
    /// It runs, but is not ready in time. It has been stopped.
    #[error("{name} was not ready within {} s and was stopped (last probe: {probe}){tail}", limit.as_secs())]
    NotReady {
        /// The process.
        name: String,
        /// The limit that passed.
        limit: Duration,
        /// Why the last probe failed.
        probe: String,
        /// The end of its log.
        tail: LogTail,
    },
    /// It was told to stop while somebody waited for it to become ready.
    #[error("{name} was stopped before it was ready")]
    Stopped {
        /// The process.
        name: String,
    },
    /// A process of that name runs already.
    #[error("{name} is already running; stop it first")]
    AlreadyRunning {
        /// The process.
        name: String,
    },
    /// There is no process of that name.
    #[error("no process is called {name}")]
    Unknown {
        /// The name.
        name: String,
    },
    /// The supervisor has shut down.
    #[error("the supervisor has shut down; nothing more can be started")]
    ShutDown,
    /// Another live process supervises the same directory.
    #[error("{} is in use by process {pid}; stop that run first (`russet down`)", dir.display())]
    InUse {
        /// The state directory.
        dir: PathBuf,
        /// The process that owns it.
        pid: u32,
    },
    /// A left-over process could not be ended.
    #[error("process {pid} ({name}), left over from an earlier run, does not end; end it by hand")]
    WillNotEnd {
        /// The process.
        name: String,
        /// Its id.
        pid: u32,
    },
    /// The ledger or a log could not be read or written.
    #[error(transparent)]
    File(#[from] files::Error),
}

impl Error {
    /// The taken address, when that is what went wrong: callers that choose ports themselves can choose another.
    pub fn taken_port(&self) -> Option<SocketAddr> {
        match self {
            Self::PortTaken { address, .. } => Some(*address),
            _ => None,
        }
    }

    /// A full disk found by us (not by the child) under `path`.
    pub(super) fn disk_full(name: &str, path: &Path, free_bytes: u64) -> Self {
        Self::DiskFull {
            name: name.to_owned(),
            path: path.to_owned(),
            free_mib: free_bytes >> 20,
        }
    }
}
