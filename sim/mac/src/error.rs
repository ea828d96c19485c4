//! What can go wrong.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Why there is no fleet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// The port is taken.
    #[error("could not reserve {address}; does another emulated fleet use port {}?", address.port())]
    Port {
        /// Where one fleet per port announces itself.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The disks of machines cannot be kept.
    #[error("could not make the folder {} for the disks of machines", dir.display())]
    Disks {
        /// The folder.
        dir: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// There can be no Macs.
    #[error(transparent)]
    Macs(#[from] crate::macos::MacError),
}

/// Why the emulated Scaleway cannot be followed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FollowError {
    /// It did not answer, or not what a `sim-scaleway` answers.
    #[error("could not read {url}; is a sim-scaleway running there?")]
    Unreadable {
        /// What was asked for.
        url: String,
        /// What happened.
        source: reqwest::Error,
    },
}

/// Why a machine is not in the cluster.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AgentError {
    #[error("could not use the bootstrap kubeconfig: {0}")]
    Kubeconfig(String),
    #[error("could not make a key")]
    Key(#[from] rcgen::Error),
    #[error("the certificate request {name} was denied: {reason}")]
    Denied { name: String, reason: String },
    #[error("the certificate request {name} could not be signed: {reason}")]
    Unsigned { name: String, reason: String },
    #[error("the Node {name} belongs to another machine: its providerID is {found}, this machine is {ours}")]
    ForeignNode { name: String, found: String, ours: String },
    #[error("could not {what}: {}", brief(source))]
    Api {
        what: &'static str,
        #[source]
        source: Box<kube::Error>,
    },
}

impl AgentError {
    pub(crate) fn api(what: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Api {
            what,
            source: Box::new(source),
        }
    }

    /// Whether another try with the same orders cannot help.
    pub(crate) fn is_final(&self) -> bool {
        !matches!(self, Self::Api { .. })
    }

    /// Whether the API server answered, and did not want us.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Api { source, .. }
            if matches!(source.as_ref(), kube::Error::Api(status) if matches!(status.code, 401 | 403)))
    }
}

/// The sentence of the API server rather than the debug form of its answer.
fn brief(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        kube::Error::Api(status) => format!("the API server answered {}", status.code),
        other => other.to_string(),
    }
}
