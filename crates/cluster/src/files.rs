//! Files that are either whole or absent.
//!
//! A killed run must never leave half a certificate or half a ledger behind, so everything this crate persists is written
//! to a temporary file beside its destination and renamed over it. The mode is set before the first byte, so a key is
//! never readable by others, not even for a moment.

use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Why a file could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file system has no room left.
    #[error("the disk is full: could not write {}; free some space and start again, nothing half-written was left", path.display())]
    DiskFull {
        /// The file that was being written.
        path: PathBuf,
    },
    /// Any other failure.
    #[error("could not {action} {}", path.display())]
    Io {
        /// What was attempted: "read", "write", "create directory".
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn new(action: &'static str, path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { path: path.to_owned() },
            _ => Self::Io {
                action,
                path: path.to_owned(),
                source,
            },
        }
    }
}

/// Who may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Mode 0600: keys, tokens, kubeconfigs.
    Private,
    /// Mode 0644: certificates, configuration.
    Public,
}

impl Access {
    fn mode(self) -> u32 {
        match self {
            Self::Private => 0o600,
            Self::Public => 0o644,
        }
    }
}

/// Replaces `path` with `content` in one step.
pub fn write(path: &Path, content: &[u8], access: Access) -> Result<(), Error> {
    let parent = path
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    create_dir(parent)?;
    let failed = |source| Error::new("write", path, source);
    let mut file = tempfile::Builder::new()
        .prefix(".russet-")
        .permissions(Permissions::from_mode(access.mode()))
        .tempfile_in(parent)
        .map_err(failed)?;
    file.write_all(content).map_err(failed)?;
    // Some file systems report a full disk only when the data is flushed; without this the rename could publish an
    // empty file.
    file.as_file().sync_data().map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

/// The content of `path`, or `None` when there is no such file.
pub fn read(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match std::fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::new("read", path, source)),
    }
}

/// The text of `path`, or `None` when there is no such file. Text that is not UTF-8 is read as an absent file would be:
/// every caller treats an unreadable remembered value as one to make anew.
pub(crate) fn read_text(path: &Path) -> Result<Option<String>, Error> {
    Ok(read(path)?.and_then(|bytes| String::from_utf8(bytes).ok()))
}

/// Creates `path` and its parents.
pub fn create_dir(path: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(path).map_err(|source| Error::new("create directory", path, source))
}

/// Creates `path` and its parents, and closes it to other users: it will hold keys or cluster data.
pub fn create_private_dir(path: &Path) -> Result<(), Error> {
    create_dir(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o700))
        .map_err(|source| Error::new("set permissions of", path, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_file_is_readable_by_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/key");
        write(&path, b"secret", Access::Private).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        write(&path, b"other", Access::Private).unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some(&b"other"[..]));
    }

    #[test]
    fn a_full_disk_is_told_apart_from_other_failures() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert!(matches!(
            Error::new("write", Path::new("x"), full),
            Error::DiskFull { .. }
        ));
        // /dev/full is the real thing: a device on which every write fails with ENOSPC.
        #[cfg(target_os = "linux")]
        {
            let error = std::fs::write("/dev/full", b"x").unwrap_err();
            assert!(matches!(
                Error::new("write", Path::new("/dev/full"), error),
                Error::DiskFull { .. }
            ));
        }
    }

    #[test]
    fn an_absent_file_is_none_and_a_directory_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read(&dir.path().join("absent")).unwrap().is_none());
        assert!(matches!(read(dir.path()), Err(Error::Io { .. })));
    }
}
