//! What can go wrong in the store, and what it means for a client.

use russet_segstore as segstore;

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
            Self::Store(_) => Class::Broken,
        }
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
            Self::Store(_) => "Storage failed",
        }
    }
}
