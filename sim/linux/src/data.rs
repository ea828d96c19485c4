//! The disks of a server beside that of its root.
//!
//! Elastic Metal is installed with a division of its disks, which the row repeats. What is not the root's, nor the boot loader's,
//! is a file with a real file system on it: XFS for what caches keep.

use std::fmt::Write as _;
use std::path::Path;

use russet_cluster::node::system;

use crate::inside::protocol::Blank;
use crate::row::Row;

/// Where the files are, inside.
const FOLDER: &str = "/var/lib/russet-box/disks";
/// What is part of the image.
const ROOT: [&str; 3] = ["/", "/boot", "/boot/efi"];

/// Says why Elastic Metal servers would have no `/data` here. Everything else about them works without.
pub async fn check() -> Result<(), &'static str> {
    if !Path::new("/dev/loop-control").exists() {
        return Err("this kernel has no loop devices, on which the disks of emulated servers are");
    }
    let knows = || std::fs::read_to_string("/proc/filesystems").is_ok_and(|known| known.lines().any(is_xfs));
    if !knows() {
        // It may be a module that nobody needed so far.
        let _ = system::run("look for XFS", "modprobe", &["-q", "xfs"]).await;
    }
    if knows() {
        Ok(())
    } else {
        Err("this kernel has no XFS, which Elastic Metal servers keep their data on")
    }
}

fn is_xfs(line: &str) -> bool {
    line.trim() == "xfs"
}

/// The disks to make.
pub(crate) fn blanks(row: &Row) -> Vec<Blank> {
    let own = |mountpoint: &str| mountpoint.starts_with('/') && !ROOT.contains(&mountpoint);
    let known = row.filesystems.iter().filter(|made| own(&made.mountpoint));
    known
        .filter(|made| matches!(made.format.as_str(), "xfs" | "ext4"))
        .map(|made| Blank {
            file: format!("{FOLDER}/{}.img", made.mountpoint.trim_matches('/').replace('/', "-")),
            format: made.format.clone(),
            mountpoint: made.mountpoint.clone(),
        })
        .collect()
}

/// `/etc/fstab` as the installation leaves it.
pub(crate) fn table(row: &Row) -> String {
    blanks(row).into_iter().fold(String::new(), |mut text, disk| {
        let _ = writeln!(
            text,
            "{} {} {} defaults,loop 0 0",
            disk.file, disk.mountpoint, disk.format
        );
        text
    })
}

#[cfg(test)]
mod tests {
    use russet_sim_scaleway::Id;

    use super::*;
    use crate::row::{Filesystem, Kind};

    fn row(filesystems: &[(&str, &str)]) -> Row {
        Row {
            kind: Kind::Metal,
            filesystems: filesystems
                .iter()
                .map(|(format, mountpoint)| Filesystem {
                    format: (*format).to_owned(),
                    mountpoint: (*mountpoint).to_owned(),
                })
                .collect(),
            ..Row::instance(Id::named("a"), "a")
        }
    }

    #[test]
    fn what_is_neither_the_roots_nor_the_boot_loaders_is_a_disk_of_its_own() {
        let asked = row(&[
            ("fat32", "/boot/efi"),
            ("ext4", "/boot"),
            ("ext4", "/"),
            ("xfs", "/data"),
        ]);
        assert_eq!(
            table(&asked),
            "/var/lib/russet-box/disks/data.img /data xfs defaults,loop 0 0\n"
        );
    }

    #[test]
    fn a_server_whose_disks_nobody_divided_has_only_its_root() {
        assert_eq!(table(&row(&[])), "");
    }
}
