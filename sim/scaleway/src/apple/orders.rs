//! What changes something: order, rename, reboot, reinstall, delete.

use super::catalog::{Offer, Os};
use super::server::{Commitment, Ending, Server, Status, VpcStatus};
use crate::account::{Action, Resource};
use crate::bill::{Line, MONTH, Plan, Stretch};
use crate::call::{Answer, Call, Reply};
use crate::host::HostChange;
use crate::ids::{Id, Zone};
use crate::refusal::{Reason, Refusal};
use crate::strict::{Fields, Query};
use crate::world::{Caller, World};
use jiff::Timestamp;
use russet_sim_kit::clock::after;
use serde_json::{Value, json};
use std::time::Duration;

/// What is ordered.
pub(crate) struct Order {
    pub(crate) zone: Zone,
    pub(crate) project_id: Id,
    pub(crate) server_type: String,
    pub(crate) os: Option<Id>,
    pub(crate) enable_vpc: bool,
    pub(crate) commitment: Commitment,
    pub(crate) bandwidth: u64,
    pub(crate) kext: bool,
}

impl Order {
    /// Reads the fields that one order and a batch have in common.
    fn read(fields: &mut Fields, zone: &Zone) -> Option<Self> {
        let project_id = fields.id("project_id");
        if project_id.is_none() {
            fields.refuse("project_id", Reason::Required, "cannot be empty");
        }
        Some(Self {
            zone: zone.clone(),
            server_type: fields.required("type"),
            os: fields.id("os_id"),
            enable_vpc: fields.flag("enable_vpc").unwrap_or(false),
            commitment: fields
                .choice("commitment_type", &Commitment::WORDS)
                .map_or(Commitment::Duration24h, Commitment::from_word),
            bandwidth: fields.number("public_bandwidth_bps").unwrap_or(0),
            kext: fields.flag("enable_kext").unwrap_or(false),
            project_id: project_id?,
        })
    }
}

/// POST `/servers`
pub(super) fn create(world: &mut World, caller: &Caller, zone: &Zone, call: &Call) -> Answer {
    let mut fields = Fields::new(call.json()?)?;
    let name = fields.text("name");
    let order = Order::read(&mut fields, zone);
    fields.not_emulated("runner_configuration");
    fields.not_emulated("applied_runner_configurations");
    fields.finish()?;
    let name = name
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| world.made_up_name());
    let mut made = place(world, caller, order, &[name])?;
    Ok(Reply::ok(made.pop().unwrap_or(Value::Null)))
}

/// POST `/batch-create-servers`: all or nothing.
pub(super) fn create_batch(world: &mut World, caller: &Caller, zone: &Zone, call: &Call) -> Answer {
    let mut fields = Fields::new(call.json()?)?;
    let order = Order::read(&mut fields, zone);
    let requests = fields
        .value("requests")
        .and_then(|value| value.as_array().cloned())
        .unwrap_or_default();
    if requests.is_empty() {
        fields.refuse("requests", Reason::Required, "cannot be empty");
    }
    fields.finish()?;
    let mut names = Vec::with_capacity(requests.len());
    for request in requests {
        let mut inner = Fields::new(request)?;
        names.push(inner.required("name"));
        inner.finish()?;
    }
    let made = place(world, caller, order, &names)?;
    Ok(Reply::ok(json!({ "servers": made })))
}

fn place(world: &mut World, caller: &Caller, order: Option<Order>, names: &[String]) -> Result<Vec<Value>, Refusal> {
    let order = order.ok_or_else(|| Refusal::argument("project_id", Reason::Required, "cannot be empty"))?;
    let project = Some(&order.project_id);
    world
        .accounts
        .authorise(&caller.key, Action::Create, Resource::Server, project)?;
    let (offer, os) = world.can_order(&order, names.len())?;
    let is_default = os.id == offer.default_os;
    let (os, offer) = (os.id.clone(), offer.clone());
    let mut made = Vec::with_capacity(names.len());
    for name in names {
        if let Some(offer) = world.apple.catalog.offer_mut(&order.zone, &order.server_type) {
            offer.stock = offer.stock.saturating_sub(1);
        }
        let id = world.make_server(caller.now, &order, &offer, name, &os);
        let extra = if is_default {
            Duration::ZERO
        } else {
            world.settings.delays.other_os
        };
        let takes = world.settings.delays.delivery + extra;
        world.begin(caller.now, &id, Status::Starting, Ending::Delivered, takes);
        if order.enable_vpc {
            world.toggle_vpc(caller.now, &id, VpcStatus::VpcEnabled);
        }
        if let Some(server) = world.apple.servers.get(&id) {
            made.push(server.wire_sealed(caller.now, world.apple.catalog.systems.get(&os)));
        }
    }
    Ok(made)
}

impl World {
    fn made_up_name(&mut self) -> String {
        format!("as-{}", self.dice.id().as_str().get(..8).unwrap_or("server"))
    }

    /// The offer and the image of an order that can be filled.
    fn can_order(&self, order: &Order, count: usize) -> Result<(&Offer, &Os), Refusal> {
        let offer = self
            .apple
            .catalog
            .offer(&order.zone, &order.server_type)
            .ok_or_else(|| Refusal::argument("type", Reason::Constraint, "no such server type in this zone"))?;
        let os = self.installable(&order.server_type, order.os.as_ref().unwrap_or(&offer.default_os))?;
        if order.bandwidth != 0 && !offer.bandwidths.contains(&order.bandwidth) {
            let help = "not supported by this server type";
            return Err(Refusal::argument("public_bandwidth_bps", Reason::Constraint, help));
        }
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        if let Some(quota) = self.settings.server_quota {
            let organization = self
                .accounts
                .projects
                .get(&order.project_id)
                .map(|project| &project.organization_id);
            let owned = self
                .apple
                .servers
                .iter()
                .filter(|server| Some(&server.organization_id) == organization);
            let current = u32::try_from(owned.count()).unwrap_or(u32::MAX);
            if current.saturating_add(count) > quota {
                return Err(Refusal::Quota {
                    resource: "apple_silicon_server",
                    quota,
                    current,
                });
            }
        }
        if offer.stock < count {
            return Err(Refusal::OutOfStock {
                resource: order.server_type.clone(),
            });
        }
        Ok((offer, os))
    }

    /// An image that is published for a type.
    fn installable(&self, server_type: &str, os: &Id) -> Result<&Os, Refusal> {
        let found = self.apple.catalog.systems.get(os);
        let found = found.ok_or_else(|| Refusal::not_found("os", os.as_str()))?;
        if found.installs_on(server_type) {
            Ok(found)
        } else {
            let help = format!("{} cannot be installed on {server_type}", found.name);
            Err(Refusal::argument("os_id", Reason::Constraint, help))
        }
    }

    /// Makes a server and opens its line on the bill; what it is doing is up to the caller.
    pub(crate) fn make_server(&mut self, now: Timestamp, order: &Order, offer: &Offer, name: &str, os: &Id) -> Id {
        let id = self.dice.id();
        let (address, ssh_port) = self.addresses.place(self.apple.made);
        self.apple.made = self.apple.made.saturating_add(1);
        let project = self.accounts.projects.get(&order.project_id);
        let organization_id =
            project.map_or_else(|| order.project_id.clone(), |project| project.organization_id.clone());
        let lease = after(now, Duration::from_hours(offer.minimum_hours));
        let (plan, deletable_at) = match order.commitment {
            Commitment::RenewedMonthly => (
                Plan::Monthly { price: offer.monthly },
                now.checked_add(MONTH).unwrap_or(Timestamp::MAX),
            ),
            Commitment::Duration24h | Commitment::None => (
                Plan::Hourly {
                    price: offer.hourly,
                    minimum_hours: offer.minimum_hours.max(1),
                },
                lease,
            ),
        };
        let server = Server {
            id: id.clone(),
            zone: order.zone.clone(),
            server_type: offer.name.clone(),
            name: name.to_owned(),
            project_id: order.project_id.clone(),
            organization_id,
            address,
            ssh_port,
            mac: self.dice.mac(),
            status: Status::Ready,
            pending: None,
            delivered: false,
            vpc_status: VpcStatus::VpcDisabled,
            vpc_pending: None,
            commitment: order.commitment,
            cancelled: false,
            created_at: now,
            updated_at: now,
            deletable_at,
            deletion_scheduled: false,
            bandwidth: Some(order.bandwidth)
                .filter(|bandwidth| *bandwidth != 0)
                .or_else(|| offer.bandwidths.first().copied())
                .unwrap_or_default(),
            kext: order.kext,
            tags: Vec::new(),
            passwords: self.settings.passwords,
            health: super::server::Health::default(),
            installation: self.installation(now, &order.project_id, os.clone(), 1),
        };
        self.apple.servers.put(now, server);
        self.bill.open(Line {
            resource_id: id.clone(),
            resource: "apple_silicon_server".to_owned(),
            commercial_type: offer.name.clone(),
            zone: order.zone.clone(),
            project_id: order.project_id.clone(),
            stretches: vec![Stretch {
                plan,
                from: now,
                until: None,
            }],
        });
        id
    }
}

/// Refuses what needs a server that is at rest.
pub(super) fn at_rest(server: &Server) -> Result<(), Refusal> {
    match server.status {
        Status::Ready | Status::Error => Ok(()),
        status => Err(Refusal::Transient {
            resource: "server",
            id: server.id.clone(),
            state: status.as_str().to_owned(),
        }),
    }
}

/// POST `/servers/{id}/reboot`
pub(super) fn reboot(world: &mut World, caller: &Caller, zone: &Zone, id: &Id, call: &Call) -> Answer {
    Query::new(&call.query).finish()?;
    Fields::new(call.json()?)?.finish()?;
    at_rest(world.writable_server(caller, zone, id, Action::Update)?)?;
    world.announce(HostChange::Rebooting, id);
    let takes = world.settings.delays.reboot;
    world.begin(caller.now, id, Status::Rebooting, Ending::Rebooted, takes);
    shown(world, caller, id)
}

/// POST `/servers/{id}/reinstall`: without `os_id`, the default of that type on that day.
pub(super) fn reinstall(world: &mut World, caller: &Caller, zone: &Zone, id: &Id, call: &Call) -> Answer {
    Query::new(&call.query).finish()?;
    let mut fields = Fields::new(call.json()?)?;
    let wanted = fields.id("os_id");
    let kext = fields.flag("enable_kext").unwrap_or(false);
    fields.finish()?;
    let server = world.writable_server(caller, zone, id, Action::Update)?;
    at_rest(server)?;
    let default = world
        .apple
        .catalog
        .offer(zone, &server.server_type)
        .map(|offer| offer.default_os.clone());
    let wanted = wanted.or(default).unwrap_or_else(|| server.installation.os.clone());
    let os = world.installable(&server.server_type, &wanted)?;
    let present = world.apple.catalog.systems.get(&server.installation.os);
    if present.is_some_and(|present| present.name.starts_with("devos-") || !os.replaces(present)) {
        return Err(Refusal::Precondition {
            precondition: "unknown_precondition",
            help: format!("{} cannot be installed over what is on this server", os.name),
        });
    }
    let (project, generation) = (
        server.project_id.clone(),
        server.installation.generation.saturating_add(1),
    );
    world.announce(HostChange::Wiped, id);
    let installation = world.installation(caller.now, &project, wanted, generation);
    let passwords = world.settings.passwords;
    world.apple.servers.change(caller.now, id, |server| {
        server.installation = installation;
        server.kext = kext;
        server.passwords = passwords;
    });
    let takes = world.settings.delays.reinstall;
    world.begin(caller.now, id, Status::Reinstalling, Ending::Reinstalled, takes);
    shown(world, caller, id)
}

/// DELETE `/servers/{id}`
pub(super) fn delete(world: &mut World, caller: &Caller, zone: &Zone, id: &Id, call: &Call) -> Answer {
    Query::new(&call.query).finish()?;
    let server = world.writable_server(caller, zone, id, Action::Delete)?;
    at_rest(server)?;
    if caller.now < server.deletable_at {
        return Err(Refusal::Precondition {
            precondition: "unknown_precondition",
            help: format!("the server cannot be deleted before {}", server.deletable_at),
        });
    }
    world.remove_server(caller.now, id);
    Ok(Reply::no_content())
}

pub(super) fn shown(world: &World, caller: &Caller, id: &Id) -> Answer {
    let server = world.apple.servers.get(id);
    server
        .map(|server| Reply::ok(world.show(server, caller.now)))
        .ok_or_else(|| Refusal::not_found("server", id.as_str()))
}
