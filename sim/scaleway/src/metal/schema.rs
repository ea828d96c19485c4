//! How disks are laid out: the usual way of an offer, and whether another way fits.

use super::catalog::MetalOffer;
use crate::boxes::Filesystem;
use crate::call::{Answer, Call, Reply};
use crate::ids::{Id, Zone};
use crate::refusal::{Reason, Refusal};
use crate::strict::{Fields, Query};
use crate::world::World;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const LABELS: [&str; 9] = ["uefi", "legacy", "root", "boot", "swap", "data", "home", "raid", "zfs"];
const FORMATS: [&str; 5] = ["fat32", "ext4", "swap", "zfs", "xfs"];
const LEVELS: [&str; 5] = [
    "raid_level_0",
    "raid_level_1",
    "raid_level_5",
    "raid_level_6",
    "raid_level_10",
];
const MIB: u64 = 1 << 20;

fn disks(offer: &MetalOffer) -> [&'static str; 2] {
    match offer.disk_type.as_str() {
        "NVMe" => ["/dev/nvme0n1", "/dev/nvme1n1"],
        _ => ["/dev/sda", "/dev/sdb"],
    }
}

fn partition(disk: &str, number: u64) -> String {
    if disk.ends_with(|letter: char| letter.is_ascii_digit()) {
        format!("{disk}p{number}")
    } else {
        format!("{disk}{number}")
    }
}

/// What is installed when nothing else is asked for: everything but the boot loader and swap mirrored.
pub(super) fn usual(offer: &MetalOffer) -> Value {
    let (uefi, swap, boot) = (512 * MIB, 4096 * MIB, 1024 * MIB);
    let root = (offer.disk_gb * 1_000_000_000).saturating_sub(uefi + swap + boot + 2 * MIB) / MIB * MIB;
    let disks = disks(offer);
    let part = |label: &str, number: u32, size: u64| json!({"label": label, "number": number, "size": size, "use_all_available_space": false});
    let layout = [
        part("uefi", 1, uefi),
        part("swap", 2, swap),
        part("boot", 3, boot),
        part("root", 4, root),
    ];
    let mirror = |number: u64| disks.map(|disk| partition(disk, number));
    json!({
        "disks": disks.map(|disk| json!({"device": disk, "partitions": layout})),
        "raids": [
            {"name": "/dev/md0", "level": "raid_level_1", "devices": mirror(3)},
            {"name": "/dev/md1", "level": "raid_level_1", "devices": mirror(4)},
        ],
        "filesystems": [
            {"device": partition(disks[0], 1), "format": "fat32", "mountpoint": "/boot/efi"},
            {"device": "/dev/md0", "format": "ext4", "mountpoint": "/boot"},
            {"device": "/dev/md1", "format": "ext4", "mountpoint": "/"},
        ],
        "zfs": null,
    })
}

/// The file systems of a layout that fits.
pub(super) fn filesystems(schema: &Value) -> Vec<Filesystem> {
    let listed = schema.get("filesystems").cloned().unwrap_or_default();
    serde_json::from_value(listed).unwrap_or_default()
}

fn wrong(help: impl Into<String>) -> Refusal {
    Refusal::argument("partitioning_schema", Reason::Constraint, help)
}

fn each(fields: &mut Fields, name: &str) -> Result<Vec<Fields>, Refusal> {
    let items = fields.value(name).unwrap_or_else(|| json!([]));
    let Value::Array(items) = items else {
        return Err(wrong(format!("{name} must be a list")));
    };
    items.into_iter().map(Fields::new).collect()
}

fn word(fields: &mut Fields, name: &str, words: &[&'static str]) -> Result<(), Refusal> {
    match fields.choice(name, words) {
        Some(_) => Ok(()),
        None => Err(wrong(format!("{name} must be one of {}", words.join(", ")))),
    }
}

/// Whether a layout can be made on an offer.
pub(super) fn fits(offer: &MetalOffer, schema: &Value) -> Result<(), Refusal> {
    let mut fields = Fields::new(schema.clone())?;
    let mut devices = BTreeSet::new();
    for mut disk in each(&mut fields, "disks")? {
        let name = disk.text("device").unwrap_or_default();
        if !disks(offer).contains(&name.as_str()) {
            return Err(wrong(format!(
                "there is no disk {name:?}; disks: {}",
                disks(offer).join(", ")
            )));
        }
        let mut left = offer.disk_gb * 1_000_000_000;
        for mut part in each(&mut disk, "partitions")? {
            word(&mut part, "label", &LABELS)?;
            let number = part.number("number").unwrap_or(0);
            let size = part.number("size").unwrap_or(0);
            let rest = part.flag("use_all_available_space").unwrap_or(false);
            part.finish()?;
            if number == 0 || !devices.insert(partition(&name, number)) {
                return Err(wrong(format!(
                    "partition {number} of {name} is there twice, or has no number"
                )));
            }
            if size == 0 && !rest {
                return Err(wrong(format!("partition {number} of {name} has no size")));
            }
            left = left
                .checked_sub(size)
                .ok_or_else(|| wrong(format!("{name} is too small for this")))?;
        }
        disk.finish()?;
    }
    for mut raid in each(&mut fields, "raids")? {
        word(&mut raid, "level", &LEVELS)?;
        let name = raid.required("name");
        let members = raid.texts("devices");
        raid.finish()?;
        for member in &members {
            if !devices.remove(member) {
                return Err(wrong(format!("{member} of {name} is not there, or in use")));
            }
        }
        if members.len() < 2 || !devices.insert(name.clone()) {
            return Err(wrong(format!("{name} needs two devices and a name of its own")));
        }
    }
    let mut mounts = BTreeSet::new();
    for mut system in each(&mut fields, "filesystems")? {
        word(&mut system, "format", &FORMATS)?;
        let device = system.required("device");
        let mountpoint = system.text("mountpoint").unwrap_or_default();
        system.finish()?;
        if !devices.remove(&device) {
            return Err(wrong(format!("{device} is not there, or in use")));
        }
        if !mounts.insert(mountpoint.clone()) {
            return Err(wrong(format!("{mountpoint} is there twice")));
        }
    }
    fields.not_emulated("zfs");
    fields.finish()?;
    if mounts.contains("/") {
        Ok(())
    } else {
        Err(wrong("nothing is mounted on /"))
    }
}

fn offered(world: &World, zone: &Zone, offer: Option<Id>, os: Option<Id>) -> Result<MetalOffer, Refusal> {
    let required = |name| Refusal::argument(name, Reason::Required, "cannot be empty");
    let (offer, os) = (
        offer.ok_or_else(|| required("offer_id"))?,
        os.ok_or_else(|| required("os_id"))?,
    );
    let found = world.metal.catalog.os(&os);
    let found = found.ok_or_else(|| Refusal::not_found("os", os.as_str()))?;
    if !found.partitioning {
        return Err(wrong(format!("{} {} chooses its own", found.name, found.version)));
    }
    let found = world.metal.catalog.offer(zone, &offer).cloned();
    found.ok_or_else(|| Refusal::not_found("offer", offer.as_str()))
}

/// GET `/partitioning-schemas/default`
pub(super) fn default(world: &World, zone: &Zone, call: &Call) -> Answer {
    let mut query = Query::new(&call.query);
    let (offer, os) = (query.id("offer_id"), query.id("os_id"));
    query.finish()?;
    Ok(Reply::ok(usual(&offered(world, zone, offer, os)?)))
}

/// POST `/partitioning-schemas/validate`
pub(super) fn check(world: &World, zone: &Zone, call: &Call) -> Answer {
    let mut fields = Fields::new(call.json()?)?;
    let (offer, os) = (fields.id("offer_id"), fields.id("os_id"));
    let schema = fields.value("partitioning_schema");
    fields.finish()?;
    let offer = offered(world, zone, offer, os)?;
    let schema = schema.ok_or_else(|| Refusal::argument("partitioning_schema", Reason::Required, "cannot be empty"))?;
    fits(&offer, &schema)?;
    Ok(Reply::no_content())
}
