//! Facts about a running process: when it started (its identity beside the pid), how much memory and time it uses.
//!
//! A pid alone is not an identity, since the kernel hands it out again. Every place that signals a process compares
//! the start time too.

use std::time::Duration;

/// Resource use of one process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Resident memory in bytes.
    pub memory: u64,
    /// Processor time used since the process started.
    pub cpu: Duration,
}

/// A number that differs between two processes that had the same pid. `None` when there is no such process.
pub fn start_time(pid: u32) -> Option<u64> {
    system::start_time(pid)
}

/// Memory and processor time of `pid`. `None` when there is no such process.
pub fn usage(pid: u32) -> Option<Usage> {
    system::usage(pid)
}

/// Processor share between two samples, in percent of one core.
pub fn cpu_percent(before: Duration, after: Duration, window: Duration) -> f64 {
    if window.is_zero() {
        return 0.0;
    }
    after.saturating_sub(before).as_secs_f64() / window.as_secs_f64() * 100.0
}

/// Whether the process that had this start time is still there.
pub fn is_alive(pid: u32, started: u64) -> bool {
    start_time(pid) == Some(started)
}

/// The fields of `/proc/<pid>/stat` that matter here.
#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
struct Stat {
    state: char,
    cpu_ticks: u64,
    start_ticks: u64,
    resident_pages: u64,
}

/// The command name sits in parentheses and may itself hold spaces and parentheses: count from the last one.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // The field after the name is number 3 of proc(5).
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        cpu_ticks: number(14)? + number(15)?,
        start_ticks: number(22)?,
        resident_pages: number(24)?,
    })
}

/// `[[dd-]hh:]mm:ss[.cc]`, as `ps -o time=` prints it.
#[cfg_attr(target_os = "linux", allow(dead_code))]
fn parse_ps_time(text: &str) -> Option<Duration> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (days.parse::<f64>().ok()?, clock),
        None => (0.0, text),
    };
    let mut seconds = 0.0;
    for part in clock.split(':') {
        seconds = seconds * 60.0 + part.parse::<f64>().ok()?;
    }
    Duration::try_from_secs_f64(days * 86_400.0 + seconds).ok()
}

#[cfg(target_os = "linux")]
mod system {
    use super::{Duration, Stat, Usage, parse_stat};

    fn stat(pid: u32) -> Option<Stat> {
        let stat = parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
        // A zombie has ended; only its parent has not looked yet. Unless it is just the first of its threads that has.
        let lives = !matches!(stat.state, 'Z' | 'X') || russet_cluster::process::has_live_threads(pid);
        lives.then_some(stat)
    }

    pub(super) fn start_time(pid: u32) -> Option<u64> {
        stat(pid).map(|stat| stat.start_ticks)
    }

    pub(super) fn usage(pid: u32) -> Option<Usage> {
        let stat = stat(pid)?;
        let per_second = rustix::param::clock_ticks_per_second().max(1);
        let nanos = stat.cpu_ticks.saturating_mul(1_000_000_000 / per_second);
        let page = u64::try_from(rustix::param::page_size()).ok()?;
        Some(Usage {
            memory: stat.resident_pages.saturating_mul(page),
            cpu: Duration::from_nanos(nanos),
        })
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::{Usage, parse_ps_time};
    use std::hash::{DefaultHasher, Hash, Hasher};
    use std::process::Command;

    fn ps(columns: &str, pid: u32) -> Option<String> {
        let output = Command::new("ps")
            .args(["-o", columns, "-p", &pid.to_string()])
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && !text.is_empty()).then_some(text)
    }

    pub(super) fn start_time(pid: u32) -> Option<u64> {
        let text = ps("state=,lstart=", pid)?;
        let (state, started) = text.split_once(char::is_whitespace)?;
        if state.starts_with('Z') {
            return None;
        }
        let mut hasher = DefaultHasher::new();
        started.trim().hash(&mut hasher);
        Some(hasher.finish())
    }

    pub(super) fn usage(pid: u32) -> Option<Usage> {
        let text = ps("rss=,time=", pid)?;
        let mut fields = text.split_whitespace();
        let memory = fields.next()?.parse::<u64>().ok()?.saturating_mul(1024);
        Some(Usage {
            memory,
            cpu: parse_ps_time(fields.next()?)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_with_parentheses_does_not_shift_the_fields() {
        let line =
            "42 (a) b) (c) S 1 42 42 0 -1 4194560 9 0 0 0 150 50 0 0 20 0 9 0 777 1000 2048 18446744073709551615";
        assert_eq!(
            parse_stat(line),
            Some(Stat {
                state: 'S',
                cpu_ticks: 200,
                start_ticks: 777,
                resident_pages: 2048
            })
        );
        assert_eq!(parse_stat("42 (cut off) S 1"), None);
    }

    #[test]
    fn ps_times_are_read_in_every_length() {
        assert_eq!(parse_ps_time("0:01.50"), Some(Duration::from_millis(1500)));
        assert_eq!(parse_ps_time("01:02:03"), Some(Duration::from_secs(3723)));
        assert_eq!(parse_ps_time("1-00:00:01"), Some(Duration::from_secs(86_401)));
        assert_eq!(parse_ps_time("soon"), None);
    }

    #[test]
    fn this_process_is_alive_and_uses_memory() {
        let me = std::process::id();
        let started = start_time(me).unwrap();
        assert!(is_alive(me, started));
        assert!(!is_alive(me, started + 1));
        assert!(usage(me).unwrap().memory > 100_000);
    }

    #[test]
    fn processor_share_is_of_one_core_and_never_negative() {
        let share = cpu_percent(
            Duration::from_millis(100),
            Duration::from_millis(150),
            Duration::from_millis(200),
        );
        assert!((share - 25.0).abs() < 1e-9);
        assert!(cpu_percent(Duration::from_secs(2), Duration::from_secs(1), Duration::from_secs(1)).abs() < 1e-9);
    }
}
