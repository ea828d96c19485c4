//! IPAM: `/ipam/v1/regions/{region}/ips`. Addresses of private networks, with all the ways to look for them and find none.
//!
//! Rows appear a while after the network is attached, the IPv6 one is listed first, MAC addresses are upper case and
//! compared as they are, and exactly one source must be named.

use crate::account::{Owner, Resource};
use crate::call::{Answer, Call};
use crate::ids::{Id, Region};
use crate::page;
use crate::refusal::{Reason, Refusal};
use crate::strict::Query;
use crate::table::{Table, rows};
use crate::vpc::known_region;
use crate::world::{Caller, World};
use http::Method;
use jiff::Timestamp;
use russet_sim_kit::clock::after;
use serde_json::{Value, json};
use std::net::IpAddr;

/// An address in use.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Ip {
    id: Id,
    address: IpAddr,
    prefix: u8,
    region: Region,
    project_id: Id,
    subnet_id: Id,
    private_network_id: Id,
    vpc_id: Id,
    /// The kind of NIC it is on.
    resource_type: String,
    /// The NIC: the id of the attachment.
    resource_id: Id,
    /// Whose name is shown.
    server_id: Id,
    /// The MAC of the NIC; none if it is that of the machine.
    #[serde(default)]
    mac: Option<String>,
    created_at: Timestamp,
    /// From when on lists have it.
    visible_at: Timestamp,
}

rows!(Ip);

/// What addresses are given to.
pub(crate) struct Nic {
    pub(crate) id: Id,
    pub(crate) server_id: Id,
    pub(crate) private_network_id: Id,
    /// For example `instance_private_nic`.
    pub(crate) kind: &'static str,
    pub(crate) mac: Option<String>,
}

/// All addresses.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Ipam {
    pub(crate) addresses: Table<Ip>,
}

const SOURCES: [&str; 5] = ["zonal", "regional", "private_network_id", "subnet_id", "source_vpc_id"];

impl World {
    /// Gives a NIC one address in each subnet of its network.
    pub(crate) fn allocate_addresses(&mut self, at: Timestamp, nic: &Nic) -> Vec<Id> {
        let Some(network) = self.vpc.networks.get(&nic.private_network_id).cloned() else {
            return Vec::new();
        };
        let visible_at = after(at, self.settings.delays.ipam);
        let mut ids = Vec::new();
        for subnet in &network.subnets {
            let taken: Vec<IpAddr> = self
                .ipam
                .addresses
                .iter()
                .filter(|address| address.subnet_id == subnet.id)
                .map(|address| address.address)
                .collect();
            // The first address is the network, the second its gateway.
            let free = (2..)
                .map_while(|offset| subnet.cidr.nth(offset))
                .find(|address| !taken.contains(address));
            let Some(address) = free else { continue };
            let id = self.dice.id();
            ids.push(id.clone());
            let row = Ip {
                id,
                address,
                prefix: subnet.cidr.prefix(),
                region: network.region.clone(),
                project_id: network.project_id.clone(),
                subnet_id: subnet.id.clone(),
                private_network_id: network.id.clone(),
                vpc_id: network.vpc_id.clone(),
                resource_type: nic.kind.to_owned(),
                resource_id: nic.id.clone(),
                server_id: nic.server_id.clone(),
                mac: nic.mac.as_ref().map(|mac| mac.to_uppercase()),
                created_at: at,
                visible_at,
            };
            self.ipam.addresses.put(at, row);
        }
        ids
    }

    /// Takes the addresses of a NIC back.
    pub(crate) fn release_addresses(&mut self, now: Timestamp, nic: &Id) {
        let of_nic = self.ipam.addresses.iter().filter(|address| address.resource_id == *nic);
        let ids: Vec<Id> = of_nic.map(|address| address.id.clone()).collect();
        for id in ids {
            self.ipam.addresses.remove(now, &id);
        }
    }

    /// The IPv4 address of a NIC with its prefix, for example `172.16.0.2/22`.
    pub(crate) fn private_v4(&self, nic: &Id) -> Option<String> {
        let mut of_nic = self.ipam.addresses.iter().filter(|row| row.resource_id == *nic);
        let found = of_nic.find(|row| row.address.is_ipv4())?;
        Some(format!("{}/{}", found.address, found.prefix))
    }

    /// Whether a network has addresses in use.
    pub(crate) fn has_addresses(&self, network: &Id) -> bool {
        self.ipam.addresses.iter().any(|row| row.private_network_id == *network)
    }

    /// Name and MAC of the machine an address belongs to.
    fn named<'a>(&'a self, address: &'a Ip) -> (Option<&'a str>, Option<&'a str>) {
        let mini = self.apple.servers.get(&address.server_id);
        let name = mini
            .map(|server| server.name.as_str())
            .or_else(|| self.linux_name(&address.server_id));
        let mac = address
            .mac
            .as_deref()
            .or_else(|| mini.map(|server| server.mac.as_str()));
        (name, mac)
    }

    fn show_address(&self, address: &Ip) -> Value {
        let (name, mac) = self.named(address);
        json!({
            "id": address.id,
            "address": format!("{}/{}", address.address, address.prefix),
            "project_id": address.project_id,
            "is_ipv6": address.address.is_ipv6(),
            "created_at": address.created_at,
            "updated_at": address.created_at,
            "source": {"subnet_id": address.subnet_id},
            "resource": {
                "type": address.resource_type,
                "id": address.resource_id,
                "mac_address": mac,
                "name": name,
            },
            "tags": [],
            "reverses": [],
            "region": address.region,
            "zone": null,
        })
    }
}

/// Answers a call below `/regions/{region}/`.
pub(crate) fn answer(world: &World, caller: &Caller, region: &str, rest: &[&str], call: &Call) -> Answer {
    let region = known_region(region)?;
    match rest {
        ["ips"] if call.method == Method::GET => list(world, caller, &region, call),
        ["ips"] if call.method == Method::POST => Err(Refusal::NotEmulated("booking an address".to_owned())),
        ["ips"] => Err(Refusal::Method("GET, POST")),
        ["ips", ..] => Err(Refusal::NotEmulated(call.path.clone())),
        _ => Err(Refusal::Route(format!("{} {}", call.method, call.path))),
    }
}

/// Where addresses are looked for.
enum Source {
    Network(Id),
    Subnet(Id),
    Vpc(Id),
    /// Public addresses, of which there are none here.
    Public,
}

impl Source {
    /// Reads the one source; none or two of them are a mistake.
    fn read(query: &mut Query) -> Option<Self> {
        let network = query.id("private_network_id").map(Self::Network);
        let subnet = query.id("subnet_id").map(Self::Subnet);
        let vpc = query.id("source_vpc_id").map(Self::Vpc);
        let zonal = query.text("zonal").map(|_| Self::Public);
        let regional = query.flag("regional").map(|_| Self::Public);
        let mut given: Vec<Self> = [network, subnet, vpc, zonal, regional].into_iter().flatten().collect();
        if given.len() != 1 {
            query.refuse(
                "source",
                Reason::Constraint,
                format!("exactly one of {} must be set", SOURCES.join(", ")),
            );
        }
        given.pop()
    }

    fn has(&self, address: &Ip) -> bool {
        match self {
            Self::Network(id) => address.private_network_id == *id,
            Self::Subnet(id) => address.subnet_id == *id,
            Self::Vpc(id) => address.vpc_id == *id,
            Self::Public => false,
        }
    }
}

/// GET `/ips`
fn list(world: &World, caller: &Caller, region: &Region, call: &Call) -> Answer {
    let mut query = Query::new(&call.query);
    let owner = Owner::read(&mut query);
    let source = Source::read(&mut query);
    let vpc_id = query.id("vpc_id");
    let attached = query.flag("attached");
    let is_ipv6 = query.flag("is_ipv6");
    let name = query.text("resource_name");
    let mac = query.text("mac_address");
    let mut nics = query.ids("resource_ids");
    nics.extend(query.id("resource_id"));
    let mut types = query.many("resource_types");
    types.extend(query.text("resource_type"));
    // What the vendor's own SDK sends when it is not asked for a type.
    types.retain(|kind| kind != "unknown_type");
    let ids = query.ids("ip_ids");
    let tags = query.many("tags");
    let order = query.choice(
        "order_by",
        &["created_at_desc", "created_at_asc", "updated_at_desc", "updated_at_asc"],
    );
    let page = page::last(query, world.settings.page_cap)?;
    world.may_list(caller, Resource::Ip, &owner)?;
    let mut found = world.ipam.addresses.as_of(world.lagging(caller.now));
    found.retain(|address| {
        let (row_name, row_mac) = world.named(address);
        address.region == *region
            && address.visible_at <= caller.now
            && world.accounts.lists(&caller.key, &address.project_id, &owner)
            && source.as_ref().is_some_and(|source| source.has(address))
            && vpc_id.as_ref().is_none_or(|vpc| *vpc == address.vpc_id)
            && attached != Some(false)
            && is_ipv6.is_none_or(|is_ipv6| is_ipv6 == address.address.is_ipv6())
            && name.as_deref().is_none_or(|name| row_name == Some(name))
            && mac.as_deref().is_none_or(|mac| row_mac == Some(mac))
            && (nics.is_empty() || nics.contains(&address.resource_id))
            && (types.is_empty() || types.contains(&address.resource_type))
            && (ids.is_empty() || ids.contains(&address.id))
            && tags.is_empty()
    });
    found.sort_by(|a, b| {
        let by_age = if order.ends_with("asc") {
            a.created_at.cmp(&b.created_at)
        } else {
            b.created_at.cmp(&a.created_at)
        };
        // Of the rows of one NIC the IPv6 one comes first.
        by_age
            .then_with(|| a.resource_id.cmp(&b.resource_id))
            .then_with(|| b.address.is_ipv6().cmp(&a.address.is_ipv6()))
    });
    Ok(page.reply("ips", &found, |address| world.show_address(address)))
}
