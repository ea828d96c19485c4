//! What the two kinds have in common, and the little in which they differ.

use k8s_openapi::api::core::v1::Taint;
use russet_api::conditions::Condition;
use russet_api::machine::{Intent, MachineAddress, MachineInitialization, Phase, Step};
use russet_api::values::{Invalid, ProviderId, ProviderKind, Zone};
use russet_api::{ScalewayElasticMetalMachine, ScalewayInstanceMachine, finalizers};
use russet_controller::scope::Namespaced;
use russet_scaleway::PrivateNetworkId;
use serde::Serialize;

use super::server::Product;
use super::situation::SpecProblem;
use super::wanted::{Network, Source, Wanted};
use crate::surroundings;

/// The status of either kind. What one of them does not have stays empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// First-time set-up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialization: Option<MachineInitialization>,
    /// The Node is Ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The server.
    #[serde(rename = "serverID", skip_serializing_if = "Option::is_none")]
    pub server_id: Option<String>,
    /// Its VLAN, on bare metal.
    #[serde(rename = "privateNetworkVLAN", skip_serializing_if = "Option::is_none")]
    pub private_network_vlan: Option<i32>,
    /// Its network.
    #[serde(rename = "privateNetworkID", skip_serializing_if = "Option::is_none")]
    pub private_network_id: Option<String>,
    /// Its addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<MachineAddress>,
    /// Its zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<String>,
    /// It may be taken away at any time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interruptible: Option<bool>,
    /// What was observed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Why it gave up, in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Why it gave up, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,
    /// Failed attempts to set it up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_attempts: Option<i32>,
    /// It was rebooted for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_reboot_issued: Option<bool>,
    /// What its kubelet was configured with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubelet_config_hash: Option<String>,
    /// How far it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// What is being done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intent: Option<Intent>,
    /// The generation this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// One of the two kinds.
pub trait LinuxKind: Namespaced + Serialize {
    /// What its servers are.
    const PRODUCT: Product;
    /// Of the provider id.
    const PROVIDER: ProviderKind;
    /// Our finalizer.
    const FINALIZER: &'static str;
    /// Name of the controller.
    const CONTROLLER: &'static str;
    /// `kind`, in lower case: part of a tag.
    const TAG: &'static str;

    /// What it wants of a server.
    fn wanted(&self) -> Result<Wanted, SpecProblem>;
    /// `spec.zone`.
    fn zone(&self) -> Result<Zone, Invalid>;
    /// `spec.providerID`.
    fn provider_id(&self) -> Result<Option<ProviderId>, Invalid>;
    /// `spec.fleetName`.
    fn fleet(&self) -> Option<&str>;
    /// `spec.nodeTaints`.
    fn taints(&self) -> &[Taint];
    /// The status.
    fn status(&self) -> Status;
}

/// The group whose SSH key a machine uses: its fleet, or one of its own.
pub fn key_group<K: LinuxKind>(object: &K) -> String {
    surroundings::key_group(object, object.fleet())
}

fn field<E: std::fmt::Display>(name: &str) -> impl FnOnce(E) -> SpecProblem {
    let name = name.to_owned();
    move |error| SpecProblem::Field {
        why: format!("spec.{name}: {error}"),
    }
}

fn network(
    id: Option<&str>,
    name: Option<&str>,
    cidr: Result<Option<russet_api::values::CidrBlock>, Invalid>,
) -> Result<Option<Network>, SpecProblem> {
    let given = |text: Option<&str>| {
        text.map(str::trim)
            .filter(|text| !text.is_empty())
            .map(ToOwned::to_owned)
    };
    let cidr = cidr.map_err(field("privateNetworkCIDR"))?;
    if let Some(id) = given(id) {
        let id: PrivateNetworkId = id.parse().map_err(field("privateNetworkID"))?;
        return Ok(Some(Network::Id(id)));
    }
    Ok(given(name).map(|name| Network::Name { name, cidr }))
}

macro_rules! common {
    ($status:expr, $vlan:expr) => {{
        let status = $status.clone().unwrap_or_default();
        Status {
            private_network_vlan: $vlan(&status),
            initialization: status.initialization,
            ready: status.ready,
            phase: status.phase,
            server_id: status.server_id,
            private_network_id: status.private_network_id,
            addresses: status.addresses,
            failure_domain: status.failure_domain,
            interruptible: status.interruptible,
            conditions: status.conditions,
            failure_reason: status.failure_reason,
            failure_message: status.failure_message,
            bootstrap_attempts: status.bootstrap_attempts,
            bootstrap_reboot_issued: status.bootstrap_reboot_issued,
            kubelet_config_hash: status.kubelet_config_hash,
            steps: status.steps,
            intent: status.intent,
            observed_generation: status.observed_generation,
        }
    }};
}

// The specs have these fields in common, and no type.
macro_rules! spec_fields {
    () => {
        fn zone(&self) -> Result<Zone, Invalid> {
            self.spec.zone_or_default()
        }

        fn provider_id(&self) -> Result<Option<ProviderId>, Invalid> {
            self.spec.provider_id()
        }

        fn fleet(&self) -> Option<&str> {
            self.spec.fleet_name.as_deref()
        }

        fn taints(&self) -> &[Taint] {
            &self.spec.node_taints
        }
    };
}

macro_rules! network {
    ($spec:expr) => {
        network(
            $spec.private_network_id.as_deref(),
            $spec.private_network_name.as_deref(),
            $spec.private_network_cidr(),
        )?
    };
}

impl LinuxKind for ScalewayInstanceMachine {
    const PRODUCT: Product = Product::Instance;
    const PROVIDER: ProviderKind = ProviderKind::Instance;
    const FINALIZER: &'static str = finalizers::INSTANCE_MACHINE;
    const CONTROLLER: &'static str = "instance-machine";
    const TAG: &'static str = "scalewayinstancemachine";

    fn wanted(&self) -> Result<Wanted, SpecProblem> {
        let spec = &self.spec;
        spec.fleet_name().map_err(field("fleetName"))?;
        let root = u64::try_from(spec.root_volume_gb_or_default()).unwrap_or_default();
        Ok(Wanted {
            product: Self::PRODUCT,
            type_: spec.commercial_type_or_default().to_owned(),
            image: spec.image_or_default().to_owned(),
            root_volume_gb: root,
            source: Source::Order,
            network: network!(spec),
        })
    }

    spec_fields!();

    fn status(&self) -> Status {
        common!(self.status, |_: &_| None)
    }
}

impl LinuxKind for ScalewayElasticMetalMachine {
    const PRODUCT: Product = Product::Metal;
    const PROVIDER: ProviderKind = ProviderKind::ElasticMetal;
    const FINALIZER: &'static str = finalizers::ELASTIC_METAL_MACHINE;
    const CONTROLLER: &'static str = "elastic-metal-machine";
    const TAG: &'static str = "scalewayelasticmetalmachine";

    fn wanted(&self) -> Result<Wanted, SpecProblem> {
        let spec = &self.spec;
        spec.fleet_name().map_err(field("fleetName"))?;
        Ok(Wanted {
            product: Self::PRODUCT,
            type_: spec.offer_type_or_default().to_owned(),
            image: spec.os_or_default().to_owned(),
            root_volume_gb: 0,
            source: match spec.adopt_name_prefix().map_err(field("adoptNamePrefix"))? {
                Some(prefix) => Source::Adopt(prefix),
                None => Source::Order,
            },
            network: network!(spec),
        })
    }

    spec_fields!();

    fn status(&self) -> Status {
        common!(self.status, |status: &russet_api::ScalewayElasticMetalMachineStatus| {
            status.private_network_vlan
        })
    }
}
