//! `ScalewayAppleSiliconCluster`: the cluster the machines join, as Cluster API wants to see it.
//!
//! The control plane is somebody else's. One object serves both of Cluster API's references, `infrastructureRef` and
//! `controlPlaneRef`, because only with a control-plane reference does core drain Nodes and delete them; the two
//! contracts read different fields of the same status.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conditions::Condition;

/// The existing cluster that our machines join.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "ScalewayAppleSiliconCluster",
    plural = "scalewayapplesiliconclusters",
    shortname = "sasc",
    category = "cluster-api",
    namespaced,
    status = "ScalewayAppleSiliconClusterStatus",
    derive = "PartialEq",
    doc = "The existing cluster that our machines join, as Cluster API wants to see it. Name it as both infrastructureRef and controlPlaneRef of the Cluster: without the second, Nodes are neither drained nor deleted.",
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".spec.controlPlaneEndpoint.host"),
    printcolumn(name = "Ready", type_ = "boolean", json_path = ".status.ready"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ScalewayAppleSiliconClusterSpec {
    /// Address of the API server that new Nodes dial. Cluster API itself never dials it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint: Option<ControlPlaneEndpoint>,
}

/// Address of an API server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ControlPlaneEndpoint {
    /// Host name or address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub host: Option<String>,
    /// Port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 65535))]
    pub port: Option<i32>,
}

impl ControlPlaneEndpoint {
    /// Host and port, if both say something. Older objects carry an empty host and port 0 for "not known".
    pub fn known(&self) -> Option<(&str, u16)> {
        let host = self.host.as_deref().filter(|h| !h.is_empty())?;
        let port = self.port.and_then(|p| u16::try_from(p).ok()).filter(|p| *p > 0)?;
        Some((host, port))
    }
}

/// What is known about the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalewayAppleSiliconClusterStatus {
    /// First-time set-up, as Cluster API reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialization: Option<ClusterInitialization>,
    /// The control plane is not made of Machines. Always true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_managed_control_plane: Option<bool>,
    /// The infrastructure is ready. For Cluster API before 1.11.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// The control plane answers. For Cluster API before 1.11.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialized: Option<bool>,
    /// Zones machines can be placed in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub failure_domains: Vec<FailureDomain>,
    /// What was observed: Ready, Available, Paused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The `metadata.generation` this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// First-time set-up of a cluster (contract v1beta2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterInitialization {
    /// True once machines may be made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioned: Option<bool>,
    /// True once the control plane answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_initialized: Option<bool>,
}

/// A zone machines can be placed in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureDomain {
    /// Name of the zone.
    pub name: String,
    /// Whether control-plane machines may be placed here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<bool>,
    /// Further properties of the zone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_of_nothing_is_not_known() {
        let zero = ControlPlaneEndpoint {
            host: Some(String::new()),
            port: Some(0),
        };
        assert_eq!(zero.known(), None);
        let real = ControlPlaneEndpoint {
            host: Some("10.0.0.1".into()),
            port: Some(6443),
        };
        assert_eq!(real.known(), Some(("10.0.0.1", 6443)));
    }
}
