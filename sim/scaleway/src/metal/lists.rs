//! What only looks: servers, offers, images, options, events.

use super::catalog::{Extra, MetalOffer, MetalOs};
use super::server::Status;
use crate::account::{Action, Owner, Resource};
use crate::call::{Answer, Call, Reply};
use crate::ids::{Id, Zone};
use crate::page;
use crate::refusal::{Reason, Refusal};
use crate::sorting::{Sorting, Stamps};
use crate::strict::Query;
use crate::world::{Caller, World};
use serde_json::json;

/// GET `/servers`: `name` matches anywhere, of the tags all must be there, of the states one.
pub(super) fn servers(world: &World, caller: &Caller, zone: &Zone, call: &Call) -> Answer {
    let mut query = Query::new(&call.query);
    let owner = Owner::read(&mut query);
    let name = query.text("name");
    let tags = query.many("tags");
    let states = query.many("status");
    if let Some(wrong) = states
        .iter()
        .find(|state| !Status::ALL.iter().any(|known| known.as_str() == **state))
    {
        query.refuse("status", Reason::Constraint, format!("{wrong:?} is not a status"));
    }
    let option = query.id("option_id");
    let sorting = Sorting::by_age(&mut query);
    let page = page::last(query, world.settings.page_cap)?;
    world.may_list(caller, Resource::Metal, &owner)?;
    let mut found = world.metal.servers.as_of(world.lagging(caller.now));
    found.retain(|server| {
        server.zone == *zone
            && world.accounts.lists(&caller.key, &server.project_id, &owner)
            && name.as_ref().is_none_or(|name| server.name.contains(name.as_str()))
            && tags.iter().all(|tag| server.tags.contains(tag))
            && (states.is_empty() || states.iter().any(|state| server.status.as_str() == state))
            && option
                .as_ref()
                .is_none_or(|id| server.options.iter().any(|option| option.id == *id))
    });
    sorting.sort(&mut found, |server| Stamps {
        created: server.created_at,
        ..Stamps::of(&server.id)
    });
    Ok(page.reply("servers", &found, |server| world.show_metal(server)))
}

/// GET `/servers/{id}/events`
pub(super) fn events(world: &World, caller: &Caller, zone: &Zone, id: &Id, call: &Call) -> Answer {
    let mut query = Query::new(&call.query);
    let order = query.choice("order_by", &["created_at_asc", "created_at_desc"]);
    let page = page::last(query, world.settings.page_cap)?;
    let server = world.visible_metal(caller, zone, id, Action::Read)?;
    let mut events: Vec<_> = server.events.iter().collect();
    if order == "created_at_desc" {
        events.reverse();
    }
    Ok(page.reply(
        "events",
        &events,
        |event| json!({"id": event.id, "action": event.action, "created_at": event.at, "updated_at": event.at}),
    ))
}

/// GET `/offers`: in the order of their ids, so of one name sometimes the hour comes first and sometimes the month.
pub(super) fn offers(world: &World, zone: &Zone, call: &Call) -> Answer {
    let mut query = Query::new(&call.query);
    let period = query.choice(
        "subscription_period",
        &["unknown_subscription_period", "hourly", "monthly"],
    );
    let name = query.text("name");
    let page = page::last(query, world.settings.page_cap)?;
    let catalog = &world.metal.catalog;
    let offers = catalog.offers.get(zone).into_iter().flatten();
    let mut found: Vec<&MetalOffer> = offers
        .filter(|offer| {
            (period == "unknown_subscription_period" || offer.period.as_str() == period)
                && name.as_ref().is_none_or(|name| offer.name == *name)
        })
        .collect();
    found.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(page.reply("offers", &found, |offer| catalog.wire(zone, offer)))
}

/// GET `/offers/{id}`
pub(super) fn offer(world: &World, zone: &Zone, id: &Id) -> Answer {
    let catalog = &world.metal.catalog;
    let offer = catalog.offer(zone, id);
    offer
        .map(|offer| Reply::ok(catalog.wire(zone, offer)))
        .ok_or_else(|| Refusal::not_found("offer", id.as_str()))
}

/// GET `/os`
pub(super) fn systems(world: &World, zone: &Zone, call: &Call) -> Answer {
    let mut query = Query::new(&call.query);
    let offer = query.id("offer_id");
    let page = page::last(query, world.settings.page_cap)?;
    let catalog = &world.metal.catalog;
    if let Some(unknown) = offer.filter(|id| catalog.offer(zone, id).is_none()) {
        return Err(Refusal::not_found("offer", unknown.as_str()));
    }
    let retired = &world.linux.retired;
    let found: Vec<&MetalOs> = catalog
        .systems
        .iter()
        .filter(|os| !retired.contains(&os.label))
        .collect();
    Ok(page.reply("os", &found, |os| os.wire(zone)))
}

/// GET `/os/{id}`
pub(super) fn system(world: &World, zone: &Zone, id: &Id) -> Answer {
    let os = world.metal.catalog.os(id);
    os.map(|os| Reply::ok(os.wire(zone)))
        .ok_or_else(|| Refusal::not_found("os", id.as_str()))
}

/// GET `/options`
pub(super) fn options(world: &World, zone: &Zone, call: &Call) -> Answer {
    let mut query = Query::new(&call.query);
    let offer = query.id("offer_id");
    let name = query.text("name");
    let page = page::last(query, world.settings.page_cap)?;
    let catalog = &world.metal.catalog;
    let period = match offer {
        None => None,
        Some(id) => {
            let offer = catalog.offer(zone, &id);
            let offer = offer.ok_or_else(|| Refusal::not_found("offer", id.as_str()))?;
            Some(offer.period)
        }
    };
    let found: Vec<&Extra> = catalog
        .extras
        .iter()
        .filter(|extra| {
            period.is_none_or(|period| extra.period == period)
                && name.as_ref().is_none_or(|name| extra.name.contains(name.as_str()))
        })
        .collect();
    Ok(page.reply("options", &found, |extra| extra.wire()))
}

/// GET `/options/{id}`
pub(super) fn option(world: &World, id: &Id) -> Answer {
    let extra = world.metal.catalog.extra(id);
    extra
        .map(|extra| Reply::ok(extra.wire()))
        .ok_or_else(|| Refusal::not_found("option", id.as_str()))
}
