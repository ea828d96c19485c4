//! Why a machine got no credentials.

use russet_api::conditions::reasons::apple_silicon::{KUBECONFIG_UNAVAILABLE, NODE_IDENTITY_UNAVAILABLE};
use russet_controller::{Class, Classify};

use crate::api_server::{self, brief};
use crate::machine_ref::MachineRef;

/// Why a machine got no credentials, or kept them.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not known where the API server is.
    #[error(transparent)]
    Server(#[from] api_server::Error),
    /// The uid cannot be part of a group's name.
    #[error(
        "machine {machine} has the uid {uid:?}, which cannot be part of a group's name: credentials need one that the API server gave"
    )]
    Uid {
        /// The machine.
        machine: MachineRef,
        /// Its uid.
        uid: String,
    },
    /// The token could not be read or written.
    #[error("failed to {verb} the bootstrap token of machine {machine}: {}", brief(source))]
    Token {
        /// What was attempted.
        verb: &'static str,
        /// The machine.
        machine: MachineRef,
        /// Why.
        source: Box<kube::Error>,
    },
    /// Something else of the machine's identity could not be removed.
    #[error("failed to {verb} {what} of machine {machine}: {}", brief(source))]
    Revoke {
        /// What was attempted.
        verb: &'static str,
        /// On what.
        what: String,
        /// The machine.
        machine: MachineRef,
        /// Why.
        source: Box<kube::Error>,
    },
    /// No id was free, or others kept writing.
    #[error(
        "no bootstrap token could be made for machine {machine} because others write the same Secrets; it is tried again"
    )]
    Contended {
        /// The machine.
        machine: MachineRef,
    },
}

impl Error {
    pub(super) fn token(verb: &'static str, machine: &MachineRef, source: kube::Error) -> Self {
        Self::Token {
            verb,
            machine: machine.clone(),
            source: Box::new(source),
        }
    }
}

impl Classify for Error {
    fn class(&self) -> Class {
        match self {
            Self::Server(error) => error.class(),
            Self::Uid { .. } => Class::Invalid,
            Self::Token { source, .. } | Self::Revoke { source, .. } => source.class(),
            Self::Contended { .. } => Class::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Server(_) => KUBECONFIG_UNAVAILABLE,
            _ => NODE_IDENTITY_UNAVAILABLE,
        }
    }
}
