//! The local copy: one file per output under its hash, one small file per action that names its output.
//!
//! Files appear under their names only when whole, so that a helper that was killed leaves nothing half-written. What was not
//! used for [`KEPT`] is removed, at most once a day, as Go does with its own cache.

use aws_lc_rs::digest;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An action id or an output id.
pub(super) type Id = [u8; 32];

/// How long an unused file stays.
const KEPT: Duration = Duration::from_hours(5 * 24);
/// How often that is looked at.
const TRIM_EVERY: Duration = Duration::from_hours(24);
/// A use within this time of the last one is not noted.
const NOTED: Duration = Duration::from_hours(1);
/// Length of an action file: output id, size, time.
const ACTION: usize = 32 + 8 + 8;

/// An output that is on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) output: Id,
    pub(super) size: u64,
    /// When it was stored first, in Unix milliseconds. Go compares it with the time of `go clean -testcache`.
    pub(super) stored_ms: u64,
    pub(super) path: PathBuf,
}

/// A verified body, not yet under its name.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) output: Id,
    pub(super) size: u64,
    pub(super) stored_ms: u64,
    pub(super) file: Draft,
}

/// A file that disappears unless it is published.
#[derive(Debug)]
pub(super) struct Draft {
    path: PathBuf,
    published: bool,
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.published {
            // It may never have been made.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Draft {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn publish(mut self, name: &Path) -> io::Result<()> {
        if let Some(parent) = name.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::rename(&self.path, name)?;
        self.published = true;
        Ok(())
    }
}

/// The folder. Cloning shares it.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    dir: PathBuf,
}

pub(super) fn sha256(bytes: &[u8]) -> Id {
    let mut id = [0; 32];
    id.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    id
}

pub(super) fn hex(id: &Id) -> String {
    id.iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing into a `String` cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(super) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Disk {
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir.join("new"))?;
        // Go wants absolute paths.
        let dir = fs::canonicalize(dir)?;
        if dir.to_str().is_none() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "its name is not UTF-8"));
        }
        Ok(Self { dir })
    }

    fn place(&self, kind: &str, id: &Id) -> PathBuf {
        let name = hex(id);
        self.dir.join(kind).join(name.get(..2).unwrap_or_default()).join(name)
    }

    /// A name nobody else has.
    pub(super) fn draft(&self) -> Draft {
        let name = format!("{}-{:016x}", std::process::id(), rand::random::<u64>());
        Draft {
            path: self.dir.join("new").join(name),
            published: false,
        }
    }

    /// What an action produced, if it is all here.
    pub(super) fn find(&self, action: &Id) -> Option<Found> {
        let place = self.place("actions", action);
        let bytes = fs::read(&place).ok().filter(|bytes| bytes.len() == ACTION)?;
        let (output, rest) = bytes.split_first_chunk::<32>()?;
        let (size, rest) = rest.split_first_chunk::<8>()?;
        let stored = rest.first_chunk::<8>()?;
        let found = Found {
            output: *output,
            size: u64::from_le_bytes(*size),
            stored_ms: u64::from_le_bytes(*stored),
            path: self.place("outputs", output),
        };
        let whole = fs::metadata(&found.path).is_ok_and(|about| about.len() == found.size);
        if !whole {
            return None;
        }
        note(&place);
        note(&found.path);
        Some(found)
    }

    /// Keeps what Go gave us.
    pub(super) fn store(&self, action: &Id, output: &Id, body: &[u8]) -> io::Result<Found> {
        let draft = self.draft();
        fs::write(draft.path(), body)?;
        let fetched = Fetched {
            output: *output,
            size: body.len() as u64,
            stored_ms: millis(SystemTime::now()),
            file: draft,
        };
        self.keep(action, fetched)
    }

    /// Publishes a body and then the action that leads to it.
    pub(super) fn keep(&self, action: &Id, fetched: Fetched) -> io::Result<Found> {
        let Fetched {
            output,
            size,
            stored_ms,
            file,
        } = fetched;
        let path = self.place("outputs", &output);
        file.publish(&path)?;
        let mut bytes = output.to_vec();
        bytes.extend_from_slice(&size.to_le_bytes());
        bytes.extend_from_slice(&stored_ms.to_le_bytes());
        let draft = self.draft();
        fs::write(draft.path(), bytes)?;
        draft.publish(&self.place("actions", action))?;
        Ok(Found {
            output,
            size,
            stored_ms,
            path,
        })
    }

    /// Removes what was not used for long, if nobody did so today. Failures are left for another day.
    pub(super) fn trim(&self, now: SystemTime) {
        let mark = self.dir.join("trimmed");
        let age = |path: &Path| {
            let modified = fs::metadata(path).and_then(|about| about.modified()).ok()?;
            Some(now.duration_since(modified).unwrap_or_default())
        };
        if age(&mark).is_some_and(|age| age < TRIM_EVERY) {
            return;
        }
        let marked = File::create(&mark).and_then(|mut file| file.write_all(b"\n"));
        if marked.is_err() {
            return;
        }
        let folders = ["actions", "outputs"].map(|kind| self.dir.join(kind));
        let folders = folders
            .iter()
            .flat_map(|kind| entries(kind))
            .chain([self.dir.join("new")]);
        for folder in folders {
            for path in entries(&folder) {
                if age(&path).is_some_and(|age| age > KEPT) {
                    let _ = fs::remove_file(path);
                }
            }
        }
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(folder).into_iter().flatten();
    listed.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// Notes that a file was used, so that it stays.
fn note(path: &Path) {
    let now = SystemTime::now();
    let recent = fs::metadata(path)
        .and_then(|about| about.modified())
        .is_ok_and(|modified| now.duration_since(modified).unwrap_or_default() < NOTED);
    if !recent {
        // A file that cannot be touched is fetched again some day.
        let _ = File::options()
            .write(true)
            .open(path)
            .and_then(|file| file.set_modified(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> (tempfile::TempDir, Disk) {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::open(&dir.path().join("go")).unwrap();
        (dir, disk)
    }

    fn age(path: &Path, modified: SystemTime) {
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(modified).unwrap();
    }

    #[test]
    fn what_was_stored_is_found_until_a_byte_is_missing() {
        let (_dir, disk) = disk();
        let (action, output) = ([1; 32], sha256(b"body"));
        assert_eq!(disk.find(&action), None);
        let stored = disk.store(&action, &output, b"body").unwrap();
        assert_eq!(disk.find(&action), Some(stored.clone()));
        assert_eq!(fs::read(&stored.path).unwrap(), b"body");
        fs::write(&stored.path, b"bod").unwrap();
        assert_eq!(disk.find(&action), None);
        assert!(entries(&disk.dir.join("new")).is_empty(), "drafts are left over");
    }

    #[test]
    fn unused_files_go_and_used_ones_stay() {
        let (_dir, disk) = disk();
        let (old, used) = ([1; 32], [2; 32]);
        for (action, body) in [(old, b"old"), (used, b"new")] {
            let found = disk.store(&action, &sha256(body), body).unwrap();
            let long_ago = SystemTime::now() - KEPT - NOTED;
            for path in [found.path, disk.place("actions", &action)] {
                age(&path, long_ago);
            }
        }
        assert!(disk.find(&used).is_some());
        disk.trim(SystemTime::now());
        assert!(disk.find(&used).is_some());
        assert_eq!(disk.find(&old), None);
        let again = disk.store(&old, &sha256(b"old"), b"old").unwrap();
        age(&again.path, UNIX_EPOCH);
        disk.trim(SystemTime::now());
        assert!(again.path.exists(), "once a day is enough");
        disk.trim(SystemTime::now() + TRIM_EVERY);
        assert!(!again.path.exists());
    }
}
