//! What the API says about Instances.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use jiff::Timestamp;
use russet_api::values::ServerId;
use serde::Deserialize;

use crate::ids::{ImageId, PrivateNetworkId, PrivateNicId, ProjectId, PublicIpId, VolumeId};
use crate::mac_address::MacAddress;
use crate::wire::{null_is_default, optional_ip, optional_mac};

words! {
    /// What an Instance does at the moment.
    pub enum State {
        /// On.
        Running = "running",
        /// Off, without a place on any hypervisor. So is one that was never started.
        Stopped = "stopped",
        /// Off, but still on its hypervisor.
        StoppedInPlace = "stopped in place",
        /// Being switched on.
        Starting = "starting",
        /// Being switched off.
        Stopping = "stopping",
        /// Locked by Scaleway.
        Locked = "locked",
    }
}

words! {
    /// How far a network interface is.
    pub enum NicState {
        /// Ready for use.
        Available = "available",
        /// Being set up.
        Syncing = "syncing",
        /// Could not be set up.
        SyncingError = "syncing_error",
    }
}

words! {
    /// What a volume is made of.
    pub enum VolumeType {
        /// A disk of the hypervisor; goes with the Instance when it is terminated.
        Local = "l_ssd",
        /// The old block storage, kept by the Instance product.
        OldBlock = "b_ssd",
        /// Block storage of the Block product: see [`crate::block`].
        Block = "sbs_volume",
        /// A disk that is empty after every start.
        Scratch = "scratch",
    }
}

words! {
    /// How far an action is.
    pub enum TaskStatus {
        /// Not begun.
        Pending = "pending",
        /// Begun.
        Started = "started",
        /// Done.
        Success = "success",
        /// Failed.
        Failure = "failure",
        /// To be tried again.
        Retry = "retry",
    }
}

/// An Instance.
#[derive(Clone, Debug, Deserialize)]
pub struct Instance {
    /// Its id.
    pub id: ServerId,
    /// Its name; not unique.
    pub name: String,
    /// Its project.
    pub project: ProjectId,
    /// Its tags.
    #[serde(default, deserialize_with = "null_is_default")]
    pub tags: Vec<String>,
    /// Size and price, such as `PRO2-S`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub commercial_type: String,
    /// What it does at the moment.
    pub state: State,
    /// More about it, for people.
    #[serde(default, deserialize_with = "null_is_default")]
    pub state_detail: String,
    /// When it was made.
    #[serde(default)]
    pub creation_date: Option<Timestamp>,
    /// What it was made from.
    #[serde(default)]
    pub image: Option<Image>,
    /// It gets a public address while it is on.
    #[serde(default)]
    pub dynamic_ip_required: bool,
    /// It cannot be deleted.
    #[serde(default)]
    pub protected: bool,
    #[serde(default)]
    public_ip: Option<PublicIp>,
    #[serde(default, deserialize_with = "null_is_default")]
    public_ips: Vec<PublicIp>,
    /// Its interfaces on Private Networks. The API leaves them out now and then, so that nothing here proves nothing:
    /// [`crate::Client::private_nics`] does.
    #[serde(default)]
    pub private_nics: Option<Vec<PrivateNic>>,
    /// Its volumes, by slot; the root volume is `0`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub volumes: BTreeMap<String, AttachedVolume>,
}

impl Instance {
    /// Its public addresses. None before it is first switched on if they are dynamic, and none ever if none was asked for.
    pub fn public_ips(&self) -> impl Iterator<Item = &PublicIp> {
        // The single field is older; it repeats the first of the list where there is one.
        let old = self.public_ip.iter().filter(|_| self.public_ips.is_empty());
        self.public_ips.iter().chain(old)
    }

    /// Its first public IPv4 address.
    pub fn public_ipv4(&self) -> Option<Ipv4Addr> {
        self.public_ips().find_map(|ip| match ip.address {
            Some(IpAddr::V4(address)) => Some(address),
            _ => None,
        })
    }
}

/// The image of an Instance.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Image {
    /// Its id.
    pub id: ImageId,
    /// Its name, for people.
    #[serde(default, deserialize_with = "null_is_default")]
    pub name: String,
}

/// A public address of an Instance.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PublicIp {
    /// Its id; some dynamic ones have none.
    #[serde(default)]
    pub id: Option<PublicIpId>,
    /// The address.
    #[serde(default, deserialize_with = "optional_ip")]
    pub address: Option<IpAddr>,
    /// It goes when the Instance is switched off. The others outlive the Instance, and are paid for.
    #[serde(default)]
    pub dynamic: bool,
}

/// A volume of an Instance.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct AttachedVolume {
    /// Its id.
    pub id: VolumeId,
    /// What it is made of; decides which product deletes it.
    pub volume_type: VolumeType,
    /// In bytes; not told for block storage.
    #[serde(default)]
    pub size: Option<u64>,
}

/// An interface on a Private Network.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PrivateNic {
    /// Its id: what IPAM calls the resource.
    pub id: PrivateNicId,
    /// Its Instance.
    pub server_id: ServerId,
    /// Its network.
    pub private_network_id: PrivateNetworkId,
    /// Its hardware address; not known while it is set up.
    #[serde(default, deserialize_with = "optional_mac")]
    pub mac_address: Option<MacAddress>,
    /// How far it is.
    pub state: NicState,
}

/// Something being done to an Instance.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Task {
    /// Its id.
    pub id: String,
    /// What it does, for people.
    #[serde(default, deserialize_with = "null_is_default")]
    pub description: String,
    /// How far it is.
    pub status: TaskStatus,
}

/// Whose a volume or an address is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Holder {
    /// The Instance.
    pub id: ServerId,
    /// Its name.
    #[serde(default, deserialize_with = "null_is_default")]
    pub name: String,
}

/// A public address of the project, with or without an Instance.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Ip {
    /// Its id.
    pub id: PublicIpId,
    /// The address.
    #[serde(default, deserialize_with = "optional_ip")]
    pub address: Option<IpAddr>,
    /// Its project.
    pub project: ProjectId,
    /// Its tags.
    #[serde(default, deserialize_with = "null_is_default")]
    pub tags: Vec<String>,
    /// Whose it is; nobody's if the Instance is gone.
    #[serde(default)]
    pub server: Option<Holder>,
}

/// A volume of the Instance product.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Volume {
    /// Its id.
    pub id: VolumeId,
    /// Its name; not unique.
    #[serde(default, deserialize_with = "null_is_default")]
    pub name: String,
    /// Its project.
    pub project: ProjectId,
    /// Its tags.
    #[serde(default, deserialize_with = "null_is_default")]
    pub tags: Vec<String>,
    /// What it is made of.
    pub volume_type: VolumeType,
    /// In bytes.
    #[serde(default)]
    pub size: Option<u64>,
    /// Whose it is; nobody's if the Instance is gone.
    #[serde(default)]
    pub server: Option<Holder>,
    /// When it was made.
    #[serde(default)]
    pub creation_date: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(rest: &str) -> Instance {
        let body = format!(r#"{{"id":"s1","name":"cache-1","project":"p1","state":"running"{rest}}}"#);
        serde_json::from_str(&body).unwrap()
    }

    #[test]
    fn an_instance_has_a_public_address_only_when_the_api_names_one() {
        for none in [
            "",
            r#","public_ip":null,"public_ips":null"#,
            r#","public_ips":[],"public_ip":{"id":null,"address":""}"#,
            r#","public_ips":[{"id":"i6","address":"2001:db8::7"}]"#,
        ] {
            assert_eq!(instance(none).public_ipv4(), None, "{none}");
        }
        let wanted = Some(Ipv4Addr::new(51, 15, 0, 7));
        let old = r#","public_ip":{"id":"i1","address":"51.15.0.7","dynamic":true}"#;
        assert_eq!(instance(old).public_ipv4(), wanted);
        let both = r#","public_ip":{"id":"i1","address":"51.15.0.7"},
            "public_ips":[{"id":"i6","address":"2001:db8::7"},{"id":"i1","address":"51.15.0.7"}]"#;
        assert_eq!(instance(both).public_ipv4(), wanted);
        assert_eq!(
            instance(both).public_ips().count(),
            2,
            "the old field repeats one of them"
        );
    }

    #[test]
    fn interfaces_that_are_left_out_are_not_the_same_as_none() {
        assert_eq!(instance("").private_nics, None);
        assert_eq!(instance(r#","private_nics":null"#).private_nics, None);
        assert_eq!(instance(r#","private_nics":[]"#).private_nics, Some(Vec::new()));
    }

    #[test]
    fn an_interface_that_is_being_set_up_has_no_hardware_address() {
        for none in ["", r#","mac_address":null"#, r#","mac_address":"""#] {
            let body = format!(r#"{{"id":"n1","server_id":"s1","private_network_id":"p1","state":"syncing"{none}}}"#);
            assert_eq!(
                serde_json::from_str::<PrivateNic>(&body).unwrap().mac_address,
                None,
                "{none}"
            );
        }
    }

    #[test]
    fn a_state_with_spaces_and_one_nobody_knows_are_read() {
        let state = |word: &str| State::from(word.to_owned());
        assert_eq!(state("stopped in place"), State::StoppedInPlace);
        assert_eq!(state("hibernating"), State::Other("hibernating".to_owned()));
    }
}
