//! VPC: `/vpc/v2/regions/{region}/…`. Private networks live in a VPC; each project has a default one per region.

use crate::account::{Action, Owner, Resource};
use crate::call::{Answer, Call, Reply};
use crate::cidr::Cidr;
use crate::ids::{Id, Region};
use crate::labels::Labels;
use crate::page;
use crate::refusal::{Reason, Refusal};
use crate::sorting::{Sorting, Stamps};
use crate::strict::{Fields, Query};
use crate::table::{Table, rows};
use crate::world::{Caller, World, id_in_path};
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

/// A part of a private network.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Subnet {
    pub(crate) id: Id,
    pub(crate) cidr: Cidr,
}

/// A private network.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct PrivateNetwork {
    pub(crate) id: Id,
    pub(crate) name: String,
    pub(crate) region: Region,
    pub(crate) project_id: Id,
    pub(crate) organization_id: Id,
    pub(crate) vpc_id: Id,
    pub(crate) tags: Vec<String>,
    pub(crate) subnets: Vec<Subnet>,
    pub(crate) propagate_default_route: bool,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
}

impl PrivateNetwork {
    fn wire(&self) -> Value {
        let subnet = |subnet: &Subnet| {
            json!({
                "id": subnet.id,
                "subnet": subnet.cidr,
                "project_id": self.project_id,
                "private_network_id": self.id,
                "vpc_id": self.vpc_id,
                "created_at": self.created_at,
                "updated_at": self.updated_at,
            })
        };
        json!({
            "id": self.id,
            "name": self.name,
            "organization_id": self.organization_id,
            "project_id": self.project_id,
            "region": self.region,
            "tags": self.tags,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "subnets": self.subnets.iter().map(subnet).collect::<Vec<_>>(),
            "vpc_id": self.vpc_id,
            "dhcp_enabled": true,
            "default_route_propagation_enabled": self.propagate_default_route,
        })
    }
}

/// A VPC: here only the default one of a project and region.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Vpc {
    id: Id,
    region: Region,
    project_id: Id,
    organization_id: Id,
    created_at: Timestamp,
}

rows!(PrivateNetwork, Vpc);

/// All networks.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Networks {
    pub(crate) vpcs: Table<Vpc>,
    pub(crate) networks: Table<PrivateNetwork>,
}

/// Answers a call below `/regions/{region}/`.
pub(crate) fn answer(world: &mut World, caller: &Caller, region: &str, rest: &[&str], call: &Call) -> Answer {
    let region = known_region(region)?;
    let network_id = |text: &str| id_in_path("private_network_id", text);
    match rest {
        ["private-networks"] => match call.method {
            Method::GET => list(world, caller, &region, call),
            Method::POST => create(world, caller, &region, call),
            _ => Err(Refusal::Method("GET, POST")),
        },
        ["private-networks", id] => match call.method {
            Method::GET => {
                let network = world.visible_network(caller, &region, &network_id(id)?, Action::Read)?;
                Ok(Reply::ok(network.wire()))
            }
            Method::PATCH => update(world, caller, &region, &network_id(id)?, call),
            Method::DELETE => delete(world, caller, &region, &network_id(id)?),
            _ => Err(Refusal::Method("GET, PATCH, DELETE")),
        },
        ["vpcs"] => match call.method {
            Method::GET => list_vpcs(world, caller, &region, call),
            _ => Err(Refusal::NotEmulated(format!("{} {}", call.method, call.path))),
        },
        ["vpcs", ..] => Err(Refusal::NotEmulated(call.path.clone())),
        _ => Err(Refusal::Route(format!("{} {}", call.method, call.path))),
    }
}

/// A region that has private networks.
pub(crate) fn known_region(region: &str) -> Result<Region, Refusal> {
    if Region::KNOWN.contains(&region) {
        Ok(Region::new(region))
    } else {
        let help = format!("{region} is not a region; regions: {}", Region::KNOWN.join(", "));
        Err(Refusal::argument("region", Reason::Constraint, help))
    }
}

impl World {
    fn visible_network(&self, caller: &Caller, region: &Region, id: &Id, action: Action) -> Answer<&PrivateNetwork> {
        let found = self.vpc.networks.get(id).filter(|network| network.region == *region);
        let found = found.map(|network| (network, &network.project_id));
        self.permitted(caller, action, Resource::PrivateNetwork, id, found)
    }

    /// The VPC a network of a project lands in when none is named.
    fn default_vpc(&mut self, now: Timestamp, region: &Region, project_id: &Id) -> Id {
        let found = self
            .vpc
            .vpcs
            .iter()
            .find(|vpc| vpc.region == *region && vpc.project_id == *project_id);
        if let Some(vpc) = found {
            return vpc.id.clone();
        }
        let id = self.dice.id();
        let vpc = Vpc {
            id: id.clone(),
            region: region.clone(),
            project_id: project_id.clone(),
            organization_id: self.organization_of(project_id),
            created_at: now,
        };
        self.vpc.vpcs.put(now, vpc);
        id
    }

    /// A block nobody in the VPC uses yet.
    fn free_block(&self, vpc_id: &Id) -> Cidr {
        let taken: Vec<Cidr> = self.blocks_of(vpc_id);
        let range = self.settings.private_networks;
        (0..1024)
            .map_while(|number| range.part(number))
            .find(|block| !taken.iter().any(|other| other.overlaps(*block)))
            .unwrap_or(range)
    }

    fn blocks_of(&self, vpc_id: &Id) -> Vec<Cidr> {
        let networks = self.vpc.networks.iter().filter(|network| network.vpc_id == *vpc_id);
        networks
            .flat_map(|network| network.subnets.iter().map(|subnet| subnet.cidr))
            .collect()
    }
}

/// GET `/private-networks`: `name` matches anywhere in the name.
fn list(world: &World, caller: &Caller, region: &Region, call: &Call) -> Answer {
    let mut query = Query::new(&call.query);
    let owner = Owner::read(&mut query);
    let name = query.text("name");
    let tags = query.many("tags");
    let ids = query.ids("private_network_ids");
    let vpc_id = query.id("vpc_id");
    let dhcp = query.flag("dhcp_enabled");
    let sorting = Sorting::by_age_or_name(&mut query);
    let page = page::last(query, world.settings.page_cap)?;
    world.may_list(caller, Resource::PrivateNetwork, &owner)?;
    let mut found = world.vpc.networks.as_of(world.lagging(caller.now));
    found.retain(|network| {
        network.region == *region
            && world.accounts.lists(&caller.key, &network.project_id, &owner)
            && name.as_ref().is_none_or(|name| network.name.contains(name.as_str()))
            && tags.iter().all(|tag| network.tags.contains(tag))
            && (ids.is_empty() || ids.contains(&network.id))
            && vpc_id.as_ref().is_none_or(|vpc| *vpc == network.vpc_id)
            && dhcp != Some(false)
    });
    sorting.sort(&mut found, |network| Stamps {
        created: network.created_at,
        name: &network.name,
        ..Stamps::of(&network.id)
    });
    Ok(page.reply("private_networks", &found, |network| network.wire()))
}

/// POST `/private-networks`
fn create(world: &mut World, caller: &Caller, region: &Region, call: &Call) -> Answer {
    let mut fields = Fields::new(call.json()?)?;
    let name = fields.text("name").filter(|name| !name.is_empty());
    let project_id = fields.id("project_id");
    if project_id.is_none() {
        fields.refuse("project_id", Reason::Required, "cannot be empty");
    }
    let tags = fields.texts("tags");
    let wanted = fields.texts("subnets");
    let vpc_id = fields.id("vpc_id");
    let propagate_default_route = fields.flag("default_route_propagation_enabled").unwrap_or(false);
    let mut blocks = Vec::new();
    for text in wanted {
        match text.parse::<Cidr>() {
            Ok(block) => blocks.push(block),
            Err(help) => fields.refuse("subnets", Reason::Format, help),
        }
    }
    fields.finish()?;
    let project_id = project_id.ok_or_else(|| Refusal::argument("project_id", Reason::Required, "cannot be empty"))?;
    world
        .accounts
        .authorise(&caller.key, Action::Create, Resource::PrivateNetwork, Some(&project_id))?;
    let vpc_id = match vpc_id {
        None => world.default_vpc(caller.now, region, &project_id),
        Some(id) => {
            let found = world.vpc.vpcs.get(&id);
            let usable = found.is_some_and(|vpc| vpc.region == *region && vpc.project_id == project_id);
            if !usable {
                return Err(Refusal::not_found("vpc", id.as_str()));
            }
            id
        }
    };
    let taken = world.blocks_of(&vpc_id);
    if blocks
        .iter()
        .any(|block| taken.iter().any(|other| other.overlaps(*block)))
    {
        let help = "overlaps with a subnet of another private network of this VPC";
        return Err(Refusal::argument("subnets", Reason::Constraint, help));
    }
    if !blocks.iter().any(|block| !block.is_ipv6()) {
        blocks.insert(0, world.free_block(&vpc_id));
    }
    if !blocks.iter().any(|block| block.is_ipv6()) {
        let random = world.dice.number();
        blocks.push(Cidr::unique_local(random));
    }
    let subnets = blocks
        .into_iter()
        .map(|cidr| Subnet {
            id: world.dice.id(),
            cidr,
        })
        .collect();
    let id = world.dice.id();
    let network = PrivateNetwork {
        name: name.unwrap_or_else(|| format!("pn-{}", id.as_str().get(..8).unwrap_or_default())),
        id,
        region: region.clone(),
        organization_id: world.organization_of(&project_id),
        project_id,
        vpc_id,
        tags,
        subnets,
        propagate_default_route,
        created_at: caller.now,
        updated_at: caller.now,
    };
    let shown = network.wire();
    world.vpc.networks.put(caller.now, network);
    Ok(Reply::ok(shown))
}

/// PATCH `/private-networks/{id}`
fn update(world: &mut World, caller: &Caller, region: &Region, id: &Id, call: &Call) -> Answer {
    let mut fields = Fields::new(call.json()?)?;
    let labels = Labels::read(&mut fields);
    let propagate = fields.flag("default_route_propagation_enabled");
    fields.finish()?;
    world.visible_network(caller, region, id, Action::Update)?;
    let shown = world.vpc.networks.change(caller.now, id, |network| {
        labels.put(&mut network.name, &mut network.tags);
        if let Some(propagate) = propagate {
            network.propagate_default_route = propagate;
        }
        network.updated_at = caller.now;
        network.wire()
    });
    shown
        .map(Reply::ok)
        .ok_or_else(|| Refusal::not_found("private_network", id.as_str()))
}

/// DELETE `/private-networks/{id}`
fn delete(world: &mut World, caller: &Caller, region: &Region, id: &Id) -> Answer {
    world.visible_network(caller, region, id, Action::Delete)?;
    let minis = world.apple.attachments.iter();
    let minis = minis.filter(|attachment| attachment.private_network_id == *id);
    if minis.count() > 0 || world.has_addresses(id) || world.linux_uses(id) {
        return Err(Refusal::Precondition {
            precondition: "resource_still_in_use",
            help: "All servers must be removed from the private network before deleting it.".to_owned(),
        });
    }
    world.vpc.networks.remove(caller.now, id);
    Ok(Reply::no_content())
}

/// GET `/vpcs`
fn list_vpcs(world: &World, caller: &Caller, region: &Region, call: &Call) -> Answer {
    let mut query = Query::new(&call.query);
    let owner = Owner::read(&mut query);
    let name = query.text("name");
    let is_default = query.flag("is_default");
    Sorting::by_age_or_name(&mut query);
    let page = page::last(query, world.settings.page_cap)?;
    world.may_list(caller, Resource::Vpc, &owner)?;
    let shown: Vec<Value> = world
        .vpc
        .vpcs
        .iter()
        .filter(|vpc| {
            vpc.region == *region
                && world.accounts.lists(&caller.key, &vpc.project_id, &owner)
                && name.as_ref().is_none_or(|name| "default".contains(name.as_str()))
                && is_default != Some(false)
        })
        .map(|vpc| {
            let networks = world.vpc.networks.iter().filter(|network| network.vpc_id == vpc.id);
            json!({
                "id": vpc.id,
                "name": "default",
                "organization_id": vpc.organization_id,
                "project_id": vpc.project_id,
                "region": vpc.region,
                "tags": [],
                "is_default": true,
                "created_at": vpc.created_at,
                "updated_at": vpc.created_at,
                "private_network_count": networks.count(),
                "routing_enabled": true,
                "custom_routes_propagation_enabled": true,
            })
        })
        .collect();
    Ok(page.reply("vpcs", &shown, Value::clone))
}
