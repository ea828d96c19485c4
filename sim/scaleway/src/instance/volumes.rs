//! Local volumes: `/volumes`. Block volumes are another product, and answer 404 here.

use super::catalog::LOCAL_GB;
use super::date;
use super::lists::commas;
use super::orders::Order;
use super::server::{Server, Slot};
use crate::account::{Action, Owner, Resource};
use crate::call::{Answer, Call, Reply};
use crate::ids::{Id, Zone};
use crate::labels::Labels;
use crate::page::Page;
use crate::refusal::Refusal;
use crate::strict::{Fields, Query};
use crate::table::rows;
use crate::world::{Caller, World};
use jiff::Timestamp;
use serde_json::{Value, json};

/// A local volume.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Volume {
    pub(crate) id: Id,
    pub(crate) zone: Zone,
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) project_id: Id,
    pub(crate) organization_id: Id,
    pub(crate) tags: Vec<String>,
    pub(crate) server: Option<Id>,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
}

rows!(Volume);

impl World {
    pub(super) fn make_local_volume(
        &mut self,
        now: Timestamp,
        order: &Order,
        server: &Id,
        name: String,
        size: u64,
    ) -> Id {
        let id = self.dice.id();
        let volume = Volume {
            id: id.clone(),
            zone: order.zone.clone(),
            name,
            size,
            project_id: order.project_id.clone(),
            organization_id: self.organization_of(&order.project_id),
            tags: Vec::new(),
            server: Some(server.clone()),
            created_at: now,
            updated_at: now,
        };
        self.instance.volumes.put(now, volume);
        self.bill_volume(
            now,
            &id,
            "instance_volume",
            "l_ssd",
            (&order.zone, &order.project_id),
            LOCAL_GB,
            size,
        );
        id
    }

    pub(super) fn detach_local_volume(&mut self, at: Timestamp, id: &Id) {
        self.instance.volumes.change(at, id, |volume| {
            volume.server = None;
            volume.updated_at = at;
        });
    }

    pub(super) fn remove_local_volume(&mut self, at: Timestamp, id: &Id) {
        self.instance.volumes.remove(at, id);
        self.bill.close(id, at);
    }

    /// A volume inside a server.
    pub(super) fn show_slot(&self, server: &Server, slot: &Slot) -> Value {
        let mut shown = match self.instance.volumes.get(&slot.volume) {
            Some(volume) => self.show_volume(volume),
            None => json!({"id": slot.volume, "volume_type": slot.kind.volume_type(), "zone": server.zone}),
        };
        if let Some(fields) = shown.as_object_mut() {
            fields.insert("boot".to_owned(), slot.boot.into());
        }
        shown
    }

    pub(crate) fn show_volume(&self, volume: &Volume) -> Value {
        let server = volume.server.as_ref().and_then(|id| self.instance.servers.get(id));
        json!({
            "id": volume.id,
            "name": volume.name,
            "volume_type": "l_ssd",
            "export_uri": null,
            "organization": volume.organization_id,
            "project": volume.project_id,
            "server": server.map(|server| json!({"id": server.id, "name": server.name})),
            "size": volume.size,
            "state": "available",
            "creation_date": date(volume.created_at),
            "modification_date": date(volume.updated_at),
            "tags": volume.tags,
            "zone": volume.zone,
        })
    }

    fn visible_volume(&self, caller: &Caller, zone: &Zone, id: &Id, action: Action) -> Result<&Volume, Refusal> {
        let found = self.instance.volumes.get(id).filter(|volume| volume.zone == *zone);
        let found = found.map(|volume| (volume, &volume.project_id));
        self.permitted(caller, action, Resource::InstanceVolume, id, found)
    }
}

/// GET `/volumes`
pub(super) fn list(world: &World, caller: &Caller, zone: &Zone, call: &Call) -> Answer {
    let mut query = Query::new(&call.query);
    let owner = Owner::read_short(&mut query);
    let kind = query.choice("volume_type", &["", "l_ssd", "b_ssd", "sbs_volume", "scratch"]);
    let tags = commas(&mut query, "tags");
    let name = query.text("name");
    let page = Page::read_per_page(&mut query, world.settings.page_cap);
    query.finish()?;
    world.may_list(caller, Resource::InstanceVolume, &owner)?;
    let mut found = world.instance.volumes.as_of(world.lagging(caller.now));
    found.retain(|volume| {
        volume.zone == *zone
            && world.accounts.lists(&caller.key, &volume.project_id, &owner)
            && (kind.is_empty() || kind == "l_ssd")
            && tags.iter().all(|tag| volume.tags.contains(tag))
            && name.as_ref().is_none_or(|name| volume.name.contains(name.as_str()))
    });
    found.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    Ok(page.reply_counted("volumes", &found, |volume| world.show_volume(volume)))
}

/// GET `/volumes/{id}`
pub(super) fn get(world: &World, caller: &Caller, zone: &Zone, id: &Id) -> Answer {
    let volume = world.visible_volume(caller, zone, id, Action::Read)?;
    Ok(Reply::ok(json!({"volume": world.show_volume(volume)})))
}

/// PATCH `/volumes/{id}`
pub(super) fn update(world: &mut World, caller: &Caller, zone: &Zone, id: &Id, call: &Call) -> Answer {
    Query::new(&call.query).finish()?;
    let mut fields = Fields::new(call.json()?)?;
    let labels = Labels::read(&mut fields);
    fields.not_emulated("size");
    fields.finish()?;
    world.visible_volume(caller, zone, id, Action::Update)?;
    world.instance.volumes.change(caller.now, id, |volume| {
        labels.put(&mut volume.name, &mut volume.tags);
        volume.updated_at = caller.now;
    });
    get(world, caller, zone, id)
}

/// DELETE `/volumes/{id}`
pub(super) fn delete(world: &mut World, caller: &Caller, zone: &Zone, id: &Id) -> Answer {
    if world.visible_volume(caller, zone, id, Action::Delete)?.server.is_some() {
        return Err(Refusal::Precondition {
            precondition: "resource_still_in_use",
            help: "the volume is attached to a server".to_owned(),
        });
    }
    world.remove_local_volume(caller.now, id);
    Ok(Reply::no_content())
}
