//! The seam between a machine's `ghActionsRunner` and whoever can mint a token for it.
//!
//! The machine controller knows only [`Resolver`]. A GitHub App read from a Secret is one implementation; a personal token or another forge
//! would be another, with no change to the controller.

use futures::future::BoxFuture;
use jiff::Timestamp;
use russet_api::apple_silicon_machine::GhActionsRunner;
use russet_telemetry::Secret;

use crate::credentials;
use crate::org::InvalidOrg;

/// Mints the token with which a host registers as a runner.
pub trait Resolver: Send + Sync + 'static {
    /// A fresh token for this runner of a machine in this namespace.
    fn registration_token(
        &self,
        runner: &GhActionsRunner,
        namespace: &str,
    ) -> BoxFuture<'_, Result<Secret<String>, Error>>;
}

/// Why there is no token. Fit for the condition reason `GHRunnerRegistrationTokenUnavailable`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The spec names no Secret.
    #[error(
        "spec.ghActionsRunner.ghAppSecretName is not set: create a Secret with the keys app-id, installation-id and \
         private-key of a GitHub App and name it there"
    )]
    NoSecretName,
    /// There is no such Secret.
    #[error(
        "Secret {namespace}/{name} does not exist: create it with the keys app-id, installation-id and private-key of a \
         GitHub App, or correct spec.ghActionsRunner.ghAppSecretName"
    )]
    NoSecret {
        /// Where it should be.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The Secret could not be read.
    #[error("Secret {namespace}/{name} could not be read")]
    Unreadable {
        /// Where it is.
        namespace: String,
        /// Its name.
        name: String,
        /// What the API server said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The Secret holds something else.
    #[error("Secret {namespace}/{name}: {source}")]
    Credentials {
        /// Where it is.
        namespace: String,
        /// Its name.
        name: String,
        /// Which field, and what to do.
        source: credentials::Invalid,
    },
    /// The organisation's name is none.
    #[error(transparent)]
    Org(#[from] InvalidOrg),
    /// The address of the API is none.
    #[error(transparent)]
    Config(#[from] crate::config::Invalid),
    /// GitHub did not give one.
    #[error("{error}; {advice}", error = .0, advice = .0.advice())]
    GitHub(#[from] crate::Error),
}

impl Error {
    /// Whether it may go well later without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreadable { .. } => true,
            Self::GitHub(error) => error.is_transient(),
            Self::NoSecretName | Self::NoSecret { .. } | Self::Credentials { .. } | Self::Org(_) | Self::Config(_) => {
                false
            }
        }
    }

    /// When a repeat makes sense at the earliest, if GitHub said so.
    pub fn not_before(&self) -> Option<Timestamp> {
        match self {
            Self::GitHub(error) => error.not_before(),
            _ => None,
        }
    }
}
