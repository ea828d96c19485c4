//! What a caller may choose about a node.

use std::{collections::BTreeMap, path::PathBuf};

use k8s_openapi::api::core::v1::Taint;

use super::{Error, Network, Range};
use crate::process::Restart;

/// A node to start. [`Options::new`] gives one without labels, taints or provider.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of the Node object and of the host.
    pub name: String,
    /// Labels of the Node; those a kubelet may not set itself are set by the administrator.
    pub labels: BTreeMap<String, String>,
    /// Taints the Node registers with.
    pub taints: Vec<Taint>,
    /// `spec.providerID`, by which Cluster API finds the Node of a Machine.
    pub provider_id: Option<String>,
    /// Where the addresses of pods come from.
    pub pods: Pods,
    /// The network to join. The node's files are below its state directory.
    pub network: Network,
    /// Where the logs of the node's programs go.
    pub logs: PathBuf,
    /// What happens when one of the node's programs ends.
    pub restart: Restart,
}

/// Where the addresses of a node's pods come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pods {
    /// From kube-controller-manager, started with [`Network::controller_manager_args`].
    Allocated,
    /// From here; kube-controller-manager must not allocate ranges then.
    Fixed(Range),
}

impl Options {
    pub fn new(name: impl Into<String>, network: &Network) -> Self {
        Self {
            name: name.into(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            provider_id: None,
            pods: Pods::Allocated,
            logs: network.directory().join("logs"),
            network: network.clone(),
            restart: Restart::DEFAULT,
        }
    }

    /// The name becomes a host name, a cgroup and a directory.
    pub(super) fn validate(&self) -> Result<(), Error> {
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let name = &self.name;
        let valid =
            name.len() <= 63 && edge(name.chars().next()) && edge(name.chars().last()) && name.chars().all(inner);
        if valid {
            Ok(())
        } else {
            Err(Error::Name { name: name.clone() })
        }
    }
}
