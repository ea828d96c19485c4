//! How full a host is.

use std::path::Path;
use std::time::Duration;

use super::ask::ask;

const SYSCTL: &str = "/usr/sbin/sysctl";
const PS: &str = "/bin/ps";
const PATIENCE: Duration = Duration::from_secs(4);
/// What macOS calls critical.
const CRITICAL: u32 = 4;
/// A tenth of the disk is needed for the next image.
const FREE_AT_LEAST: u64 = 10;
const PROCESSES_AT_MOST: u64 = 90;

/// Whether memory or processes are short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pressure {
    pub(super) memory: bool,
    pub(super) processes: bool,
}

/// Asks macOS. Where there is no answer, what was so before stays so.
pub(super) async fn current(before: Pressure) -> Pressure {
    let number =
        async |name: &str| -> Option<u64> { ask(Path::new(SYSCTL), &["-n", name], PATIENCE).await.ok()?.parse().ok() };
    let level = number("kern.memorystatus_vm_pressure_level").await;
    let most = number("kern.maxproc").await;
    let list = ask(Path::new(PS), &["-A", "-o", "pid="], PATIENCE).await.ok();
    let running = list.map(|list| list.lines().count() as u64);
    Pressure {
        memory: level.map_or(before.memory, |level| level >= u64::from(CRITICAL)),
        processes: match (running, most) {
            (Some(running), Some(most)) if most > 0 => running * 100 > most * PROCESSES_AT_MOST,
            _ => before.processes,
        },
    }
}

/// A disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Disk {
    pub(super) total: u64,
    pub(super) free: u64,
}

impl Disk {
    pub(super) fn is_full(self) -> bool {
        self.free.saturating_mul(100) < self.total.saturating_mul(FREE_AT_LEAST)
    }

    /// Whole tens of percent, so that a log line is no change of the Node.
    pub(super) fn sentence(self) -> String {
        if self.is_full() {
            format!("less than {FREE_AT_LEAST} % of the disk is free")
        } else {
            format!("at least {FREE_AT_LEAST} % of the disk is free")
        }
    }
}

/// The disk of the host.
pub(super) fn disk() -> Option<Disk> {
    let found = rustix::fs::statvfs("/").ok()?;
    Some(Disk {
        total: found.f_blocks.saturating_mul(found.f_frsize),
        free: found.f_bavail.saturating_mul(found.f_frsize),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_full_when_less_than_a_tenth_is_free() {
        let disk = |free| Disk { total: 1_000, free };
        assert!(disk(99).is_full());
        assert!(!disk(100).is_full());
        assert!(!Disk { total: 0, free: 0 }.is_full());
        assert_eq!(disk(500).sentence(), disk(499).sentence());
    }

    #[test]
    fn the_disk_of_this_machine_has_a_size() {
        let disk = disk().unwrap();
        assert!(disk.total > 0 && disk.free <= disk.total, "{disk:?}");
    }
}
