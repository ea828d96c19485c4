//! The objects around a machine, as far as they are read: Machines, Clusters and Nodes without the rest of them.
//!
//! A thousand Nodes with all their images and conditions are tens of megabytes in a cache; what decides about a Mac is a
//! hundred bytes of each.

use std::borrow::Cow;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::Resource;
use kube::api::ObjectMeta;
use russet_api::groups;
use serde::{Deserialize, Serialize};

macro_rules! resource {
    ($type:ident, $scope:ty, $group:literal, $version:literal, $kind:literal, $plural:literal) => {
        impl Resource for $type {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                $kind.into()
            }

            fn group((): &()) -> Cow<'_, str> {
                $group.into()
            }

            fn version((): &()) -> Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

/// A Machine of Cluster API core.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What it should be.
    #[serde(default)]
    pub spec: MachineSpec,
}

/// What a Machine should be.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineSpec {
    /// Its Cluster.
    #[serde(default)]
    pub cluster_name: String,
    /// How it is set up.
    #[serde(default)]
    pub bootstrap: Bootstrap,
    /// Where it should be.
    #[serde(default)]
    pub failure_domain: Option<String>,
    /// Our object.
    #[serde(default)]
    pub infrastructure_ref: ContractRef,
}

/// How a Machine is set up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bootstrap {
    /// The Secret with bootstrap data.
    #[serde(default)]
    pub data_secret_name: Option<String>,
}

/// A reference of core to an object of a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContractRef {
    /// Group of the kind.
    #[serde(default)]
    pub api_group: String,
    /// Kind.
    #[serde(default)]
    pub kind: String,
    /// Name, in the namespace of what refers to it.
    #[serde(default)]
    pub name: String,
}

impl ContractRef {
    /// Whether it names an object of our cluster kind.
    pub fn is_our_cluster(&self) -> bool {
        self.api_group == groups::INFRASTRUCTURE && self.kind == "ScalewayAppleSiliconCluster" && !self.name.is_empty()
    }
}

resource!(
    Machine,
    NamespaceResourceScope,
    "cluster.x-k8s.io",
    "v1beta2",
    "Machine",
    "machines"
);

/// A Cluster of Cluster API core.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Cluster {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What it should be.
    #[serde(default)]
    pub spec: ClusterSpec,
    /// What it is.
    #[serde(default)]
    pub status: ClusterStatus,
}

/// What a Cluster should be.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    /// Nobody touches it or what belongs to it.
    #[serde(default)]
    pub paused: Option<bool>,
    /// Its infrastructure.
    #[serde(default)]
    pub infrastructure_ref: Option<ContractRef>,
    /// Its control plane.
    #[serde(default)]
    pub control_plane_ref: Option<ContractRef>,
}

/// What a Cluster is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// First-time set-up.
    #[serde(default)]
    pub initialization: ClusterInitialization,
}

/// First-time set-up of a Cluster.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterInitialization {
    /// Machines may be made.
    #[serde(default)]
    pub infrastructure_provisioned: Option<bool>,
}

impl Cluster {
    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        self.spec.paused == Some(true)
    }

    /// Whether machines may be made.
    pub fn is_ready(&self) -> bool {
        self.status.initialization.infrastructure_provisioned == Some(true)
    }
}

resource!(
    Cluster,
    NamespaceResourceScope,
    "cluster.x-k8s.io",
    "v1beta2",
    "Cluster",
    "clusters"
);

/// A Node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Node {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What it should be.
    #[serde(default)]
    pub spec: NodeSpec,
    /// What it is.
    #[serde(default)]
    pub status: NodeStatus,
}

/// What a Node should be.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Its host.
    #[serde(rename = "providerID", default)]
    pub provider_id: Option<String>,
}

/// What a Node is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NodeStatus {
    /// What was observed.
    #[serde(default)]
    pub conditions: Vec<NodeCondition>,
}

/// One observation about a Node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCondition {
    /// What.
    #[serde(rename = "type")]
    pub type_: String,
    /// Whether it holds.
    pub status: String,
    /// Since when.
    #[serde(default)]
    pub last_transition_time: Option<Time>,
}

impl Node {
    /// Whether its kubelet says it is ready.
    pub fn is_ready(&self) -> bool {
        self.status
            .conditions
            .iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
    }

    /// Since when it is not ready, or nobody hears of it; none if it is, or that is not known.
    pub fn lost_since(&self) -> Option<Timestamp> {
        let mut conditions = self.status.conditions.iter();
        let ready = conditions.find(|condition| condition.type_ == "Ready")?;
        let since = ready.last_transition_time.as_ref().map(|time| time.0);
        since.filter(|_| ready.status != "True")
    }
}

resource!(Node, ClusterResourceScope, "", "v1", "Node", "nodes");
