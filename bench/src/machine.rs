//! The machine a figure was taken on: without it a figure means nothing.

use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// What is worth knowing about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) processor: String,
    pub(crate) memory_mib: Option<u64>,
    pub(crate) system: String,
}

impl Machine {
    pub(crate) fn this() -> Self {
        let uname = rustix::system::uname();
        let text = |field: &std::ffi::CStr| field.to_string_lossy().into_owned();
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: fs::read_to_string("/proc/cpuinfo")
                .ok()
                .and_then(|text| field(&text, "model name"))
                .unwrap_or_else(|| text(uname.machine())),
            memory_mib: fs::read_to_string("/proc/meminfo")
                .ok()
                .and_then(|text| mem_total(&text)),
            system: format!(
                "{} {} {}",
                text(uname.sysname()),
                text(uname.release()),
                text(uname.machine())
            ),
        }
    }

    pub(crate) fn sentence(&self) -> String {
        let memory = self
            .memory_mib
            .map(|mib| format!(", {} GiB memory", mib.div_ceil(1024)))
            .unwrap_or_default();
        format!("{} cores ({}){memory}, {}", self.cores, self.processor, self.system)
    }
}

/// Load average of the last minute.
pub(crate) fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_whitespace().next().and_then(|word| word.parse().ok());
    first.unwrap_or(0.0)
}

/// The program given, or the one of that name beside this one.
pub(crate) fn program(name: &str, given: Option<&Path>, hint: &str) -> Result<PathBuf> {
    let program = match given {
        Some(given) => std::path::absolute(given)?,
        None => std::env::current_exe()
            .context("failed to find our own program")?
            .with_file_name(name),
    };
    ensure!(program.is_file(), "{} is not there; {hint}", program.display());
    Ok(program)
}

/// Tells the person who waits.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// The first `name : value` line.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

fn mem_total(text: &str) -> Option<u64> {
    let kib: u64 = field(text, "MemTotal")?.trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_files_are_read() {
        assert_eq!(mem_total("MemTotal:       24576000 kB\nMemFree: 1 kB\n"), Some(24000));
        let model = field("a : b\nmodel name\t: Fast CPU\n", "model name");
        assert_eq!(model.as_deref(), Some("Fast CPU"));
        assert_eq!(mem_total(""), None);
    }
}
