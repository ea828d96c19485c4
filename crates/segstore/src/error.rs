//! What can go wrong, and what to do about it. Errors are cloneable, since one failed commit answers many callers.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error(
        "the store in {} is in use by process {}; stop that process or choose another folder",
        dir.display(),
        pid.map_or_else(|| "unknown".to_owned(), |p| p.to_string())
    )]
    Locked { dir: PathBuf, pid: Option<u32> },

    #[error(
        "the store was written by format version {found}, this build reads up to {supported}; start a newer build, or \
         choose an empty folder"
    )]
    UnsupportedVersion { found: u32, supported: u32 },

    #[error("{action} failed; check that the folder exists, belongs to this user and is not mounted read-only")]
    Io {
        action: &'static str,
        #[source]
        source: Arc<io::Error>,
    },

    #[error("no space left on the disk of the store; it serves reads only, try again in {} s", retry_after.as_secs())]
    DiskFull { retry_after: Duration },

    #[error(
        "the disk did not confirm a write, so nothing more is accepted; restart the process to recover (reads go on)"
    )]
    Poisoned {
        #[source]
        source: Arc<io::Error>,
    },

    #[error("too many bytes wait to be committed ({queued}); try again in {} ms", retry_after.as_millis())]
    Overloaded { queued: u64, retry_after: Duration },

    #[error("the store is closed")]
    Closed,

    #[error("a {what} of {len} is over the limit of {limit}")]
    TooLarge { what: &'static str, len: u64, limit: u64 },

    #[error("the body ended after {written} of {expected} announced bytes")]
    ShortBody { written: u64, expected: u64 },

    #[error("the body does not fit the store: {len} bytes, capacity {capacity}")]
    OverCapacity { len: u64, capacity: u64 },

    #[error("the store holds {limit} namespaces or segments already; delete some, or use larger segments")]
    TableFull { limit: u64 },

    #[error("the stored bytes are damaged; the entry was dropped")]
    Damaged,
}

impl Error {
    pub(crate) fn io(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            action,
            source: Arc::new(source),
        }
    }

    /// When a client should try again, for errors that pass.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::DiskFull { retry_after } | Self::Overloaded { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }
}

/// Whether the disk or the quota is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether the failure says nothing about what the disk did: nothing was attempted, so nothing is in doubt.
pub(crate) fn is_refused(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::NotFound
    ) || matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}
