//! How full a host is.

use std::path::Path;
use std::time::Duration;

use super::ask::ask;

const SYSCTL: &str = "/usr/sbin/sysctl";
const PS: &str = "/bin/ps";
const PATIENCE: Duration = Duration::from_secs(4);
/// What macOS calls critical.
const CRITICAL: u32 = 4;
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
