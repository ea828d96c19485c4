//! What is ordered and given back.

use super::catalog::{CommercialType, Image, ImageKind};
use super::server::{Server, Slot, State, security_group};
use crate::account::{Action, Resource};
use crate::bill::Line;
use crate::call::{Answer, Call, Reply, created};
use crate::host::HostKey;
use crate::ids::{Id, Zone};
use crate::refusal::{Reason, Refusal};
use crate::settings::DynamicIp;
use crate::strict::{Fields, Query};
use crate::world::{Caller, World};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const GB: u64 = 1_000_000_000;
/// No image fits on less.
const SMALLEST_ROOT: u64 = 10 * GB;

/// What is ordered.
#[derive(Clone)]
pub(crate) struct Order {
    pub(crate) zone: Zone,
    pub(crate) name: String,
    pub(crate) project_id: Id,
    pub(crate) commercial_type: String,
    pub(crate) image: Id,
    pub(crate) tags: Vec<String>,
    pub(crate) dynamic_ip_required: bool,
    pub(crate) protected: bool,
    /// By slot: what kind, how large, called what, booted from.
    pub(crate) volumes: BTreeMap<String, Wanted>,
}

/// A volume of an order.
#[derive(Clone)]
pub(crate) struct Wanted {
    pub(crate) kind: Option<ImageKind>,
    pub(crate) size: Option<u64>,
    pub(crate) name: Option<String>,
    pub(crate) boot: bool,
}

fn volumes(fields: &mut Fields) -> Result<BTreeMap<String, Wanted>, Refusal> {
    let mut wanted = BTreeMap::new();
    let Some(value) = fields.value("volumes") else {
        return Ok(wanted);
    };
    let Value::Object(slots) = value else {
        fields.refuse("volumes", Reason::Format, "must be an object of volumes by slot");
        return Ok(wanted);
    };
    for (slot, template) in slots {
        if slot.parse::<u8>().is_err() {
            fields.refuse(
                "volumes",
                Reason::Format,
                format!("{slot:?} is not a slot; slots are numbers"),
            );
            continue;
        }
        let mut inner = Fields::new(template)?;
        let kind = match inner.choice("volume_type", &["l_ssd", "sbs_volume"]) {
            Some("l_ssd") => Some(ImageKind::InstanceLocal),
            Some(_) => Some(ImageKind::InstanceSbs),
            None => None,
        };
        let size = inner.number("size");
        let name = inner.text("name");
        let boot = inner.flag("boot").unwrap_or(false);
        for missing in ["id", "base_snapshot", "organization", "project"] {
            inner.not_emulated(missing);
        }
        inner.finish()?;
        wanted.insert(slot, Wanted { kind, size, name, boot });
    }
    Ok(wanted)
}

/// POST `/servers`: it is made stopped, and costs nothing but its volumes until it is powered on.
pub(super) fn create(world: &mut World, caller: &Caller, zone: &Zone, call: &Call) -> Answer {
    Query::new(&call.query).finish()?;
    let mut fields = Fields::new(call.json()?)?;
    let name = fields.text("name").filter(|name| !name.is_empty());
    let commercial_type = fields.required("commercial_type");
    let image = fields.required("image");
    let project = fields.id("project");
    if project.is_none() {
        fields.refuse("project", Reason::Required, "required key not provided");
    }
    let tags = fields.texts("tags");
    let dynamic = fields.flag("dynamic_ip_required");
    let ips = fields.ids("public_ips");
    let group = fields.id("security_group");
    let protected = fields.flag("protected").unwrap_or(false);
    let volumes = volumes(&mut fields)?;
    if fields.flag("routed_ip_enabled") == Some(false) || fields.flag("enable_ipv6") == Some(true) {
        fields.refuse(
            "routed_ip_enabled",
            Reason::Constraint,
            "only routed addresses are left",
        );
    }
    fields.choice("boot_type", &["local"]);
    for missing in [
        "organization",
        "public_ip",
        "placement_group",
        "admin_password_encryption_ssh_key_id",
    ] {
        fields.not_emulated(missing);
    }
    let image_id = image.parse::<Id>();
    if !image.is_empty() && image_id.is_err() {
        fields.refuse(
            "image",
            Reason::Format,
            "must be the UUID of a local image; the marketplace knows labels",
        );
    }
    fields.finish()?;
    let required = |name| Refusal::argument(name, Reason::Required, "required key not provided");
    let project_id = project.ok_or_else(|| required("project"))?;
    world
        .accounts
        .authorise(&caller.key, Action::Create, Resource::InstanceServer, Some(&project_id))?;
    if group.is_some_and(|group| group != security_group(&project_id, zone)) {
        return Err(Refusal::argument(
            "security_group",
            Reason::Constraint,
            "no such security group",
        ));
    }
    let free = |ip: &Id| {
        let found = world.instance.ips.get(ip).filter(|found| found.zone == *zone);
        found.is_some_and(|found| found.project_id == project_id && found.server.is_none())
    };
    if let Some(ip) = ips.iter().find(|ip| !free(ip)) {
        return Err(Refusal::not_found("instance_ip", ip.as_str()));
    }
    let order = Order {
        zone: zone.clone(),
        name: name.unwrap_or_else(|| world.dice_name("srv")),
        project_id,
        commercial_type,
        image: image_id.map_err(|_| required("image"))?,
        tags,
        dynamic_ip_required: dynamic.unwrap_or(world.settings.dynamic_ip == DynamicIp::UnlessDeclined),
        protected,
        volumes,
    };
    let id = world.order_instance(caller.now, &order)?;
    for ip in ips {
        world.attach_ip(caller.now, &ip, Some(&id));
    }
    let server = world.visible_instance(caller, zone, &id, Action::Create)?;
    Ok(created(
        call,
        id.as_str(),
        json!({"server": world.show_instance(server)}),
    ))
}

/// DELETE `/servers/{id}`: only a stopped one goes, and its volumes and addresses stay behind.
pub(super) fn delete(world: &mut World, caller: &Caller, zone: &Zone, id: &Id, call: &Call) -> Answer {
    Query::new(&call.query).finish()?;
    let server = world.writable_instance(caller, zone, id, Action::Delete)?;
    if server.protected {
        return Err(protected());
    }
    match server.state {
        State::Stopped => {}
        State::Starting | State::Stopping => return Err(transient(server)),
        State::Running | State::StoppedInPlace | State::Locked => {
            return Err(Refusal::Precondition {
                precondition: "resource_not_usable",
                help: "server should be stopped".to_owned(),
            });
        }
    }
    world.remove_instance(caller.now, id, LocalVolumes::StayBehind);
    Ok(Reply::no_content())
}

pub(super) fn protected() -> Refusal {
    Refusal::Precondition {
        precondition: "resource_not_usable",
        help: "the server is protected against deletion".to_owned(),
    }
}

pub(super) fn transient(server: &Server) -> Refusal {
    Refusal::Transient {
        resource: "instance_server",
        id: server.id.clone(),
        state: server.state.as_str().to_owned(),
    }
}

/// What becomes of the volumes that cannot live without a hypervisor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LocalVolumes {
    /// They stay, detached and paid for.
    StayBehind,
    /// They go too.
    GoToo,
}

impl World {
    /// A made-up name.
    pub(crate) fn dice_name(&mut self, prefix: &str) -> String {
        format!("{prefix}-{}", self.dice.id().as_str().get(..8).unwrap_or("server"))
    }

    fn can_order_instance(&self, order: &Order) -> Result<(CommercialType, Image), Refusal> {
        let catalog = &self.instance.catalog;
        let offered = catalog
            .commercial_type(&order.zone, &order.commercial_type)
            .ok_or_else(|| Refusal::argument("commercial_type", Reason::Constraint, "no such type in this zone"))?;
        let image = catalog
            .image(&order.image)
            .filter(|image| image.zone == order.zone && !self.linux.retired.contains(&image.label));
        let image = image.ok_or_else(|| Refusal::not_found("instance_image", order.image.as_str()))?;
        if !offered.boots(image) {
            let help = format!("{} cannot boot from this image ({})", offered.name, image.kind.as_str());
            return Err(Refusal::argument("image", Reason::Constraint, help));
        }
        Ok((offered.clone(), image.clone()))
    }

    /// Makes a stopped Instance with its volumes.
    pub(crate) fn order_instance(&mut self, now: Timestamp, order: &Order) -> Result<Id, Refusal> {
        let (offered, image) = self.can_order_instance(order)?;
        let wanted = planned(order, &offered, &image)?;
        let id = self.dice.id();
        let [a, b, c, ..] = self.dice.bytes();
        let server = Server {
            id: id.clone(),
            zone: order.zone.clone(),
            name: order.name.clone(),
            commercial_type: offered.name.clone(),
            project_id: order.project_id.clone(),
            organization_id: self.organization_of(&order.project_id),
            tags: order.tags.clone(),
            image: image.id.clone(),
            state: State::Stopped,
            state_detail: String::new(),
            pending: None,
            dynamic_ip_required: order.dynamic_ip_required,
            dynamic_ip: None,
            slots: BTreeMap::new(),
            mac: format!("de:00:00:{a:02x}:{b:02x}:{c:02x}"),
            protected: order.protected,
            user_data: BTreeMap::new(),
            authorized_keys: Vec::new(),
            host_key: HostKey::new(self.dice.bytes()),
            boots: 0,
            created_at: now,
            updated_at: now,
        };
        self.instance.servers.put(now, server);
        self.bill.open(Line {
            resource_id: id.clone(),
            resource: "instance_server".to_owned(),
            commercial_type: offered.name,
            zone: order.zone.clone(),
            project_id: order.project_id.clone(),
            stretches: Vec::new(),
        });
        let mut slots = BTreeMap::new();
        for (slot, (kind, size, name, boot)) in wanted {
            let volume = match kind {
                ImageKind::InstanceLocal => self.make_local_volume(now, order, &id, name, size),
                ImageKind::InstanceSbs => {
                    let name = format!("{name}_sbs_volume_{slot}");
                    self.make_server_block_volume(now, order, &id, name, size)
                }
            };
            slots.insert(slot, Slot { volume, kind, boot });
        }
        self.instance.servers.change(now, &id, |server| server.slots = slots);
        Ok(id)
    }

    /// Takes an Instance out of the world. What was attached to it is not, and stays.
    pub(crate) fn remove_instance(&mut self, at: Timestamp, id: &Id, local: LocalVolumes) {
        self.unplace(at, id);
        self.leave_networks(at, id);
        let ips = self.instance.ips.iter().filter(|ip| ip.server.as_ref() == Some(id));
        for ip in ips.map(|ip| ip.id.clone()).collect::<Vec<_>>() {
            self.attach_ip(at, &ip, None);
        }
        let Some(server) = self.instance.servers.remove(at, id) else {
            return;
        };
        for slot in server.slots.into_values() {
            match (slot.kind, local) {
                (ImageKind::InstanceLocal, LocalVolumes::GoToo) => self.remove_local_volume(at, &slot.volume),
                (ImageKind::InstanceLocal, LocalVolumes::StayBehind) => self.detach_local_volume(at, &slot.volume),
                (ImageKind::InstanceSbs, _) => self.detach_block_volume(at, &slot.volume),
            }
        }
    }
}

/// Kind, size, name and boot flag of each volume that will be made.
type Planned = BTreeMap<String, (ImageKind, u64, String, bool)>;

fn planned(order: &Order, offered: &CommercialType, image: &Image) -> Result<Planned, Refusal> {
    let refuse = |help: String| Refusal::argument("volumes", Reason::Constraint, help);
    let mut wanted = order.volumes.clone();
    wanted.entry("0".to_owned()).or_insert(Wanted {
        kind: None,
        size: None,
        name: None,
        boot: false,
    });
    let mut local = 0_u64;
    let mut all = BTreeMap::new();
    for (slot, volume) in wanted {
        let root = slot == "0";
        let kind = volume.kind.unwrap_or(image.kind);
        if root && kind != image.kind {
            let help = format!("the image is for {} root volumes", image.kind.volume_type());
            return Err(refuse(help));
        }
        let default = match kind {
            ImageKind::InstanceLocal if root => offered.local_gb * GB,
            _ => SMALLEST_ROOT,
        };
        let size = volume.size.unwrap_or(default);
        if size % GB != 0 || size == 0 || (root && size < SMALLEST_ROOT) {
            return Err(refuse(format!(
                "{size} bytes: whole gigabytes, and at least 10 for the image"
            )));
        }
        if kind == ImageKind::InstanceLocal {
            local = local.saturating_add(size);
        }
        let name = volume.name.unwrap_or_else(|| image.name.clone());
        all.insert(slot, (kind, size, name, volume.boot));
    }
    if local > offered.local_gb * GB {
        let help = format!("{} has {} GB of local storage", offered.name, offered.local_gb);
        return Err(refuse(help));
    }
    Ok(all)
}
