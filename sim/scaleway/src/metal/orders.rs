//! What is ordered and given back.

use super::install::{Request, decoded};
use super::server::{Event, InstallStatus, Pending, Server, ServerOption, Status, Then};
use crate::account::{Action, Resource};
use crate::attachment::Product;
use crate::bill::Line;
use crate::call::{Answer, Call};
use crate::ids::{Id, Zone};
use crate::linux::Stage;
use crate::refusal::{Reason, Refusal};
use crate::strict::{Fields, Query};
use crate::world::{Caller, World};
use jiff::Timestamp;

/// What is ordered.
pub(crate) struct Order {
    pub(crate) zone: Zone,
    pub(crate) offer: Id,
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) project_id: Id,
    pub(crate) tags: Vec<String>,
    pub(crate) protected: bool,
    pub(crate) install: Option<Request>,
    pub(crate) options: Vec<Id>,
    pub(crate) user_data: Option<String>,
}

/// POST `/servers`
pub(super) fn create(world: &mut World, caller: &Caller, zone: &Zone, call: &Call) -> Answer {
    Query::new(&call.query).finish()?;
    let mut fields = Fields::new(call.json()?)?;
    let offer = fields.id("offer_id");
    let project = fields.id("project_id");
    for (name, missing) in [("offer_id", offer.is_none()), ("project_id", project.is_none())] {
        if missing {
            fields.refuse(name, Reason::Required, "cannot be empty");
        }
    }
    let name = fields.required("name");
    let description = fields.text("description").unwrap_or_default();
    let tags = fields.texts("tags");
    let options = fields.ids("option_ids");
    let protected = fields.flag("protected").unwrap_or(false);
    let user_data = fields.text("user_data");
    let user_data = decoded(&mut fields, user_data);
    let install = match fields.value("install") {
        None => None,
        Some(value) => {
            let mut inner = Fields::new(value)?;
            let request = Request::read(&mut inner);
            inner.finish()?;
            Some(request)
        }
    };
    fields.not_emulated("organization_id");
    fields.finish()?;
    let required = |name| Refusal::argument(name, Reason::Required, "cannot be empty");
    let order = Order {
        zone: zone.clone(),
        offer: offer.ok_or_else(|| required("offer_id"))?,
        name,
        description,
        project_id: project.ok_or_else(|| required("project_id"))?,
        tags,
        protected,
        install,
        options,
        user_data,
    };
    world
        .accounts
        .authorise(&caller.key, Action::Create, Resource::Metal, Some(&order.project_id))?;
    let id = world.order_metal(caller.now, &order)?;
    world.shown_metal(&id)
}

/// DELETE `/servers/{id}`: it takes a while, and answers until then.
pub(super) fn delete(world: &mut World, caller: &Caller, zone: &Zone, id: &Id, call: &Call) -> Answer {
    Query::new(&call.query).finish()?;
    let server = world.writable_metal(caller, zone, id, Action::Delete)?;
    if server.protected {
        return Err(Refusal::Precondition {
            precondition: "resource_not_usable",
            help: "the server is protected against deletion".to_owned(),
        });
    }
    if matches!(
        server.status,
        Status::Ordered | Status::Delivering | Status::Starting | Status::Stopping
    ) {
        return Err(server.transient());
    }
    let course = world.course(caller.now, Stage::Deletion, id, world.settings.delays.metal_deletion);
    world.metal.servers.change(caller.now, id, |server| {
        server.status = Status::Deleting;
        server.installing = None;
        server.pending = Some(Pending {
            then: Then::Gone,
            at: course.at,
        });
        server.updated_at = caller.now;
    });
    world.happened(caller.now, id, "delete");
    world.shown_metal(id)
}

impl World {
    /// Places an order that can be filled.
    pub(crate) fn order_metal(&mut self, now: Timestamp, order: &Order) -> Result<Id, Refusal> {
        let catalog = &self.metal.catalog;
        let offer = catalog.offer(&order.zone, &order.offer).cloned();
        let offer = offer.ok_or_else(|| Refusal::not_found("offer", order.offer.as_str()))?;
        let wrong = |id: &&Id| catalog.extra(id).is_none_or(|extra| extra.period != offer.period);
        if let Some(id) = order.options.iter().find(wrong) {
            let help = format!("{id} is not an option of this offer");
            return Err(Refusal::argument("option_ids", Reason::Constraint, help));
        }
        let install = match &order.install {
            None => None,
            Some(request) => Some(self.planned(&offer, &order.project_id, request, order.user_data.is_some())?),
        };
        let left = self.metal.catalog.left_mut(&order.zone, &offer.name);
        let taken = left.and_then(|left| left.checked_sub(1).map(|less| *left = less));
        if taken.is_none() {
            return Err(Refusal::OutOfStock { resource: offer.name });
        }
        let id = self.dice.id();
        let [a, b, c, ..] = self.dice.bytes();
        let mut options = Vec::new();
        for option in &order.options {
            options.push(ServerOption {
                id: option.clone(),
                status: super::server::OptionStatus::Enabling,
                fails: false,
                until: None,
                line: self.dice.id(),
            });
        }
        let server = Server {
            id: id.clone(),
            zone: order.zone.clone(),
            offer: offer.id.clone(),
            name: order.name.clone(),
            description: order.description.clone(),
            organization_id: self.organization_of(&order.project_id),
            project_id: order.project_id.clone(),
            tags: order.tags.clone(),
            protected: order.protected,
            status: Status::Ordered,
            pending: None,
            address: None,
            mac: format!("3c:ec:ef:{a:02x}:{b:02x}:{c:02x}"),
            install: install.map(|install| super::server::Installation {
                status: InstallStatus::ToInstall,
                ..install
            }),
            next_install: None,
            installing: None,
            options,
            user_data: order.user_data.clone(),
            generation: 0,
            boots: 0,
            events: Vec::new(),
            created_at: now,
            updated_at: now,
        };
        self.metal.servers.put(now, server);
        self.bill.open(Line {
            resource_id: id.clone(),
            resource: "elastic_metal_server".to_owned(),
            commercial_type: offer.name,
            zone: order.zone.clone(),
            project_id: order.project_id.clone(),
            stretches: Vec::new(),
        });
        let at = russet_sim_kit::clock::after(now, self.settings.delays.metal_order);
        self.metal.servers.change(now, &id, |server| {
            server.pending = Some(Pending {
                then: Then::Deliver,
                at: Some(at),
            });
        });
        self.happened(now, &id, "order");
        Ok(id)
    }

    /// Writes down that something happened.
    pub(super) fn happened(&mut self, at: Timestamp, id: &Id, action: &str) {
        let event = Event {
            id: self.dice.id(),
            action: action.to_owned(),
            at,
        };
        self.metal.servers.change(at, id, |server| server.events.push(event));
    }

    /// Takes a server out of the world, with its networks, options and price.
    pub(crate) fn remove_metal(&mut self, at: Timestamp, id: &Id) {
        self.drop_attachments(Product::Metal, at, id);
        let Some(server) = self.metal.servers.remove(at, id) else {
            return;
        };
        for option in &server.options {
            self.bill.close(&option.line, at);
        }
        self.bill.close(id, at);
        if server.status != Status::OutOfStock {
            self.restock_metal(&server);
        }
    }

    pub(super) fn restock_metal(&mut self, server: &Server) {
        let catalog = &mut self.metal.catalog;
        let name = catalog
            .offer(&server.zone, &server.offer)
            .map(|offer| offer.name.clone());
        if let Some(left) = name.and_then(|name| catalog.left_mut(&server.zone, &name)) {
            *left = left.saturating_add(1);
        }
    }
}
