//! Why a reconcile could not go on.

use russet_controller::{Class, Classify};

/// Why a reconcile could not go on. What Scaleway says is no error here but a situation, with a condition.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server.
    #[error("failed to {what}")]
    Kube {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: Box<kube::Error>,
    },
    /// The API server forgets what is being done to a host.
    #[error(
        "the API server does not store status.intent; upgrade the CRDs (chart russet-crds) before anything is done to a host"
    )]
    Pruned,
    /// An object that cannot be rendered, which is a bug.
    #[error("failed to render {what}")]
    Render {
        /// What.
        what: &'static str,
        /// Why.
        source: serde_json::Error,
    },
}

impl Error {
    /// For `map_err`.
    pub(crate) fn kube(what: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Kube {
            what,
            source: Box::new(source),
        }
    }

    /// Whether somebody else wrote first.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Kube { source, .. } if matches!(&**source, kube::Error::Api(status) if status.is_conflict()))
    }
}

impl Classify for Error {
    fn class(&self) -> Class {
        match self {
            Self::Kube { source, .. } => source.class(),
            Self::Pruned => Class::Waiting {
                what: "CRDs that know status.intent".to_owned(),
                poll: std::time::Duration::from_mins(1),
            },
            Self::Render { .. } => Class::Invalid,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Kube { source, .. } => source.reason(),
            Self::Pruned => russet_api::conditions::reasons::FIELDS_PRUNED,
            Self::Render { .. } => "Invalid",
        }
    }
}
