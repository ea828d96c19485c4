//! Options of a server: switched on and off while it runs, and slowly.

use super::server::{OptionStatus, ServerOption, Status};
use crate::account::Action;
use crate::bill::{Line, Stretch};
use crate::call::{Answer, Call};
use crate::ids::{Id, Zone};
use crate::linux::Stage;
use crate::refusal::{Reason, Refusal};
use crate::strict::{Fields, Query};
use crate::world::{Caller, World};
use jiff::Timestamp;

impl World {
    /// Starts switching an option on, and paying for it.
    pub(super) fn begin_option(&mut self, now: Timestamp, server: &Id, option: &Id) {
        let course = self.course(now, Stage::Option, server, self.settings.delays.metal_option);
        let Some(extra) = self.metal.catalog.extra(option).cloned() else {
            return;
        };
        let place = self.metal.servers.change(now, server, |server| {
            let found = server.options.iter_mut().find(|present| present.id == *option)?;
            found.status = OptionStatus::Enabling;
            found.until = course.at;
            found.fails = course.wrong.is_some();
            Some((found.line.clone(), server.zone.clone(), server.project_id.clone()))
        });
        let Some((line, zone, project_id)) = place.flatten() else {
            return;
        };
        self.bill.open(Line {
            resource_id: line,
            resource: "elastic_metal_option".to_owned(),
            commercial_type: extra.name,
            zone,
            project_id,
            stretches: vec![Stretch {
                plan: extra.period.plan(extra.price),
                from: now,
                until: None,
            }],
        });
        self.happened(now, server, "enable_option");
    }

    /// Ends what is due about options.
    pub(super) fn end_option(&mut self, at: Timestamp, server: &Id) {
        let due = |option: &ServerOption| option.until.is_some_and(|until| until <= at);
        let gone = self.metal.servers.change(at, server, |server| {
            let mut gone = Vec::new();
            for option in server.options.iter_mut().filter(|option| due(option)) {
                match option.status {
                    OptionStatus::Enabling if option.fails => option.status = OptionStatus::Error,
                    OptionStatus::Enabling => option.status = OptionStatus::Enable,
                    OptionStatus::Disabling | OptionStatus::Enable | OptionStatus::Error => {
                        gone.push(option.line.clone());
                    }
                }
                option.until = None;
            }
            server.options.retain(|option| !gone.contains(&option.line));
            server.updated_at = at;
            gone
        });
        for line in gone.unwrap_or_default() {
            self.bill.close(&line, at);
        }
    }
}

/// POST `/servers/{id}/options/{option}`
pub(super) fn add(world: &mut World, caller: &Caller, zone: &Zone, id: &Id, option: &Id, call: &Call) -> Answer {
    Query::new(&call.query).finish()?;
    let mut fields = Fields::new(call.json()?)?;
    fields.not_emulated("expires_at");
    fields.finish()?;
    let server = world.writable_metal(caller, zone, id, Action::Update)?;
    let catalog = &world.metal.catalog;
    let extra = catalog.extra(option);
    let extra = extra.ok_or_else(|| Refusal::not_found("option", option.as_str()))?;
    let period = catalog.offer(zone, &server.offer).map(|offer| offer.period);
    if period != Some(extra.period) {
        let help = "this option is paid for another period than the server";
        return Err(Refusal::argument("option_id", Reason::Constraint, help));
    }
    if matches!(server.status, Status::Ordered | Status::Delivering) {
        return Err(server.transient());
    }
    if server.options.iter().any(|present| present.id == *option) {
        return Err(Refusal::Exists {
            resource: "option",
            id: option.clone(),
            help: "the server has this option already".to_owned(),
        });
    }
    let line = world.dice.id();
    world.metal.servers.change(caller.now, id, |server| {
        server.options.push(ServerOption {
            id: option.clone(),
            status: OptionStatus::Enabling,
            fails: false,
            until: None,
            line,
        });
        server.updated_at = caller.now;
    });
    world.begin_option(caller.now, id, option);
    world.shown_metal(id)
}

/// DELETE `/servers/{id}/options/{option}`
pub(super) fn remove(world: &mut World, caller: &Caller, zone: &Zone, id: &Id, option: &Id) -> Answer {
    let server = world.writable_metal(caller, zone, id, Action::Update)?;
    let found = server.options.iter().find(|present| present.id == *option);
    let found = found.ok_or_else(|| Refusal::not_found("option", option.as_str()))?;
    if matches!(found.status, OptionStatus::Enabling | OptionStatus::Disabling) {
        return Err(Refusal::Transient {
            resource: "option",
            id: option.clone(),
            state: "option_status_enabling".to_owned(),
        });
    }
    let course = world.course(caller.now, Stage::Option, id, world.settings.delays.metal_option);
    world.metal.servers.change(caller.now, id, |server| {
        for present in server.options.iter_mut().filter(|present| present.id == *option) {
            present.status = OptionStatus::Disabling;
            present.until = course.at;
        }
        server.updated_at = caller.now;
    });
    world.shown_metal(id)
}
