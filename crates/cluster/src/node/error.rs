//! What can go wrong with a node, said in terms of what was attempted.

use std::{io, path::PathBuf, time::Duration};

use super::range::Range;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("a Linux node needs root for network namespaces, mounts and cgroups; run as root, or do without the node")]
    NotRoot,

    #[error(
        "a Linux node needs {programs}, which this machine lacks; on Debian or Ubuntu: apt-get install -y --no-install-recommends {packages}"
    )]
    MissingPrograms { programs: String, packages: String },

    #[error(
        "{name:?} cannot name a node: use at most 63 lower-case letters, digits and '-', beginning and ending with a letter or digit"
    )]
    Name { name: String },

    #[error("failed to {attempt}: {}", path.display())]
    Io {
        attempt: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },

    #[error("failed to {attempt}: could not run {program}")]
    Spawn {
        attempt: String,
        program: String,
        #[source]
        source: io::Error,
    },

    #[error("failed to {attempt}: {program} ended with {status}: {stderr}")]
    Command {
        attempt: String,
        program: String,
        status: String,
        stderr: String,
    },

    #[error("failed to set up the namespaces of {name}: {detail}")]
    Namespaces { name: String, detail: String },

    #[error("no free network is left for nodes: every range from {first} to {last} is routed already on this machine")]
    NoFreeRange { first: Range, last: Range },

    #[error(
        "there is no running network for {}; start what makes it first, or do without --network",
        directory.display()
    )]
    NoNetwork { directory: PathBuf },

    #[error("no address is left in {range} for another node")]
    NetworkFull { range: Range },

    #[error("a node named {name} runs in this network already; stop it first or choose another name")]
    NameTaken { name: String },

    #[error(
        "the pod range {pods} of node {node} is routed elsewhere on this machine; start kube-controller-manager with --cluster-cidr={suggested}"
    )]
    PodRangeTaken {
        node: String,
        pods: Range,
        suggested: Range,
    },

    #[error("node {name} is run by process {pid}; stop that run first")]
    InUse { name: String, pid: u32 },

    #[error(
        "the control plane at {server} cannot be reached from a node; start it with the address {gateway} of the node network"
    )]
    Unreachable {
        server: String,
        gateway: std::net::Ipv4Addr,
    },

    #[error("the API server reports the pod range of node {node} as {text:?}")]
    PodRange {
        node: String,
        text: String,
        #[source]
        source: super::range::Invalid,
    },

    #[error("this machine has no cgroup hierarchy mounted that containers could use")]
    NoCgroups,

    #[error("failed to {attempt}")]
    Kubernetes {
        attempt: String,
        #[source]
        source: Box<kube::Error>,
    },

    #[error("{what} did not happen within {}s: {detail}", waited.as_secs())]
    Timeout {
        what: String,
        waited: Duration,
        detail: String,
    },

    #[error(transparent)]
    Parts(#[from] russet_parts::Error),

    #[error(transparent)]
    Process(#[from] crate::process::Error),

    #[error("failed to reach the control plane as its administrator")]
    ControlPlane(#[source] Box<dyn std::error::Error + Send + Sync>),

    #[error(transparent)]
    Identity(#[from] crate::pki::Error),

    #[error(transparent)]
    Kubeconfig(#[from] crate::kubeconfig::Error),

    #[error(transparent)]
    File(#[from] crate::files::Error),
}

impl Error {
    /// Adapter for `map_err` on file operations.
    pub(super) fn io(attempt: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { attempt, path, source }
    }

    /// Adapter for `map_err` on API calls.
    pub(super) fn kubernetes(attempt: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let attempt = attempt.into();
        move |source| Self::Kubernetes {
            attempt,
            source: Box::new(source),
        }
    }
}
