//! Processor time and memory, from `/proc`.

use anyhow::{Context as _, Result, ensure};
use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// Processor time of a process and its descendants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cpu {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
}

impl Cpu {
    pub(crate) fn total(self) -> Duration {
        self.user + self.system
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
        }
    }
}

struct Stat {
    /// As in `ps`; Z has ended.
    state: char,
    parent: u32,
    user: u64,
    system: u64,
}

/// The command name sits in parentheses and may itself hold spaces and parentheses: count from the last one.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: u32::try_from(number(4)?).ok()?,
        user: number(14)?,
        system: number(15)?,
    })
}

fn ticks(count: u64) -> Duration {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_nanos(count.saturating_mul(1_000_000_000 / per_second))
}

fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// A process and everything it started, if it is there.
fn descent(pid: u32) -> Result<Vec<(u32, Stat)>> {
    let mut all = HashMap::new();
    for entry in fs::read_dir("/proc").context("failed to list /proc")?.flatten() {
        let number = entry.file_name().to_string_lossy().parse::<u32>();
        if let Some((pid, stat)) = number.ok().and_then(|pid| Some((pid, stat(pid)?))) {
            all.insert(pid, stat);
        }
    }
    let mut found: Vec<(u32, Stat)> = all.remove(&pid).map(|stat| (pid, stat)).into_iter().collect();
    let mut next = 0;
    while let Some((parent, _)) = found.get(next) {
        let parent = *parent;
        found.extend(all.extract_if(|_, stat| stat.parent == parent));
        next += 1;
    }
    Ok(found)
}

/// What a process and everything it started has used so far. nginx works in a child; kura in itself.
pub(crate) fn cpu(pid: u32) -> Result<Cpu> {
    let found = descent(pid)?;
    ensure!(!found.is_empty(), "process {pid} has ended");
    Ok(Cpu {
        user: ticks(found.iter().map(|(_, stat)| stat.user).sum()),
        system: ticks(found.iter().map(|(_, stat)| stat.system).sum()),
    })
}

/// A process and everything it started.
pub(crate) fn family(pid: u32) -> Vec<u32> {
    let found = descent(pid).unwrap_or_default();
    found.into_iter().map(|(pid, _)| pid).collect()
}

/// Whether a process has not ended. One that nobody has waited for yet has.
pub(crate) fn is_running(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| stat.state != 'Z')
}

/// What a process itself has used, without those it started.
pub(crate) fn alone(pid: u32) -> Result<Cpu> {
    let own = stat(pid).with_context(|| format!("process {pid} has ended"))?;
    Ok(Cpu {
        user: ticks(own.user),
        system: ticks(own.system),
    })
}

/// Time all cores together were busy since boot: everything but idle and waiting for disks.
pub(crate) fn machine_busy() -> Duration {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    ticks(parse_busy(&text).unwrap_or(0))
}

/// Cores of the machine, whichever of them this process may use.
pub(crate) fn cores() -> u32 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    parse_cores(&text).max(1)
}

fn parse_cores(text: &str) -> u32 {
    let lines = text
        .lines()
        .filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "));
    u32::try_from(lines.count()).unwrap_or(u32::MAX)
}

fn parse_busy(text: &str) -> Option<u64> {
    let fields: Vec<u64> = text
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace()
        .filter_map(|field| field.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal; guests are counted in user already.
    let all: u64 = fields.iter().take(8).sum();
    Some(all - fields.get(3)? - fields.get(4)?)
}

/// Resident memory now and at its highest, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) now: u64,
    pub(crate) peak: u64,
}

pub(crate) fn memory(pid: u32) -> Result<Memory> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).with_context(|| format!("process {pid} has ended"))?;
    parse_memory(&text).context("the kernel does not say how much memory a process has")
}

fn parse_memory(text: &str) -> Option<Memory> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    };
    Some(Memory {
        now: field("VmRSS:")?,
        peak: field("VmHWM:")?,
    })
}

/// The process that listens on a port of this machine.
pub(crate) fn listener(port: u16) -> Option<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let inode = tables
        .iter()
        .find_map(|table| parse_listener(&fs::read_to_string(table).ok()?, port))?;
    let wanted = format!("socket:[{inode}]");
    let pids = fs::read_dir("/proc").ok()?.flatten();
    pids.filter_map(|entry| entry.file_name().to_string_lossy().parse::<u32>().ok())
        .filter(|pid| {
            let links = fs::read_dir(format!("/proc/{pid}/fd"));
            links.is_ok_and(|links| {
                links
                    .flatten()
                    .any(|link| fs::read_link(link.path()).is_ok_and(|to| to.to_string_lossy() == wanted))
            })
        })
        // A server that forks shares its socket with its children; the parent was there first.
        .min()
}

fn parse_listener(table: &str, port: u16) -> Option<u64> {
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, local) = fields.get(1)?.rsplit_once(':')?;
        let listening = *fields.get(3)? == "0A";
        let found = listening && u16::from_str_radix(local, 16).ok()? == port;
        found.then(|| fields.get(9)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_files_are_read() {
        let stat = parse_stat("42 (a) b) (c) S 7 42 42 0 -1 4194560 9 0 0 0 150 50 0 0").unwrap();
        assert_eq!((stat.state, stat.parent, stat.user, stat.system), ('S', 7, 150, 50));
        assert_eq!(parse_busy("cpu  10 1 20 1000 500 3 4 5 6 7\ncpu0 1\n"), Some(43));
        assert_eq!(parse_cores("cpu  10 1\ncpu0 1\ncpu1 1\nintr 1\n"), 2);
        assert_eq!(
            parse_memory("Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n"),
            Some(Memory {
                now: 1 << 20,
                peak: 2 << 20
            })
        );
        let table = "  sl  local_address rem_address   st tx rx tr tm retrnsmt uid timeout inode\n\
             0: 0100007F:1F90 00000000:0000 01 0:0 0:0 0 0 0 111 1\n\
             1: 0100007F:1F90 00000000:0000 0A 0:0 0:0 0 0 0 222 1\n";
        assert_eq!(parse_listener(table, 8080), Some(222));
        assert_eq!(parse_listener(table, 8081), None);
    }

    #[test]
    fn this_process_and_its_listener_are_found() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let me = std::process::id();
        assert_eq!(listener(socket.local_addr().unwrap().port()), Some(me));
        assert!(cpu(me).is_ok() && memory(me).unwrap().now > 100_000);
        assert!(family(me).first() == Some(&me) && is_running(me));
        assert!(machine_busy() > Duration::ZERO);
    }
}
