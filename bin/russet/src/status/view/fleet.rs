//! The Macs and cache nodes in `russet status`.

use super::{bytes, euros, or_dash, span};
use crate::status::document::{Fleet, Group, Hosting, Mac, Server, Vm};
use crate::table::{Cell, Colour, Table, Tone};
use std::collections::BTreeMap;

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
        let mut table = Table::new(&[
            "MAC",
            "FLEET",
            "PHASE",
            "HOST",
            "ADDRESS",
            "VMS",
            "IMAGES",
            "DISK",
            "WAITS FOR",
        ]);
        for mac in &fleet.macs {
            table.row(mac_row(mac));
        }
        out.push('\n');
        out.push_str(&table.render(colour));
    }
    out.push_str(&vms(fleet, colour));
    out.push_str(&images(fleet, colour));
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

fn hosted(fleet: &Fleet) -> impl Iterator<Item = (&Mac, &Hosting)> {
    fleet.macs.iter().filter_map(|mac| Some((mac, mac.hosting.as_ref()?)))
}

fn vms(fleet: &Fleet, colour: Colour) -> String {
    let mut table = Table::new(&["VM", "MAC", "IMAGE", "PHASE", "RESTARTS", "ADDRESS", "AGE"]);
    let mut any = false;
    for (mac, hosting) in hosted(fleet) {
        for vm in &hosting.vms {
            any = true;
            table.row(vm_row(mac, hosting, vm));
        }
    }
    if any {
        format!("\n{}", table.render(colour))
    } else {
        String::new()
    }
}

fn vm_row(mac: &Mac, hosting: &Hosting, vm: &Vm) -> [Cell; 7] {
    let beside = |other: &Vm| (&other.namespace, &other.pod) == (&vm.namespace, &vm.pod);
    let name = if hosting.vms.iter().filter(|other| beside(other)).count() > 1 {
        format!("{}/{}:{}", vm.namespace, vm.pod, vm.container)
    } else {
        format!("{}/{}", vm.namespace, vm.pod)
    };
    let tone = match (vm.phase.as_str(), vm.ready) {
        ("Running", true) => Tone::Good,
        ("Failed" | "Error" | "CrashLoopBackOff" | "Evicted", _) => Tone::Bad,
        ("Completed" | "Succeeded", _) => Tone::Dim,
        _ => Tone::Warn,
    };
    [
        name.into(),
        mac.name.clone().into(),
        vm.image.clone().into(),
        Cell::new(&vm.phase, tone),
        vm.restarts.to_string().into(),
        or_dash(vm.address.clone()),
        or_dash(vm.age_seconds.map(span)),
    ]
}

/// One row per image, whatever the number of Macs that have it.
fn images(fleet: &Fleet, colour: Colour) -> String {
    let mut known: BTreeMap<&str, (Option<u64>, usize)> = BTreeMap::new();
    for image in hosted(fleet).flat_map(|(_, hosting)| &hosting.images) {
        // The name with a tag is the one that people use.
        let name = image
            .names
            .iter()
            .find(|name| !name.contains('@'))
            .or(image.names.first());
        let Some(name) = name else { continue };
        let (bytes, macs) = known.entry(name).or_default();
        *bytes = image.bytes.max(*bytes);
        *macs += 1;
    }
    if known.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["IMAGE", "SIZE", "MACS"]);
    for (name, (size, macs)) in known {
        table.row([name.into(), or_dash(size.map(bytes)), macs.to_string().into()]);
    }
    format!("\n{}", table.render(colour))
}

fn mac_row(mac: &Mac) -> [Cell; 9] {
    let hosting = mac.hosting.as_ref();
    let disk = hosting.and_then(|hosting| {
        let size = hosting.disk_bytes.map(bytes)?;
        Some(if hosting.disk_pressure {
            Cell::new(format!("{size}, nearly full"), Tone::Bad)
        } else {
            size.into()
        })
    });
    [
        mac.name.clone().into(),
        or_dash(mac.fleet.clone()),
        phase(&mac.phase),
        or_dash(mac.server_id.as_deref().map(short)),
        or_dash(mac.address.clone()),
        or_dash(hosting.map(|hosting| hosting.vms.len().to_string())),
        or_dash(hosting.map(|hosting| hosting.images.len().to_string())),
        disk.unwrap_or_else(|| or_dash(None)),
        or_dash(mac.message.clone().filter(|_| !mac.ready)),
    ]
}

/// The first block of a uuid tells hosts apart well enough.
fn short(id: &str) -> String {
    id.split('-').next().unwrap_or(id).to_owned()
}
