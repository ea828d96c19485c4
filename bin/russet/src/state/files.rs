//! Reading and replacing small files so that a crash in the middle leaves the old or the new one, never half.

use serde::{Serialize, de::DeserializeOwned};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Replaces `path` by `bytes`. The temporary file is in the same folder, so the rename is atomic, and carries our pid,
/// so that two writers never share one.
pub(crate) fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = write_new(&temporary, bytes, mode).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // A full disk must not also keep the leftovers.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn write_new(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut file: File = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(path)?;
    file.write_all(bytes)?;
    // Without this a power cut can leave the new name with no content.
    file.sync_all()
}

/// `value` as indented JSON, replaced atomically.
pub(crate) fn replace_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.push(b'\n');
    replace(path, &bytes, 0o644)
}

/// What a JSON file held.
#[derive(Debug)]
pub(crate) enum Read<T> {
    Missing,
    /// There, but not readable as what it should be; the reason is for a message, never for a decision.
    Corrupt(String),
    Value(T),
}

pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Read<T>> {
    match fs::read(path) {
        Ok(bytes) => Ok(match serde_json::from_slice(&bytes) {
            Ok(value) => Read::Value(value),
            Err(error) => Read::Corrupt(error.to_string()),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Read::Missing),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_replaced_file_has_the_new_content_and_mode_and_no_leftovers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        replace(&path, b"one", 0o600).unwrap();
        replace(&path, b"two", 0o600).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_torn_file_is_corrupt_and_an_absent_one_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        assert!(matches!(read_json::<u32>(&path).unwrap(), Read::Missing));
        fs::write(&path, "{\"half\": ").unwrap();
        assert!(matches!(read_json::<u32>(&path).unwrap(), Read::Corrupt(_)));
        fs::write(&path, "7").unwrap();
        assert!(matches!(read_json::<u32>(&path).unwrap(), Read::Value(7)));
    }
}
