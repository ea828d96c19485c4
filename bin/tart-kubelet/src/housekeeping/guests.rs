//! How full the disks of guests are. They are asked beside everything else: a guest that does not answer costs nobody anything.

use std::time::Duration;

use futures::future::join_all;
use russet_vm::{ExecRequest, VmName, collect};

use crate::pods::Host;

/// How long a guest may take to answer.
const ANSWER: Duration = Duration::from_secs(15);
const MOST: u64 = 16 * 1024;

/// Asks all that run.
pub(super) async fn ask(host: &Host) {
    let shown = host.directory.list();
    let running = shown
        .iter()
        .flat_map(|shown| shown.instances.values())
        .filter(|instance| instance.runs());
    let asked = running.map(|instance| async move {
        let name = VmName::from(instance.vm.clone());
        let words = ["/bin/df", "-k", "/"].map(str::to_owned).to_vec();
        let request = ExecRequest {
            words,
            ..ExecRequest::default()
        };
        let answer = async { collect(host.shop.runtime.exec(&name, request).await?, b"", MOST).await };
        let outcome = tokio::time::timeout(ANSWER, answer).await.ok()?.ok()?;
        Some((name.to_string(), percent(&String::from_utf8_lossy(&outcome.stdout))?))
    });
    let percents: Vec<(String, u8)> = join_all(asked).await.into_iter().flatten().collect();
    host.shop.meters.guest_disks(&percents);
}

/// The first column of the last line that is a percentage.
fn percent(text: &str) -> Option<u8> {
    let last = text.lines().rev().find(|line| !line.trim().is_empty())?;
    let found = last
        .split_whitespace()
        .find_map(|word| word.strip_suffix('%')?.parse().ok());
    found.filter(|percent| *percent <= 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_percentage_is_found_on_both_systems() {
        let mac = "Filesystem 1024-blocks Used Available Capacity iused ifree %iused Mounted on\n\
                   /dev/disk1s1s1 52428800 40000000 9000000 82% 400000 90000000 1% /\n";
        assert_eq!(percent(mac), Some(82));
        let linux = "Filesystem 1K-blocks Used Available Use% Mounted on\noverlay 100 50 50 50% /\n\n";
        assert_eq!(percent(linux), Some(50));
        assert_eq!(percent(""), None);
        assert_eq!(percent("df: /: No such file"), None);
    }
}
