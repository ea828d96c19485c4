//! Files that only their owner reads, and that are there as a whole or not at all.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Writes a file.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(path, bytes, false)
}

/// Writes a file. When this returns it survives a power cut.
pub(crate) fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(path, bytes, true)?;
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

fn replace(path: &Path, bytes: &[u8], sync: bool) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&fresh)?;
    file.write_all(bytes)?;
    if sync {
        file.sync_all()?;
    }
    std::fs::rename(fresh, path)
}
