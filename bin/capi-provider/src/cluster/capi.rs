//! As much of Cluster API's `Cluster` as we read.

use kube::CustomResource;
use russet_api::groups;
use serde::{Deserialize, Serialize};

/// A Cluster.
#[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "Cluster",
    namespaced,
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
#[expect(unreachable_pub, reason = "the derive makes a public type of it")]
pub struct ClusterSpec {
    /// Nothing is to be done to it, nor to what belongs to it.
    #[serde(default)]
    pub paused: Option<bool>,
    /// Its infrastructure.
    #[serde(default)]
    pub infrastructure_ref: Option<ContractRef>,
    /// Its control plane.
    #[serde(default)]
    pub control_plane_ref: Option<ContractRef>,
}

/// A reference of core to an object of a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ContractRef {
    /// Group of the kind.
    #[serde(default)]
    pub api_group: String,
    /// Kind.
    #[serde(default)]
    pub kind: String,
    /// Name, in the namespace of the Cluster.
    #[serde(default)]
    pub name: String,
}

impl ContractRef {
    /// Whether it names an object of our cluster kind.
    pub(super) fn is_ours(&self) -> bool {
        self.api_group == groups::INFRASTRUCTURE && self.kind == "ScalewayAppleSiliconCluster" && !self.name.is_empty()
    }
}
