//! Private networks of a server: `attaching` without a VLAN, then `attached` with one, then rows in IPAM.
//!
//! None of that says that a packet passes. For that the option must be enabled, and in time: see
//! [`crate::EarlyAttachment`].

use super::Version;
use super::catalog::ExtraKind;
use super::server::Status;
use crate::account::{Action, Owner, Resource};
use crate::call::{Call, Reply};
use crate::clock::after;
use crate::ids::{Id, Zone};
use crate::ipam::Nic;
use crate::linux::Stage;
use crate::page;
use crate::refusal::{Reason, Refusal};
use crate::settings::EarlyAttachment;
use crate::strict::{Fields, Query};
use crate::table::Row;
use crate::world::{Caller, World, id_in_path};
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

/// No server has more.
const MAX_NETWORKS: usize = 8;

/// Where an attachment stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AttachmentStatus {
    Attaching,
    Attached,
    Error,
    Detaching,
}

/// A server on a private network.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Attachment {
    pub(crate) id: Id,
    pub(crate) project_id: Id,
    pub(crate) server_id: Id,
    pub(crate) private_network_id: Id,
    pub(crate) zone: Zone,
    /// Fixed from the start, shown once attached.
    pub(crate) vlan: u32,
    pub(crate) status: AttachmentStatus,
    /// It was attached before the option was enabled.
    pub(crate) early: bool,
    pub(crate) fails: bool,
    pub(crate) until: Option<Timestamp>,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    pub(crate) ips: Vec<Id>,
}

impl Row for Attachment {
    fn id(&self) -> &Id {
        &self.id
    }
}

impl Attachment {
    fn wire(&self, version: Version) -> Value {
        let known = matches!(self.status, AttachmentStatus::Attached | AttachmentStatus::Detaching);
        let mut shown = json!({
            "id": self.id,
            "project_id": self.project_id,
            "server_id": self.server_id,
            "private_network_id": self.private_network_id,
            "vlan": known.then_some(self.vlan),
            "status": self.status,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
        });
        if let (Version::V3, Some(fields)) = (version, shown.as_object_mut()) {
            fields.insert("ipam_ip_ids".to_owned(), json!(self.ips));
        }
        shown
    }
}

impl World {
    /// Whether the option for private networks is enabled.
    fn networked(&self, server: &Id) -> bool {
        let extras = self.metal.catalog.extras.iter();
        let extras = extras.filter(|extra| extra.kind == ExtraKind::PrivateNetwork);
        let ids: Vec<Id> = extras.map(|extra| extra.id.clone()).collect();
        self.metal
            .servers
            .get(server)
            .is_some_and(|server| server.enabled(&ids))
    }

    /// Whether packets pass.
    pub(super) fn lit(&self, attachment: &Attachment) -> bool {
        let in_time = !attachment.early || self.settings.early_attachment == EarlyAttachment::LightsUp;
        attachment.status == AttachmentStatus::Attached && in_time && self.networked(&attachment.server_id)
    }

    /// Ends what is due: attaching gets its addresses, detaching goes.
    pub(super) fn end_metal_attachment(&mut self, at: Timestamp, id: &Id) {
        let Some(attachment) = self.metal.attachments.get(id).cloned() else {
            return;
        };
        if attachment.status == AttachmentStatus::Detaching {
            self.metal.attachments.remove(at, id);
            return;
        }
        let mac = self
            .metal
            .servers
            .get(&attachment.server_id)
            .map(|server| server.mac.clone());
        let ips = if attachment.fails {
            Vec::new()
        } else {
            let nic = Nic {
                id: attachment.id,
                server_id: attachment.server_id,
                private_network_id: attachment.private_network_id,
                kind: "baremetal_private_nic",
                mac,
            };
            self.allocate_addresses(at, &nic)
        };
        self.metal.attachments.change(at, id, |attachment| {
            attachment.status = if attachment.fails {
                AttachmentStatus::Error
            } else {
                AttachmentStatus::Attached
            };
            attachment.until = None;
            attachment.updated_at = at;
            attachment.ips = ips;
        });
    }

    fn metal_attachments_of(&self, server: &Id) -> Vec<&Attachment> {
        let all = self.metal.attachments.iter();
        all.filter(|attachment| attachment.server_id == *server).collect()
    }

    fn metal_attachment_of(&self, server: &Id, network: &Id) -> Option<&Attachment> {
        let mut all = self.metal_attachments_of(server).into_iter();
        all.find(|attachment| attachment.private_network_id == *network)
    }

    /// What is stuck about networks ends, now.
    pub(super) fn unstick_metal_attachments(&mut self, now: Timestamp, server: &Id) {
        let busy = |status| matches!(status, AttachmentStatus::Attaching | AttachmentStatus::Detaching);
        let stuck = self.metal_attachments_of(server).into_iter();
        let stuck: Vec<Id> = stuck.filter(|one| busy(one.status)).map(|one| one.id.clone()).collect();
        for id in stuck {
            self.metal
                .attachments
                .change(now, &id, |attachment| attachment.until = Some(now));
        }
    }

    /// The server is gone.
    pub(super) fn drop_metal_attachments(&mut self, now: Timestamp, server: &Id) {
        let all = self.metal_attachments_of(server).into_iter();
        for id in all.map(|attachment| attachment.id.clone()).collect::<Vec<_>>() {
            self.release_addresses(now, &id);
            self.metal.attachments.remove(now, &id);
        }
    }

    fn detach_metal(&mut self, now: Timestamp, id: &Id) {
        self.release_addresses(now, id);
        let until = Some(after(now, self.settings.delays.detach));
        self.metal.attachments.change(now, id, |attachment| {
            attachment.status = AttachmentStatus::Detaching;
            attachment.until = until;
            attachment.updated_at = now;
            attachment.ips.clear();
        });
    }

    fn attach_metal(&mut self, caller: &Caller, server: &Id, network: &Id) -> Result<Attachment, Refusal> {
        let now = caller.now;
        let Some(owner) = self.metal.servers.get(server) else {
            return Err(Refusal::not_found("server", server.as_str()));
        };
        if matches!(owner.status, Status::Ordered | Status::Delivering) {
            return Err(owner.transient());
        }
        let (zone, project_id) = (owner.zone.clone(), owner.project_id.clone());
        self.reachable_network(caller, &zone, network)?;
        if let Some(attachment) = self.metal_attachment_of(server, network) {
            return Err(Refusal::Exists {
                resource: "server_private_network",
                id: attachment.id.clone(),
                help: "the server is on this private network already".to_owned(),
            });
        }
        let taken: Vec<u32> = self.metal_attachments_of(server).iter().map(|one| one.vlan).collect();
        if taken.len() >= MAX_NETWORKS {
            return Err(Refusal::Quota {
                resource: "server_private_network",
                quota: 8,
                current: 8,
            });
        }
        let vlan = loop {
            let vlan = 2 + self.dice.below(4093);
            if !taken.contains(&vlan) {
                break vlan;
            }
        };
        let course = self.course(now, Stage::Attachment, server, self.settings.delays.attach);
        let attachment = Attachment {
            id: self.dice.id(),
            project_id,
            server_id: server.clone(),
            private_network_id: network.clone(),
            zone,
            vlan,
            status: AttachmentStatus::Attaching,
            early: !self.networked(server),
            fails: course.wrong.is_some(),
            until: course.at,
            created_at: now,
            updated_at: now,
            ips: Vec::new(),
        };
        self.metal.attachments.put(now, attachment.clone());
        Ok(attachment)
    }
}

/// Answers a call below `/servers/{id}/private-networks`.
pub(super) fn answer(
    world: &mut World,
    caller: &Caller,
    zone: &Zone,
    server: &Id,
    rest: &[&str],
    call: &Call,
    version: Version,
) -> Result<Reply, Refusal> {
    match (rest, &call.method) {
        ([], &Method::POST) => add(world, caller, zone, server, call, version),
        ([], &Method::PUT) => set(world, caller, zone, server, call, version),
        ([], _) => Err(Refusal::Method { allowed: "POST, PUT" }),
        ([network], &Method::DELETE) => {
            let network = id_in_path("private_network_id", network)?;
            remove(world, caller, zone, server, &network)
        }
        ([_], _) => Err(Refusal::Method { allowed: "DELETE" }),
        _ => Err(Refusal::Route(format!("{} {}", call.method, call.path))),
    }
}

/// POST `/servers/{id}/private-networks`
fn add(
    world: &mut World,
    caller: &Caller,
    zone: &Zone,
    server: &Id,
    call: &Call,
    version: Version,
) -> Result<Reply, Refusal> {
    world.writable_metal(caller, zone, server, Action::Update)?;
    let mut fields = Fields::new(call.json()?)?;
    let network = fields.id("private_network_id");
    if network.is_none() {
        fields.refuse("private_network_id", Reason::Required, "cannot be empty");
    }
    if version == Version::V3 && !fields.ids("ipam_ip_ids").is_empty() {
        fields.refuse("ipam_ip_ids", Reason::Constraint, "no such booked address");
    }
    fields.finish()?;
    let network =
        network.ok_or_else(|| Refusal::argument("private_network_id", Reason::Required, "cannot be empty"))?;
    let attached = world.attach_metal(caller, server, &network)?;
    Ok(Reply::ok(attached.wire(version)))
}

/// The networks a PUT asks for.
fn wanted(fields: &mut Fields, version: Version) -> Vec<Id> {
    const NAME: &str = "per_private_network_ipam_ip_ids";
    if version == Version::V1 {
        return fields.ids("private_network_ids");
    }
    let map = fields.value(NAME).unwrap_or_else(|| json!({}));
    let pairs = map.as_object().into_iter().flatten();
    let ids: Option<Vec<Id>> = pairs
        .map(|(network, ips)| {
            let booked = ips.as_array().is_some_and(|ips| !ips.is_empty());
            network.parse().ok().filter(|_| !booked)
        })
        .collect();
    ids.filter(|_| map.is_object()).unwrap_or_else(|| {
        fields.refuse(NAME, Reason::Format, "must map network ids to empty lists");
        Vec::new()
    })
}

/// PUT `/servers/{id}/private-networks`: all or nothing.
fn set(
    world: &mut World,
    caller: &Caller,
    zone: &Zone,
    server: &Id,
    call: &Call,
    version: Version,
) -> Result<Reply, Refusal> {
    world.writable_metal(caller, zone, server, Action::Update)?;
    let mut fields = Fields::new(call.json()?)?;
    let networks = wanted(&mut fields, version);
    fields.finish()?;
    let mut changed = world.clone();
    let present = changed
        .metal_attachments_of(server)
        .into_iter()
        .cloned()
        .collect::<Vec<_>>();
    for attachment in &present {
        let leaves = !networks.contains(&attachment.private_network_id);
        if leaves && attachment.status != AttachmentStatus::Detaching {
            changed.detach_metal(caller.now, &attachment.id);
        }
    }
    for network in &networks {
        if changed.metal_attachment_of(server, network).is_none() {
            changed.attach_metal(caller, server, network)?;
        }
    }
    *world = changed;
    let all = world.metal_attachments_of(server).into_iter();
    let shown: Vec<Value> = all.map(|attachment| attachment.wire(version)).collect();
    Ok(Reply::ok(json!({"server_private_networks": shown})))
}

/// DELETE `/servers/{id}/private-networks/{pn}`
fn remove(world: &mut World, caller: &Caller, zone: &Zone, server: &Id, network: &Id) -> Result<Reply, Refusal> {
    world.writable_metal(caller, zone, server, Action::Update)?;
    let attachment = world
        .metal_attachment_of(server, network)
        .ok_or_else(|| Refusal::not_found("server_private_network", network.as_str()))?;
    let (id, status) = (attachment.id.clone(), attachment.status);
    if status == AttachmentStatus::Detaching {
        return Err(Refusal::Transient {
            resource: "server_private_network",
            id,
            state: "detaching".to_owned(),
        });
    }
    world.detach_metal(caller.now, &id);
    Ok(Reply::no_content())
}

/// GET `/server-private-networks`
pub(super) fn list(
    world: &World,
    caller: &Caller,
    zone: &Zone,
    call: &Call,
    version: Version,
) -> Result<Reply, Refusal> {
    let mut query = Query::new(&call.query);
    let owner = Owner::read(&mut query);
    let server = query.id("server_id");
    let network = query.id("private_network_id");
    let ips = match version {
        Version::V1 => Vec::new(),
        Version::V3 => query.ids("ipam_ip_ids"),
    };
    let order = query.choice(
        "order_by",
        &["created_at_asc", "created_at_desc", "updated_at_asc", "updated_at_desc"],
    );
    let page = page::last(query, world.settings.page_cap)?;
    world.may_list(caller, Resource::Metal, &owner)?;
    let mut found = world.metal.attachments.as_of(world.lagging(caller.now));
    found.retain(|attachment| {
        let on = |wanted: &Option<Id>, is: &Id| wanted.as_ref().is_none_or(|wanted| wanted == is);
        attachment.zone == *zone
            && world.accounts.lists(&caller.key, &attachment.project_id, &owner)
            && on(&server, &attachment.server_id)
            && on(&network, &attachment.private_network_id)
            && (ips.is_empty() || attachment.ips.iter().any(|ip| ips.contains(ip)))
    });
    found.sort_by_key(|attachment| {
        let at = if order.starts_with("created") {
            attachment.created_at
        } else {
            attachment.updated_at
        };
        (at, attachment.id.clone())
    });
    if order.ends_with("desc") {
        found.reverse();
    }
    Ok(page.reply("server_private_networks", &found, |attachment| attachment.wire(version)))
}
