//! How a source ends: it delivers, it leaves the rest to the next source, or it stops everything.

use crate::{Error, SourceError};

/// Why a source did not deliver.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Try the next source.
    Next(SourceError),
    /// No other source would fare better: the disk is full, the cache cannot be written.
    Stop(Error),
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        Self::Next(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Stop(error)
    }
}
