//! Private NICs: `syncing` without a MAC, then `available`, then rows in IPAM, where the MAC is upper case.

use super::date;
use crate::account::Action;
use crate::call::{Answer, Call, Reply, created};
use crate::ids::{Id, Zone};
use crate::ipam;
use crate::linux::{BoxOutcome, Stage};
use crate::page::Page;
use crate::refusal::{Reason, Refusal};
use crate::strict::{Fields, Query};
use crate::table::rows;
use crate::world::{Caller, World};
use jiff::Timestamp;
use russet_sim_kit::clock::after;
use serde_json::{Value, json};

/// No Instance has more.
const MAX_NICS: usize = 8;

/// Where a NIC stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NicState {
    Syncing,
    Available,
    SyncingError,
    /// Deleted, and not gone yet.
    Leaving,
}

/// An Instance on a private network.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Nic {
    pub(crate) id: Id,
    pub(crate) server_id: Id,
    pub(crate) private_network_id: Id,
    pub(crate) zone: Zone,
    /// Fixed from the start, shown once it is known to the network.
    pub(crate) mac: String,
    pub(crate) tags: Vec<String>,
    pub(crate) state: NicState,
    /// What the synchronisation will come to.
    pub(crate) fails: bool,
    pub(crate) until: Option<Timestamp>,
    pub(crate) created_at: Timestamp,
    pub(crate) ips: Vec<Id>,
}

rows!(Nic);

impl Nic {
    /// Whether nothing will happen to it by itself, although something should.
    pub(crate) fn stuck(&self) -> bool {
        self.until.is_none() && matches!(self.state, NicState::Syncing | NicState::Leaving)
    }

    pub(super) fn wire(&self) -> Value {
        let (state, mac) = match self.state {
            NicState::Syncing => ("syncing", ""),
            NicState::Available => ("available", self.mac.as_str()),
            NicState::SyncingError => ("syncing_error", ""),
            NicState::Leaving => ("syncing", self.mac.as_str()),
        };
        json!({
            "id": self.id,
            "server_id": self.server_id,
            "private_network_id": self.private_network_id,
            "mac_address": mac,
            "state": state,
            "tags": self.tags,
            "creation_date": date(self.created_at),
            "zone": self.zone,
            "ipam_ip_ids": self.ips,
        })
    }
}

impl World {
    /// Ends what is due: a new NIC gets its addresses, a deleted one goes.
    pub(super) fn end_nic(&mut self, at: Timestamp, id: &Id) {
        let Some(nic) = self.instance.nics.get(id).cloned() else {
            return;
        };
        if nic.state == NicState::Leaving {
            self.release_addresses(at, id);
            self.instance.nics.remove(at, id);
            return;
        }
        let ips = if nic.fails {
            Vec::new()
        } else {
            let nic = ipam::Nic {
                id: nic.id,
                server_id: nic.server_id,
                private_network_id: nic.private_network_id,
                kind: "instance_private_nic",
                mac: Some(nic.mac),
            };
            self.allocate_addresses(at, &nic)
        };
        self.instance.nics.change(at, id, |nic| {
            nic.state = if nic.fails {
                NicState::SyncingError
            } else {
                NicState::Available
            };
            nic.until = None;
            nic.ips = ips;
        });
    }

    fn leave_network(&mut self, now: Timestamp, nic: &Id) {
        let until = Some(after(now, self.settings.delays.nic_release));
        self.instance.nics.change(now, nic, |nic| {
            nic.state = NicState::Leaving;
            nic.until = until;
        });
    }

    /// The server is gone; its NICs outlive it a moment.
    pub(super) fn leave_networks(&mut self, now: Timestamp, server: &Id) {
        let nics = self.instance.nics.iter().filter(|nic| nic.server_id == *server);
        for nic in nics.map(|nic| nic.id.clone()).collect::<Vec<_>>() {
            self.leave_network(now, &nic);
        }
    }

    fn nic_of(&self, server: &Id, id: &Id) -> Result<&Nic, Refusal> {
        let found = self.instance.nics.get(id).filter(|nic| nic.server_id == *server);
        found.ok_or_else(|| Refusal::not_found("instance_private_nic", id.as_str()))
    }

    /// A private network a server of this zone can be on.
    pub(crate) fn reachable_network(&self, caller: &Caller, zone: &Zone, network: &Id) -> Result<(), Refusal> {
        let found = self
            .vpc
            .networks
            .get(network)
            .filter(|found| found.region == zone.region());
        let project = found.and_then(|found| self.accounts.projects.get(&found.project_id));
        if project.is_some_and(|project| caller.key.sees(project)) {
            Ok(())
        } else {
            Err(Refusal::not_found("private_network", network.as_str()))
        }
    }
}

/// GET `/servers/{id}/private_nics`
pub(super) fn list(world: &World, caller: &Caller, zone: &Zone, server: &Id, call: &Call) -> Answer {
    let mut query = Query::new(&call.query);
    let tags = super::lists::commas(&mut query, "tags");
    let page = Page::read_per_page(&mut query, world.settings.page_cap);
    query.finish()?;
    world.visible_instance(caller, zone, server, Action::Read)?;
    let mut found = world.instance.nics.as_of(world.lagging(caller.now));
    found.retain(|nic| nic.server_id == *server && tags.iter().all(|tag| nic.tags.contains(tag)));
    found.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    Ok(page.reply_counted("private_nics", &found, |nic| nic.wire()))
}

/// GET `/servers/{id}/private_nics/{nic}`
pub(super) fn get(world: &World, caller: &Caller, zone: &Zone, server: &Id, id: &Id) -> Answer {
    world.visible_instance(caller, zone, server, Action::Read)?;
    let nic = world.nic_of(server, id)?;
    Ok(Reply::ok(json!({"private_nic": nic.wire()})))
}

/// POST `/servers/{id}/private_nics`
pub(super) fn create(world: &mut World, caller: &Caller, zone: &Zone, server: &Id, call: &Call) -> Answer {
    let mut fields = Fields::new(call.json()?)?;
    let network = fields.id("private_network_id");
    if network.is_none() {
        fields.refuse("private_network_id", Reason::Required, "required key not provided");
    }
    let tags = fields.texts("tags");
    for name in ["ip_ids", "ipam_ip_ids"] {
        if !fields.ids(name).is_empty() {
            fields.refuse(name, Reason::Constraint, "no such booked address");
        }
    }
    fields.finish()?;
    world.writable_instance(caller, zone, server, Action::Update)?;
    let network = network
        .ok_or_else(|| Refusal::argument("private_network_id", Reason::Required, "required key not provided"))?;
    world.reachable_network(caller, zone, &network)?;
    let present = world.instance.nics.iter().filter(|nic| nic.server_id == *server);
    let present: Vec<&Nic> = present.collect();
    if let Some(nic) = present.iter().find(|nic| nic.private_network_id == network) {
        return Err(Refusal::Exists {
            resource: "instance_private_nic",
            id: nic.id.clone(),
            help: "the server is on this private network already".to_owned(),
        });
    }
    if present.len() >= MAX_NICS {
        return Err(Refusal::Quota {
            resource: "instance_private_nic",
            quota: 8,
            current: 8,
        });
    }
    let id = world.dice.id();
    let [a, b, c, ..] = world.dice.bytes();
    let takes = world.settings.delays.nic;
    let course = world.course(caller.now, Stage::Nic, server, takes);
    let nic = Nic {
        id: id.clone(),
        server_id: server.clone(),
        private_network_id: network,
        zone: zone.clone(),
        mac: format!("02:00:00:{a:02x}:{b:02x}:{c:02x}"),
        tags,
        state: NicState::Syncing,
        fails: course.wrong == Some(BoxOutcome::Error),
        until: course.at,
        created_at: caller.now,
        ips: Vec::new(),
    };
    let shown = nic.wire();
    world.instance.nics.put(caller.now, nic);
    Ok(created(call, id.as_str(), json!({"private_nic": shown})))
}

/// PATCH `/servers/{id}/private_nics/{nic}`
pub(super) fn update(world: &mut World, caller: &Caller, zone: &Zone, server: &Id, id: &Id, call: &Call) -> Answer {
    let mut fields = Fields::new(call.json()?)?;
    let tags = fields.some_texts("tags");
    fields.finish()?;
    world.writable_instance(caller, zone, server, Action::Update)?;
    world.nic_of(server, id)?;
    let shown = world.instance.nics.change(caller.now, id, |nic| {
        if let Some(tags) = tags {
            nic.tags = tags;
        }
        nic.wire()
    });
    Ok(Reply::ok(json!({"private_nic": shown})))
}

/// DELETE `/servers/{id}/private_nics/{nic}`: it is still there for a moment.
pub(super) fn delete(world: &mut World, caller: &Caller, zone: &Zone, server: &Id, id: &Id) -> Answer {
    world.writable_instance(caller, zone, server, Action::Update)?;
    if world.nic_of(server, id)?.state == NicState::Leaving {
        return Err(Refusal::Transient {
            resource: "instance_private_nic",
            id: id.clone(),
            state: "syncing".to_owned(),
        });
    }
    world.leave_network(caller.now, id);
    Ok(Reply::no_content())
}
