//! What can go wrong in the store, and what it means for a client.

use russet_segstore as segstore;
use std::io;

/// What a failure means for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// It passes: 503.
    Retry,
    /// The blob cannot fit: 413.
    TooLarge,
    /// Something is broken: 500.
    Broken,
}

/// Whether the system refused before it touched the disk: a volume that is gone or became read-only, rights that were taken
/// away, no descriptors or memory left.
///
/// Nothing is wrong with what is stored, and nothing was half done, so the answer is "not here, not now": whoever comes back may
/// be sent to another node, and this one may have been mended. Anything else, such as a sector that cannot be read, stays an
/// error of ours: asking again would find the same.
fn is_refused(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::NotFound
            | io::ErrorKind::OutOfMemory
    ) || matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// The store failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// As the store says.
    #[error(transparent)]
    Store(#[from] segstore::Error),
    /// The store ended before it answered.
    #[error("the store was closed before the write was confirmed")]
    Unanswered,
}

impl Error {
    /// What it means for the client.
    pub fn class(&self) -> Class {
        use segstore::Error as E;
        match self {
            Self::Store(E::TooLarge { .. } | E::OverCapacity { .. }) => Class::TooLarge,
            Self::Store(
                E::DiskFull { .. } | E::Overloaded { .. } | E::Poisoned { .. } | E::Closed | E::TableFull { .. },
            )
            | Self::Unanswered => Class::Retry,
            Self::Store(E::Io { source, .. }) if is_refused(source) => Class::Retry,
            Self::Store(_) => Class::Broken,
        }
    }

    /// Tells the log what somebody has to mend. What passes by itself, or is the client's doing, is not told.
    pub fn log(&self) {
        if self.class() == Class::Broken || matches!(self, Self::Store(segstore::Error::Io { .. })) {
            tracing::error!(error = %self, cause = self.cause(), "the store failed");
        }
    }

    fn cause(&self) -> Option<String> {
        let Self::Store(error) = self else { return None };
        std::error::Error::source(error).map(ToString::to_string)
    }

    /// What the client is told: what happened, without paths.
    pub fn client_message(&self) -> &'static str {
        use segstore::Error as E;
        match self {
            Self::Store(E::DiskFull { .. }) => "Disk is full",
            Self::Store(E::Overloaded { .. }) => "Server is overloaded",
            Self::Store(E::Poisoned { .. }) => "Storage needs a restart",
            Self::Store(E::TooLarge { .. } | E::OverCapacity { .. }) => "Request body exceeded allowed size",
            Self::Store(E::Closed) | Self::Unanswered => "server is draining",
            Self::Store(E::TableFull { .. }) => "Too many namespaces",
            Self::Store(E::Io { source, .. }) if is_refused(source) => "Storage is not accessible",
            Self::Store(_) => "Storage failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// A volume that became read-only made every write a 500, which clients take for final.
    #[test]
    fn what_another_node_may_do_is_told_apart_from_what_is_broken() {
        let io = |source: io::Error| {
            Error::Store(segstore::Error::Io {
                action: "appending",
                source: Arc::new(source),
            })
        };
        for kind in [
            io::ErrorKind::PermissionDenied,
            io::ErrorKind::ReadOnlyFilesystem,
            io::ErrorKind::NotFound,
        ] {
            let error = io(kind.into());
            let seen = (error.class(), error.client_message());
            assert_eq!(seen, (Class::Retry, "Storage is not accessible"), "{kind:?}");
        }
        let descriptors = io(rustix::io::Errno::MFILE.into());
        assert_eq!(descriptors.class(), Class::Retry);
        let sector = io(rustix::io::Errno::IO.into());
        let seen = (sector.class(), sector.client_message());
        assert_eq!(seen, (Class::Broken, "Storage failed"));
    }
}
