//! Block storage: `/block/v1/zones/{zone}/volumes`. Volumes with a life of their own: deleting a server leaves them.

use crate::account::{Action, Owner, Resource};
use crate::bill::{Line, MicroEuro, Plan, Stretch};
use crate::call::{Answer, Call, Reply};
use crate::ids::{Id, Zone};
use crate::instance::catalog::BLOCK_GB;
use crate::instance::{Order, known_zone};
use crate::labels::Labels;
use crate::page;
use crate::refusal::{Reason, Refusal};
use crate::sorting::{Sorting, Stamps};
use crate::strict::{Fields, Query};
use crate::table::{Table, rows};
use crate::words::words;
use crate::world::{Caller, World, id_in_path};
use http::Method;
use jiff::Timestamp;
use russet_sim_kit::clock::after;
use serde_json::{Value, json};

const GB: u64 = 1_000_000_000;

words! {
    /// Where a volume stands.
    pub(crate) enum VolumeStatus {
        Creating = "creating",
        Available = "available",
        InUse = "in_use",
        Deleting = "deleting",
    }
}

/// Who uses a volume.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Reference {
    id: Id,
    server: Id,
    created_at: Timestamp,
}

/// A block volume.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Volume {
    pub(crate) id: Id,
    pub(crate) zone: Zone,
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) iops: u64,
    pub(crate) project_id: Id,
    pub(crate) tags: Vec<String>,
    pub(crate) status: VolumeStatus,
    pub(crate) until: Option<Timestamp>,
    pub(crate) reference: Option<Reference>,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    pub(crate) detached_at: Option<Timestamp>,
}

rows!(Volume);

/// All volumes.
#[derive(Clone, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Block {
    pub(crate) volumes: Table<Volume>,
}

impl Volume {
    pub(crate) fn wire(&self) -> Value {
        let reference = |reference: &Reference| {
            json!({
                "id": reference.id,
                "product_resource_type": "instance_server",
                "product_resource_id": reference.server,
                "created_at": reference.created_at,
                "type": "exclusive",
                "status": "attached",
            })
        };
        json!({
            "id": self.id,
            "name": self.name,
            "type": type_name(self.iops),
            "size": self.size,
            "project_id": self.project_id,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "references": self.reference.iter().map(reference).collect::<Vec<_>>(),
            "parent_snapshot_id": null,
            "status": self.status.as_str(),
            "tags": self.tags,
            "specs": {"perf_iops": self.iops, "class": "sbs"},
            "last_detached_at": self.detached_at,
            "zone": self.zone,
        })
    }
}

fn type_name(iops: u64) -> &'static str {
    if iops == 15_000 { "sbs_15k" } else { "sbs_5k" }
}

impl World {
    /// Opens the line of a volume.
    #[expect(clippy::too_many_arguments, reason = "the columns of a bill")]
    pub(crate) fn bill_volume(
        &mut self,
        now: Timestamp,
        id: &Id,
        resource: &str,
        commercial_type: &str,
        (zone, project_id): (&Zone, &Id),
        per_gb: MicroEuro,
        size: u64,
    ) {
        let price = MicroEuro(per_gb.0.saturating_mul(size.div_ceil(GB)));
        self.bill.open(Line {
            resource_id: id.clone(),
            resource: resource.to_owned(),
            commercial_type: commercial_type.to_owned(),
            zone: zone.clone(),
            project_id: project_id.clone(),
            stretches: vec![Stretch {
                plan: Plan::Hourly {
                    price,
                    minimum_hours: 1,
                },
                from: now,
                until: None,
            }],
        });
    }

    fn make_block_volume(&mut self, now: Timestamp, volume: Volume) {
        let place = (&volume.zone.clone(), &volume.project_id.clone());
        let (id, size, kind) = (volume.id.clone(), volume.size, type_name(volume.iops));
        self.block.volumes.put(now, volume);
        self.bill_volume(now, &id, "block_volume", kind, place, BLOCK_GB, size);
    }

    /// The volume a server boots from.
    pub(crate) fn make_server_block_volume(
        &mut self,
        now: Timestamp,
        order: &Order,
        server: &Id,
        name: String,
        size: u64,
    ) -> Id {
        let id = self.dice.id();
        let reference = Reference {
            id: self.dice.id(),
            server: server.clone(),
            created_at: now,
        };
        let volume = Volume {
            id: id.clone(),
            zone: order.zone.clone(),
            name,
            size,
            iops: 5000,
            project_id: order.project_id.clone(),
            tags: Vec::new(),
            status: VolumeStatus::InUse,
            until: None,
            reference: Some(reference),
            created_at: now,
            updated_at: now,
            detached_at: None,
        };
        self.make_block_volume(now, volume);
        id
    }

    /// The server of a volume is gone.
    pub(crate) fn detach_block_volume(&mut self, at: Timestamp, id: &Id) {
        self.block.volumes.change(at, id, |volume| {
            volume.status = VolumeStatus::Available;
            volume.reference = None;
            volume.updated_at = at;
            volume.detached_at = Some(at);
        });
    }

    /// When the next volume changes by itself.
    pub(crate) fn next_block_due(&self) -> Option<(Timestamp, Id)> {
        let volumes = self.block.volumes.iter();
        volumes
            .filter_map(|volume| Some((volume.until?, volume.id.clone())))
            .min()
    }

    pub(crate) fn settle_block(&mut self, now: Timestamp) {
        while let Some((at, id)) = self.next_block_due().filter(|(at, _)| *at <= now) {
            let status = self.block.volumes.change(at, &id, |volume| {
                volume.until = None;
                volume.updated_at = at;
                if volume.status == VolumeStatus::Creating {
                    volume.status = VolumeStatus::Available;
                }
                volume.status
            });
            if status == Some(VolumeStatus::Deleting) {
                self.block.volumes.remove(at, &id);
                self.bill.close(&id, at);
            }
        }
    }

    fn visible_block_volume(&self, caller: &Caller, zone: &Zone, id: &Id, action: Action) -> Result<&Volume, Refusal> {
        let found = self.block.volumes.get(id).filter(|volume| volume.zone == *zone);
        let found = found.map(|volume| (volume, &volume.project_id));
        self.permitted(caller, action, Resource::BlockVolume, id, found)
    }
}

/// Answers a call below `/zones/{zone}/`.
pub(crate) fn answer(world: &mut World, caller: &Caller, zone: &str, rest: &[&str], call: &Call) -> Answer {
    let zone = known_zone(zone)?;
    match rest {
        ["volumes"] => match call.method {
            Method::GET => list(world, caller, &zone, call),
            Method::POST => create(world, caller, &zone, call),
            _ => Err(Refusal::Method("GET, POST")),
        },
        ["volumes", id] => {
            let id = id_in_path("volume_id", id)?;
            match call.method {
                Method::GET => {
                    let volume = world.visible_block_volume(caller, &zone, &id, Action::Read)?;
                    Ok(Reply::ok(volume.wire()))
                }
                Method::PATCH => update(world, caller, &zone, &id, call),
                Method::DELETE => delete(world, caller, &zone, &id),
                _ => Err(Refusal::Method("GET, PATCH, DELETE")),
            }
        }
        ["volume-types" | "snapshots", ..] => Err(Refusal::NotEmulated(call.path.clone())),
        _ => Err(Refusal::Route(format!("{} {}", call.method, call.path))),
    }
}

/// GET `/volumes`
fn list(world: &World, caller: &Caller, zone: &Zone, call: &Call) -> Answer {
    let mut query = Query::new(&call.query);
    let owner = Owner::read(&mut query);
    let name = query.text("name");
    let server = query.id("product_resource_id");
    let tags = query.many("tags");
    let kind = query.text("volume_type");
    let ids = query.ids("volume_ids");
    query.flag("include_deleted");
    let sorting = Sorting::by_age_or_name(&mut query);
    let page = page::last(query, world.settings.page_cap)?;
    world.may_list(caller, Resource::BlockVolume, &owner)?;
    let mut found = world.block.volumes.as_of(world.lagging(caller.now));
    found.retain(|volume| {
        let used_by = volume.reference.as_ref().map(|reference| &reference.server);
        volume.zone == *zone
            && world.accounts.lists(&caller.key, &volume.project_id, &owner)
            && name.as_ref().is_none_or(|name| volume.name.contains(name.as_str()))
            && server.as_ref().is_none_or(|server| used_by == Some(server))
            && tags.iter().all(|tag| volume.tags.contains(tag))
            && kind.as_ref().is_none_or(|kind| type_name(volume.iops) == kind)
            && (ids.is_empty() || ids.contains(&volume.id))
    });
    sorting.sort(&mut found, |volume| Stamps {
        created: volume.created_at,
        name: &volume.name,
        ..Stamps::of(&volume.id)
    });
    Ok(page.reply("volumes", &found, |volume| volume.wire()))
}

fn iops(fields: &mut Fields) -> Option<u64> {
    let iops = fields.number("perf_iops");
    if iops.is_some_and(|iops| ![5000, 15_000].contains(&iops)) {
        fields.refuse("perf_iops", Reason::Constraint, "must be one of 5000, 15000");
    }
    iops
}

/// POST `/volumes`
fn create(world: &mut World, caller: &Caller, zone: &Zone, call: &Call) -> Answer {
    let mut fields = Fields::new(call.json()?)?;
    let name = fields.text("name").filter(|name| !name.is_empty());
    let project = fields.id("project_id");
    if project.is_none() {
        fields.refuse("project_id", Reason::Required, "cannot be empty");
    }
    let tags = fields.texts("tags");
    let iops = iops(&mut fields).unwrap_or(5000);
    let size = match fields.value("from_empty") {
        None => None,
        Some(value) => {
            let mut inner = Fields::new(value)?;
            let size = inner.number("size");
            inner.finish()?;
            size
        }
    };
    if size.is_none_or(|size| size < GB || size % GB != 0) {
        fields.refuse("from_empty", Reason::Constraint, "needs a size in whole gigabytes");
    }
    fields.not_emulated("from_snapshot");
    fields.not_emulated("kms_key_id");
    fields.finish()?;
    let project_id = project.ok_or_else(|| Refusal::argument("project_id", Reason::Required, "cannot be empty"))?;
    world
        .accounts
        .authorise(&caller.key, Action::Create, Resource::BlockVolume, Some(&project_id))?;
    let volume = Volume {
        id: world.dice.id(),
        zone: zone.clone(),
        name: name.unwrap_or_else(|| world.dice_name("vol")),
        size: size.unwrap_or(GB),
        iops,
        project_id,
        tags,
        status: VolumeStatus::Creating,
        until: Some(after(caller.now, world.settings.delays.volume)),
        reference: None,
        created_at: caller.now,
        updated_at: caller.now,
        detached_at: None,
    };
    let shown = volume.wire();
    world.make_block_volume(caller.now, volume);
    Ok(Reply::ok(shown))
}

/// PATCH `/volumes/{id}`
fn update(world: &mut World, caller: &Caller, zone: &Zone, id: &Id, call: &Call) -> Answer {
    let mut fields = Fields::new(call.json()?)?;
    let labels = Labels::read(&mut fields);
    fields.not_emulated("size");
    fields.not_emulated("perf_iops");
    fields.finish()?;
    world.visible_block_volume(caller, zone, id, Action::Update)?;
    let shown = world.block.volumes.change(caller.now, id, |volume| {
        labels.put(&mut volume.name, &mut volume.tags);
        volume.updated_at = caller.now;
        volume.wire()
    });
    shown
        .map(Reply::ok)
        .ok_or_else(|| Refusal::not_found("volume", id.as_str()))
}

/// DELETE `/volumes/{id}`: accepted, and gone a moment later.
fn delete(world: &mut World, caller: &Caller, zone: &Zone, id: &Id) -> Answer {
    let volume = world.visible_block_volume(caller, zone, id, Action::Delete)?;
    match volume.status {
        VolumeStatus::Available => {}
        VolumeStatus::InUse => {
            return Err(Refusal::Precondition {
                precondition: "resource_still_in_use",
                help: "the volume is attached to a server".to_owned(),
            });
        }
        VolumeStatus::Creating | VolumeStatus::Deleting => {
            return Err(Refusal::Transient {
                resource: "volume",
                id: id.clone(),
                state: volume.status.as_str().to_owned(),
            });
        }
    }
    let until = Some(after(caller.now, world.settings.delays.volume));
    world.block.volumes.change(caller.now, id, |volume| {
        volume.status = VolumeStatus::Deleting;
        volume.until = until;
        volume.updated_at = caller.now;
    });
    Ok(Reply::no_content())
}
