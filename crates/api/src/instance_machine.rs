//! `ScalewayInstanceMachine`: one Linux virtual server, and the template that makes them.

use k8s_openapi::api::core::v1::Taint;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conditions::Condition;
use crate::machine::{Intent, MachineAddress, MachineInitialization, Phase, Step, TemplateMeta, TemplateStatus};
use crate::schema;
use crate::values::{CidrBlock, FleetName, Invalid, ProviderId, ProviderKind, Zone, non_empty};

/// A Scaleway Instance that joins the cluster as a Node.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "ScalewayInstanceMachine",
    plural = "scalewayinstancemachines",
    shortname = "sim",
    category = "cluster-api",
    namespaced,
    status = "ScalewayInstanceMachineStatus",
    derive = "PartialEq",
    doc = "A Scaleway Instance (virtual Linux server) that joins the cluster as a Node through cloud-init. It has a public address for the join; cache traffic uses the Private Network.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "ProviderID", type_ = "string", json_path = ".spec.providerID"),
    printcolumn(name = "Ready", type_ = "boolean", json_path = ".status.ready"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.commercialType", priority = 1),
    printcolumn(name = "Zone", type_ = "string", json_path = ".spec.zone", priority = 1)
)]
#[serde(rename_all = "camelCase")]
pub struct ScalewayInstanceMachineSpec {
    /// Identity of the server, `scaleway://instance/<zone>/<server id>`. Set by the controller; Cluster API finds the
    /// Node by it. It cannot be rewritten.
    #[serde(rename = "providerID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = schema::PROVIDER_ID_MAX), extend("x-kubernetes-validations" = schema::provider_id(ProviderKind::Instance.scheme())))]
    pub provider_id: Option<String>,
    /// Scaleway's name of the server size, such as `PRO2-S`. Default `PRO2-S`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = Self::DEFAULT_COMMERCIAL_TYPE))]
    pub commercial_type: Option<String>,
    /// Scaleway zone the server is in. Default `fr-par-1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), extend("default" = Zone::DEFAULT, "x-kubernetes-validations" = schema::zone()))]
    pub zone: Option<String>,
    /// Marketplace label of the image. Default `ubuntu_noble`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = Self::DEFAULT_IMAGE))]
    pub image: Option<String>,
    /// Size of the root volume in GB. Default 50, also for 0.
    #[serde(rename = "rootVolumeGB", default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("default" = Self::DEFAULT_ROOT_VOLUME_GB))]
    pub root_volume_gb: Option<i64>,
    /// Fleet of the server. Default: a fleet of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet_name: Option<String>,
    /// Id of the Private Network to attach before the server starts. Takes precedence over `privateNetworkName`.
    #[serde(rename = "privateNetworkID", default, skip_serializing_if = "Option::is_none")]
    pub private_network_id: Option<String>,
    /// Name of the Private Network to attach; made from `privateNetworkCIDR` if there is none of that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private_network_name: Option<String>,
    /// IPv4 network of a Private Network that has to be made, such as `172.16.0.0/22`. Ignored when it exists.
    #[serde(rename = "privateNetworkCIDR", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), extend("x-kubernetes-validations" = schema::ipv4_cidr("privateNetworkCIDR")))]
    pub private_network_cidr: Option<String>,
    /// Taints the Node registers with, so that nothing is scheduled before they are there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_taints: Vec<Taint>,
}

impl ScalewayInstanceMachineSpec {
    /// Size when `spec.commercialType` is absent.
    pub const DEFAULT_COMMERCIAL_TYPE: &'static str = "PRO2-S";
    /// Image when `spec.image` is absent.
    pub const DEFAULT_IMAGE: &'static str = "ubuntu_noble";
    /// Root volume when `spec.rootVolumeGB` is absent or 0.
    pub const DEFAULT_ROOT_VOLUME_GB: i64 = 50;

    /// `spec.commercialType`, or the default.
    pub fn commercial_type_or_default(&self) -> &str {
        non_empty(self.commercial_type.as_deref()).unwrap_or(Self::DEFAULT_COMMERCIAL_TYPE)
    }

    /// `spec.image`, or the default.
    pub fn image_or_default(&self) -> &str {
        non_empty(self.image.as_deref()).unwrap_or(Self::DEFAULT_IMAGE)
    }

    /// `spec.rootVolumeGB`, or the default.
    pub fn root_volume_gb_or_default(&self) -> i64 {
        self.root_volume_gb
            .filter(|gb| *gb > 0)
            .unwrap_or(Self::DEFAULT_ROOT_VOLUME_GB)
    }

    /// `spec.zone`, or the default.
    pub fn zone_or_default(&self) -> Result<Zone, Invalid> {
        Zone::or_default(self.zone.as_deref())
    }

    /// `spec.providerID`, parsed.
    pub fn provider_id(&self) -> Result<Option<ProviderId>, Invalid> {
        ProviderId::parse_optional(self.provider_id.as_deref())
    }

    /// `spec.fleetName`, parsed.
    pub fn fleet_name(&self) -> Result<Option<FleetName>, Invalid> {
        non_empty(self.fleet_name.as_deref())
            .map(FleetName::try_from)
            .transpose()
    }

    /// `spec.privateNetworkCIDR`, parsed.
    pub fn private_network_cidr(&self) -> Result<Option<CidrBlock>, Invalid> {
        non_empty(self.private_network_cidr.as_deref())
            .map(CidrBlock::try_from)
            .transpose()
    }
}

/// What is known about an Instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalewayInstanceMachineStatus {
    /// First-time set-up, as Cluster API reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialization: Option<MachineInitialization>,
    /// The server joined and its Node is Ready. For Cluster API before 1.11.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Pending, Provisioning, Bootstrapping, Ready, Deleting or Failed. For people; programs read conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Scaleway's id of the server.
    #[serde(rename = "serverID", default, skip_serializing_if = "Option::is_none")]
    pub server_id: Option<String>,
    /// Id of the Private Network the server is attached to.
    #[serde(rename = "privateNetworkID", default, skip_serializing_if = "Option::is_none")]
    pub private_network_id: Option<String>,
    /// Addresses of the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<MachineAddress>,
    /// Failure domain the server is in: its zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub failure_domain: Option<String>,
    /// The server may be taken away at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interruptible: Option<bool>,
    /// What was observed: Ready, Provisioned, Bootstrapped, NodeReady, Paused, Deleting.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Why the machine gave up, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Why the machine gave up, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,
    /// Failed attempts to set up this server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_attempts: Option<i32>,
    /// This server was already rebooted once because setting it up kept failing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_reboot_issued: Option<bool>,
    /// Hash of the kubelet configuration that was last handed to the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet_config_hash: Option<String>,
    /// Steps of setting up the server, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub steps: Vec<Step>,
    /// What the controller is about to do to the server, while it does it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<Intent>,
    /// The `metadata.generation` this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// The pattern of the Instances of a MachineDeployment.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "ScalewayInstanceMachineTemplate",
    plural = "scalewayinstancemachinetemplates",
    shortname = "simt",
    category = "cluster-api",
    namespaced,
    status = "TemplateStatus",
    derive = "PartialEq",
    doc = "The pattern of the Instances of a MachineDeployment. Editing a template changes no running machine: make a new one under a new name and point the MachineDeployment at it.",
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.template.spec.commercialType"),
    printcolumn(name = "Zone", type_ = "string", json_path = ".spec.template.spec.zone"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ScalewayInstanceMachineTemplateSpec {
    /// What each machine is made from.
    #[serde(default)]
    pub template: ScalewayInstanceMachineTemplateResource,
}

/// What each machine is made from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalewayInstanceMachineTemplateResource {
    /// Labels and annotations of each machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMeta>,
    /// Spec of each machine.
    #[serde(default)]
    pub spec: ScalewayInstanceMachineSpec,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_spec_has_the_documented_defaults() {
        let spec = ScalewayInstanceMachineSpec::default();
        assert_eq!(spec.commercial_type_or_default(), "PRO2-S");
        assert_eq!(spec.image_or_default(), "ubuntu_noble");
        assert_eq!(spec.root_volume_gb_or_default(), 50);
        assert_eq!(spec.zone_or_default().unwrap().as_str(), "fr-par-1");
    }

    #[test]
    fn a_root_volume_of_zero_means_the_default() {
        let spec = ScalewayInstanceMachineSpec {
            root_volume_gb: Some(0),
            ..Default::default()
        };
        assert_eq!(spec.root_volume_gb_or_default(), 50);
    }
}
