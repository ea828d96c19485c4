//! The Macs and cache nodes in `russet status`.

use super::{euros, or_dash};
use crate::status::document::{Fleet, Group, Mac, Server};
use crate::table::{Cell, Colour, Table, Tone};

pub(super) fn render(fleet: &Fleet, colour: Colour) -> String {
    let mut out = String::new();
    if !fleet.groups.is_empty() {
        let mut table = Table::new(&["MACHINEDEPLOYMENT", "KIND", "WANTED", "READY", "AVAILABLE"]);
        for group in &fleet.groups {
            table.row(group_row(group));
        }
        out.push('\n');
        out.push_str(&table.render(colour));
    }
    if !fleet.macs.is_empty() {
        let mut table = Table::new(&["MAC", "FLEET", "PHASE", "HOST", "ADDRESS", "WAITS FOR"]);
        for mac in &fleet.macs {
            table.row(mac_row(mac));
        }
        out.push('\n');
        out.push_str(&table.render(colour));
    }
    if !fleet.servers.is_empty() {
        let mut table = Table::new(&[
            "CACHE NODE",
            "KIND",
            "ZONE",
            "PHASE",
            "NODE",
            "PRIVATE ADDRESS",
            "PER HOUR",
            "WAITS FOR",
        ]);
        for server in &fleet.servers {
            table.row(server_row(server));
        }
        out.push('\n');
        out.push_str(&table.render(colour));
    }
    out
}

fn group_row(group: &Group) -> [Cell; 5] {
    let tone = if group.available >= group.wanted {
        Tone::Good
    } else {
        Tone::Warn
    };
    [
        group.name.clone().into(),
        group.kind.as_str().into(),
        group.wanted.to_string().into(),
        group.ready.to_string().into(),
        Cell::new(group.available.to_string(), tone),
    ]
}

fn phase(phase: &str) -> Cell {
    let tone = match phase {
        "Ready" => Tone::Good,
        "Failed" => Tone::Bad,
        _ => Tone::Warn,
    };
    Cell::new(phase, tone)
}

fn server_row(server: &Server) -> [Cell; 8] {
    let node = match (server.node_ready, server.synthetic) {
        (true, false) => Cell::new("Ready", Tone::Good),
        (true, true) => Cell::new("Ready, synthetic", Tone::Warn),
        (false, _) => Cell::new("not ready", Tone::Warn),
    };
    [
        server.name.clone().into(),
        server.kind.as_str().into(),
        or_dash(server.zone.clone()),
        phase(&server.phase),
        node,
        or_dash(server.private_address.clone()),
        or_dash(server.per_hour_micro_eur.map(euros)),
        or_dash(server.message.clone().filter(|_| !server.ready)),
    ]
}

fn mac_row(mac: &Mac) -> [Cell; 6] {
    [
        mac.name.clone().into(),
        or_dash(mac.fleet.clone()),
        phase(&mac.phase),
        or_dash(mac.server_id.as_deref().map(short)),
        or_dash(mac.address.clone()),
        or_dash(mac.message.clone().filter(|_| !mac.ready)),
    ]
}

/// The first block of a uuid tells hosts apart well enough.
fn short(id: &str) -> String {
    id.split('-').next().unwrap_or(id).to_owned()
}
