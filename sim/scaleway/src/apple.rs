//! Apple silicon: `/apple-silicon/v1alpha1/zones/{zone}/…`.

pub(crate) mod catalog;
mod diagnostics;
pub(crate) mod life;
mod lists;
mod networks;
mod orders;
pub(crate) mod server;
mod update;

use crate::account::Action;
use crate::attachment::calls;
use crate::attachment::{Attachment, Product, Version};
use crate::call::{Answer, Call, Reply};
use crate::dice::Dice;
use crate::ids::{Id, Zone};
use crate::refusal::{Reason, Refusal};
use crate::settings::Vanished;
use crate::strict::Query;
use crate::table::Table;
use crate::world::{Caller, World, id_in_path};
use catalog::Catalog;
use diagnostics::Diagnostic;
use http::Method;
use jiff::Timestamp;
use life::Fate;
pub(crate) use orders::Order;
use server::{Server, Status};
use std::collections::{BTreeMap, BTreeSet};

/// All there is about Mac minis.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Apple {
    pub(crate) catalog: Catalog,
    pub(crate) servers: Table<Server>,
    pub(crate) attachments: Table<Attachment>,
    pub(crate) diagnostics: BTreeMap<Id, Diagnostic>,
    /// Minis that were deleted and are not in stock yet.
    pub(crate) returning: Vec<Returning>,
    /// Ids that were servers once. None of them ever comes back.
    pub(crate) gone: BTreeSet<Id>,
    pub(crate) fates: Vec<Fate>,
    /// How many machines were ever made, which decides their addresses.
    pub(crate) made: u32,
}

/// A mini on its way back into stock.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Returning {
    pub(crate) zone: Zone,
    pub(crate) server_type: String,
    pub(crate) at: Timestamp,
}

impl Apple {
    pub(crate) fn new(dice: &mut Dice) -> Self {
        Self {
            catalog: Catalog::ordinary(dice),
            servers: Table::default(),
            attachments: Table::default(),
            diagnostics: BTreeMap::new(),
            returning: Vec::new(),
            gone: BTreeSet::new(),
            fates: Vec::new(),
            made: 0,
        }
    }
}

/// Answers a call below `/zones/{zone}/`.
pub(crate) fn answer(world: &mut World, caller: &Caller, zone: &str, rest: &[&str], call: &Call) -> Answer {
    let zone = Zone::new(zone);
    if !world.apple.catalog.offers.contains_key(&zone) {
        let known: Vec<&str> = world.apple.catalog.offers.keys().map(Zone::as_str).collect();
        let help = format!("{zone} has no Apple silicon; zones that have: {}", known.join(", "));
        return Err(Refusal::argument("zone", Reason::Constraint, help));
    }
    let method = &call.method;
    let server_id = |text: &str| id_in_path("server_id", text);
    match rest {
        ["servers"] => match *method {
            Method::GET => lists::servers(world, caller, &zone, call),
            Method::POST => orders::create(world, caller, &zone, call),
            _ => Err(Refusal::Method("GET, POST")),
        },
        ["batch-create-servers"] => match *method {
            Method::POST => orders::create_batch(world, caller, &zone, call),
            _ => Err(Refusal::Method("POST")),
        },
        ["servers", id] => match *method {
            Method::GET => {
                Query::new(&call.query).finish()?;
                let server = world.visible_server(caller, &zone, &server_id(id)?, Action::Read)?;
                Ok(Reply::ok(world.show(server, caller.now)))
            }
            Method::PATCH => update::apply(world, caller, &zone, &server_id(id)?, call),
            Method::DELETE => orders::delete(world, caller, &zone, &server_id(id)?, call),
            _ => Err(Refusal::Method("GET, PATCH, DELETE")),
        },
        ["servers", id, "reboot"] if *method == Method::POST => {
            orders::reboot(world, caller, &zone, &server_id(id)?, call)
        }
        ["servers", id, "reinstall"] if *method == Method::POST => {
            orders::reinstall(world, caller, &zone, &server_id(id)?, call)
        }
        ["servers", _, "reboot" | "reinstall"] => Err(Refusal::Method("POST")),
        ["servers", id, "private-networks"] => match *method {
            Method::POST => calls::add(world, caller, networks::at(&zone, &server_id(id)?), call),
            Method::PUT => calls::set(world, caller, networks::at(&zone, &server_id(id)?), call),
            _ => Err(Refusal::Method("POST, PUT")),
        },
        ["servers", id, "private-networks", network] => {
            let network = id_in_path("private_network_id", network)?;
            match *method {
                Method::GET => networks::get(world, caller, &zone, &server_id(id)?, &network),
                Method::DELETE => calls::remove(world, caller, networks::at(&zone, &server_id(id)?), &network),
                _ => Err(Refusal::Method("GET, DELETE")),
            }
        }
        ["connectivity-diagnostics"] => match *method {
            Method::POST => diagnostics::start(world, caller, &zone, call),
            _ => Err(Refusal::Method("POST")),
        },
        ["runners", ..] | ["user-configuration" | "runner-configuration-status"] => {
            Err(Refusal::NotEmulated(call.path.clone()))
        }
        _ => looked_up(world, caller, &zone, rest, call),
    }
}

/// The routes that only know GET.
fn looked_up(world: &World, caller: &Caller, zone: &Zone, rest: &[&str], call: &Call) -> Answer {
    type Look<'a> = Box<dyn FnOnce() -> Answer + 'a>;
    let look: Look<'_> = match rest {
        ["server-private-networks"] => {
            Box::new(|| calls::list(world, caller, (Product::Apple, Version::V3), zone, call))
        }
        ["connectivity-diagnostics", id] => {
            Box::new(|| diagnostics::get(world, caller, zone, &id_in_path("diagnostic_id", id)?))
        }
        ["os"] => Box::new(|| lists::systems(world, zone, call)),
        ["os", id] => Box::new(|| lists::system(world, zone, &id_in_path("os_id", id)?)),
        ["server-types"] => Box::new(|| lists::types(world, zone, call)),
        ["server-type", name] => Box::new(|| lists::server_type(world, zone, name)),
        _ => return Err(Refusal::Route(format!("{} {}", call.method, call.path))),
    };
    if call.method == Method::GET {
        look()
    } else {
        Err(Refusal::Method("GET"))
    }
}

impl World {
    /// A server the caller may do this to.
    pub(crate) fn visible_server(&self, caller: &Caller, zone: &Zone, id: &Id, action: Action) -> Answer<&Server> {
        let resource = crate::account::Resource::Server;
        let Some(server) = self.apple.servers.get(id).filter(|server| server.zone == *zone) else {
            let vanished = self.apple.gone.contains(id) && self.settings.vanished == Vanished::PermissionsDenied;
            return Err(if vanished {
                Refusal::Permissions {
                    action: "read",
                    resource: resource.as_str(),
                }
            } else {
                Refusal::not_found(resource.as_str(), id.as_str())
            });
        };
        self.accounts
            .authorise(&caller.key, action, resource, Some(&server.project_id))?;
        Ok(server)
    }

    /// The same, and it is not locked.
    pub(crate) fn writable_server(&self, caller: &Caller, zone: &Zone, id: &Id, action: Action) -> Answer<&Server> {
        let server = self.visible_server(caller, zone, id, action)?;
        if server.status == Status::Locked {
            return Err(Refusal::Locked {
                resource: "server",
                id: id.clone(),
            });
        }
        Ok(server)
    }

    /// A server as GET shows it.
    pub(crate) fn show(&self, server: &Server, now: Timestamp) -> serde_json::Value {
        server.wire(now, self.apple.catalog.systems.get(&server.installation.os))
    }
}
