//! PATCH: names, tags and user data of a server.

use super::catalog::Period;
use super::install::decoded;
use crate::account::Action;
use crate::call::{Answer, Call};
use crate::ids::{Id, Zone};
use crate::labels::Labels;
use crate::refusal::{Reason, Refusal};
use crate::strict::{Fields, Query};
use crate::world::{Caller, World};

/// PATCH `/servers/{id}`. Names are not unique and the last writer wins. User data that are empty are taken away.
pub(super) fn apply(world: &mut World, caller: &Caller, zone: &Zone, id: &Id, call: &Call) -> Answer {
    Query::new(&call.query).finish()?;
    let mut fields = Fields::new(call.json()?)?;
    let labels = Labels::read_named(&mut fields);
    let description = fields.text("description");
    let protected = fields.flag("protected");
    let sent = fields.text("user_data");
    let user_data = sent.clone().map(|text| decoded(&mut fields, Some(text)));
    fields.finish()?;
    let server = world.writable_metal(caller, zone, id, Action::Update)?;
    let os = server
        .install
        .as_ref()
        .and_then(|install| world.metal.catalog.os(&install.os));
    if os.is_some_and(|os| !os.cloud_init) && matches!(&user_data, Some(Some(_))) {
        let help = "the system of this server has no cloud-init";
        return Err(Refusal::argument("user_data", Reason::Constraint, help));
    }
    world.metal.servers.change(caller.now, id, |server| {
        labels.put(&mut server.name, &mut server.tags);
        if let Some(description) = description {
            server.description = description;
        }
        if let Some(protected) = protected {
            server.protected = protected;
        }
        if let Some(user_data) = user_data {
            server.user_data = user_data;
        }
        server.updated_at = caller.now;
    });
    world.shown_metal(id)
}

/// POST `/servers/{id}/migrate-offer-monthly`
pub(super) fn go_monthly(world: &mut World, caller: &Caller, zone: &Zone, id: &Id, call: &Call) -> Answer {
    Query::new(&call.query).finish()?;
    Fields::new(call.json()?)?.finish()?;
    let server = world.writable_metal(caller, zone, id, Action::Update)?;
    server.at_rest()?;
    let catalog = &world.metal.catalog;
    let offer = catalog.offer(zone, &server.offer);
    let offer = offer.filter(|offer| offer.period == Period::Hourly);
    let monthly = offer.and_then(|offer| catalog.offer_named(zone, &offer.name, Period::Monthly));
    let Some(monthly) = monthly.cloned() else {
        return Err(Refusal::Precondition {
            precondition: "resource_not_usable",
            help: "the server is not paid by the hour".to_owned(),
        });
    };
    world.bill.switch(id, caller.now, monthly.plan());
    world.metal.servers.change(caller.now, id, |server| {
        server.offer = monthly.id;
        server.updated_at = caller.now;
    });
    world.shown_metal(id)
}
