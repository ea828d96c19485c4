//! The life of an Instance.
//!
//! ```text
//!               poweron                     reboot
//!   stopped ───────────▶ starting ──▶ running ───▶ starting
//!      ▲  ▲                 │           │ │ │
//!      │  └── did not boot ─┘           │ │ └─ stop_in_place ─▶ stopping ─▶ stopped in place
//!      └──────── stopping ◀── poweroff ─┘ └─── terminate ─────▶ stopping ─▶ gone, with its local volumes
//! ```
//!
//! DELETE works only from `stopped`, poweroff and terminate only from where there is something to stop. The dynamic
//! address comes with `running` and goes with `stopping`; the next one is another.

use super::nics::NicState;
use super::orders::{LocalVolumes, protected, transient};
use super::server::{DynamicIp, Pending, Server, State, Then};
use super::{catalog, date};
use crate::account::Action;
use crate::bill::{Line, Plan, Stretch};
use crate::boxes::{BoxKind, LinuxBox, Power, PrivateLeg};
use crate::call::{Answer, Call, Reply};
use crate::ids::{Id, Zone};
use crate::linux::{BoxOutcome, Stage};
use crate::refusal::Refusal;
use crate::strict::{Fields, Query};
use crate::world::{Caller, World};
use jiff::Timestamp;
use serde_json::{Value, json};

const ACTIONS: [&str; 6] = ["poweron", "poweroff", "terminate", "reboot", "stop_in_place", "backup"];

/// POST `/servers/{id}/action`
pub(super) fn act(world: &mut World, caller: &Caller, zone: &Zone, id: &Id, call: &Call) -> Answer {
    Query::new(&call.query).finish()?;
    let mut fields = Fields::new(call.json()?)?;
    let action = fields.choice("action", &ACTIONS).unwrap_or_default();
    if action.is_empty() {
        fields.refuse("action", crate::refusal::Reason::Required, "required key not provided");
    }
    for missing in ["name", "volumes", "disable_ipv6"] {
        fields.not_emulated(missing);
    }
    fields.finish()?;
    let server = world.writable_instance(caller, zone, id, Action::Update)?;
    if action == "backup" {
        return Err(Refusal::NotEmulated("making an image of a server".to_owned()));
    }
    if matches!(server.state, State::Starting | State::Stopping) {
        return Err(transient(server));
    }
    if !server.state.actions().contains(&action) {
        let help = if action == "poweron" {
            "server should be stopped"
        } else {
            "server should be running"
        };
        return Err(Refusal::Precondition {
            precondition: "resource_not_usable",
            help: help.to_owned(),
        });
    }
    if action == "terminate" && server.protected {
        return Err(protected());
    }
    match action {
        "poweron" => world.power_on(caller.now, id)?,
        "reboot" => world.begin_instance(caller.now, id, Stage::Boot, State::Starting, Then::Running),
        "poweroff" => world.begin_instance(caller.now, id, Stage::Stop, State::Stopping, Then::Stopped),
        "stop_in_place" => world.begin_instance(caller.now, id, Stage::Stop, State::Stopping, Then::StoppedInPlace),
        _ => world.begin_instance(caller.now, id, Stage::Stop, State::Stopping, Then::Gone),
    }
    Ok(Reply::json(
        http::StatusCode::ACCEPTED,
        json!({"task": task(world, caller.now, zone, id, action)}),
    ))
}

fn task(world: &mut World, now: Timestamp, zone: &Zone, id: &Id, action: &str) -> Value {
    json!({
        "id": world.dice.id(),
        "description": format!("server_{action}"),
        "status": "pending",
        "href_from": format!("/servers/{id}/action"),
        "href_result": format!("/servers/{id}"),
        "started_at": date(now),
        "terminated_at": null,
        "progress": 0,
        "zone": zone,
    })
}

impl World {
    /// Finds a place for a stopped server and boots it.
    pub(crate) fn power_on(&mut self, now: Timestamp, id: &Id) -> Result<(), Refusal> {
        let Some(server) = self.instance.servers.get(id).cloned() else {
            return Err(Refusal::not_found("instance_server", id.as_str()));
        };
        if server.state == State::Stopped {
            let catalog = &mut self.instance.catalog;
            let Some(offered) = catalog.commercial_type_mut(&server.zone, &server.commercial_type) else {
                return Err(Refusal::OutOfStock {
                    resource: server.commercial_type,
                });
            };
            let Some(left) = offered.stock.checked_sub(1) else {
                return Err(Refusal::OutOfStock {
                    resource: server.commercial_type,
                });
            };
            offered.stock = left;
            let plan = Plan::Hourly {
                price: offered.hourly,
                minimum_hours: 1,
            };
            self.bill.switch(id, now, plan);
        }
        self.begin_instance(now, id, Stage::Boot, State::Starting, Then::Running);
        Ok(())
    }

    /// Puts an Instance into a state that ends by itself, unless fate decided otherwise.
    fn begin_instance(&mut self, now: Timestamp, id: &Id, change: Stage, state: State, then: Then) {
        let takes = match change {
            Stage::Boot => self.settings.delays.instance_boot,
            _ => self.settings.delays.instance_stop,
        };
        let course = self.course(now, change, id, takes);
        let then = match (course.wrong, change) {
            (Some(BoxOutcome::Error | BoxOutcome::OutOfStock), Stage::Boot) => Then::Failed,
            _ => then,
        };
        self.instance.servers.change(now, id, |server| {
            server.state = state;
            server.state_detail = match state {
                State::Starting => "booting".to_owned(),
                _ => String::new(),
            };
            server.pending = Some(Pending { then, at: course.at });
            server.updated_at = now;
        });
        if state == State::Stopping {
            self.dynamic_ip(now, id);
        }
    }

    /// What is due among Instances and their NICs, the earliest first.
    pub(crate) fn next_instance_due(&self) -> Option<(Timestamp, bool, Id)> {
        let servers = self.instance.servers.iter().filter_map(|server| {
            let at = server.pending?.at?;
            Some((at, false, server.id.clone()))
        });
        let nics = self.instance.nics.iter();
        let nics = nics.filter_map(|nic| Some((nic.until?, true, nic.id.clone())));
        servers.chain(nics).min()
    }

    pub(crate) fn settle_instances(&mut self, now: Timestamp) {
        while let Some((at, nic, id)) = self.next_instance_due().filter(|(at, ..)| *at <= now) {
            self.stirred = true;
            if nic {
                self.end_nic(at, &id);
            } else {
                self.end_instance(at, &id);
            }
        }
    }

    fn end_instance(&mut self, at: Timestamp, id: &Id) {
        let then = self.instance.servers.change(at, id, |server| {
            server.updated_at = at;
            server.state_detail.clear();
            server.pending.take().map(|pending| pending.then)
        });
        match then.flatten() {
            None => {}
            Some(Then::Running) => self.run(at, id),
            Some(Then::StoppedInPlace) => {
                self.instance
                    .servers
                    .change(at, id, |server| server.state = State::StoppedInPlace);
            }
            Some(Then::Stopped) => self.unplace(at, id),
            Some(Then::Failed) => {
                self.unplace(at, id);
                self.instance.servers.change(at, id, |server| {
                    "the server failed to boot".clone_into(&mut server.state_detail);
                });
            }
            Some(Then::Gone) => self.remove_instance(at, id, LocalVolumes::GoToo),
        }
    }

    /// It runs, with the keys the project has at this moment.
    pub(crate) fn run(&mut self, at: Timestamp, id: &Id) {
        let project = self.instance.servers.get(id).map(|server| server.project_id.clone());
        let keys = self.iam.ssh_keys.iter();
        let keys = keys.filter(|key| Some(&key.project_id) == project.as_ref() && !key.disabled);
        let keys: Vec<String> = keys.map(|key| key.public_key.clone()).collect();
        self.instance.servers.change(at, id, |server| {
            server.state = State::Running;
            server.boots = server.boots.saturating_add(1);
            server.authorized_keys = keys;
        });
        self.dynamic_ip(at, id);
    }

    /// It is off, and its place is somebody else's.
    pub(crate) fn unplace(&mut self, at: Timestamp, id: &Id) {
        let Some(server) = self.instance.servers.get(id) else {
            return;
        };
        if server.state == State::Stopped {
            return;
        }
        let (zone, name) = (server.zone.clone(), server.commercial_type.clone());
        if let Some(offered) = self.instance.catalog.commercial_type_mut(&zone, &name) {
            offered.stock = offered.stock.saturating_add(1);
        }
        self.bill.close(id, at);
        self.instance.servers.change(at, id, |server| {
            server.state = State::Stopped;
            server.pending = None;
        });
        self.dynamic_ip(at, id);
    }

    /// Puts an Instance into a state by force.
    pub(crate) fn force_instance(&mut self, now: Timestamp, id: &Id, state: State) {
        if state == State::Stopped {
            self.unplace(now, id);
            return;
        }
        // Whatever is not stopped has a place and is paid for.
        if self
            .instance
            .servers
            .get(id)
            .is_some_and(|server| server.state == State::Stopped)
            && self.power_on(now, id).is_err()
        {
            return;
        }
        self.instance.servers.change(now, id, |server| {
            server.state = state;
            server.pending = None;
            server.updated_at = now;
        });
        self.dynamic_ip(now, id);
    }

    /// Gives an Instance its dynamic address, or takes it away: it has one while it runs, asked for one, and has no other.
    pub(crate) fn dynamic_ip(&mut self, at: Timestamp, id: &Id) {
        let Some(server) = self.instance.servers.get(id) else {
            return;
        };
        let other = self.instance.ips.iter().any(|ip| ip.server.as_ref() == Some(id));
        let on = match server.state {
            State::Running | State::StoppedInPlace => true,
            // A reboot keeps it.
            State::Starting | State::Locked => server.dynamic_ip.is_some(),
            State::Stopping | State::Stopped => false,
        };
        let wanted = on && server.dynamic_ip_required && !other;
        match (wanted, server.dynamic_ip.clone()) {
            (true, None) => {
                let line = Line {
                    resource_id: self.dice.id(),
                    resource: "instance_ip".to_owned(),
                    commercial_type: "dynamic_ipv4".to_owned(),
                    zone: server.zone.clone(),
                    project_id: server.project_id.clone(),
                    stretches: vec![address_stretch(at)],
                };
                // With none left it runs without one.
                let Some(address) = self.public_address() else { return };
                let ip = DynamicIp {
                    id: line.resource_id.clone(),
                    address,
                };
                self.bill.open(line);
                self.instance
                    .servers
                    .change(at, id, |server| server.dynamic_ip = Some(ip));
            }
            (false, Some(ip)) => {
                self.bill.close(&ip.id, at);
                self.instance.servers.change(at, id, |server| server.dynamic_ip = None);
            }
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// The machines behind Instances.
    pub(crate) fn instance_boxes(&self) -> Vec<LinuxBox> {
        let servers = self.instance.servers.iter();
        servers.map(|server| self.instance_box(server)).collect()
    }

    fn instance_box(&self, server: &Server) -> LinuxBox {
        let mut attached = self.instance.ips.iter();
        let attached = attached.find(|ip| ip.server.as_ref() == Some(&server.id));
        let dynamic = server.dynamic_ip.as_ref().map(|ip| ip.address);
        let mut nics = self.instance.nics.iter();
        let nic = nics.find(|nic| nic.server_id == server.id && nic.state == NicState::Available);
        let private = nic.and_then(|nic| {
            Some(PrivateLeg {
                private_network_id: nic.private_network_id.clone(),
                address: self.private_v4(&nic.id)?,
                mac: nic.mac.clone(),
                vlan: None,
            })
        });
        let image = self.instance.catalog.image(&server.image);
        LinuxBox {
            server_id: server.id.clone(),
            kind: BoxKind::Instance,
            name: server.name.clone(),
            zone: server.zone.clone(),
            commercial_type: server.commercial_type.clone(),
            generation: 1,
            boots: server.boots,
            power: match server.state {
                State::Running => Power::On,
                _ => Power::Off,
            },
            public_ip: dynamic.or_else(|| attached.map(|ip| ip.address)),
            private,
            user_data: server.user_data.get("cloud-init").cloned(),
            authorized_keys: server.authorized_keys.clone(),
            hostname: server.hostname(),
            os: image.map(|image| image.label.clone()).unwrap_or_default(),
            filesystems: Vec::new(),
            ssh_user: "root".to_owned(),
            ssh_port: self.settings.linux_ssh_port,
            host_key: server.host_key.clone(),
        }
    }
}

/// An address that is paid for from now on.
pub(super) fn address_stretch(from: Timestamp) -> Stretch {
    Stretch {
        plan: Plan::Hourly {
            price: catalog::ADDRESS,
            minimum_hours: 1,
        },
        from,
        until: None,
    }
}
