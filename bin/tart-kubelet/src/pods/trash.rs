//! What is removed: out of everybody's sight at once, and off the disk when there is time.
//!
//! A guest may leave millions of files, and folders that nobody may write to. Unlinking them takes minutes, in which an agent that
//! does it by itself renews no Lease; and a folder without rights stops whoever removes what is in it, Secrets that come after it
//! included. So a folder is renamed, which takes no time whatever is in it, and a thread does the rest. What an agent did not get
//! to is removed by the next.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// What could not be removed is tried again.
const AGAIN: Duration = Duration::from_mins(5);
/// Names that a predecessor left there.
const MOST_TRIES: u32 = 1000;

/// Where things are that shall be no more. Cheap to copy.
#[derive(Clone, Debug)]
pub(crate) struct Trash {
    dir: PathBuf,
    next: Arc<AtomicU64>,
    thrown: Arc<Notify>,
}

impl Trash {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            next: Arc::default(),
            thrown: Arc::default(),
        }
    }

    /// Takes a folder away. That it is not there is fine.
    pub(crate) fn throw(&self, folder: &Path) -> io::Result<()> {
        match self.rename(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !folder.exists() => Ok(()),
            // A disk may have no room for another entry.
            Err(_) => remove(folder),
            Ok(()) => {
                self.thrown.notify_one();
                Ok(())
            }
        }
    }

    fn rename(&self, folder: &Path) -> io::Result<()> {
        super::folder::make(&self.dir)?;
        let mut tries = 0;
        loop {
            tries += 1;
            let name = self.next.fetch_add(1, Ordering::Relaxed).to_string();
            match std::fs::rename(folder, self.dir.join(name)) {
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty && tries < MOST_TRIES => {}
                done => return done,
            }
        }
    }

    /// Keeps it empty, until it is dropped.
    pub(crate) async fn keep_empty(&self) -> std::convert::Infallible {
        loop {
            let dir = self.dir.clone();
            let emptied = tokio::task::spawn_blocking(move || empty(&dir)).await;
            match emptied {
                Ok(Ok(())) => self.thrown.notified().await,
                failed => {
                    tracing::warn!(?failed, "what was thrown away could not be removed; it is tried again");
                    let _ = tokio::time::timeout(AGAIN, self.thrown.notified()).await;
                }
            }
        }
    }
}

fn empty(dir: &Path) -> io::Result<()> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    let mut first = Ok(());
    for entry in entries {
        let removed = remove(&entry?.path());
        if first.is_ok() {
            first = removed;
        }
    }
    first
}

/// Removes a folder and what is in it, whatever rights it has. A file that somebody is just writing into it goes with it.
pub(crate) fn remove(dir: &Path) -> io::Result<()> {
    let mut tries = 0;
    loop {
        tries += 1;
        match std::fs::remove_dir_all(dir) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty && tries < 5 => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && tries < 5 => open_up(dir)?,
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => return Ok(()),
        }
    }
}

/// Gives us every right to a folder and to those in it. Links are not followed; the guest that made them is gone.
fn open_up(dir: &Path) -> io::Result<()> {
    if !std::fs::symlink_metadata(dir)?.is_dir() {
        return Ok(());
    }
    std::fs::set_permissions(dir, Permissions::from_mode(0o700))?;
    for entry in std::fs::read_dir(dir)? {
        open_up(&entry?.path())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn full(dir: &Path) -> PathBuf {
        let folder = dir.join("volumes");
        std::fs::create_dir_all(folder.join("work/mod@v1")).unwrap();
        std::fs::write(folder.join("work/mod@v1/file"), "").unwrap();
        std::fs::create_dir_all(folder.join("work/zz-hush")).unwrap();
        std::fs::write(folder.join("work/zz-hush/word"), "secret").unwrap();
        std::os::unix::fs::symlink(dir.join("outside"), folder.join("work/link")).unwrap();
        std::fs::create_dir_all(dir.join("outside/kept")).unwrap();
        std::fs::set_permissions(folder.join("work/mod@v1"), Permissions::from_mode(0o555)).unwrap();
        folder
    }

    /// Module caches of Go are read-only. A Pod with one in an emptyDir left its Secrets behind, for the removal ended there. Root may
    /// remove anything, so that this shows more when somebody else runs it.
    #[test]
    fn what_a_guest_made_read_only_goes_too() {
        let dir = tempfile::tempdir().unwrap();
        let folder = full(dir.path());
        open_up(&folder).unwrap();
        let mode = |path: &str| std::fs::metadata(dir.path().join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("volumes/work/mod@v1"), 0o700);
        assert_ne!(mode("outside/kept"), 0o700, "a link was followed");
        std::fs::set_permissions(folder.join("work/mod@v1"), Permissions::from_mode(0o000)).unwrap();
        remove(&folder).unwrap();
        remove(&folder).unwrap();
        assert!(!folder.exists() && dir.path().join("outside/kept").exists());
    }

    #[tokio::test]
    async fn what_is_thrown_away_is_out_of_sight_at_once_and_then_gone() {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("trash");
        // What an earlier agent did not get to.
        std::fs::create_dir_all(bin.join("0/left")).unwrap();
        let trash = Trash::new(bin.clone());
        let folder = full(dir.path());
        trash.throw(&folder).unwrap();
        assert!(!folder.exists());
        trash.throw(&folder).unwrap();
        let emptying = {
            let trash = trash.clone();
            tokio::spawn(async move { trash.keep_empty().await })
        };
        let until = Instant::now() + Duration::from_secs(30);
        while std::fs::read_dir(&bin).unwrap().next().is_some() {
            assert!(Instant::now() < until, "it is still there");
            tokio::task::yield_now().await;
        }
        trash.throw(&full(dir.path())).unwrap();
        while std::fs::read_dir(&bin).unwrap().next().is_some() {
            assert!(Instant::now() < until, "it is still there");
            tokio::task::yield_now().await;
        }
        emptying.abort();
    }
}
