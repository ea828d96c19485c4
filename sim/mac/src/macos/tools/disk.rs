//! `diskutil`: APFS volumes. [facts/capi 5c, diskutil(8); the words are a guess]

use crate::macos::call::{Call, Reply};
use crate::macos::gear::Volume;
use crate::macos::mac::Inner;

const CONTAINER: &str = "disk3";

pub(super) fn diskutil(mac: &Inner, call: &Call) -> Reply {
    match call.words().as_slice() {
        ["apfs", "list"] => Reply::out(list(mac)),
        ["info", what] => info(mac, what),
        ["info", "-plist", what] => info_plist(mac, what),
        ["apfs", "addVolume", container, "APFS", name, rest @ ..] => {
            if !call.is_root() {
                return Reply::err(
                    1,
                    "Error: -69877: Couldn't open device (is a disk in use by a storage system such as AppleRAID, CoreStorage, or APFS?)\n",
                );
            }
            if *container != CONTAINER {
                return Reply::err(1, format!("Could not find disk for {container}\n"));
            }
            let quota = match rest {
                [] => 0,
                ["-quota", size] => match bytes(size) {
                    Some(bytes) => bytes,
                    None => return Reply::err(1, format!("{size} does not appear to be a valid size\n")),
                },
                _ => return Reply::unknown(1, "Usage:  diskutil apfs addVolume\n"),
            };
            add(mac, name, quota)
        }
        ["apfs", "deleteVolume", name] if call.is_root() => {
            mac.state().gear.volumes.retain(|volume| volume.name != *name);
            Reply::out(format!(
                "Started APFS operation\nDeleting APFS Volume from its APFS Container\nFinished APFS operation {name}\n"
            ))
        }
        ["mount", name] => with_volume(mac, name, |volume| {
            volume.mounted = true;
            format!("Volume {} on {CONTAINER}s7 mounted\n", volume.name)
        }),
        ["unmount", name] => with_volume(mac, name.trim_start_matches("/Volumes/"), |volume| {
            volume.mounted = false;
            format!("Volume {} on {CONTAINER}s7 unmounted\n", volume.name)
        }),
        ["enableOwnership", name] => with_volume(mac, name.trim_start_matches("/Volumes/"), |volume| {
            volume.owners = true;
            format!("File system user/group ownership enabled for {}\n", volume.name)
        }),
        _ => Reply::unknown(1, "Disk Utility Tool\nUtility to manage local disks and volumes\n"),
    }
}

fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok()?;
    let unit = match text.get(digits.len()..)?.to_ascii_lowercase().as_str() {
        "g" | "gb" => 1_000_000_000,
        "gib" => 1 << 30,
        "m" | "mb" => 1_000_000,
        "mib" => 1 << 20,
        "b" | "" => 1,
        _ => return None,
    };
    Some(number * unit)
}

fn add(mac: &Inner, name: &str, quota: u64) -> Reply {
    let taken = mac.state().gear.volumes.iter().any(|volume| volume.name == name);
    if taken {
        // A Mac makes another one with the same name; the mount point gets a number. Nobody wants that.
        return Reply::unknown(1, format!("Error: a volume named {name} exists already\n"));
    }
    let path = format!("/Volumes/{name}");
    if let Err(error) = mac.tree.make_folders(&path, 0o755) {
        return Reply::err(1, format!("Error: {error}\n"));
    }
    mac.state().gear.volumes.push(Volume {
        name: name.to_owned(),
        quota,
        mounted: true,
        owners: false,
    });
    Reply::out(format!(
        "Will export new APFS Volume \"{name}\" from APFS Container Reference {CONTAINER}\nStarted APFS operation on {CONTAINER}\nPreparing to add APFS Volume to APFS Container {CONTAINER}\nCreating APFS Volume\nCreated new APFS Volume {CONTAINER}s7\nMounting APFS Volume\nSetting volume permissions\nDisk from APFS operation: {CONTAINER}s7\nFinished APFS operation on {CONTAINER}\n"
    ))
}

fn with_volume(mac: &Inner, name: &str, change: impl FnOnce(&mut Volume) -> String) -> Reply {
    let mut state = mac.state();
    match state.gear.volumes.iter_mut().find(|volume| volume.name == name) {
        Some(volume) => Reply::out(change(volume)),
        None => Reply::err(1, format!("Unable to find disk for {name}\n")),
    }
}

fn list(mac: &Inner) -> String {
    let mut text = format!(
        "APFS Container (1 found)\n|\n+-- Container {CONTAINER} 00000000-0000-0000-0000-000000000003\n    ====================================================\n    APFS Container Reference:     {CONTAINER}\n    Size (Capacity Ceiling):      494384795648 B (494.4 GB)\n    |\n    +-> Volume {CONTAINER}s5 00000000-0000-0000-0000-000000000035\n    |   ---------------------------------------------------\n    |   APFS Volume Disk (Role):   {CONTAINER}s5 (Data)\n    |   Name:                      Data (Case-insensitive)\n    |   Mount Point:               /System/Volumes/Data\n"
    );
    for (number, volume) in mac.state().gear.volumes.iter().enumerate() {
        let at = if volume.mounted {
            format!("/Volumes/{}", volume.name)
        } else {
            "Not Mounted".to_owned()
        };
        text.push_str(&format!(
            "    |\n    +-> Volume {CONTAINER}s{0}\n    |   ---------------------------------------------------\n    |   APFS Volume Disk (Role):   {CONTAINER}s{0} (No specific role)\n    |   Name:                      {1} (Case-insensitive)\n    |   Mount Point:               {at}\n    |   Capacity Quota:            {2} B\n",
            number + 7,
            volume.name,
            volume.quota
        ));
    }
    text
}

fn find(mac: &Inner, what: &str) -> Option<(String, String, Option<Volume>)> {
    if matches!(what, "/System/Volumes/Data" | "Data" | "/" | "disk3s5") {
        return Some((format!("{CONTAINER}s5"), "/System/Volumes/Data".to_owned(), None));
    }
    let name = what.trim_start_matches("/Volumes/");
    let volume = mac
        .state()
        .gear
        .volumes
        .iter()
        .find(|volume| volume.name == name)
        .cloned()?;
    Some((format!("{CONTAINER}s7"), format!("/Volumes/{name}"), Some(volume)))
}

fn info(mac: &Inner, what: &str) -> Reply {
    let Some((device, mount, volume)) = find(mac, what) else {
        return Reply::err(1, format!("Could not find disk: {what}\n"));
    };
    let mounted = volume.as_ref().is_none_or(|volume| volume.mounted);
    let owners = volume.as_ref().is_none_or(|volume| volume.owners);
    Reply::out(format!(
        "   Device Identifier:         {device}\n   Device Node:               /dev/{device}\n   Part of Whole:             {CONTAINER}\n   APFS Container:            {CONTAINER}\n   Volume Name:               {}\n   Mounted:                   {}\n   Mount Point:               {mount}\n   Owners:                    {}\n",
        volume.map_or_else(|| "Data".to_owned(), |volume| volume.name),
        if mounted { "Yes" } else { "No" },
        if owners { "Enabled" } else { "Disabled" },
    ))
}

fn info_plist(mac: &Inner, what: &str) -> Reply {
    let Some((device, mount, volume)) = find(mac, what) else {
        return Reply::err(1, format!("Could not find disk: {what}\n"));
    };
    let mut dict = plist::Dictionary::new();
    for (key, value) in [
        ("DeviceIdentifier", device),
        ("APFSContainerReference", CONTAINER.to_owned()),
        ("ParentWholeDisk", CONTAINER.to_owned()),
        ("MountPoint", mount),
        (
            "VolumeName",
            volume.map_or_else(|| "Data".to_owned(), |volume| volume.name),
        ),
    ] {
        dict.insert(key.to_owned(), plist::Value::String(value));
    }
    let mut bytes = Vec::new();
    match plist::Value::Dictionary(dict).to_writer_xml(&mut bytes) {
        Ok(()) => Reply::out(format!("{}\n", String::from_utf8_lossy(&bytes))),
        Err(error) => Reply::err(1, format!("{error}\n")),
    }
}
