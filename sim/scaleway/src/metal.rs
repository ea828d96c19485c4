//! Elastic Metal: `/baremetal/v1/zones/{zone}/…`, and the private networks of `/baremetal/v3` beside those of v1.

pub(crate) mod catalog;
mod install;
mod life;
mod lists;
mod networks;
mod options;
mod orders;
mod schema;
pub(crate) mod server;
mod update;

use crate::account::{Action, Resource};
use crate::attachment::calls::{self, At};
use crate::attachment::{Attachment, Product, Version};
use crate::call::{Answer, Call, Reply};
use crate::ids::{Id, Zone};
use crate::refusal::{Reason, Refusal};
use crate::strict::Query;
use crate::table::Table;
use crate::world::{Caller, World, id_in_path};
use catalog::Catalog;
use http::Method;
pub(crate) use orders::Order;
use server::{Server, Status};

/// All there is about Elastic Metal.
#[derive(Clone, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Metals {
    pub(crate) catalog: Catalog,
    pub(crate) servers: Table<Server>,
    pub(crate) attachments: Table<Attachment>,
}

fn known_zone(world: &World, zone: &str) -> Result<Zone, Refusal> {
    let known = &world.metal.catalog.offers;
    let zone = Zone::new(zone);
    if known.contains_key(&zone) {
        return Ok(zone);
    }
    let known: Vec<&str> = known.keys().map(Zone::as_str).collect();
    let help = format!("{zone} has no Elastic Metal; zones that have: {}", known.join(", "));
    Err(Refusal::argument("zone", Reason::Constraint, help))
}

/// Answers a call below `/baremetal/v1/zones/{zone}/`.
pub(crate) fn answer(world: &mut World, caller: &Caller, zone: &str, rest: &[&str], call: &Call) -> Answer {
    let zone = known_zone(world, zone)?;
    let method = &call.method;
    match rest {
        ["servers"] => match *method {
            Method::GET => lists::servers(world, caller, &zone, call),
            Method::POST => orders::create(world, caller, &zone, call),
            _ => Err(Refusal::Method("GET, POST")),
        },
        ["servers", id, below @ ..] => {
            let id = id_in_path("server_id", id)?;
            below_server(world, caller, &zone, &id, below, call)
        }
        ["partitioning-schemas", "validate"] => match *method {
            Method::POST => schema::check(world, &zone, call),
            _ => Err(Refusal::Method("POST")),
        },
        ["batch-create-servers"] | ["settings", ..] => Err(Refusal::NotEmulated(call.path.clone())),
        ["server-private-networks"] if *method == Method::GET => {
            calls::list(world, caller, (Product::Metal, Version::V1), &zone, call)
        }
        _ if *method == Method::GET => match rest {
            ["offers"] => lists::offers(world, &zone, call),
            ["offers", id] => lists::offer(world, &zone, &id_in_path("offer_id", id)?),
            ["os"] => lists::systems(world, &zone, call),
            ["os", id] => lists::system(world, &zone, &id_in_path("os_id", id)?),
            ["options"] => lists::options(world, &zone, call),
            ["options", id] => lists::option(world, &id_in_path("option_id", id)?),
            ["partitioning-schemas", "default"] => schema::default(world, &zone, call),
            _ => Err(Refusal::Route(format!("{method} {}", call.path))),
        },
        ["offers" | "os" | "options" | "server-private-networks", ..] | ["partitioning-schemas", "default"] => {
            Err(Refusal::Method("GET"))
        }
        _ => Err(Refusal::Route(format!("{method} {}", call.path))),
    }
}

/// Answers a call below `/baremetal/v3/zones/{zone}/`: private networks and nothing else.
pub(crate) fn answer_v3(world: &mut World, caller: &Caller, zone: &str, rest: &[&str], call: &Call) -> Answer {
    let zone = known_zone(world, zone)?;
    match rest {
        ["server-private-networks"] if call.method == Method::GET => {
            calls::list(world, caller, (Product::Metal, Version::V3), &zone, call)
        }
        ["servers", id, "private-networks", below @ ..] => {
            let id = id_in_path("server_id", id)?;
            networks::answer(world, caller, at(&zone, &id, Version::V3), below, call)
        }
        _ => Err(Refusal::Route(format!("{} {}", call.method, call.path))),
    }
}

/// A server whose private networks were called about.
fn at<'a>(zone: &'a Zone, server: &'a Id, version: Version) -> At<'a> {
    At {
        product: Product::Metal,
        version,
        zone,
        server,
    }
}

/// Answers a call below `/servers/{id}`.
fn below_server(world: &mut World, caller: &Caller, zone: &Zone, id: &Id, rest: &[&str], call: &Call) -> Answer {
    let method = &call.method;
    match rest {
        [] => match *method {
            Method::GET => {
                Query::new(&call.query).finish()?;
                world.visible_metal(caller, zone, id, Action::Read)?;
                world.shown_metal(id)
            }
            Method::PATCH => update::apply(world, caller, zone, id, call),
            Method::DELETE => orders::delete(world, caller, zone, id, call),
            _ => Err(Refusal::Method("GET, PATCH, DELETE")),
        },
        ["events"] => match *method {
            Method::GET => lists::events(world, caller, zone, id, call),
            _ => Err(Refusal::Method("GET")),
        },
        ["install" | "reboot" | "start" | "stop" | "migrate-offer-monthly"] if *method != Method::POST => {
            Err(Refusal::Method("POST"))
        }
        ["install"] => install::install(world, caller, zone, id, call),
        [power @ ("reboot" | "start" | "stop")] => life::power(world, caller, zone, id, power, call),
        ["migrate-offer-monthly"] => update::go_monthly(world, caller, zone, id, call),
        ["options", option] => {
            let option = id_in_path("option_id", option)?;
            match *method {
                Method::POST => options::add(world, caller, zone, id, &option, call),
                Method::DELETE => options::remove(world, caller, zone, id, &option),
                _ => Err(Refusal::Method("POST, DELETE")),
            }
        }
        ["private-networks", below @ ..] => networks::answer(world, caller, at(zone, id, Version::V1), below, call),
        ["bmc-access" | "metrics" | "ips", ..] => Err(Refusal::NotEmulated(call.path.clone())),
        _ => Err(Refusal::Route(format!("{method} {}", call.path))),
    }
}

impl World {
    /// A server the caller may do this to.
    pub(crate) fn visible_metal(&self, caller: &Caller, zone: &Zone, id: &Id, action: Action) -> Answer<&Server> {
        let found = self.metal.servers.get(id).filter(|server| server.zone == *zone);
        let found = found.map(|server| (server, &server.project_id));
        self.permitted(caller, action, Resource::Metal, id, found)
    }

    /// The same, and it is neither locked nor about to go.
    pub(crate) fn writable_metal(&self, caller: &Caller, zone: &Zone, id: &Id, action: Action) -> Answer<&Server> {
        let server = self.visible_metal(caller, zone, id, action)?;
        match server.status {
            Status::Locked => Err(Refusal::Locked {
                resource: Resource::Metal.as_str(),
                id: id.clone(),
            }),
            Status::Deleting => Err(server.transient()),
            _ => Ok(server),
        }
    }

    fn shown_metal(&self, id: &Id) -> Answer {
        let server = self.metal.servers.get(id);
        server
            .map(|server| Reply::ok(self.show_metal(server)))
            .ok_or_else(|| Refusal::not_found("server", id.as_str()))
    }
}
