//! `ScalewayElasticMetalMachine`: one bare-metal Linux server, and the template that makes them.

use k8s_openapi::api::core::v1::Taint;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conditions::Condition;
use crate::machine::{Intent, MachineAddress, MachineInitialization, Phase, Step, TemplateMeta, TemplateStatus};
use crate::schema;
use crate::values::{CidrBlock, FleetName, Invalid, PoolPrefix, ProviderId, ProviderKind, Zone, non_empty};

/// A Scaleway Elastic Metal server that joins the cluster as a Node.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "ScalewayElasticMetalMachine",
    plural = "scalewayelasticmetalmachines",
    shortname = "semm",
    category = "cluster-api",
    namespaced,
    status = "ScalewayElasticMetalMachineStatus",
    derive = "PartialEq",
    doc = "A Scaleway Elastic Metal (bare-metal Linux) server that joins the cluster as a Node. With adoptNamePrefix an already installed server is taken; without it one is ordered, which takes up to an hour.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "ProviderID", type_ = "string", json_path = ".spec.providerID"),
    printcolumn(name = "Ready", type_ = "boolean", json_path = ".status.ready"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Offer", type_ = "string", json_path = ".spec.offerType", priority = 1),
    printcolumn(name = "Zone", type_ = "string", json_path = ".spec.zone", priority = 1)
)]
#[serde(rename_all = "camelCase")]
pub struct ScalewayElasticMetalMachineSpec {
    /// Identity of the server, `scaleway://baremetal/<zone>/<server id>`. Set by the controller; Cluster API finds the
    /// Node by it. It cannot be rewritten.
    #[serde(rename = "providerID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = schema::PROVIDER_ID_MAX), extend("x-kubernetes-validations" = schema::provider_id(ProviderKind::ElasticMetal.scheme())))]
    pub provider_id: Option<String>,
    /// Name of the offer to order, such as `EM-B220E-NVME` or `EM-I220E-NVME`. Default `EM-B220E-NVME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = Self::DEFAULT_OFFER_TYPE))]
    pub offer_type: Option<String>,
    /// Take an installed server whose name begins with this instead of ordering one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopt_name_prefix: Option<String>,
    /// Fleet of the server: machines of a fleet share one SSH key (Secret `<fleet>-ssh`). Default: a fleet of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet_name: Option<String>,
    /// Scaleway zone the server is in. Default `fr-par-1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), extend("default" = Zone::DEFAULT, "x-kubernetes-validations" = schema::zone()))]
    pub zone: Option<String>,
    /// Operating system to install. Default `ubuntu_noble`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = Self::DEFAULT_OS))]
    pub os: Option<String>,
    /// Name of the Private Network to attach; made from `privateNetworkCIDR` if there is none of that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private_network_name: Option<String>,
    /// Id of the Private Network to attach. Takes precedence over `privateNetworkName`.
    #[serde(rename = "privateNetworkID", default, skip_serializing_if = "Option::is_none")]
    pub private_network_id: Option<String>,
    /// IPv4 network of a Private Network that has to be made, such as `172.16.0.0/22`. Ignored when it exists.
    #[serde(rename = "privateNetworkCIDR", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), extend("x-kubernetes-validations" = schema::ipv4_cidr("privateNetworkCIDR")))]
    pub private_network_cidr: Option<String>,
    /// Taints the Node registers with, so that nothing is scheduled before they are there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_taints: Vec<Taint>,
}

impl ScalewayElasticMetalMachineSpec {
    /// Offer when `spec.offerType` is absent.
    pub const DEFAULT_OFFER_TYPE: &'static str = "EM-B220E-NVME";
    /// Operating system when `spec.os` is absent.
    pub const DEFAULT_OS: &'static str = "ubuntu_noble";

    /// `spec.offerType`, or the default.
    pub fn offer_type_or_default(&self) -> &str {
        non_empty(self.offer_type.as_deref()).unwrap_or(Self::DEFAULT_OFFER_TYPE)
    }

    /// `spec.os`, or the default.
    pub fn os_or_default(&self) -> &str {
        non_empty(self.os.as_deref()).unwrap_or(Self::DEFAULT_OS)
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

    /// `spec.adoptNamePrefix`, parsed. None means: order a server.
    pub fn adopt_name_prefix(&self) -> Result<Option<PoolPrefix>, Invalid> {
        non_empty(self.adopt_name_prefix.as_deref())
            .map(PoolPrefix::try_from)
            .transpose()
    }

    /// `spec.privateNetworkCIDR`, parsed.
    pub fn private_network_cidr(&self) -> Result<Option<CidrBlock>, Invalid> {
        non_empty(self.private_network_cidr.as_deref())
            .map(CidrBlock::try_from)
            .transpose()
    }
}

/// What is known about an Elastic Metal server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalewayElasticMetalMachineStatus {
    /// First-time set-up, as Cluster API reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialization: Option<MachineInitialization>,
    /// The server joined and its Node is Ready. For Cluster API before 1.11.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Pending, Adopting, Ordered, Installing, Provisioning, Bootstrapping, Ready, Deleting or Failed. For people;
    /// programs read conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Scaleway's id of the server.
    #[serde(rename = "serverID", default, skip_serializing_if = "Option::is_none")]
    pub server_id: Option<String>,
    /// VLAN of the Private Network on the server's network card.
    #[serde(rename = "privateNetworkVLAN", default, skip_serializing_if = "Option::is_none")]
    pub private_network_vlan: Option<i32>,
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
    /// What was observed: Ready, Provisioned, Installed, Bootstrapped, NodeReady, Paused, Deleting.
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

/// The pattern of the Elastic Metal servers of a MachineDeployment.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "ScalewayElasticMetalMachineTemplate",
    plural = "scalewayelasticmetalmachinetemplates",
    shortname = "semmt",
    category = "cluster-api",
    namespaced,
    status = "TemplateStatus",
    derive = "PartialEq",
    doc = "The pattern of the Elastic Metal servers of a MachineDeployment. Editing a template changes no running machine: make a new one under a new name and point the MachineDeployment at it.",
    printcolumn(name = "Offer", type_ = "string", json_path = ".spec.template.spec.offerType"),
    printcolumn(name = "Zone", type_ = "string", json_path = ".spec.template.spec.zone"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ScalewayElasticMetalMachineTemplateSpec {
    /// What each machine is made from.
    #[serde(default)]
    pub template: ScalewayElasticMetalMachineTemplateResource,
}

/// What each machine is made from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalewayElasticMetalMachineTemplateResource {
    /// Labels and annotations of each machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMeta>,
    /// Spec of each machine.
    #[serde(default)]
    pub spec: ScalewayElasticMetalMachineSpec,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_spec_orders_the_default_server() {
        let spec = ScalewayElasticMetalMachineSpec::default();
        assert_eq!(spec.offer_type_or_default(), "EM-B220E-NVME");
        assert_eq!(spec.os_or_default(), "ubuntu_noble");
        assert_eq!(spec.zone_or_default().unwrap().as_str(), "fr-par-1");
        assert_eq!(spec.adopt_name_prefix().unwrap(), None);
        assert_eq!(spec.private_network_cidr().unwrap(), None);
    }

    #[test]
    fn a_bad_network_is_an_error_that_names_the_value() {
        let spec = ScalewayElasticMetalMachineSpec {
            private_network_cidr: Some("172.16.0.0".into()),
            ..Default::default()
        };
        assert!(
            spec.private_network_cidr()
                .unwrap_err()
                .to_string()
                .contains("172.16.0.0")
        );
    }
}
