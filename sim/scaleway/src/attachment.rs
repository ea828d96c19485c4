//! A server on a private network: `attaching` without a VLAN, then `attached` with one, then rows in IPAM.
//!
//! Minis and Elastic Metal live through the same and are called by the same paths (see [`calls`]). What must be so before
//! a server is attached, and whether a packet passes afterwards, is each product's own: see their `networks.rs`.

pub(crate) mod calls;

use crate::account::Resource;
use crate::ids::{Id, Zone};
use crate::ipam::Nic;
use crate::linux::{Course, Stage};
use crate::refusal::Refusal;
use crate::table::{Table, rows};
use crate::world::{Caller, World};
use jiff::Timestamp;
use russet_sim_kit::clock::after;
use serde_json::{Value, json};

/// No server has more.
const MAX_NETWORKS: usize = 8;

/// Whose servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Product {
    Apple,
    Metal,
}

impl Product {
    fn resource(self) -> Resource {
        match self {
            Self::Apple => Resource::Server,
            Self::Metal => Resource::Metal,
        }
    }

    fn nic_kind(self) -> &'static str {
        match self {
            Self::Apple => "apple_silicon_private_nic",
            Self::Metal => "baremetal_private_nic",
        }
    }
}

/// Which version of the paths was called. Minis have what v3 has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    /// Knows booked addresses.
    V3,
}

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
    /// It was attached before the option of Elastic Metal was enabled.
    #[serde(default)]
    pub(crate) early: bool,
    #[serde(default)]
    pub(crate) fails: bool,
    /// When the status ends; none if it does not.
    pub(crate) until: Option<Timestamp>,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    pub(crate) ips: Vec<Id>,
}

rows!(Attachment);

impl Attachment {
    pub(crate) fn wire(&self, version: Version) -> Value {
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

impl Table<Attachment> {
    pub(crate) fn of(&self, server: &Id) -> impl Iterator<Item = &Attachment> {
        self.iter().filter(move |attachment| attachment.server_id == *server)
    }

    pub(crate) fn ids_of(&self, server: &Id) -> Vec<Id> {
        self.of(server).map(|attachment| attachment.id.clone()).collect()
    }

    pub(crate) fn on(&self, server: &Id, network: &Id) -> Option<&Attachment> {
        self.of(server)
            .find(|attachment| attachment.private_network_id == *network)
    }
}

impl World {
    pub(crate) fn attachments(&self, product: Product) -> &Table<Attachment> {
        match product {
            Product::Apple => &self.apple.attachments,
            Product::Metal => &self.metal.attachments,
        }
    }

    fn attachments_mut(&mut self, product: Product) -> &mut Table<Attachment> {
        match product {
            Product::Apple => &mut self.apple.attachments,
            Product::Metal => &mut self.metal.attachments,
        }
    }

    /// Ends what is due: attaching gets its addresses, detaching goes.
    pub(crate) fn end_attachment(&mut self, product: Product, at: Timestamp, id: &Id) {
        let Some(attachment) = self.attachments(product).get(id).cloned() else {
            return;
        };
        if attachment.status == AttachmentStatus::Detaching {
            self.attachments_mut(product).remove(at, id);
            return;
        }
        let ips = if attachment.fails {
            Vec::new()
        } else {
            let mac = match product {
                Product::Apple => None,
                Product::Metal => self.metal.servers.get(&attachment.server_id),
            };
            let nic = Nic {
                id: attachment.id,
                mac: mac.map(|server| server.mac.clone()),
                server_id: attachment.server_id,
                private_network_id: attachment.private_network_id,
                kind: product.nic_kind(),
            };
            self.allocate_addresses(at, &nic)
        };
        self.attachments_mut(product).change(at, id, |attachment| {
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

    pub(crate) fn detach(&mut self, product: Product, now: Timestamp, id: &Id) {
        self.release_addresses(now, id);
        let until = Some(after(now, self.settings.delays.detach));
        self.attachments_mut(product).change(now, id, |attachment| {
            attachment.status = AttachmentStatus::Detaching;
            attachment.until = until;
            attachment.updated_at = now;
            attachment.ips.clear();
        });
    }

    /// The server is gone.
    pub(crate) fn drop_attachments(&mut self, product: Product, now: Timestamp, server: &Id) {
        for id in self.attachments(product).ids_of(server) {
            self.release_addresses(now, &id);
            self.attachments_mut(product).remove(now, &id);
        }
    }

    fn attach(&mut self, product: Product, caller: &Caller, server: &Id, network: &Id) -> Result<Attachment, Refusal> {
        let now = caller.now;
        let (zone, project_id) = match product {
            Product::Apple => self.attachable_mini(server)?,
            Product::Metal => self.attachable_metal(server)?,
        };
        self.reachable_network(caller, &zone, network)?;
        let vlan = self.free_vlan(product, server, network)?;
        let takes = self.settings.delays.attach;
        let (course, early) = match product {
            Product::Apple => (Course::smooth(now, takes), false),
            Product::Metal => (
                self.course(now, Stage::Attachment, server, takes),
                !self.networked(server),
            ),
        };
        let attachment = Attachment {
            id: self.dice.id(),
            project_id,
            server_id: server.clone(),
            private_network_id: network.clone(),
            zone,
            vlan,
            status: AttachmentStatus::Attaching,
            early,
            fails: course.wrong.is_some(),
            until: course.at,
            created_at: now,
            updated_at: now,
            ips: Vec::new(),
        };
        self.attachments_mut(product).put(now, attachment.clone());
        Ok(attachment)
    }

    /// The VLAN of one more network, if the server may have one more and this is another.
    fn free_vlan(&mut self, product: Product, server: &Id, network: &Id) -> Result<u32, Refusal> {
        let present = self.attachments(product);
        if let Some(attachment) = present.on(server, network) {
            return Err(Refusal::Exists {
                resource: "server_private_network",
                id: attachment.id.clone(),
                help: "the server is on this private network already".to_owned(),
            });
        }
        let taken: Vec<u32> = present.of(server).map(|attachment| attachment.vlan).collect();
        if taken.len() >= MAX_NETWORKS {
            return Err(Refusal::Quota {
                resource: "server_private_network",
                quota: 8,
                current: 8,
            });
        }
        loop {
            let vlan = 2 + self.dice.below(4093);
            if !taken.contains(&vlan) {
                return Ok(vlan);
            }
        }
    }
}
