//! PATCH: names, terms and switches of a server.

use super::orders::{at_rest, shown};
use super::server::{Commitment, VpcStatus};
use crate::account::Action;
use crate::bill::{MONTH, Plan};
use crate::call::{Answer, Call};
use crate::ids::{Id, Zone};
use crate::refusal::{Reason, Refusal};
use crate::strict::{Fields, Query};
use crate::world::{Caller, World};
use jiff::Timestamp;
use serde_json::Value;

/// What a PATCH asks for.
struct Changes {
    name: Option<String>,
    schedule_deletion: Option<bool>,
    enable_vpc: Option<bool>,
    commitment: Option<Commitment>,
    bandwidth: Option<u64>,
}

impl Changes {
    fn read(body: Value) -> Result<Self, Refusal> {
        let mut fields = Fields::new(body)?;
        let name = fields.text("name");
        if name.as_deref() == Some("") {
            fields.refuse("name", Reason::Constraint, "cannot be empty");
        }
        let commitment = match fields.value("commitment_type") {
            None => None,
            Some(value) => {
                let mut inner = Fields::new(value)?;
                let word = inner.choice("commitment_type", &Commitment::WORDS);
                inner.finish()?;
                word.map(Commitment::from_word)
            }
        };
        let changes = Self {
            name,
            schedule_deletion: fields.flag("schedule_deletion"),
            enable_vpc: fields.flag("enable_vpc"),
            commitment,
            bandwidth: fields.number("public_bandwidth_bps"),
        };
        fields.not_emulated("applied_runner_configurations");
        fields.finish()?;
        Ok(changes)
    }
}

/// PATCH `/servers/{id}`. Names are not unique and the last writer wins: there is no precondition to send along.
pub(super) fn apply(world: &mut World, caller: &Caller, zone: &Zone, id: &Id, call: &Call) -> Answer {
    Query::new(&call.query).finish()?;
    let changes = Changes::read(call.json()?)?;
    let server = world.writable_server(caller, zone, id, Action::Update)?;
    let vpc = match (changes.enable_vpc, server.vpc_status) {
        (Some(true), VpcStatus::VpcDisabled) => Some(VpcStatus::VpcEnabled),
        (Some(false), VpcStatus::VpcEnabled) => Some(VpcStatus::VpcDisabled),
        (Some(_), VpcStatus::VpcUpdating) => {
            return Err(Refusal::Transient {
                resource: "server",
                id: id.clone(),
                state: "vpc_updating".to_owned(),
            });
        }
        _ => None,
    };
    if vpc.is_some() {
        at_rest(server)?;
    }
    let offer = world.apple.catalog.offer(zone, &server.server_type);
    let unsupported = |bandwidth: &u64| offer.is_some_and(|offer| !offer.bandwidths.contains(bandwidth));
    if changes.bandwidth.as_ref().is_some_and(unsupported) {
        let help = "not supported by this server type";
        return Err(Refusal::argument("public_bandwidth_bps", Reason::Constraint, help));
    }
    if changes.commitment == Some(Commitment::Duration24h) && server.commitment == Commitment::RenewedMonthly {
        return Err(Refusal::Precondition {
            precondition: "unknown_precondition",
            help: "a monthly commitment cannot become an hourly one; cancel it with none".to_owned(),
        });
    }
    if let Some(commitment) = changes.commitment {
        commit(world, caller.now, id, commitment);
    }
    world.apple.servers.change(caller.now, id, |server| {
        if let Some(name) = changes.name {
            server.name = name;
        }
        if let Some(schedule) = changes.schedule_deletion {
            server.deletion_scheduled = schedule;
        }
        if let Some(bandwidth) = changes.bandwidth {
            server.bandwidth = bandwidth;
        }
        server.updated_at = caller.now;
    });
    if let Some(to) = vpc {
        world.toggle_vpc(caller.now, id, to);
    }
    shown(world, caller, id)
}

/// Changes how a server is paid.
fn commit(world: &mut World, now: Timestamp, id: &Id, wanted: Commitment) {
    let Some(server) = world.apple.servers.get(id) else {
        return;
    };
    let monthly = server.commitment == Commitment::RenewedMonthly;
    let price = world
        .apple
        .catalog
        .offer(&server.zone, &server.server_type)
        .map(|offer| offer.monthly);
    world.apple.servers.change(now, id, |server| match wanted {
        Commitment::RenewedMonthly if monthly => server.cancelled = false,
        Commitment::RenewedMonthly => {
            server.commitment = Commitment::RenewedMonthly;
            server.deletable_at = now.checked_add(MONTH).unwrap_or(Timestamp::MAX);
        }
        Commitment::None if monthly => server.cancelled = true,
        Commitment::None | Commitment::Duration24h => {}
    });
    if let (Commitment::RenewedMonthly, false, Some(price)) = (wanted, monthly, price) {
        world.bill.switch(id, now, Plan::Monthly { price });
    }
}
