//! The life of a mini, from order to deletion.
//!
//! ```text
//!            order                       reboot                vpc on or off
//!              │             ┌── rebooting ◀──┐         ┌── updating ◀──┐
//!              ▼             ▼                │         ▼               │
//!          starting ──▶  ready (delivered) ───┴─────────┴───────────────┘
//!                            ▲         │
//!   new host key and password│         │ reinstall            locked, error: by the outside world,
//!                            └── reinstalling                 from any state and back
//! ```
//!
//! States end by the clock. What is due is applied in the order of time by [`World::settle`] before anything looks at the
//! world, so what happened never depends on when somebody looked.

use super::server::{Commitment, Ending, Installation, Pending, Server, Status, VpcStatus};
use crate::attachment::Product;
use crate::bill::{MONTH, Plan};
use crate::host::{Host, HostChange, HostKey};
use crate::ids::Id;
use crate::settings::VpcToggle;
use crate::world::World;
use jiff::Timestamp;
use russet_sim_kit::clock::after;

/// What shall become of changes that begin from now on.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fate {
    /// Changes into this state.
    pub status: Status,
    /// Of this server; none means any.
    #[serde(default)]
    pub server: Option<Id>,
    /// How they end.
    pub outcome: Outcome,
    /// How many of them.
    #[serde(default = "once")]
    pub times: u32,
}

fn once() -> u32 {
    1
}

/// How a change ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It does not.
    Stuck,
    /// In `error`.
    Error,
}

/// Something that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Change,
    Vpc,
    Term,
}

impl World {
    /// Applies everything that is due at `now`, in order.
    pub(crate) fn settle(&mut self, now: Timestamp) {
        while let Some((at, due, id)) = self.next_due().filter(|(at, ..)| *at <= now) {
            match due {
                Due::Change => self.end_change(at, &id),
                Due::Vpc => self.end_vpc_toggle(at, &id),
                Due::Term => self.end_term(at, &id),
            }
        }
        self.settle_attachments(now);
        self.restock(now);
        self.settle_instances(now);
        self.settle_block(now);
        self.settle_metals(now);
    }

    /// When the next thing happens by itself.
    pub(crate) fn next_moment(&self) -> Option<Timestamp> {
        let attachments = self.apple.attachments.iter().filter_map(|attachment| attachment.until);
        let stock = self.apple.returning.iter().map(|returning| returning.at);
        self.next_due()
            .map(|(at, ..)| at)
            .into_iter()
            .chain(attachments)
            .chain(stock)
            .chain(self.next_instance_due().map(|(at, ..)| at))
            .chain(self.next_block_due().map(|(at, _)| at))
            .chain(self.next_metal_due().map(|(at, ..)| at))
            .min()
    }

    fn next_due(&self) -> Option<(Timestamp, Due, Id)> {
        let due = |server: &Server| {
            let change = server
                .pending
                .and_then(|pending| pending.at)
                .map(|at| (at, Due::Change));
            let vpc = server
                .vpc_pending
                .and_then(|pending| pending.at)
                .map(|at| (at, Due::Vpc));
            let ends = server.deletion_scheduled || server.commitment == Commitment::RenewedMonthly;
            // A server that is busy when its term ends goes when it is free again.
            let busy = server.deletion_scheduled && (server.pending.is_some() || server.status == Status::Locked);
            let term = (ends && !busy).then(|| (server.deletable_at.max(server.updated_at), Due::Term));
            [change, vpc, term].into_iter().flatten().min()
        };
        self.apple
            .servers
            .iter()
            .filter_map(|server| due(server).map(|(at, due)| (at, due, server.id.clone())))
            .min()
    }

    fn end_change(&mut self, at: Timestamp, id: &Id) {
        let ending = self.apple.servers.change(at, id, |server| {
            let ending = server.pending.take().map(|pending| pending.ending);
            server.updated_at = at;
            server.status = match ending {
                Some(Ending::Failed) => Status::Error,
                _ => Status::Ready,
            };
            server.delivered |= ending == Some(Ending::Delivered);
            ending
        });
        match ending.flatten() {
            Some(Ending::Delivered | Ending::Reinstalled) => self.announce(HostChange::Installed, id),
            Some(Ending::Rebooted) => self.announce(HostChange::Rebooted, id),
            Some(Ending::Failed) | None => {}
        }
    }

    fn end_vpc_toggle(&mut self, at: Timestamp, id: &Id) {
        self.apple.servers.change(at, id, |server| {
            if let Some(pending) = server.vpc_pending.take() {
                server.vpc_status = pending.to;
            }
            if server.status == Status::Updating {
                server.status = Status::Ready;
            }
            server.updated_at = at;
        });
    }

    /// The day a server may go, or a month is renewed.
    fn end_term(&mut self, at: Timestamp, id: &Id) {
        let Some(server) = self.apple.servers.get(id) else {
            return;
        };
        if server.deletion_scheduled {
            self.remove_server(at, id);
        } else if server.cancelled {
            let price = self
                .apple
                .catalog
                .offer(&server.zone, &server.server_type)
                .map(|offer| offer.hourly);
            self.apple.servers.change(at, id, |server| {
                server.commitment = Commitment::None;
                server.cancelled = false;
                server.updated_at = at;
            });
            if let Some(price) = price {
                let plan = Plan::Hourly {
                    price,
                    minimum_hours: 0,
                };
                self.bill.switch(id, at, plan);
            }
        } else {
            self.apple.servers.change(at, id, |server| {
                server.deletable_at = at.checked_add(MONTH).unwrap_or(Timestamp::MAX);
            });
        }
    }

    /// Puts a server into a state that ends after `takes`, unless fate decided otherwise.
    pub(crate) fn begin(
        &mut self,
        now: Timestamp,
        id: &Id,
        status: Status,
        ending: Ending,
        takes: std::time::Duration,
    ) {
        let fate = self.fate(id, status);
        self.apple.servers.change(now, id, |server| {
            server.status = status;
            server.updated_at = now;
            server.pending = Some(match fate {
                None => Pending {
                    ending,
                    at: Some(after(now, takes)),
                },
                Some(Outcome::Error) => Pending {
                    ending: Ending::Failed,
                    at: Some(after(now, takes)),
                },
                Some(Outcome::Stuck) => Pending { ending, at: None },
            });
        });
    }

    /// What was decided about the next change of a server into a state; each decision counts down.
    fn fate(&mut self, id: &Id, status: Status) -> Option<Outcome> {
        let fates = &mut self.apple.fates;
        let decided = fates
            .iter_mut()
            .find(|fate| fate.status == status && fate.server.as_ref().is_none_or(|server| server == id))?;
        let outcome = decided.outcome;
        decided.times = decided.times.saturating_sub(1);
        fates.retain(|fate| fate.times > 0);
        Some(outcome)
    }

    /// Switches the private-network feature.
    pub(crate) fn toggle_vpc(&mut self, now: Timestamp, id: &Id, to: VpcStatus) {
        let at = match self.fate(id, Status::Updating) {
            Some(_) => None,
            None => Some(after(now, self.settings.delays.vpc_toggle)),
        };
        let shown = self.settings.vpc_toggle;
        self.apple.servers.change(now, id, |server| {
            server.vpc_status = VpcStatus::VpcUpdating;
            server.vpc_pending = Some(super::server::VpcPending { to, at });
            if shown == VpcToggle::Updating && server.status == Status::Ready {
                server.status = Status::Updating;
            }
            server.updated_at = now;
        });
        if to == VpcStatus::VpcDisabled {
            self.detach_all(now, id);
        }
    }

    /// What the next installation of a server of this project brings: keys are those registered now.
    pub(crate) fn installation(&mut self, now: Timestamp, project: &Id, os: Id, generation: u32) -> Installation {
        let keys = self
            .iam
            .ssh_keys
            .iter()
            .filter(|key| key.project_id == *project && !key.disabled);
        let authorized_keys = keys.map(|key| key.public_key.clone()).collect();
        let port = 59_000 + self.dice.below(1000);
        Installation {
            generation,
            os,
            password: self.dice.password(self.settings.awkward_passwords),
            disclosed_until: after(now, self.settings.delays.disclosure),
            vnc_port: u16::try_from(port).unwrap_or(59_010),
            host_key: HostKey::new(self.dice.bytes()),
            authorized_keys,
        }
    }

    /// Takes a server out of the world: its networks, its addresses and its price go with it.
    pub(crate) fn remove_server(&mut self, at: Timestamp, id: &Id) {
        self.announce(HostChange::Gone, id);
        self.drop_attachments(Product::Apple, at, id);
        let Some(server) = self.apple.servers.remove(at, id) else {
            return;
        };
        self.bill.close(id, at);
        self.apple.gone.insert(id.clone());
        self.apple.returning.push(super::Returning {
            zone: server.zone,
            server_type: server.server_type,
            at: after(at, self.settings.delays.restock),
        });
    }

    fn restock(&mut self, now: Timestamp) {
        let (back, still_away) = std::mem::take(&mut self.apple.returning)
            .into_iter()
            .partition(|returning: &super::Returning| returning.at <= now);
        self.apple.returning = still_away;
        for returning in back {
            if let Some(offer) = self.apple.catalog.offer_mut(&returning.zone, &returning.server_type) {
                offer.stock = offer.stock.saturating_add(1);
            }
        }
    }

    /// Tells whoever emulates the machines.
    pub(crate) fn announce(&mut self, change: HostChange, id: &Id) {
        if let Some(host) = self.host(id) {
            self.announcements.push((change, host));
        }
    }

    /// The machine behind a server.
    pub(crate) fn host(&self, id: &Id) -> Option<Host> {
        let server = self.apple.servers.get(id)?;
        let installed = &server.installation;
        let os = self.apple.catalog.systems.get(&installed.os);
        Some(Host {
            server_id: server.id.clone(),
            name: server.name.clone(),
            zone: server.zone.clone(),
            server_type: server.server_type.clone(),
            address: server.address,
            ssh_port: server.ssh_port,
            username: super::server::USERNAME.to_owned(),
            password: installed.password.clone(),
            host_key: installed.host_key.clone(),
            authorized_keys: installed.authorized_keys.clone(),
            os: os.map(|os| os.name.clone()).unwrap_or_default(),
            generation: installed.generation,
        })
    }
}
