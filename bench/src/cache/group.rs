//! A control group with a memory limit, as a container has one.

use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Removed when dropped; its processes must have ended.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) path: PathBuf,
    version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Group {
    /// Needs root, as a rule.
    pub(crate) fn new(limit: u64) -> Result<Self> {
        let root = Path::new("/sys/fs/cgroup");
        let (parent, version) = if root.join("cgroup.controllers").exists() {
            (root.to_owned(), Version::Two)
        } else {
            (root.join("memory"), Version::One)
        };
        let path = parent.join(format!("russet-bench-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("failed to make {}", path.display()))?;
        let group = Self { path, version };
        let file = match version {
            Version::One => "memory.limit_in_bytes",
            Version::Two => "memory.max",
        };
        fs::write(group.path.join(file), limit.to_string())
            .with_context(|| format!("failed to set {file} of {}", group.path.display()))?;
        Ok(group)
    }

    /// The most its processes and their page cache have used.
    pub(crate) fn peak(&self) -> Option<u64> {
        let file = match self.version {
            Version::One => "memory.max_usage_in_bytes",
            Version::Two => "memory.peak",
        };
        fs::read_to_string(self.path.join(file)).ok()?.trim().parse().ok()
    }

    /// How many processes the kernel killed in it.
    pub(crate) fn killed(&self) -> Option<u64> {
        let file = match self.version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        killed(&fs::read_to_string(self.path.join(file)).ok()?)
    }
}

fn killed(text: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_are_counted_in_both_versions() {
        assert_eq!(killed("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"), Some(2));
        let killed_one = killed("low 0\nhigh 0\nmax 9\noom 1\noom_kill 1\noom_group_kill 0\n");
        assert_eq!(killed_one, Some(1));
        assert_eq!(killed(""), None);
    }
}
