//! How full the disk is on which virtual machines are.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Percent that are free below which Pods have to go and no others are taken.
pub(crate) const PRESSURE: u64 = 10;
/// Percent below which images go. It is also what has to be free before the pressure is over.
pub(crate) const SHORT: u64 = 15;
/// Percent up to which room is made, so that it is not made again and again.
pub(crate) const ENOUGH: u64 = 20;

/// A disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disk {
    pub(crate) total: u64,
    used: u64,
    pub(crate) free: u64,
}

impl Disk {
    /// As df counts: what can be used at all. A disk whose size includes what is set aside for others is not full for that.
    fn usable(self) -> u64 {
        self.used.saturating_add(self.free)
    }

    /// So many percent of it.
    pub(crate) fn percent(self, percent: u64) -> u64 {
        let part = u128::from(self.usable()) * u128::from(percent) / 100;
        u64::try_from(part).unwrap_or(u64::MAX)
    }

    /// Whether at least so many percent are free.
    pub(crate) fn has_free(self, percent: u64) -> bool {
        u128::from(self.free) * 100 >= u128::from(self.usable()) * u128::from(percent)
    }

    /// Whether Pods have to go. Once they had to, it takes more room until others are taken: a disk at the edge would have the
    /// Node flap.
    pub(crate) fn is_pressed(self, before: bool) -> bool {
        !self.has_free(if before { SHORT } else { PRESSURE })
    }
}

/// Whole tens of percent, so that a log line is no change of the Node.
pub(crate) fn sentence(pressed: bool) -> String {
    if pressed {
        format!("less than {PRESSURE} % of the disk is free, also without the images that could go")
    } else {
        format!("at least {PRESSURE} % of the disk is free")
    }
}

/// Asks how full a disk is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gauge {
    /// Which disk; of none nothing is known.
    folder: Option<PathBuf>,
    /// What an emulated host says of its disk instead.
    report: Option<PathBuf>,
}

/// The sizes of an emulated disk.
#[derive(Deserialize)]
struct Report {
    total: u64,
    free: u64,
}

impl Gauge {
    /// The disk that this folder is on, or will be.
    pub(crate) fn new(folder: &Path, report: Option<PathBuf>) -> Self {
        Self {
            folder: Some(folder.to_owned()),
            report,
        }
    }

    /// How full it is now; none if it does not say.
    pub(crate) fn look(&self) -> Option<Disk> {
        if let Some(disk) = self.report.as_deref().and_then(reported) {
            return Some(disk);
        }
        let folder = self.folder.as_deref()?;
        let found = folder.ancestors().find_map(|folder| rustix::fs::statvfs(folder).ok())?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Some(Disk {
            total: bytes(found.f_blocks),
            used: bytes(found.f_blocks.saturating_sub(found.f_bfree)),
            free: bytes(found.f_bavail),
        })
    }
}

fn reported(path: &Path) -> Option<Disk> {
    let Report { total, free } = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    Some(Disk {
        total,
        used: total.saturating_sub(free),
        free,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(free: u64) -> Disk {
        Disk {
            total: 1_000,
            used: 1_000 - free,
            free,
        }
    }

    #[test]
    fn a_disk_is_under_pressure_when_less_than_a_tenth_is_free_and_until_there_is_more() {
        assert!(disk(99).is_pressed(false));
        assert!(!disk(100).is_pressed(false));
        assert!(disk(149).is_pressed(true));
        assert!(!disk(150).is_pressed(true));
        assert_eq!(disk(0).percent(10), 100);
        let none = Disk {
            total: 0,
            used: 0,
            free: 0,
        };
        assert!(!none.is_pressed(false));
    }

    /// A machine with a quota has a large disk of which little is its own: every emulated Mac on it was under pressure, and none of
    /// their Machines ever became available.
    #[test]
    fn what_is_set_aside_for_others_does_not_make_a_disk_full() {
        let disk = Disk {
            total: 252,
            used: 64,
            free: 24,
        };
        assert!(!disk.is_pressed(false));
    }

    #[test]
    fn the_disk_of_this_machine_has_a_size_also_for_a_folder_that_is_not_there_yet() {
        let disk = Gauge::new(Path::new("/nowhere/.tart"), None).look().unwrap();
        assert!(disk.total > 0 && disk.free <= disk.total, "{disk:?}");
    }

    #[test]
    fn an_emulated_disk_is_as_large_as_it_says() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.json");
        let gauge = Gauge::new(Path::new("/"), Some(path.clone()));
        std::fs::write(&path, r#"{"total": 1000, "free": 99}"#).unwrap();
        assert_eq!(gauge.look(), Some(disk(99)));
        std::fs::write(&path, "nonsense").unwrap();
        assert_ne!(gauge.look(), Some(disk(99)));
    }
}
