//! What only looks: servers, types, stock.

use super::server::{Server, State};
use crate::account::{Action, Owner, Resource};
use crate::call::{Answer, Call, Reply};
use crate::ids::{Id, Zone};
use crate::page::Page;
use crate::refusal::Reason;
use crate::settings::PrivateNics;
use crate::sorting::{Sorting, Stamps};
use crate::strict::Query;
use crate::world::{Caller, World};
use serde_json::{Map, Value, json};

const STATES: [State; 6] = [
    State::Running,
    State::Stopped,
    State::StoppedInPlace,
    State::Starting,
    State::Stopping,
    State::Locked,
];

/// Several values behind one name: this API separates them with commas and takes the name only once.
pub(super) fn commas(query: &mut Query, name: &str) -> Vec<String> {
    let text = query.text(name).unwrap_or_default();
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

/// The same for ids.
fn comma_ids(query: &mut Query, name: &str) -> Vec<Id> {
    let mut ids = Vec::new();
    for text in commas(query, name) {
        match text.parse::<Id>() {
            Ok(id) => ids.push(id),
            Err(error) => query.refuse(name, Reason::Format, error.to_string()),
        }
    }
    ids
}

impl World {
    /// The public addresses of an Instance: the dynamic one, then those that were attached.
    pub(crate) fn addresses_of(&self, server: &Server) -> Vec<Value> {
        let dynamic = server.dynamic_ip.as_ref();
        let dynamic = dynamic.map(|ip| Server::wire_address(&ip.id, ip.address, true, &[]));
        let attached = self
            .instance
            .ips
            .iter()
            .filter(|ip| ip.server.as_ref() == Some(&server.id));
        let attached = attached.map(|ip| Server::wire_address(&ip.id, ip.address, false, &ip.tags));
        dynamic.into_iter().chain(attached).collect()
    }

    /// An Instance as GET shows it.
    pub(crate) fn show_instance(&self, server: &Server) -> Value {
        let mut volumes = Map::new();
        for (slot, held) in &server.slots {
            volumes.insert(slot.clone(), self.show_slot(server, held));
        }
        let image = self.instance.catalog.image(&server.image);
        let mut shown = server.wire(image, &self.addresses_of(server), &volumes);
        if self.settings.private_nics == PrivateNics::Shown
            && let Some(fields) = shown.as_object_mut()
        {
            let nics = self.instance.nics.iter().filter(|nic| nic.server_id == server.id);
            fields.insert("private_nics".to_owned(), nics.map(super::nics::Nic::wire).collect());
        }
        shown
    }
}

/// GET `/servers`: `name` matches anywhere, of the tags all must be there.
pub(super) fn servers(world: &World, caller: &Caller, zone: &Zone, call: &Call) -> Answer {
    let mut query = Query::new(&call.query);
    let owner = Owner::read_short(&mut query);
    let name = query.text("name");
    let commercial_type = query.text("commercial_type");
    let state = query.text("state");
    if let Some(state) = &state
        && !STATES.iter().any(|known| known.as_str() == state)
    {
        let words: Vec<&str> = STATES.iter().map(|state| state.as_str()).collect();
        query.refuse(
            "state",
            Reason::Constraint,
            format!("must be one of {}", words.join(", ")),
        );
    }
    let tags = commas(&mut query, "tags");
    let ids = comma_ids(&mut query, "servers");
    let mut networks = comma_ids(&mut query, "private_networks");
    networks.extend(query.id("private_network"));
    let mac = query.text("private_nic_mac_address");
    let without_ip = query.flag("without_ip").unwrap_or(false);
    let with_ip = query.text("with_ip");
    let sorting = Sorting::read(
        &mut query,
        "order",
        &[
            "creation_date_desc",
            "creation_date_asc",
            "modification_date_desc",
            "modification_date_asc",
        ],
    );
    let page = Page::read_per_page(&mut query, world.settings.page_cap);
    query.finish()?;
    world.may_list(caller, Resource::InstanceServer, &owner)?;
    let mut found = world.instance.servers.as_of(world.lagging(caller.now));
    found.retain(|server| {
        let addresses = || world.addresses_of(server);
        let on = |fits: &dyn Fn(&super::Nic) -> bool| {
            let mut nics = world.instance.nics.iter();
            nics.any(|nic| nic.server_id == server.id && fits(nic))
        };
        server.zone == *zone
            && world.accounts.lists(&caller.key, &server.project_id, &owner)
            && name.as_ref().is_none_or(|name| server.name.contains(name.as_str()))
            && commercial_type
                .as_ref()
                .is_none_or(|wanted| server.commercial_type == *wanted)
            && state.as_ref().is_none_or(|state| server.state.as_str() == state)
            && tags.iter().all(|tag| server.tags.contains(tag))
            && (ids.is_empty() || ids.contains(&server.id))
            && (networks.is_empty() || on(&|nic| networks.contains(&nic.private_network_id)))
            && mac.as_ref().is_none_or(|mac| on(&|nic| nic.mac == *mac))
            && (!without_ip || addresses().is_empty())
            && with_ip
                .as_ref()
                .is_none_or(|ip| addresses().iter().any(|shown| shown["address"] == **ip))
    });
    sorting.sort(&mut found, |server| Stamps {
        created: server.created_at,
        updated: server.updated_at,
        ..Stamps::of(&server.id)
    });
    Ok(page.reply_counted("servers", &found, |server| world.show_instance(server)))
}

/// GET `/servers/{id}`
pub(super) fn server(world: &World, caller: &Caller, zone: &Zone, id: &Id, call: &Call) -> Answer {
    Query::new(&call.query).finish()?;
    let server = world.visible_instance(caller, zone, id, Action::Read)?;
    Ok(Reply::ok(json!({"server": world.show_instance(server)})))
}

/// GET `/servers/{id}/action`
pub(super) fn actions(world: &World, caller: &Caller, zone: &Zone, id: &Id) -> Answer {
    let server = world.visible_instance(caller, zone, id, Action::Read)?;
    Ok(Reply::ok(json!({"actions": server.state.actions()})))
}

/// GET `/products/servers`: an object, not a list, and yet in pages.
pub(super) fn types(world: &World, zone: &Zone, call: &Call) -> Answer {
    products(world, zone, call, super::catalog::CommercialType::wire)
}

/// GET `/products/servers/availability`
pub(super) fn availability(world: &World, zone: &Zone, call: &Call) -> Answer {
    products(
        world,
        zone,
        call,
        |offered| json!({"availability": offered.availability()}),
    )
}

fn products(
    world: &World,
    zone: &Zone,
    call: &Call,
    draw: impl Fn(&super::catalog::CommercialType) -> Value,
) -> Answer {
    let mut query = Query::new(&call.query);
    let page = Page::read_per_page(&mut query, world.settings.page_cap);
    query.finish()?;
    let types = world.instance.catalog.types.get(zone);
    let all: Vec<_> = types.into_iter().flat_map(|types| types.values()).collect();
    let mut reply = page.reply_counted("servers", &all, |offered| json!([offered.name, draw(offered)]));
    if let Some(servers) = reply.body.as_mut().and_then(|body| body.get_mut("servers")) {
        let pairs = servers.as_array().into_iter().flatten();
        let named: Map<String, Value> = pairs
            .filter_map(|pair| Some((pair.get(0)?.as_str()?.to_owned(), pair.get(1)?.clone())))
            .collect();
        *servers = Value::Object(named);
    }
    Ok(reply)
}
