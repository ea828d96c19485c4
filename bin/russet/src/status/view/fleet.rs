//! The Macs in `russet status`.

use super::or_dash;
use crate::status::document::{Fleet, Group, Mac};
use crate::table::{Cell, Colour, Table, Tone};

pub(super) fn render(fleet: &Fleet, colour: Colour) -> String {
    let mut out = String::new();
    if !fleet.groups.is_empty() {
        let mut table = Table::new(&["MACHINEDEPLOYMENT", "WANTED", "READY", "AVAILABLE"]);
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
    out
}

fn group_row(group: &Group) -> [Cell; 4] {
    let tone = if group.available >= group.wanted {
        Tone::Good
    } else {
        Tone::Warn
    };
    [
        group.name.clone().into(),
        group.wanted.to_string().into(),
        group.ready.to_string().into(),
        Cell::new(group.available.to_string(), tone),
    ]
}

fn mac_row(mac: &Mac) -> [Cell; 6] {
    let tone = match mac.phase.as_str() {
        "Ready" => Tone::Good,
        "Failed" => Tone::Bad,
        _ => Tone::Warn,
    };
    [
        mac.name.clone().into(),
        or_dash(mac.fleet.clone()),
        Cell::new(mac.phase.clone(), tone),
        or_dash(mac.server_id.as_deref().map(short)),
        or_dash(mac.address.clone()),
        or_dash(mac.message.clone().filter(|_| !mac.ready)),
    ]
}

/// The first block of a uuid tells hosts apart well enough.
fn short(id: &str) -> String {
    id.split('-').next().unwrap_or(id).to_owned()
}
