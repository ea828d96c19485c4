//! Private networks of a mini: `attaching` without a VLAN, then `attached` with one, then rows in IPAM.

use super::server::VpcStatus;
use crate::account::{Action, Owner, Resource};
use crate::call::{Call, Reply};
use crate::clock::after;
use crate::ids::{Id, Zone};
use crate::ipam::Nic;
use crate::page;
use crate::refusal::{Reason, Refusal};
use crate::settings::Permission;
use crate::strict::{Fields, Query};
use crate::table::Row;
use crate::world::{Caller, World};
use jiff::Timestamp;
use serde_json::{Value, json};

/// No mini has more.
const MAX_NETWORKS: usize = 8;

/// Where an attachment stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AttachmentStatus {
    Attaching,
    Attached,
    Detaching,
}

/// A mini on a private network.
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
    /// When the status ends; none if it does not.
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
    fn wire(&self) -> Value {
        let vlan = (self.status != AttachmentStatus::Attaching).then_some(self.vlan);
        json!({
            "id": self.id,
            "project_id": self.project_id,
            "server_id": self.server_id,
            "private_network_id": self.private_network_id,
            "vlan": vlan,
            "status": self.status,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "ipam_ip_ids": self.ips,
        })
    }
}

impl World {
    /// Ends what is due: attaching gets its addresses, detaching goes.
    pub(crate) fn settle_attachments(&mut self, now: Timestamp) {
        let mut due: Vec<(Timestamp, Id)> = self
            .apple
            .attachments
            .iter()
            .filter_map(|attachment| Some((attachment.until.filter(|at| *at <= now)?, attachment.id.clone())))
            .collect();
        due.sort();
        for (at, id) in due {
            let Some(attachment) = self.apple.attachments.get(&id).cloned() else {
                continue;
            };
            if attachment.status == AttachmentStatus::Detaching {
                self.apple.attachments.remove(at, &id);
                continue;
            }
            let nic = Nic {
                id: attachment.id,
                server_id: attachment.server_id,
                private_network_id: attachment.private_network_id,
                kind: "apple_silicon_private_nic",
                mac: None,
            };
            let ips = self.allocate_addresses(at, &nic);
            self.apple.attachments.change(at, &id, |attachment| {
                attachment.status = AttachmentStatus::Attached;
                attachment.until = None;
                attachment.updated_at = at;
                attachment.ips = ips;
            });
        }
    }

    fn attachment_of(&self, server: &Id, network: &Id) -> Option<&Attachment> {
        self.apple
            .attachments
            .iter()
            .find(|attachment| attachment.server_id == *server && attachment.private_network_id == *network)
    }

    fn attachments_of(&self, server: &Id) -> Vec<Id> {
        let of_server = self
            .apple
            .attachments
            .iter()
            .filter(|attachment| attachment.server_id == *server);
        of_server.map(|attachment| attachment.id.clone()).collect()
    }

    fn detach(&mut self, now: Timestamp, attachment: &Id) {
        self.release_addresses(now, attachment);
        let until = Some(after(now, self.settings.delays.detach));
        self.apple.attachments.change(now, attachment, |attachment| {
            attachment.status = AttachmentStatus::Detaching;
            attachment.until = until;
            attachment.updated_at = now;
            attachment.ips.clear();
        });
    }

    /// The feature was switched off.
    pub(crate) fn detach_all(&mut self, now: Timestamp, server: &Id) {
        for attachment in self.attachments_of(server) {
            self.detach(now, &attachment);
        }
    }

    /// The server is gone.
    pub(crate) fn drop_attachments(&mut self, now: Timestamp, server: &Id) {
        for attachment in self.attachments_of(server) {
            self.release_addresses(now, &attachment);
            self.apple.attachments.remove(now, &attachment);
        }
    }

    fn attach(&mut self, caller: &Caller, server: &Id, network: &Id) -> Result<Value, Refusal> {
        let now = caller.now;
        let Some(owner) = self.apple.servers.get(server) else {
            return Err(Refusal::not_found("server", server.as_str()));
        };
        match owner.vpc_status {
            VpcStatus::VpcEnabled => {}
            VpcStatus::VpcUpdating if self.settings.attach_while_updating == Permission::Accept => {}
            VpcStatus::VpcUpdating => {
                return Err(Refusal::Transient {
                    resource: "server",
                    id: server.clone(),
                    state: "vpc_updating".to_owned(),
                });
            }
            VpcStatus::VpcDisabled => {
                return Err(Refusal::Precondition {
                    precondition: "attribute_must_be_set",
                    help: "the private network feature of this server is off; set enable_vpc first".to_owned(),
                });
            }
        }
        let (zone, project_id) = (owner.zone.clone(), owner.project_id.clone());
        let found = self.vpc.networks.get(network);
        let reachable = found.is_some_and(|found| {
            let seen = self
                .accounts
                .projects
                .get(&found.project_id)
                .is_some_and(|project| caller.key.sees(project));
            found.region == zone.region() && seen
        });
        if !reachable {
            return Err(Refusal::not_found("private_network", network.as_str()));
        }
        if let Some(attachment) = self.attachment_of(server, network) {
            return Err(Refusal::Exists {
                resource: "server_private_network",
                id: attachment.id.clone(),
                help: "the server is on this private network already".to_owned(),
            });
        }
        let mut taken = Vec::new();
        for id in self.attachments_of(server) {
            taken.extend(self.apple.attachments.get(&id).map(|attachment| attachment.vlan));
        }
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
        let attachment = Attachment {
            id: self.dice.id(),
            project_id,
            server_id: server.clone(),
            private_network_id: network.clone(),
            zone,
            vlan,
            status: AttachmentStatus::Attaching,
            until: Some(after(now, self.settings.delays.attach)),
            created_at: now,
            updated_at: now,
            ips: Vec::new(),
        };
        let shown = attachment.wire();
        self.apple.attachments.put(now, attachment);
        Ok(shown)
    }
}

/// Reads the addresses a network shall be attached with: none, since none can be booked here.
fn refuse_booked(fields: &mut Fields, name: &str) {
    if !fields.ids(name).is_empty() {
        fields.refuse(name, Reason::Constraint, "no such booked address");
    }
}

/// POST `/servers/{id}/private-networks`
pub(super) fn add(world: &mut World, caller: &Caller, zone: &Zone, server: &Id, call: &Call) -> Result<Reply, Refusal> {
    world.writable_server(caller, zone, server, Action::Update)?;
    let mut fields = Fields::new(call.json()?)?;
    let network = fields.id("private_network_id");
    if network.is_none() {
        fields.refuse("private_network_id", Reason::Required, "cannot be empty");
    }
    refuse_booked(&mut fields, "ipam_ip_ids");
    fields.finish()?;
    let network =
        network.ok_or_else(|| Refusal::argument("private_network_id", Reason::Required, "cannot be empty"))?;
    world.attach(caller, server, &network).map(Reply::ok)
}

/// PUT `/servers/{id}/private-networks`
pub(super) fn set(world: &mut World, caller: &Caller, zone: &Zone, server: &Id, call: &Call) -> Result<Reply, Refusal> {
    const NAME: &str = "per_private_network_ipam_ip_ids";
    world.writable_server(caller, zone, server, Action::Update)?;
    let mut fields = Fields::new(call.json()?)?;
    let wanted = fields.value(NAME).unwrap_or_else(|| json!({}));
    fields.finish()?;
    let Value::Object(wanted) = wanted else {
        return Err(Refusal::argument(NAME, Reason::Format, "must be an object"));
    };
    let mut networks = Vec::new();
    for (network, ips) in wanted {
        let booked = ips.as_array().is_some_and(|ips| !ips.is_empty());
        match network.parse::<Id>() {
            Ok(network) if !booked => networks.push(network),
            _ => {
                return Err(Refusal::argument(
                    NAME,
                    Reason::Format,
                    "must map network ids to empty lists",
                ));
            }
        }
    }
    // All or nothing: tried on a copy first.
    let mut changed = world.clone();
    for id in changed.attachments_of(server) {
        let attached = changed.apple.attachments.get(&id);
        if attached.is_some_and(|attachment| !networks.contains(&attachment.private_network_id)) {
            changed.detach(caller.now, &id);
        }
    }
    for network in &networks {
        if changed.attachment_of(server, network).is_none() {
            changed.attach(caller, server, network)?;
        }
    }
    *world = changed;
    let all = world.attachments_of(server);
    let shown = all
        .iter()
        .filter_map(|id| world.apple.attachments.get(id))
        .map(Attachment::wire);
    Ok(Reply::ok(json!({"server_private_networks": shown.collect::<Vec<_>>()})))
}

/// GET `/servers/{id}/private-networks/{pn}`
pub(super) fn get(world: &World, caller: &Caller, zone: &Zone, server: &Id, network: &Id) -> Result<Reply, Refusal> {
    world.visible_server(caller, zone, server, Action::Read)?;
    world
        .attachment_of(server, network)
        .map(|attachment| Reply::ok(attachment.wire()))
        .ok_or_else(|| Refusal::not_found("server_private_network", network.as_str()))
}

/// DELETE `/servers/{id}/private-networks/{pn}`
pub(super) fn remove(
    world: &mut World,
    caller: &Caller,
    zone: &Zone,
    server: &Id,
    network: &Id,
) -> Result<Reply, Refusal> {
    world.writable_server(caller, zone, server, Action::Update)?;
    let attachment = world
        .attachment_of(server, network)
        .ok_or_else(|| Refusal::not_found("server_private_network", network.as_str()))?;
    let (id, status) = (attachment.id.clone(), attachment.status);
    if status == AttachmentStatus::Detaching {
        return Err(Refusal::Transient {
            resource: "server_private_network",
            id,
            state: "detaching".to_owned(),
        });
    }
    world.detach(caller.now, &id);
    Ok(Reply::no_content())
}

/// GET `/server-private-networks`
pub(super) fn list(world: &World, caller: &Caller, zone: &Zone, call: &Call) -> Result<Reply, Refusal> {
    let mut query = Query::new(&call.query);
    let owner = Owner::read(&mut query);
    let server = query.id("server_id");
    let network = query.id("private_network_id");
    let ips = query.ids("ipam_ip_ids");
    let order = query.choice(
        "order_by",
        &["created_at_asc", "created_at_desc", "updated_at_asc", "updated_at_desc"],
    );
    let page = page::last(query, world.settings.page_cap)?;
    world.may_list(caller, Resource::Server, &owner)?;
    let mut found = world.apple.attachments.as_of(world.lagging(caller.now));
    found.retain(|attachment| {
        attachment.zone == *zone
            && world.accounts.lists(&caller.key, &attachment.project_id, &owner)
            && server.as_ref().is_none_or(|server| *server == attachment.server_id)
            && network
                .as_ref()
                .is_none_or(|network| *network == attachment.private_network_id)
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
    Ok(page.reply("server_private_networks", &found, |attachment| attachment.wire()))
}
