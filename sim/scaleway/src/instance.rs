//! Instances: `/instance/v1/zones/{zone}/…`, the oldest of the products, and it shows.
//!
//! Lists say `per_page` and count in a header, owners are `project` and `organization`, dates end in `+00:00`, answers are
//! wrapped in `{"server": …}`, and what is created here (volumes, addresses) outlives the server it was created for.

pub(crate) mod catalog;
mod ips;
mod life;
mod lists;
mod nics;
mod orders;
pub(crate) mod server;
mod update;
mod user_data;
mod volumes;

use crate::account::{Action, Resource};
use crate::call::{Answer, Call};
use crate::ids::{Id, Zone};
use crate::refusal::{Reason, Refusal};
use crate::settings::ErrorStyle;
use crate::table::Table;
use crate::world::{Caller, World, id_in_path};
use catalog::Catalog;
use http::Method;
use ips::Ip;
use jiff::Timestamp;
use nics::Nic;
pub(crate) use orders::{LocalVolumes, Order};
use server::{Server, State};
use volumes::Volume;

/// All there is about Instances.
#[derive(Clone, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Instances {
    pub(crate) catalog: Catalog,
    pub(crate) servers: Table<Server>,
    pub(crate) nics: Table<Nic>,
    pub(crate) ips: Table<Ip>,
    pub(crate) volumes: Table<Volume>,
}

/// Answers a call below `/zones/{zone}/`, in the words that are in fashion.
pub(crate) fn answer(world: &mut World, caller: &Caller, zone: &str, rest: &[&str], call: &Call) -> Answer {
    let answer = known_zone(zone).and_then(|zone| route(world, caller, &zone, rest, call));
    match world.settings.instance_errors {
        ErrorStyle::Current => answer,
        ErrorStyle::Legacy => answer.map_err(Refusal::in_older_words),
    }
}

/// A zone that has Linux servers.
pub(crate) fn known_zone(zone: &str) -> Result<Zone, Refusal> {
    if Zone::LINUX.contains(&zone) {
        Ok(Zone::new(zone))
    } else {
        let help = format!("{zone} is not a zone; zones: {}", Zone::LINUX.join(", "));
        Err(Refusal::argument("zone", Reason::Constraint, help))
    }
}

fn route(world: &mut World, caller: &Caller, zone: &Zone, rest: &[&str], call: &Call) -> Answer {
    let method = &call.method;
    match rest {
        ["servers"] => match *method {
            Method::GET => lists::servers(world, caller, zone, call),
            Method::POST => orders::create(world, caller, zone, call),
            _ => Err(Refusal::Method("GET, POST")),
        },
        ["servers", id, below @ ..] => {
            let id = id_in_path("server_id", id)?;
            below_server(world, caller, zone, &id, below, call)
        }
        ["ips"] => match *method {
            Method::GET => ips::list(world, caller, zone, call),
            Method::POST => ips::create(world, caller, zone, call),
            _ => Err(Refusal::Method("GET, POST")),
        },
        ["ips", id] => {
            let id = id_in_path("ip", id)?;
            match *method {
                Method::GET => ips::get(world, caller, zone, &id),
                Method::PATCH => ips::update(world, caller, zone, &id, call),
                Method::DELETE => ips::delete(world, caller, zone, &id),
                _ => Err(Refusal::Method("GET, PATCH, DELETE")),
            }
        }
        ["volumes"] if *method == Method::GET => volumes::list(world, caller, zone, call),
        ["volumes", id] => {
            let id = id_in_path("volume_id", id)?;
            match *method {
                Method::GET => volumes::get(world, caller, zone, &id),
                Method::PATCH => volumes::update(world, caller, zone, &id, call),
                Method::DELETE => volumes::delete(world, caller, zone, &id),
                _ => Err(Refusal::Method("GET, PATCH, DELETE")),
            }
        }
        ["products", "servers"] if *method == Method::GET => lists::types(world, zone, call),
        ["products", "servers", "availability"] if *method == Method::GET => lists::availability(world, zone, call),
        [
            "volumes" | "snapshots" | "images" | "security_groups" | "placement_groups" | "dashboard" | "products"
            | "tasks" | "ips",
            ..,
        ] => Err(Refusal::NotEmulated(format!("{method} {}", call.path))),
        _ => Err(Refusal::Route(format!("{method} {}", call.path))),
    }
}

/// Answers a call below `/servers/{id}`.
fn below_server(world: &mut World, caller: &Caller, zone: &Zone, id: &Id, rest: &[&str], call: &Call) -> Answer {
    let method = &call.method;
    match rest {
        [] => match *method {
            Method::GET => lists::server(world, caller, zone, id, call),
            Method::PATCH => update::apply(world, caller, zone, id, call),
            Method::DELETE => orders::delete(world, caller, zone, id, call),
            Method::PUT => Err(Refusal::NotEmulated(format!("{method} {}", call.path))),
            _ => Err(Refusal::Method("GET, PATCH, DELETE")),
        },
        ["action"] => match *method {
            Method::GET => lists::actions(world, caller, zone, id),
            Method::POST => life::act(world, caller, zone, id, call),
            _ => Err(Refusal::Method("GET, POST")),
        },
        ["user_data"] => match *method {
            Method::GET => user_data::keys(world, caller, zone, id),
            _ => Err(Refusal::Method("GET")),
        },
        ["user_data", key] => match *method {
            Method::GET => user_data::get(world, caller, zone, id, key),
            Method::PATCH => user_data::set(world, caller, zone, id, key, call),
            Method::DELETE => user_data::delete(world, caller, zone, id, key),
            _ => Err(Refusal::Method("GET, PATCH, DELETE")),
        },
        ["private_nics"] => match *method {
            Method::GET => nics::list(world, caller, zone, id, call),
            Method::POST => nics::create(world, caller, zone, id, call),
            _ => Err(Refusal::Method("GET, POST")),
        },
        ["private_nics", nic] => {
            let nic = id_in_path("private_nic_id", nic)?;
            match *method {
                Method::GET => nics::get(world, caller, zone, id, &nic),
                Method::PATCH => nics::update(world, caller, zone, id, &nic, call),
                Method::DELETE => nics::delete(world, caller, zone, id, &nic),
                _ => Err(Refusal::Method("GET, PATCH, DELETE")),
            }
        }
        ["compatible-types" | "attach-volume" | "detach-volume" | "attach-filesystem" | "detach-filesystem"] => {
            Err(Refusal::NotEmulated(format!("{method} {}", call.path)))
        }
        _ => Err(Refusal::Route(format!("{method} {}", call.path))),
    }
}

impl World {
    /// An Instance the caller may do this to.
    pub(crate) fn visible_instance(&self, caller: &Caller, zone: &Zone, id: &Id, action: Action) -> Answer<&Server> {
        let found = self.instance.servers.get(id).filter(|server| server.zone == *zone);
        let found = found.map(|server| (server, &server.project_id));
        self.permitted(caller, action, Resource::InstanceServer, id, found)
    }

    /// The same, and it is not locked.
    fn writable_instance(&self, caller: &Caller, zone: &Zone, id: &Id, action: Action) -> Result<&Server, Refusal> {
        let server = self.visible_instance(caller, zone, id, action)?;
        if server.state == State::Locked {
            return Err(Refusal::Locked {
                resource: Resource::InstanceServer.as_str(),
                id: id.clone(),
            });
        }
        Ok(server)
    }
}

/// A date as this API writes it.
pub(crate) fn date(at: Timestamp) -> String {
    let text = at.to_string();
    match text.strip_suffix('Z') {
        Some(text) => format!("{text}+00:00"),
        None => text,
    }
}
