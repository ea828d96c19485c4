//! The page cache, emptied: what was just written must come from the disk again.

use anyhow::{Context as _, Result};
use rustix::fs::{Advice, fadvise, sync};
use std::fs;
use std::path::Path;

/// How it was done, for the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// Everything, the programs included.
    All,
    /// Only the data; we are not root.
    Data,
}

/// Forgets cached pages: all of them if we may, else those of the files in a folder.
pub(crate) fn drop_cached(folder: &Path) -> Result<Dropped> {
    sync();
    if fs::write("/proc/sys/vm/drop_caches", "3").is_ok() {
        return Ok(Dropped::All);
    }
    forget(folder).with_context(|| format!("failed to drop the cached pages of {}", folder.display()))?;
    Ok(Dropped::Data)
}

fn forget(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            forget(&entry.path())?;
        } else if kind.is_file() {
            let file = fs::File::open(entry.path())?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}

/// The name of the file system a folder is on, as the kernel mounts it.
pub(crate) fn file_system(folder: &Path) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    deepest(&mounts, folder)
}

fn deepest(mounts: &str, folder: &Path) -> Option<String> {
    let lines = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (point, kind) = (fields.next()?, fields.next()?);
        folder.starts_with(point).then_some((point.len(), kind))
    });
    lines.max_by_key(|(depth, _)| *depth).map(|(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_counts() {
        let mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n";
        assert_eq!(deepest(mounts, Path::new("/tmp/x")).as_deref(), Some("tmpfs"));
        assert_eq!(deepest(mounts, Path::new("/work")).as_deref(), Some("ext4"));
    }

    #[test]
    fn files_in_folders_are_forgotten_without_privileges() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/b"), "text").unwrap();
        forget(dir.path()).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("a/b")).unwrap(), "text");
    }
}
