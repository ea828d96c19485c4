//! Which process, so that a number that was given out again is not taken for it.

use serde::{Deserialize, Serialize};

/// A process, by number and start.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it started, in the host's own words. Two processes of one number never share it.
    pub started: String,
}

impl Process {
    /// The process that has this number now; `None` if there is none.
    pub fn look_up(pid: u32) -> Option<Self> {
        Some(Self {
            pid,
            started: started(pid)?,
        })
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        // Between the look and the signal the number could be given out again; the kernel offers nothing better everywhere.
        if let (true, Some(pid)) = (
            is_alive(self),
            i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw),
        ) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}

/// Whether exactly this process lives.
pub fn is_alive(process: &Process) -> bool {
    started(process.pid).is_some_and(|started| started == process.started)
}

/// Ticks count from the boot, so the boot is part of it.
#[cfg(target_os = "linux")]
fn started(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    // The program's name is in parentheses and may contain anything; counting begins after the last one.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    Some(format!("{}/{}", boot.trim(), fields.nth(18)?))
}

#[cfg(not(target_os = "linux"))]
fn started(pid: u32) -> Option<String> {
    let output = std::process::Command::new("/bin/ps")
        .args(["-o", "stat=,lstart=", "-p", &pid.to_string()])
        .env("LC_ALL", "C")
        // The time is told as it is here, and a host that moves to another zone is still the same.
        .env("TZ", "UTC")
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (state, started) = text.trim().split_once(char::is_whitespace)?;
    (output.status.success() && !state.starts_with('Z')).then(|| started.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_itself_and_nobody_else() {
        let me = Process::look_up(std::process::id()).unwrap();
        assert!(is_alive(&me));
        assert!(!is_alive(&Process {
            started: "another boot/1".into(),
            ..me.clone()
        }));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(Process::look_up(child.id()), None);
    }
}
