//! Errors, in two layers.
//!
//! [`SourceError`] is why one source could not deliver. It is seldom the end: the next source is tried. [`Error`] is the end; its
//! `Unobtainable` variant carries every [`Attempt`] and says what the user can do.

use std::{fmt, io, path::PathBuf, process::ExitStatus, time::Duration};

use crate::{Origin, platform::Platform, space::human};

/// Why tools could not be handed out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("unknown tool {tool:?}; known tools: {}", known.join(", "))]
    UnknownTool { tool: String, known: Vec<String> },

    #[error("{tool} does not exist for {platform} (it exists for: {})", exists_for.join(", "))]
    Unsupported {
        tool: String,
        platform: Platform,
        exists_for: Vec<String>,
    },

    #[error("tool {tool:?} was not asked for when the tools were obtained")]
    NotAskedFor { tool: String },

    #[error("failed to read the parts manifest: {0}")]
    Manifest(String),

    #[error(
        "the given folder {} is not there; correct RUSSET_PARTS_DIR or KUBEBUILDER_ASSETS, or unset them",
        path.display()
    )]
    GivenFolder { path: PathBuf },

    #[error("{} was given as {tool} but cannot be used: {problem}", path.display())]
    Given {
        tool: String,
        path: PathBuf,
        problem: String,
    },

    #[error(
        "not enough disk space at {}: {why} needs about {}{}; free some space, or set RUSSET_CACHE_DIR (and GOCACHE) to a larger disk",
        path.display(),
        human(*needed),
        free.map(|free| format!(", {} are free", human(free))).unwrap_or_default()
    )]
    NoSpace {
        path: PathBuf,
        needed: u64,
        free: Option<u64>,
        why: String,
    },

    #[error("failed to {action} {}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },

    #[error("{0}")]
    Unobtainable(Box<Unobtainable>),
}

/// Nothing worked.
#[derive(Debug)]
pub struct Unobtainable {
    pub part: String,
    pub version: String,
    /// Every tool of the request that is still missing, those of other parts too: a folder filled by hand should hold them all.
    pub missing: Vec<String>,
    pub attempts: Vec<Attempt>,
    pub ways_out: Vec<String>,
}

impl fmt::Display for Unobtainable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "could not obtain {} {}", self.part, self.version)?;
        for attempt in &self.attempts {
            let source = match attempt.origin {
                Origin::Release => "the official release",
                Origin::Debian => "the distribution's package",
                Origin::Npm => "the npm registry",
                Origin::Pypi => "the Python registry",
                Origin::Maven => "the Maven registry",
                Origin::Go => "a build with Go",
                Origin::Given => "the given folders",
                Origin::System => "this system",
            };
            write!(f, "\n  tried {source}: {}", attempt.error)?;
        }
        for (n, way) in self.ways_out.iter().enumerate() {
            if n == 0 {
                f.write_str("\nways out:")?;
            }
            write!(f, "\n  {}. {way}", n + 1)?;
        }
        Ok(())
    }
}

/// One source that was tried.
#[derive(Debug)]
pub struct Attempt {
    pub origin: Origin,
    pub error: SourceError,
}

/// Why one source could not deliver.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    #[error("the network may not be used (RUSSET_PARTS_OFFLINE)")]
    Offline,

    #[error("building was not allowed")]
    BuildNotAllowed,

    #[error("nothing is published for {0}")]
    NotPublished(Platform),

    #[error("{host} could not be reached: {detail}")]
    Unreachable { host: String, detail: String },

    #[error("{host} could not be reached a moment ago; not tried again")]
    HostGivenUp { host: String },

    #[error("{url} answered {status}")]
    Status { url: String, status: u16 },

    #[error("the download of {url} ended early: {detail}")]
    Interrupted { url: String, detail: String },

    #[error("{url} sent nothing for {after:?}")]
    Stalled { url: String, after: Duration },

    #[error("{url} has no checksum for {file}")]
    ChecksumMissing { url: String, file: String },

    #[error("{url} does not match its published checksum: expected sha256 {expected}, got {actual}; it was discarded")]
    ChecksumMismatch {
        url: String,
        expected: String,
        actual: String,
    },

    #[error("the archive {url} is unusable: {detail}")]
    Archive { url: String, detail: String },

    #[error("no `go` command on the PATH (Go {needed} or newer is needed)")]
    NoGo { needed: String },

    #[error("Go {found} is too old and may not fetch a newer one (GOTOOLCHAIN=local); Go {needed} or newer is needed")]
    GoTooOld { found: String, needed: String },

    #[error("`{command}` ended with {status}:\n{}", indent(tail))]
    Command {
        command: String,
        status: ExitStatus,
        /// The last lines of its stderr.
        tail: String,
    },

    #[error("`{command}` could not be run: {source}")]
    Spawn {
        command: String,
        #[source]
        source: io::Error,
    },

    #[error("this system has no {command}; it is not a Debian or one of its relatives")]
    NotDebian { command: &'static str },

    #[error("no `{command}` command on the PATH ({comes_with} brings it)")]
    NoCommand {
        command: &'static str,
        comes_with: &'static str,
    },

    #[error("{from} does not contain {what}")]
    NotInside { from: String, what: String },
}

fn indent(text: &str) -> String {
    text.lines()
        .map(|line| format!("    {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

impl Error {
    /// Adds what was attempted to an I/O error. A full disk becomes [`Error::NoSpace`], whichever call noticed it.
    pub(crate) fn io(action: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| {
            if source.kind() == io::ErrorKind::StorageFull || source.kind() == io::ErrorKind::QuotaExceeded {
                Self::NoSpace {
                    path,
                    needed: 1 << 30,
                    free: None,
                    why: format!("to {action} a part"),
                }
            } else {
                Self::Io { action, path, source }
            }
        }
    }
}
