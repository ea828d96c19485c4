//! How full a host is.

use std::path::PathBuf;
use std::time::Duration;

use russet_node::Condition;

use super::ask::ask;
use crate::config::Config;

const PATIENCE: Duration = Duration::from_secs(4);
/// What macOS calls critical.
const CRITICAL: u64 = 4;
const PROCESSES_AT_MOST: u64 = 90;

/// Whether memory or processes are short; none while macOS has not said so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pressure {
    pub(crate) memory: Option<bool>,
    pub(crate) processes: Option<bool>,
}

impl Pressure {
    pub(super) fn on_memory(self) -> Condition {
        match self.memory {
            Some(true) => Condition::memory_pressure(true, "macOS reports critical memory pressure"),
            Some(false) => Condition::memory_pressure(false, "there is memory"),
            None => Condition::memory_pressure(false, "macOS has not said yet whether memory is short").assumed(),
        }
    }

    pub(super) fn on_processes(self) -> Condition {
        match self.processes {
            Some(true) => Condition::pid_pressure(true, "nearly as many processes run as macOS allows"),
            Some(false) => Condition::pid_pressure(false, "there is room for processes"),
            None => Condition::pid_pressure(false, "macOS has not said yet how many processes run").assumed(),
        }
    }
}

/// The programs that know.
#[derive(Debug)]
pub(crate) struct Tools {
    sysctl: PathBuf,
    ps: PathBuf,
}

impl Tools {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            sysctl: config.sysctl.clone(),
            ps: config.ps.clone(),
        }
    }

    /// Asks macOS, everything at once. Where there is no answer, what was so before stays so.
    pub(crate) async fn ask(&self, before: Pressure) -> Pressure {
        let number = async |name: &str| -> Option<u64> {
            let said = ask(&self.sysctl, &["-n", name], PATIENCE).await;
            said.ok()?.parse().ok()
        };
        let (level, most, list) = tokio::join!(
            number("kern.memorystatus_vm_pressure_level"),
            number("kern.maxproc"),
            ask(&self.ps, &["-A", "-o", "pid="], PATIENCE),
        );
        let running = list.ok().map(|list| list.lines().count() as u64);
        Pressure {
            memory: level.map(|level| level >= CRITICAL).or(before.memory),
            processes: match (running, most) {
                (Some(running), Some(most)) if most > 0 => Some(running * 100 > most * PROCESSES_AT_MOST),
                _ => before.processes,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use tokio::time::Instant;

    fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        russet_program::write(&path, &format!("#!/bin/sh\n{text}\n")).unwrap();
        path
    }

    #[tokio::test]
    async fn what_macos_says_is_told_and_where_it_is_silent_nothing_changes() {
        let folder = tempfile::tempdir().unwrap();
        let few = script(folder.path(), "ps", "echo 1; echo 2");
        let says = |level: &str| {
            let answers = format!("case $2 in kern.maxproc) echo 2;; *) {level};; esac");
            Tools {
                sysctl: script(folder.path(), "sysctl", &answers),
                ps: few.clone(),
            }
        };
        let pressed = says("echo 4").ask(Pressure::default()).await;
        assert_eq!((pressed.memory, pressed.processes), (Some(true), Some(true)));
        assert!(pressed.on_memory().holds && pressed.on_processes().holds);
        assert_eq!(says("exit 1").ask(pressed).await, pressed);
        assert_eq!(says("echo 1").ask(pressed).await.memory, Some(false));
        let nothing = Tools {
            sysctl: "/nowhere/sysctl".into(),
            ps: few.clone(),
        };
        let unknown = nothing.ask(Pressure::default()).await;
        assert_eq!(unknown, Pressure::default());
        assert!(unknown.on_memory().assumed && unknown.on_processes().assumed);
    }

    /// Three programs were asked one after the other, with four seconds for each, by a heartbeat that has five.
    #[tokio::test(start_paused = true)]
    async fn programs_that_hang_cost_the_patience_for_one() {
        let folder = tempfile::tempdir().unwrap();
        let hangs = |name| script(folder.path(), name, "exec sleep 600");
        let tools = Tools {
            sysctl: hangs("sysctl"),
            ps: hangs("ps"),
        };
        let before = Pressure {
            memory: Some(true),
            processes: None,
        };
        let asked = Instant::now();
        assert_eq!(tools.ask(before).await, before);
        assert!(asked.elapsed() < PATIENCE * 2, "{:?}", asked.elapsed());
    }
}
