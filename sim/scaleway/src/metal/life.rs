//! The life of an Elastic Metal server.
//!
//! ```text
//!   order ─▶ ordered ─▶ delivering ─▶ ready ──▶ starting, stopping, stopped ──▶ ready
//!                           │           │
//!            out_of_stock ◀─┴─▶ error   └─▶ deleting ─▶ gone
//!
//!   install: to_install ─▶ installing ─▶ completed, or error          options: enabling ─▶ enable, or error
//! ```
//!
//! Status and installation go their own ways: a server is `ready` while it is being installed.

use super::schema;
use super::server::{InstallStatus, Installation, OptionStatus, Pending, Server, Status, Then};
use crate::account::Action;
use crate::attachment::Product;
use crate::boxes::{BoxKind, LinuxBox, Power, PrivateLeg};
use crate::call::{Answer, Call};
use crate::host::HostKey;
use crate::ids::{Id, Zone};
use crate::linux::{BoxOutcome, Stage};
use crate::refusal::Refusal;
use crate::strict::{Fields, Query};
use crate::world::{Caller, World};
use jiff::Timestamp;

/// Something that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    Change,
    Install,
    Option,
    Attachment,
}

/// POST `/servers/{id}/reboot`, `/start` and `/stop`
pub(super) fn power(world: &mut World, caller: &Caller, zone: &Zone, id: &Id, action: &str, call: &Call) -> Answer {
    Query::new(&call.query).finish()?;
    let mut fields = Fields::new(call.json()?)?;
    if action != "stop" {
        // Rescue is another system, which nobody emulates.
        fields.choice("boot_type", &["normal", "unknown_boot_type"]);
        fields.ids("ssh_key_ids");
    }
    fields.finish()?;
    let server = world.writable_metal(caller, zone, id, Action::Update)?;
    server.at_rest()?;
    let fits = match action {
        "start" => server.status == Status::Stopped,
        _ => server.status == Status::Ready,
    };
    if !fits {
        return Err(Refusal::Precondition {
            precondition: "resource_not_usable",
            help: format!("the server is {}", server.status.as_str()),
        });
    }
    let (status, then) = match action {
        "stop" => (Status::Stopping, Then::Stopped),
        _ => (Status::Starting, Then::Rebooted),
    };
    let course = world.course(caller.now, Stage::Power, id, world.settings.delays.metal_power);
    world.metal.servers.change(caller.now, id, |server| {
        server.status = status;
        server.pending = Some(Pending {
            then: if course.wrong.is_some() {
                Then::FailedPower
            } else {
                then
            },
            at: course.at,
        });
        server.updated_at = caller.now;
    });
    world.happened(caller.now, id, action);
    world.shown_metal(id)
}

impl World {
    /// What is due among Elastic Metal servers, the earliest first.
    pub(crate) fn next_metal_due(&self) -> Option<(Timestamp, Due, Id)> {
        let servers = self.metal.servers.iter().flat_map(|server| {
            let change = server
                .pending
                .and_then(|pending| pending.at)
                .map(|at| (at, Due::Change));
            let install = server
                .installing
                .and_then(|pending| pending.at)
                .map(|at| (at, Due::Install));
            let option = server.options.iter().filter_map(|option| option.until).min();
            let option = option.map(|at| (at, Due::Option));
            let all = [change, install, option].into_iter().flatten();
            all.map(|(at, due)| (at, due, server.id.clone()))
        });
        let attachments = self.metal.attachments.iter();
        let attachments = attachments.filter_map(|one| Some((one.until?, Due::Attachment, one.id.clone())));
        servers.chain(attachments).min()
    }

    pub(crate) fn settle_metals(&mut self, now: Timestamp) {
        while let Some((at, due, id)) = self.next_metal_due().filter(|(at, ..)| *at <= now) {
            self.stirred = true;
            match due {
                Due::Change => self.end_metal(at, &id),
                Due::Install => self.step_install(at, &id),
                Due::Option => self.end_option(at, &id),
                Due::Attachment => self.end_attachment(Product::Metal, at, &id),
            }
        }
    }

    fn end_metal(&mut self, at: Timestamp, id: &Id) {
        let then = self.metal.servers.change(at, id, |server| {
            server.updated_at = at;
            server.pending.take().map(|pending| pending.then)
        });
        let Some(then) = then.flatten() else { return };
        let status = match then {
            Then::Deliver => return self.begin_delivery(at, id),
            Then::Delivered => return self.deliver(at, id),
            Then::Gone => return self.remove_metal(at, id),
            Then::OutOfStock => Status::OutOfStock,
            Then::FailedDelivery | Then::FailedPower => Status::Error,
            Then::Rebooted => Status::Ready,
            Then::Stopped => Status::Stopped,
        };
        self.metal.servers.change(at, id, |server| {
            server.status = status;
            if then == Then::Rebooted {
                server.boots = server.boots.saturating_add(1);
            }
        });
        if status == Status::OutOfStock
            && let Some(server) = self.metal.servers.get(id).cloned()
        {
            self.restock_metal(&server);
        }
    }

    fn begin_delivery(&mut self, at: Timestamp, id: &Id) {
        let course = self.course(at, Stage::Delivery, id, self.settings.delays.metal_delivery);
        self.metal.servers.change(at, id, |server| {
            server.status = Status::Delivering;
            server.pending = Some(Pending {
                then: match course.wrong {
                    None => Then::Delivered,
                    Some(BoxOutcome::OutOfStock) => Then::OutOfStock,
                    Some(_) => Then::FailedDelivery,
                },
                at: course.at,
            });
        });
    }

    /// It is there, and paid for from now on; what was ordered with it begins.
    pub(crate) fn deliver(&mut self, at: Timestamp, id: &Id) {
        let Some(server) = self.metal.servers.get(id).cloned() else {
            return;
        };
        let address = server.address.or_else(|| self.public_address());
        self.metal.servers.change(at, id, |server| {
            server.status = Status::Ready;
            server.address = address;
            server.pending = None;
        });
        if let Some(offer) = self.metal.catalog.offer(&server.zone, &server.offer) {
            let plan = offer.plan();
            self.bill.switch(id, at, plan);
        }
        self.happened(at, id, "deliver");
        for option in &server.options {
            self.begin_option(at, id, &option.id);
        }
        if server.install.is_some() {
            self.begin_install(at, id);
        }
    }

    /// Delivers a server at once, installed with the keys its project has.
    pub(crate) fn deliver_installed(&mut self, at: Timestamp, id: &Id, os: Id, hostname: String) {
        let project = self.metal.servers.get(id).map(|server| server.project_id.clone());
        let keys = self.iam.ssh_keys.iter();
        let keys = keys.filter(|key| Some(&key.project_id) == project.as_ref() && !key.disabled);
        let (ids, lines): (Vec<Id>, Vec<String>) = keys.map(|key| (key.id.clone(), key.public_key.clone())).unzip();
        let (user, offer) = {
            let catalog = &self.metal.catalog;
            let server = self.metal.servers.get(id);
            let offer = server.and_then(|server| catalog.offer(&server.zone, &server.offer));
            (catalog.os(&os).map(|os| os.user.clone()), offer.cloned())
        };
        let install = Installation {
            os,
            hostname,
            user: user.unwrap_or_default(),
            ssh_key_ids: ids,
            schema: offer.map(|offer| super::schema::usual(&offer)).unwrap_or_default(),
            status: InstallStatus::Completed,
            authorized_keys: lines,
            host_key: HostKey::new(self.dice.bytes()),
        };
        self.deliver(at, id);
        self.metal.servers.change(at, id, |server| {
            server.install = Some(install);
            server.generation = 1;
            server.boots = 1;
            for option in &mut server.options {
                option.status = OptionStatus::Enable;
                option.until = None;
            }
        });
    }

    /// Puts a server into a state by force.
    pub(crate) fn force_metal(&mut self, now: Timestamp, id: &Id, status: Status) {
        self.metal.servers.change(now, id, |server| {
            server.status = status;
            server.pending = None;
            server.updated_at = now;
        });
    }

    /// What is stuck ends well, now.
    pub(crate) fn unstick_metal(&mut self, now: Timestamp, id: &Id) {
        self.metal.servers.change(now, id, |server| {
            if let Some(pending) = &mut server.pending {
                pending.at = Some(now);
            }
            if let Some(pending) = &mut server.installing {
                pending.at = Some(now);
            }
            let busy = |status| matches!(status, OptionStatus::Enabling | OptionStatus::Disabling);
            let delivered = !matches!(server.status, Status::Ordered | Status::Delivering);
            for option in server
                .options
                .iter_mut()
                .filter(|option| delivered && busy(option.status))
            {
                option.until = Some(now);
            }
        });
        self.unstick_metal_attachments(now, id);
    }

    /// The machines behind Elastic Metal.
    pub(crate) fn metal_boxes(&self) -> Vec<LinuxBox> {
        self.metal
            .servers
            .iter()
            .filter_map(|server| self.metal_box(server))
            .collect()
    }

    /// A machine without a system is no machine to anybody.
    fn metal_box(&self, server: &Server) -> Option<LinuxBox> {
        let install = server.install.as_ref()?;
        let catalog = &self.metal.catalog;
        let on = server.status == Status::Ready && install.status == InstallStatus::Completed;
        let lit = self.metal.attachments.of(&server.id).find(|one| self.lit(one));
        let private = lit.and_then(|one| {
            Some(PrivateLeg {
                private_network_id: one.private_network_id.clone(),
                address: self.private_v4(&one.id)?,
                mac: server.mac.clone(),
                vlan: Some(one.vlan),
            })
        });
        let os = catalog.os(&install.os);
        let offer = catalog.offer(&server.zone, &server.offer);
        Some(LinuxBox {
            server_id: server.id.clone(),
            kind: BoxKind::Metal,
            name: server.name.clone(),
            zone: server.zone.clone(),
            commercial_type: offer.map(|offer| offer.name.clone()).unwrap_or_default(),
            generation: server.generation,
            boots: server.boots,
            power: if on { Power::On } else { Power::Off },
            public_ip: server.address,
            private,
            user_data: server.user_data.clone(),
            authorized_keys: install.authorized_keys.clone(),
            hostname: install.hostname.clone(),
            os: os.map(|os| os.label.clone()).unwrap_or_default(),
            filesystems: schema::filesystems(&install.schema),
            ssh_user: install.user.clone(),
            ssh_port: self.settings.linux_ssh_port,
            host_key: install.host_key.clone(),
        })
    }
}
