//! Why a cluster could not be brought on.

use russet_api::conditions::reasons::cluster::ENDPOINT_UNKNOWN;
use russet_controller::{Class, Classify, apply};

use crate::api_server::{self, brief};

/// Why a cluster could not be brought on now. What only a person can put right is a condition instead.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A write failed.
    #[error(transparent)]
    Write(#[from] apply::Error),
    /// The API server's address could not be looked up.
    #[error(transparent)]
    Server(#[from] api_server::Error),
    /// A request failed.
    #[error("failed to {verb} {what}: {}", brief(source))]
    Request {
        /// What was attempted.
        verb: &'static str,
        /// On what.
        what: String,
        /// Why.
        source: Box<kube::Error>,
    },
}

impl Error {
    pub(super) fn request(verb: &'static str, what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |source| Self::Request {
            verb,
            what,
            source: Box::new(source),
        }
    }
}

impl Classify for Error {
    fn class(&self) -> Class {
        match self {
            Self::Write(error) => error.class(),
            Self::Server(error) => error.class(),
            Self::Request { source, .. } => source.class(),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Write(error) => error.reason(),
            Self::Server(_) => ENDPOINT_UNKNOWN,
            Self::Request { source, .. } => source.reason(),
        }
    }
}
