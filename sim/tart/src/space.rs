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

/// Makes room for an image by deleting cached ones, the least recently used first. Whether it fits then.
pub(crate) fn make_room(home: &Home, config: &Config, needed: u64) -> Result<bool, Failure> {
    let Some(capacity) = capacity(home)? else {
        return Ok(true);
    };
    loop {
        if used(home)? + needed <= capacity {
            return Ok(true);
        }
        if config.no_auto_prune {
            return Ok(false);
        }
        let oldest = home
            .cached_names()?
            .into_iter()
            .filter(RemoteName::is_digest)
            .filter_map(|name| Some((home.cached(&name)?.accessed(), name)))
            .min_by_key(|(accessed, _)| *accessed);
        match oldest {
            Some((_, name)) => home.unlink(&name)?,
            None => return Ok(false),
        }
    }
}
