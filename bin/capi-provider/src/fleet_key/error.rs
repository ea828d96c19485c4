//! Why a fleet has no key.

use russet_api::conditions::reasons::apple_silicon::SSH_KEY_UNAVAILABLE;
use russet_controller::{Class, Classify};
use russet_scaleway::{Kind, ProjectId, SshKeyId};

use super::Malformed;
use crate::api_server::brief;

/// Why a fleet has no key. Each text says what to do, and none repeats a key.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name cannot be part of a Secret's name.
    #[error("{fleet:?} cannot be the name of a fleet: use lower-case letters, digits and dashes")]
    Name {
        /// The name.
        fleet: String,
    },
    /// The Secret could not be read or written.
    #[error("failed to {verb} Secret {namespace}/{name}: {}", brief(source))]
    Secret {
        /// What was attempted.
        verb: &'static str,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Why.
        source: Box<kube::Error>,
    },
    /// The Secret holds no usable key.
    #[error(
        "Secret {namespace}/{name} holds no usable SSH key: {problem}; replace it with one from ssh-keygen -t ed25519 -N '', or delete it and a key is made"
    )]
    Malformed {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// What is wrong with it.
        problem: Malformed,
    },
    /// No key could be made.
    #[error("failed to make an SSH key: the system gave no random numbers")]
    Generate,
    /// The registration is disabled.
    #[error(
        "the SSH key of fleet {fleet} is registered as {id} but disabled, so new hosts do not get it; enable or delete it in the Scaleway console (IAM, SSH keys)"
    )]
    Disabled {
        /// The fleet.
        fleet: String,
        /// The registration.
        id: SshKeyId,
    },
    /// The client belongs to another project.
    #[error(
        "keys belong to project {wanted}, but the Scaleway client works in {got}; set SCW_DEFAULT_PROJECT_ID to one of them"
    )]
    Project {
        /// Where keys belong.
        wanted: ProjectId,
        /// Where the client works.
        got: ProjectId,
    },
    /// IAM refused or did not answer.
    #[error("failed to {verb} SSH keys for fleet {fleet}: {source}")]
    Iam {
        /// What was attempted.
        verb: &'static str,
        /// The fleet.
        fleet: String,
        /// Why.
        source: Box<russet_scaleway::Error>,
    },
    /// Others kept writing.
    #[error("the SSH key of fleet {fleet} is being changed by others; it is tried again")]
    Restless {
        /// The fleet.
        fleet: String,
    },
}

impl Classify for Error {
    fn class(&self) -> Class {
        match self {
            // Put right by a person, outside of what is watched: looked at again, seldom, and reported loudly.
            Self::Name { .. } | Self::Malformed { .. } | Self::Disabled { .. } | Self::Project { .. } => {
                Class::Forbidden
            }
            Self::Secret { source, .. } => source.class(),
            Self::Generate | Self::Restless { .. } => Class::Transient,
            Self::Iam { source, .. } => match &source.kind {
                Kind::RateLimited { after, .. } => Class::RateLimited { after: *after },
                _ if source.is_transient() => Class::Transient,
                _ => Class::Forbidden,
            },
        }
    }

    fn reason(&self) -> &'static str {
        SSH_KEY_UNAVAILABLE
    }
}
