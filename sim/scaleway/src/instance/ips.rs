//! Public addresses one keeps. Whoever deletes a server without them pays for them for ever.

use super::life::address_stretch;
use super::lists::commas;
use crate::account::{Action, Owner, Resource};
use crate::bill::Line;
use crate::call::{Answer, Call, Reply, created};
use crate::ids::{Id, Zone};
use crate::page::Page;
use crate::refusal::{Reason, Refusal};
use crate::strict::{Fields, Query};
use crate::table::rows;
use crate::world::{Caller, World};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::net::IpAddr;

/// An address.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Ip {
    pub(crate) id: Id,
    pub(crate) zone: Zone,
    pub(crate) address: IpAddr,
    pub(crate) project_id: Id,
    pub(crate) organization_id: Id,
    pub(crate) tags: Vec<String>,
    pub(crate) server: Option<Id>,
    pub(crate) created_at: Timestamp,
}

rows!(Ip);

impl World {
    pub(crate) fn show_ip(&self, ip: &Ip) -> Value {
        let server = ip.server.as_ref().and_then(|id| self.instance.servers.get(id));
        json!({
            "id": ip.id,
            "address": ip.address,
            "prefix": null,
            "reverse": null,
            "server": server.map(|server| json!({"id": server.id, "name": server.name})),
            "organization": ip.organization_id,
            "project": ip.project_id,
            "zone": ip.zone,
            "type": "routed_ipv4",
            "state": if server.is_some() { "attached" } else { "detached" },
            "tags": ip.tags,
            "ipam_id": Id::named(ip.id.as_str()),
        })
    }

    /// Attaches an address to a server, or to none. A dynamic one gives way.
    pub(super) fn attach_ip(&mut self, now: Timestamp, ip: &Id, server: Option<&Id>) {
        let before = self
            .instance
            .ips
            .change(now, ip, |ip| std::mem::replace(&mut ip.server, server.cloned()));
        for server in before.flatten().iter().chain(server) {
            self.dynamic_ip(now, server);
        }
    }

    fn visible_ip(&self, caller: &Caller, zone: &Zone, id: &Id, action: Action) -> Result<&Ip, Refusal> {
        let found = self.instance.ips.get(id).filter(|ip| ip.zone == *zone);
        let found = found.map(|ip| (ip, &ip.project_id));
        self.permitted(caller, action, Resource::InstanceIp, id, found)
    }
}

/// GET `/ips`: dynamic ones are not in it.
pub(super) fn list(world: &World, caller: &Caller, zone: &Zone, call: &Call) -> Answer {
    let mut query = Query::new(&call.query);
    let owner = Owner::read_short(&mut query);
    let tags = commas(&mut query, "tags");
    let name = query.text("name");
    let kind = query.text("type");
    let page = Page::read_per_page(&mut query, world.settings.page_cap);
    query.finish()?;
    world.may_list(caller, Resource::InstanceIp, &owner)?;
    let mut found = world.instance.ips.as_of(world.lagging(caller.now));
    found.retain(|ip| {
        ip.zone == *zone
            && world.accounts.lists(&caller.key, &ip.project_id, &owner)
            && tags.iter().all(|tag| ip.tags.contains(tag))
            && name
                .as_ref()
                .is_none_or(|name| ip.address.to_string().contains(name.as_str()))
            && kind.as_ref().is_none_or(|kind| kind == "routed_ipv4")
    });
    found.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    Ok(page.reply_counted("ips", &found, |ip| world.show_ip(ip)))
}

/// GET `/ips/{id}`
pub(super) fn get(world: &World, caller: &Caller, zone: &Zone, id: &Id) -> Answer {
    let ip = world.visible_ip(caller, zone, id, Action::Read)?;
    Ok(Reply::ok(json!({"ip": world.show_ip(ip)})))
}

/// POST `/ips`
pub(super) fn create(world: &mut World, caller: &Caller, zone: &Zone, call: &Call) -> Answer {
    Query::new(&call.query).finish()?;
    let mut fields = Fields::new(call.json()?)?;
    let project = fields.id("project");
    if project.is_none() {
        fields.refuse("project", Reason::Required, "required key not provided");
    }
    let tags = fields.texts("tags");
    let server = fields.id("server");
    fields.choice("type", &["routed_ipv4"]);
    fields.not_emulated("organization");
    fields.finish()?;
    let project_id =
        project.ok_or_else(|| Refusal::argument("project", Reason::Required, "required key not provided"))?;
    world
        .accounts
        .authorise(&caller.key, Action::Create, Resource::InstanceIp, Some(&project_id))?;
    if let Some(server) = &server {
        world.writable_instance(caller, zone, server, Action::Update)?;
    }
    let out = || Refusal::OutOfStock {
        resource: "ipv4".to_owned(),
    };
    let address = world.public_address().ok_or_else(out)?;
    let id = world.dice.id();
    let ip = Ip {
        id: id.clone(),
        zone: zone.clone(),
        address,
        organization_id: world.organization_of(&project_id),
        project_id: project_id.clone(),
        tags,
        server: None,
        created_at: caller.now,
    };
    world.instance.ips.put(caller.now, ip);
    world.bill.open(Line {
        resource_id: id.clone(),
        resource: "instance_ip".to_owned(),
        commercial_type: "routed_ipv4".to_owned(),
        zone: zone.clone(),
        project_id,
        stretches: vec![address_stretch(caller.now)],
    });
    if server.is_some() {
        world.attach_ip(caller.now, &id, server.as_ref());
    }
    let ip = world.visible_ip(caller, zone, &id, Action::Create)?;
    Ok(created(call, id.as_str(), json!({"ip": world.show_ip(ip)})))
}

/// PATCH `/ips/{id}`: a server that is null detaches it.
pub(super) fn update(world: &mut World, caller: &Caller, zone: &Zone, id: &Id, call: &Call) -> Answer {
    Query::new(&call.query).finish()?;
    let mut fields = Fields::new(call.json()?)?;
    let tags = fields.some_texts("tags");
    let detached = fields.cleared("server");
    let server = fields.id("server");
    fields.choice("type", &["routed_ipv4"]);
    fields.not_emulated("reverse");
    fields.finish()?;
    world.visible_ip(caller, zone, id, Action::Update)?;
    if let Some(server) = &server {
        world.writable_instance(caller, zone, server, Action::Update)?;
    }
    if let Some(tags) = tags {
        world.instance.ips.change(caller.now, id, |ip| ip.tags = tags);
    }
    if detached || server.is_some() {
        world.attach_ip(caller.now, id, server.as_ref());
    }
    let ip = world.visible_ip(caller, zone, id, Action::Update)?;
    Ok(Reply::ok(json!({"ip": world.show_ip(ip)})))
}

/// DELETE `/ips/{id}`: attached or not.
pub(super) fn delete(world: &mut World, caller: &Caller, zone: &Zone, id: &Id) -> Answer {
    world.visible_ip(caller, zone, id, Action::Delete)?;
    world.attach_ip(caller.now, id, None);
    world.instance.ips.remove(caller.now, id);
    world.bill.close(id, caller.now);
    Ok(Reply::no_content())
}
