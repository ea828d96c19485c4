//! What the three machine kinds have in common: addresses, phases, recorded steps and intents, and the shape that
//! Cluster API gives to templates.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::open_enum::open_enum;

open_enum! {
    /// Where a machine is in its life. For people; programs read conditions.
    pub enum Phase {
        /// Nothing happened yet, or the machine looks for another host.
        Pending = "Pending",
        /// A pool host is being claimed.
        Adopting = "Adopting",
        /// A server was ordered and is not delivered yet.
        Ordered = "Ordered",
        /// The operating system is being installed.
        Installing = "Installing",
        /// The host exists and is being configured from outside.
        Provisioning = "Provisioning",
        /// The host is being set up from inside.
        Bootstrapping = "Bootstrapping",
        /// The host serves.
        Ready = "Ready",
        /// The host is being given back.
        Deleting = "Deleting",
        /// The machine gave up; `failureReason` says why.
        Failed = "Failed",
    }
}

open_enum! {
    /// Kind of an address.
    pub enum AddressType {
        /// Host name.
        Hostname = "Hostname",
        /// Public address.
        ExternalIp = "ExternalIP",
        /// Private address.
        InternalIp = "InternalIP",
        /// Public name.
        ExternalDns = "ExternalDNS",
        /// Private name.
        InternalDns = "InternalDNS",
    }
}

/// One address of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MachineAddress {
    /// Hostname, ExternalIP, InternalIP, ExternalDNS or InternalDNS.
    #[serde(rename = "type")]
    pub type_: AddressType,
    /// The address.
    pub address: String,
}

/// First-time set-up, as Cluster API core reads it (contract v1beta2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineInitialization {
    /// True once the host exists and `spec.providerID` is set. Never goes back to false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioned: Option<bool>,
}

open_enum! {
    /// How a step stands.
    pub enum StepState {
        /// Not begun.
        Pending = "Pending",
        /// Begun and not ended.
        Running = "Running",
        /// Ended well.
        Succeeded = "Succeeded",
        /// Ended badly; it is tried again.
        Failed = "Failed",
        /// Not needed on this host.
        Skipped = "Skipped",
    }
}

/// One step of setting up a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Name of the step.
    pub name: String,
    /// Pending, Running, Succeeded, Failed or Skipped.
    pub state: StepState,
    /// When the last attempt began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When the last attempt ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// When the running attempt is given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// How often the step was tried on this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<i32>,
    /// The last lines the step printed, with secrets removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8192))]
    pub output_tail: Option<String>,
    /// Why the step is in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

open_enum! {
    /// A paid or destructive act.
    pub enum IntentAction {
        /// Take a host from a pool.
        Claim = "Claim",
        /// Order a server.
        Order = "Order",
        /// Create an instance.
        Create = "Create",
        /// Attach a Private Network.
        AttachNetwork = "AttachNetwork",
        /// Start a server.
        PowerOn = "PowerOn",
        /// Stop a server.
        PowerOff = "PowerOff",
        /// Restart a host.
        Reboot = "Reboot",
        /// Wipe a host and install it again.
        Reinstall = "Reinstall",
        /// Give a host back to its pool.
        Release = "Release",
        /// Destroy a server.
        Delete = "Delete",
    }
}

/// What the controller is about to do to the outside world, written down before it does it.
///
/// After a crash the record says what to look for: the act either happened or did not, and is finished or repeated
/// accordingly. It is removed when the result is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Intent {
    /// The act: Claim, Order, Create, AttachNetwork, PowerOn, PowerOff, Reboot, Reinstall, Release or Delete.
    pub action: IntentAction,
    /// What it is done to: a server id, or the name or tag by which the result will be found.
    pub target: String,
    /// Unique id of this attempt; it is part of names and tags, so that the result can be told from others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// When the record was written.
    pub started_at: Time,
    /// How often the act was tried under this record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<i32>,
    /// When the act was last tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempt_at: Option<Time>,
    /// What the outside world last answered, with secrets removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Further values the act needs, such as the name before a rename or the id of an image.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
}

/// Labels and annotations that every machine cloned from a template receives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateMeta {
    /// Labels for each machine.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations for each machine.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// What a machine of this template offers, so that an autoscaler can start from zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateStatus {
    /// CPU, memory and Pods of one machine.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, Quantity>,
    /// Architecture and operating system of one machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_info: Option<NodeInfo>,
}

/// Architecture and operating system of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeInfo {
    /// amd64 or arm64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// linux or darwin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operating_system: Option<String>,
}
