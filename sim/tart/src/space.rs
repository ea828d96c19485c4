//! Room on the disk: clones share their blocks, so an extent counts once; auto-prune (facts 6.2).

use crate::config::Config;
use crate::failure::Failure;
use crate::image::RemoteName;
use crate::store::Home;
use crate::switches::Switches;
use crate::vm::{GB, VmDir};
use std::collections::BTreeMap;

/// The allocated size of an image, to the byte.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "sizes of disks"
)]
pub(crate) fn bytes(size_gb: f64) -> u64 {
    (size_gb * GB as f64) as u64
}

/// How many bytes everything in the home takes, blocks that are shared counted once.
pub(crate) fn used(home: &Home) -> Result<u64, Failure> {
    let mut extents = BTreeMap::new();
    let locals = home.local_names()?.into_iter().map(|name| VmDir(home.vms().join(name)));
    let cached = home.cached_names()?.into_iter().filter_map(|name| home.cached(&name));
    for dir in locals.chain(cached) {
        if let Ok(origin) = dir.origin() {
            extents.insert(origin.extent, bytes(origin.image.size_gb));
        }
    }
    Ok(extents.values().sum())
}

/// How large the disk is; none if it is endless.
fn capacity(home: &Home) -> Result<Option<u64>, Failure> {
    Ok(Switches::load(home)?.capacity_gb.map(|gb| gb * GB))
}

/// Whether not a byte is free. A clone shares its blocks, but its folder and its small files have to be somewhere.
pub(crate) fn is_full(home: &Home) -> Result<bool, Failure> {
    match capacity(home)? {
        Some(capacity) => Ok(used(home)? >= capacity),
        None => Ok(false),
    }
}

/// Leaves word of how full the disk is, for those who would ask the kernel of a real one.
pub(crate) fn report(home: &Home) -> Result<(), Failure> {
    let path = home.sim().join("disk.json");
    let Some(total) = capacity(home)? else {
        return match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        };
    };
    let free = total.saturating_sub(used(home)?);
    let fresh = home.sim().join(format!("disk.{}.tmp", std::process::id()));
    std::fs::write(&fresh, serde_json::json!({"total": total, "free": free}).to_string())?;
    std::fs::rename(fresh, path)?;
    Ok(())
}

/// What a clone may still write: its disk is longer than what it shares. Cached images go for that after the clone is there, so that
/// it runs without errors; where that does not suffice nobody hears of it.
pub(crate) fn make_room_for(home: &Home, config: &Config, clone: &VmDir, most_gb: u64) -> Result<(), Failure> {
    let origin = clone.origin()?;
    let unwritten = clone.disk_bytes()?.saturating_sub(bytes(origin.image.size_gb));
    reclaim(home, config, unwritten.min(most_gb * GB), Some(&origin.extent))
}

/// Makes room for an image. Whether it fits then.
pub(crate) fn make_room(home: &Home, config: &Config, needed: u64) -> Result<bool, Failure> {
    reclaim(home, config, needed, None)?;
    Ok(match capacity(home)? {
        Some(capacity) => used(home)? + needed <= capacity,
        None => true,
    })
}

/// Deletes cached images, the least recently used first, until their sizes exceed what is missing; none if all of them would not
/// suffice. What they share with VMs is not freed, which the real one does not know either. Images of the blocks `spared` stay.
fn reclaim(home: &Home, config: &Config, needed: u64, spared: Option<&str>) -> Result<(), Failure> {
    let Some(capacity) = capacity(home)? else {
        return Ok(());
    };
    let free = capacity.saturating_sub(used(home)?);
    if config.no_auto_prune || free == 0 || needed < free {
        return Ok(());
    }
    let mut cached: Vec<_> = home
        .cached_names()?
        .into_iter()
        .filter(RemoteName::is_digest)
        .filter_map(|name| {
            let dir = home.cached(&name)?;
            let origin = dir.origin().ok()?;
            (Some(origin.extent.as_str()) != spared).then(|| (dir.accessed(), bytes(origin.image.size_gb), name))
        })
        .collect();
    cached.sort_by_key(|(accessed, ..)| *accessed);
    let missing = needed - free;
    if cached.iter().map(|(_, size, _)| size).sum::<u64>() < missing {
        return Ok(());
    }
    let mut freed = 0;
    for (_, size, name) in cached {
        if freed > missing {
            break;
        }
        home.unlink(&name)?;
        freed += size;
    }
    Ok(())
}
