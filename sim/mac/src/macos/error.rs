//! What can go wrong around an emulated Mac.

use std::io;
use std::path::{Path, PathBuf};

/// Why an emulated Mac is not there or not as asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MacError {
    /// A file of the emulator.
    #[error("could not {what} {}", path.display())]
    File {
        /// What was attempted.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        source: io::Error,
    },
    /// The namespaces could not be made.
    #[error("the emulated Mac did not start: {0}; it needs unshare (util-linux) and user namespaces, or root")]
    Boot(String),
    /// The Mac has no power.
    #[error("the emulated Mac is off")]
    Off,
    /// A program did not start.
    #[error("could not start {program} on the emulated Mac: {error}")]
    Start { program: String, error: String },
    /// A tool of this system is missing.
    #[error("{0} is not on this system; an emulated Mac needs it (Debian: apt-get install util-linux)")]
    Missing(&'static str),
    /// The host key of a machine is no seed.
    #[error("the host key of a machine is unusable: {0}")]
    HostKey(String),
    /// A switch that this Mac does not have.
    #[error("{0}")]
    Switch(String),
}

impl MacError {
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File {
            what,
            path: path.to_owned(),
            source,
        }
    }
}
