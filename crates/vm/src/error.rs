//! What can go wrong, and what to do about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a call failed. Texts are for the Pod's status: one sentence, no secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The VM is not there.
    #[error("the VM {0} does not exist")]
    Missing(String),
    /// A VM of that name is there already; a clone would silently replace it.
    #[error("the VM {0} exists already")]
    Exists(String),
    /// It runs, and may not for this.
    #[error("the VM {0} is running")]
    Running(String),
    /// It does not run, and has to for this.
    #[error("the VM {0} is not running")]
    NotRunning(String),
    /// It was told to stop and killed, and is still there.
    #[error("the VM {0} does not end, not even when killed; the host may need a reboot")]
    Undead(String),
    /// The guest's agent does not answer, perhaps not yet.
    #[error("the guest agent of {vm} does not answer: {why}")]
    NoAgent {
        /// Whose.
        vm: String,
        /// What the other side said.
        why: String,
    },
    /// The registry has no such image.
    #[error("the registry has no image {0}; check its name and tag")]
    NoSuchImage(String),
    /// The registry wants other credentials.
    #[error("the registry refuses to give {0}; check the image pull secret")]
    Unauthorized(String),
    /// The network or the registry failed.
    #[error("could not pull {image}: {why}")]
    Registry {
        /// What was pulled.
        image: String,
        /// The first useful line of what was said.
        why: String,
    },
    /// The disk is full.
    #[error("the host's disk is full: {0}")]
    NoSpace(String),
    /// The image cannot run like this.
    #[error("the VM cannot be set up so: {0}")]
    Unsuitable(String),
    /// A folder cannot be shared.
    #[error("the folder {} cannot be shared: {why}", path.display())]
    BadShare {
        /// Which.
        path: PathBuf,
        /// Why not.
        why: &'static str,
    },
    /// A command took too long and was killed.
    #[error("`{command}` did not end within {after:?}")]
    Timeout {
        /// Without its arguments.
        command: String,
        /// How long it had.
        after: Duration,
    },
    /// A command failed in a way that has no name.
    #[error("`{command}` failed ({code}): {words}")]
    Command {
        /// Without its arguments.
        command: String,
        /// Exit code or signal.
        code: String,
        /// The first useful line of what it said.
        words: String,
    },
    /// A command gave an answer that makes no sense.
    #[error("`{command}` gave an answer that is not understood: {why}")]
    Answer {
        /// Without its arguments.
        command: String,
        /// What is wrong with it.
        why: String,
    },
    /// A program cannot be started at all.
    #[error("cannot start {}; is it installed?", program.display())]
    Program {
        /// Which.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file of ours cannot be read or written.
    #[error("cannot use {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// When it makes sense to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It may be better after a while.
    Later(Duration),
    /// Not before somebody changed the Pod, the image or the host.
    UntilChanged,
}

impl Error {
    /// A file that could not be used.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }

    /// Whether another attempt may help by itself.
    pub fn class(&self) -> Retry {
        match self {
            Self::Unauthorized(_) | Self::NoSuchImage(_) => Retry::Later(Duration::from_mins(1)),
            Self::Unsuitable(_) | Self::BadShare { .. } | Self::Missing(_) | Self::Exists(_) => Retry::UntilChanged,
            Self::NoAgent { .. } => Retry::Later(Duration::from_secs(1)),
            Self::NoSpace(_) | Self::Undead(_) => Retry::Later(Duration::from_secs(30)),
            _ => Retry::Later(Duration::from_secs(10)),
        }
    }

    /// One word for events and conditions.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Missing(_) => "VMMissing",
            Self::Exists(_) => "VMExists",
            Self::Running(_) => "VMRunning",
            Self::NotRunning(_) => "VMNotRunning",
            Self::Undead(_) => "VMDoesNotEnd",
            Self::NoAgent { .. } => "GuestAgentSilent",
            Self::NoSuchImage(_) | Self::Unauthorized(_) | Self::Registry { .. } => "ErrImagePull",
            Self::NoSpace(_) => "DiskFull",
            Self::Unsuitable(_) => "Unsuitable",
            Self::BadShare { .. } => "BadShare",
            Self::Timeout { .. } => "Timeout",
            Self::Command { .. } | Self::Answer { .. } => "RuntimeFailed",
            Self::Program { .. } => "RuntimeMissing",
            Self::File { .. } => "HostFileFailed",
        }
    }
}
