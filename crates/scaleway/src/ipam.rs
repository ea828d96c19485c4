//! IPAM: which address a network interface has.

use std::net::{IpAddr, Ipv4Addr};

use russet_api::values::{Region, Zone};
use serde::Deserialize;

use crate::call::{Call, Endpoint};
use crate::client::Client;
use crate::error::Error;
use crate::ids::{IpId, PrivateNetworkId};
use crate::mac_address::MacAddress;
use crate::wire::optional_mac;

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
    /// In upper case on the wire here, in lower case in other products.
    #[serde(default, deserialize_with = "optional_mac")]
    pub mac_address: Option<MacAddress>,
    /// Name of the server.
    #[serde(default)]
    pub name: Option<String>,
}

impl Ip {
    /// The address and the length of its network.
    pub fn parsed(&self) -> Option<(IpAddr, u8)> {
        let (address, length) = match self.address.split_once('/') {
            Some((address, length)) => (address.parse().ok()?, Some(length.parse::<u8>().ok()?)),
            None => (self.address.parse().ok()?, None),
        };
        let longest = match address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        let length = length.unwrap_or(longest);
        (length <= longest).then_some((address, length))
    }

    /// The address without its network, if it is an IPv4 one. Interfaces have both kinds, the IPv6 one often first.
    pub fn ipv4(&self) -> Option<Ipv4Addr> {
        match self.parsed() {
            Some((IpAddr::V4(address), _)) => Some(address),
            _ => None,
        }
    }

    /// Whether this is the address of the interface with this hardware address, in either case.
    pub fn has_mac(&self, mac: &MacAddress) -> bool {
        let known = self
            .resource
            .as_ref()
            .and_then(|resource| resource.mac_address.as_ref());
        known == Some(mac)
    }
}

/// Which addresses. Everything named here must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpFilter {
    /// Where they come from.
    pub source: Source,
    /// What they are attached to.
    pub resource_type: Option<ResourceType>,
    /// Id of the interface they are attached to: that of the NIC or of the attachment, not that of the server.
    pub resource_id: Option<String>,
    /// Hardware address of that interface.
    pub mac_address: Option<MacAddress>,
}

impl IpFilter {
    /// All attached addresses of a source.
    pub fn of(source: Source) -> Self {
        Self {
            source,
            resource_type: None,
            resource_id: None,
            mac_address: None,
        }
    }
}

listing!(Ips { ips: Ip });
row!(Ip);

impl Client {
    /// The attached addresses, of both families, oldest first. They come some time after the interface.
    pub async fn ipam_ips(&self, region: &Region, filter: &IpFilter) -> Result<Vec<Ip>, Error> {
        let mut call = Call::new(&LIST, format!("/ipam/v1/regions/{region}/ips"))
            .query("project_id", self.project().as_str())
            .query("order_by", "created_at_asc")
            .query("attached", "true");
        call = match &filter.source {
            Source::Zonal(zone) => call.query("zonal", zone.as_str()),
            Source::Regional => call.query("regional", "true"),
            Source::PrivateNetwork(id) => call.query("private_network_id", id.as_str()),
        };
        if let Some(type_) = &filter.resource_type {
            call = call.query("resource_type", type_.as_str());
        }
        if let Some(id) = &filter.resource_id {
            call = call.query("resource_id", id);
        }
        let mut found = self.list::<Ips, _>(call).await?;
        // The API's own filter by hardware address tells upper from lower case.
        found.retain(|ip| filter.mac_address.as_ref().is_none_or(|mac| ip.has_mac(mac)));
        Ok(found)
    }

    /// The IPv4 address of an interface on a Private Network, once there is one.
    pub async fn private_ipv4(
        &self,
        region: &Region,
        network: &PrivateNetworkId,
        type_: ResourceType,
        interface: &str,
    ) -> Result<Option<Ipv4Addr>, Error> {
        let filter = IpFilter {
            resource_type: Some(type_),
            resource_id: Some(interface.to_owned()),
            ..IpFilter::of(Source::PrivateNetwork(network.clone()))
        };
        Ok(self.ipam_ips(region, &filter).await?.iter().find_map(Ip::ipv4))
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
        assert!(ip("172.16.0.2/22").has_mac(&"02:00:00:ab:cd:ef".into()));
        assert!(!ip("172.16.0.2/22").has_mac(&"02:00:00:ab:cd:00".into()));
        let address = Ipv4Addr::new(172, 16, 0, 2);
        assert_eq!(ip("172.16.0.2/22").ipv4(), Some(address));
        assert_eq!(ip("172.16.0.2/22").parsed(), Some((address.into(), 22)));
        assert_eq!(ip("172.16.0.2").parsed(), Some((address.into(), 32)));
        assert_eq!(ip("fd00::2/64").ipv4(), None);
        assert_eq!(ip("fd00::2/64").parsed(), Some(("fd00::2".parse().unwrap(), 64)));
        for bad in ["nonsense", "", "172.16.0.2/33", "172.16.0.2/", "172.16.0.2/x", "/22"] {
            assert_eq!(ip(bad).parsed(), None, "{bad}");
        }
    }
}
