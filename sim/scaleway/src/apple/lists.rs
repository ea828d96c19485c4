//! What only looks: servers, images, types.

use super::catalog::{Offer, Os};
use crate::account::{Owner, Resource};
use crate::call::{Answer, Call, Reply};
use crate::ids::{Id, Zone};
use crate::page;
use crate::refusal::Refusal;
use crate::sorting::{Sorting, Stamps};
use crate::strict::Query;
use crate::world::{Caller, World};
use serde_json::{Value, json};

/// GET `/servers`
pub(super) fn servers(world: &World, caller: &Caller, zone: &Zone, call: &Call) -> Answer {
    let mut query = Query::new(&call.query);
    let owner = Owner::read(&mut query);
    let sorting = Sorting::by_age(&mut query);
    let page = page::last(query, world.settings.page_cap)?;
    world.may_list(caller, Resource::Server, &owner)?;
    let mut found = world.apple.servers.as_of(world.lagging(caller.now));
    found.retain(|server| server.zone == *zone && world.accounts.lists(&caller.key, &server.project_id, &owner));
    sorting.sort(&mut found, |server| Stamps {
        created: server.created_at,
        ..Stamps::of(&server.id)
    });
    Ok(page.reply("servers", &found, |server| world.show(server, caller.now)))
}

/// GET `/os`: `name` is a prefix, retired images are missing.
pub(super) fn systems(world: &World, zone: &Zone, call: &Call) -> Answer {
    let mut query = Query::new(&call.query);
    let server_type = query.text("server_type");
    let name = query.text("name");
    let page = page::last(query, world.settings.page_cap)?;
    let mut found: Vec<&Os> = world
        .apple
        .catalog
        .systems
        .values()
        .filter(|os| {
            !os.retired
                && name.as_ref().is_none_or(|name| os.name.starts_with(name.as_str()))
                && server_type
                    .as_ref()
                    .is_none_or(|server_type| os.installs_on(server_type))
        })
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(page.reply("os", &found, |os| os.wire(zone)))
}

/// GET `/os/{id}`: a retired image can still be looked at.
pub(super) fn system(world: &World, zone: &Zone, id: &Id) -> Answer {
    let os = world.apple.catalog.systems.get(id);
    os.map(|os| Reply::ok(os.wire(zone)))
        .ok_or_else(|| Refusal::not_found("os", id.as_str()))
}

fn show(world: &World, zone: &Zone, offer: &Offer) -> Value {
    offer.wire(zone, world.apple.catalog.systems.get(&offer.default_os))
}

/// GET `/server-types`: the one list without pages.
pub(super) fn types(world: &World, zone: &Zone, call: &Call) -> Answer {
    Query::new(&call.query).finish()?;
    let offers = world
        .apple
        .catalog
        .offers
        .get(zone)
        .into_iter()
        .flat_map(|offers| offers.values());
    let shown: Vec<Value> = offers.map(|offer| show(world, zone, offer)).collect();
    Ok(Reply::ok(json!({ "server_types": shown })))
}

/// GET `/server-type/{name}`
pub(super) fn server_type(world: &World, zone: &Zone, name: &str) -> Answer {
    let offer = world.apple.catalog.offer(zone, name);
    offer
        .map(|offer| Reply::ok(show(world, zone, offer)))
        .ok_or_else(|| Refusal::not_found("server_type", name))
}
