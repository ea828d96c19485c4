//! A file system of its own for what caches keep: `/data`, XFS, on what the root does not need.

use russet_scaleway::baremetal::{Disk, Filesystem, Partition, Raid, Schema};

const GIB: u64 = 1 << 30;
/// What the root keeps.
const ROOT: u64 = 64 * GIB;

/// Why the disks are left as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unplanned {
    #[error("its disks are divided by ZFS")]
    Zfs,
    #[error("there is no root file system in the division Scaleway proposes")]
    NoRoot,
    #[error("the root file system is not on partitions that can be shrunk")]
    Backing,
}

/// The default division with the root shrunk and the rest given to `/data`, mirrored as the root is.
pub(super) fn plan(default: &Schema) -> Result<Schema, Unplanned> {
    let mut schema = default.clone();
    if schema.zfs.is_some() && schema.filesystems.is_empty() {
        return Err(Unplanned::Zfs);
    }
    if let Some(data) = schema.filesystems.iter_mut().find(|fs| fs.mountpoint == "/data") {
        "xfs".clone_into(&mut data.format);
        return Ok(schema);
    }
    let root = schema.filesystems.iter().find(|fs| fs.mountpoint == "/");
    let root = root.ok_or(Unplanned::NoRoot)?.device.clone();
    let raid = schema.raids.iter().find(|raid| raid.name == root).cloned();
    let backing = raid
        .as_ref()
        .map_or_else(|| vec![root.clone()], |raid| raid.devices.clone());
    let mut added = Vec::new();
    for device in &backing {
        added.push(split(&mut schema.disks, device).ok_or(Unplanned::Backing)?);
    }
    let device = match (raid, added.as_slice()) {
        (None, [one]) => one.clone(),
        (None, _) => return Err(Unplanned::Backing),
        (Some(raid), _) => {
            let used = |name: &String| schema.raids.iter().any(|raid| raid.name == *name);
            let name = (0..64_u8).map(|n| format!("/dev/md{n}")).find(|name| !used(name));
            let name = name.ok_or(Unplanned::Backing)?;
            schema.raids.push(Raid {
                name: name.clone(),
                level: raid.level,
                devices: added,
            });
            name
        }
    };
    schema.filesystems.push(Filesystem {
        device,
        format: "xfs".to_owned(),
        mountpoint: "/data".to_owned(),
    });
    Ok(schema)
}

/// Shrinks one partition and puts another behind it; the name of the new one.
fn split(disks: &mut [Disk], device: &str) -> Option<String> {
    let disk = disks.iter_mut().find(|disk| {
        let rest = device.strip_prefix(&disk.device);
        rest.is_some_and(|rest| rest.trim_start_matches('p').parse::<u32>().is_ok())
    })?;
    let rest = device.strip_prefix(&disk.device)?;
    let number: u32 = rest.trim_start_matches('p').parse().ok()?;
    let separator = if rest.starts_with('p') { "p" } else { "" };
    let next = disk.partitions.iter().map(|partition| partition.number).max()? + 1;
    let partition = disk
        .partitions
        .iter_mut()
        .find(|partition| partition.number == number)?;
    partition.size = ROOT;
    partition.use_all_available_space = false;
    let label = if partition.label == "raid" { "raid" } else { "data" };
    let made = Partition {
        label: label.to_owned(),
        number: next,
        size: 0,
        use_all_available_space: true,
    };
    disk.partitions.push(made);
    Some(format!("{}{separator}{next}", disk.device))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mirrored() -> Schema {
        let disk = |device: &str| {
            json!({"device": device, "partitions": [
                {"label": "uefi", "number": 1, "size": 536_870_912},
                {"label": "raid", "number": 2, "size": 0, "use_all_available_space": true},
            ]})
        };
        serde_json::from_value(json!({
            "disks": [disk("/dev/nvme0n1"), disk("/dev/nvme1n1")],
            "raids": [{"name": "/dev/md0", "level": "raid_level_1", "devices": ["/dev/nvme0n1p2", "/dev/nvme1n1p2"]}],
            "filesystems": [{"device": "/dev/md0", "format": "ext4", "mountpoint": "/"}],
        }))
        .unwrap()
    }

    #[test]
    fn the_root_keeps_64_gib_and_the_rest_is_mirrored_as_it_is() {
        let planned = plan(&mirrored()).unwrap();
        let root = &planned.disks[0].partitions[1];
        assert_eq!((root.size, root.use_all_available_space), (64 * GIB, false));
        let data = &planned.disks[1].partitions[2];
        assert_eq!((data.label.as_str(), data.use_all_available_space), ("raid", true));
        assert_eq!(planned.raids[1].devices, ["/dev/nvme0n1p3", "/dev/nvme1n1p3"]);
        assert_eq!(planned.raids[1].level, "raid_level_1");
        let last = planned.filesystems.last().unwrap();
        assert_eq!(
            (last.device.as_str(), last.format.as_str(), last.mountpoint.as_str()),
            ("/dev/md1", "xfs", "/data")
        );
    }

    #[test]
    fn a_data_file_system_that_is_there_is_only_made_xfs() {
        let mut schema = plan(&mirrored()).unwrap();
        "ext4".clone_into(&mut schema.filesystems[1].format);
        let again = plan(&schema).unwrap();
        assert_eq!(again, plan(&mirrored()).unwrap());
    }

    #[test]
    fn disks_nobody_understands_are_left_as_they_are() {
        assert_eq!(plan(&Schema::default()), Err(Unplanned::NoRoot));
        let zfs = Schema {
            zfs: Some(json!({"pools": []})),
            ..Schema::default()
        };
        assert_eq!(plan(&zfs), Err(Unplanned::Zfs));
        let mut odd = mirrored();
        odd.raids.clear();
        assert_eq!(plan(&odd), Err(Unplanned::Backing));
    }
}
