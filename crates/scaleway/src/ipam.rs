//! IPAM: which address a network interface has.

use std::net::{IpAddr, Ipv4Addr};

use russet_api::values::{Region, Zone};
use serde::Deserialize;

use crate::call::{Call, Endpoint};
use crate::client::Client;
use crate::error::Error;
use crate::ids::{IpId, PrivateNetworkId};
use crate::pages::{Page, Row};
use crate::wire::null_is_default;

static LIST: Endpoint = Endpoint::read("ipam.list_ips", "IPAMReadOnly");

/// Where addresses come from. The API wants exactly one of these and refuses two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Public addresses of a zone.
    Zonal(Zone),
    /// Public addresses of the region.
    Regional,
    /// Addresses of a Private Network.
    PrivateNetwork(PrivateNetworkId),
}

words! {
    /// What an address is attached to.
    pub enum ResourceType {
        /// A Mac on a Private Network.
        AppleSiliconPrivateNic = "apple_silicon_private_nic",
        /// An Elastic Metal server on a Private Network.
        BaremetalPrivateNic = "baremetal_private_nic",
        /// An Instance on a Private Network.
        InstancePrivateNic = "instance_private_nic",
    }
}

/// An address.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Ip {
    /// Its id.
    pub id: IpId,
    /// With the length of its network: `172.16.0.2/22`.
    pub address: String,
    /// Whether it is an IPv6 address.
    #[serde(default)]
    pub is_ipv6: bool,
    /// What it is attached to.
    #[serde(default)]
    pub resource: Option<Resource>,
}

/// What an address is attached to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Resource {
    /// Its kind.
    #[serde(rename = "type")]
    pub type_: ResourceType,
    /// Its id: that of the attachment, not that of the server.
    pub id: String,
    /// In upper case here, in lower case in other products: compare with [`Ip::has_mac`].
    #[serde(default)]
    pub mac_address: Option<String>,
    /// Name of the server.
    #[serde(default)]
    pub name: Option<String>,
}

impl Ip {
    /// The address without its network, if it is an IPv4 one. Interfaces have both kinds, the IPv6 one often first.
    pub fn ipv4(&self) -> Option<Ipv4Addr> {
        let text = self
            .address
            .split_once('/')
            .map_or(self.address.as_str(), |(address, _)| address);
        match text.parse() {
            Ok(IpAddr::V4(address)) => Some(address),
            _ => None,
        }
    }

    /// Whether this is the address of the interface with this hardware address.
    pub fn has_mac(&self, mac: &str) -> bool {
        let known = self
            .resource
            .as_ref()
            .and_then(|resource| resource.mac_address.as_deref());
        known.is_some_and(|known| known.eq_ignore_ascii_case(mac))
    }
}

#[derive(Deserialize)]
struct Ips {
    #[serde(default, deserialize_with = "null_is_default")]
    ips: Vec<Ip>,
    total_count: u64,
}

impl From<Ips> for Page<Ip> {
    fn from(ips: Ips) -> Self {
        Self {
            rows: ips.ips,
            total: ips.total_count,
        }
    }
}

impl Row for Ip {
    fn id(&self) -> &str {
        self.id.as_str()
    }
}

impl Client {
    /// The attached addresses of a kind of interface, of both families.
    pub async fn list_ips(&self, region: &Region, source: &Source, of: &ResourceType) -> Result<Vec<Ip>, Error> {
        let call = Call::new(&LIST, format!("/ipam/v1/regions/{region}/ips"))
            .query("project_id", self.project().as_str())
            .query("resource_type", of.as_str())
            .query("attached", "true");
        let call = match source {
            Source::Zonal(zone) => call.query("zonal", zone.as_str()),
            Source::Regional => call.query("regional", "true"),
            Source::PrivateNetwork(id) => call.query("private_network_id", id.as_str()),
        };
        self.list::<Ips, _>(call).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_addresses_match_in_either_case_and_only_ipv4_counts() {
        let ip = |address: &str| -> Ip {
            let body = format!(
                r#"{{"id":"i1","address":"{address}","resource":{{"type":"instance_private_nic","id":"n1","mac_address":"02:00:00:AB:CD:EF","name":"cache-1"}}}}"#
            );
            serde_json::from_str(&body).unwrap()
        };
        assert!(ip("172.16.0.2/22").has_mac("02:00:00:ab:cd:ef"));
        assert!(!ip("172.16.0.2/22").has_mac("02:00:00:ab:cd:00"));
        assert_eq!(ip("172.16.0.2/22").ipv4(), Some(Ipv4Addr::new(172, 16, 0, 2)));
        assert_eq!(ip("fd00::2/64").ipv4(), None);
        assert_eq!(ip("nonsense").ipv4(), None);
    }
}
