//! What the host is made of. Usually that is Linux as it is. Inside an emulated Mac (`sim/mac`) the programs of Linux lie elsewhere, and
//! what a test would set through [`Control`](crate::Control) comes with the archive that `tart` was installed from.

use crate::failure::Failure;
use crate::switches::Switches;
use std::path::{Path, PathBuf};

/// Where an emulated Mac has Linux.
const LINUX: &str = "/.sim/linux";
/// The beginning of the addresses that guests of an emulated Mac have: all Macs of a machine share one loopback.
const GUESTS: &str = "/.sim/guests";
/// Where the set-up of a Mac puts what an archive holds.
pub(crate) const RESOURCES: &str = "/usr/local/lib/tart.app/Contents/Resources";
/// The switches of an archive.
pub(crate) const SWITCHES: &str = "switches.json";

fn in_a_mac() -> bool {
    Path::new(LINUX).join("usr/bin").is_dir()
}

/// A folder of Linux, such as `usr`.
pub(crate) fn linux(folder: &str) -> PathBuf {
    let root = if in_a_mac() { LINUX } else { "/" };
    Path::new(root).join(folder)
}

/// A program of Linux that macOS does not have.
pub(crate) fn program(name: &str) -> PathBuf {
    if in_a_mac() {
        linux("usr/bin").join(name)
    } else {
        name.into()
    }
}

/// The switches of a home where none was flipped.
pub(crate) fn switches() -> Result<Switches, Failure> {
    if in_a_mac() {
        return switches_of(Path::new("/"));
    }
    Ok(Switches::default())
}

/// The same for a home on an emulated Mac whose `/` is this folder.
pub(crate) fn switches_of(root: &Path) -> Result<Switches, Failure> {
    let below = |path: &str| root.join(path.trim_start_matches('/'));
    let bundled = below(RESOURCES).join(SWITCHES);
    let mut switches = match std::fs::read(&bundled) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map_err(|error| Failure::Emulator(format!("{}: {error}", bundled.display())))?,
        Err(_) => Switches::default(),
    };
    if let Ok(addresses) = std::fs::read_to_string(below(GUESTS)) {
        addresses.trim().clone_into(&mut switches.addresses);
    }
    Ok(switches)
}
