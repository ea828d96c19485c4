//! What is removed: out of everybody's sight at once, and off the disk when there is time.
//!
//! A guest may leave millions of files, and folders that nobody may write to. Unlinking them takes minutes, in which an agent that
//! does it by itself renews no Lease; and a folder without rights stops whoever removes what is in it, Secrets that come after it
//! included. So a folder is renamed, which takes no time whatever is in it, and a thread does the rest. What an agent did not get
//! to is removed by the next.
//!
//! Nothing of a guest is removed on the agent's own thread, not even what cannot be renamed.

mod remove;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

pub(crate) use self::remove::remove;

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
    /// What could not be brought there, and is removed where it is.
    elsewhere: Arc<Mutex<Vec<PathBuf>>>,
}

impl Trash {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            next: Arc::default(),
            thrown: Arc::default(),
            elsewhere: Arc::default(),
        }
    }

    /// Takes a folder away. That it is not there is fine. One that cannot be moved is removed where it is, later; that is an error,
    /// as it is in sight until then.
    pub(crate) fn throw(&self, folder: &Path) -> io::Result<()> {
        let thrown = match self.rename(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !folder.exists() => return Ok(()),
            // A disk may have no room for another entry.
            Err(error) => {
                self.elsewhere().push(folder.to_owned());
                let words = format!("it cannot be moved out of sight, and is being removed where it is: {error}");
                Err(io::Error::new(error.kind(), words))
            }
            Ok(()) => Ok(()),
        };
        self.thrown.notify_one();
        thrown
    }

    fn elsewhere(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner)
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
        // A guest that is still there may write for as long as we remove. Whoever ends must not wait for that.
        let here = Arc::new(());
        loop {
            let (trash, here) = (self.clone(), Arc::downgrade(&here));
            let emptied = tokio::task::spawn_blocking(move || trash.empty(&|| here.strong_count() > 0)).await;
            match emptied {
                Ok(Ok(())) => self.thrown.notified().await,
                failed => {
                    tracing::warn!(?failed, "what was thrown away could not be removed; it is tried again");
                    let _ = tokio::time::timeout(AGAIN, self.thrown.notified()).await;
                }
            }
        }
    }

    fn empty(&self, wanted: &dyn Fn() -> bool) -> io::Result<()> {
        let elsewhere = std::mem::take(&mut *self.elsewhere());
        let mut first = Ok(());
        for folder in elsewhere {
            // There may be room by now.
            let removed = self.rename(&folder).or_else(|_| remove::remove_while(&folder, wanted));
            if removed.is_err() {
                self.elsewhere().push(folder);
            }
            first = first.and(removed);
        }
        first.and(match File::open(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            opened => opened.and_then(|dir| remove::empty(&dir, wanted)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;
    use std::time::Instant;

    fn full(dir: &Path) -> PathBuf {
        let folder = dir.join("volumes");
        std::fs::create_dir_all(folder.join("work/mod@v1")).unwrap();
        std::fs::write(folder.join("work/mod@v1/file"), "").unwrap();
        std::fs::create_dir_all(folder.join("work/zz-hush")).unwrap();
        std::fs::write(folder.join("work/zz-hush/word"), "secret").unwrap();
        std::os::unix::fs::symlink(dir.join("outside"), folder.join("work/link")).unwrap();
        std::fs::create_dir_all(dir.join("outside/kept")).unwrap();
        std::fs::set_permissions(dir.join("outside"), Permissions::from_mode(0o555)).unwrap();
        std::fs::set_permissions(folder.join("work/mod@v1"), Permissions::from_mode(0o555)).unwrap();
        folder
    }

    /// Folders in folders, more of them than a path can name.
    fn nest(top: &Path, depth: usize) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut here = openat(CWD, top, flags, Mode::empty()).unwrap();
        for _ in 0..depth {
            mkdirat(&here, "deep", Mode::RWXU).unwrap();
            here = openat(&here, "deep", flags, Mode::empty()).unwrap();
        }
    }

    /// Module caches of Go are read-only. A Pod with one in an emptyDir left its Secrets behind, for the removal ended there. Root may
    /// remove anything, so that a child shows the same as somebody else.
    #[test]
    fn what_a_guest_made_read_only_goes_too() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("volumes");
        for mode in [0o555, 0o311, 0o000] {
            let folder = full(dir.path());
            std::fs::set_permissions(folder.join("work/mod@v1"), Permissions::from_mode(mode)).unwrap();
            std::fs::set_permissions(folder.join("work"), Permissions::from_mode(mode)).unwrap();
            remove(&folder).unwrap();
            assert!(!folder.exists(), "{mode:o}");
        }
        remove(&folder).unwrap();
        let outside = dir.path().join("outside");
        assert!(outside.join("kept").exists());
        let mode = std::fs::metadata(&outside).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o555, "a link was followed");
        // A link and a file in the place of a folder go, and not what is behind them.
        std::os::unix::fs::symlink(&outside, &folder).unwrap();
        remove(&folder).unwrap();
        std::fs::write(&folder, "").unwrap();
        remove(&folder).unwrap();
        assert!(std::fs::symlink_metadata(&folder).is_err() && outside.join("kept").exists());
        std::fs::set_permissions(&outside, Permissions::from_mode(0o755)).unwrap();
    }

    const DIR: &str = "RUSSET_TRASH_DIR";

    /// A guest nested twenty thousand folders. Whoever removed them had as many files open and ran out of them, so that the agent
    /// wrote no ledger and took no calls; the tree never went, nor did the Secrets beside it. A child has few files here, and is not
    /// root if that can be had.
    #[test]
    fn no_depth_and_nothing_that_stays_keeps_what_is_beside_it() {
        let program = std::env::current_exe().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (deep, stuck) = (dir.path().join("deep"), dir.path().join("stuck"));
        for folder in [&deep, &stuck] {
            std::fs::create_dir_all(folder).unwrap();
        }
        let other = russet_skip::without_root(russet_skip::test_name!(), &program);
        let able = rustix::process::geteuid().is_root() && other.is_some();
        if able {
            // Nobody else can take what is root's.
            std::fs::create_dir_all(stuck.join("b/of-root")).unwrap();
            std::fs::write(stuck.join("b/of-root/file"), "").unwrap();
            for folder in [dir.path(), &deep, &stuck, &stuck.join("b")] {
                std::os::unix::fs::chown(folder, Some(65534), Some(65534)).unwrap();
            }
        }
        let output = other
            .unwrap_or_else(|| Command::new(&program))
            .args(["--exact", "pods::trash::tests::child_with_few_files", "--nocapture"])
            .env(DIR, dir.path())
            .env("TMPDIR", dir.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("all of it went"), "{output:?}");
        assert!(!deep.exists());
        assert_eq!(stuck.join("b/of-root/file").exists(), able);
        remove(&stuck).unwrap();
    }

    #[test]
    fn child_with_few_files() {
        let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else {
            return;
        };
        let hush = |top: &Path| {
            std::fs::create_dir_all(top.join("a/below")).unwrap();
            std::fs::create_dir_all(top.join("zz-hush")).unwrap();
            std::fs::write(top.join("zz-hush/word"), "secret").unwrap();
        };
        let (deep, stuck) = (dir.join("deep"), dir.join("stuck"));
        hush(&deep);
        hush(&stuck);
        nest(&deep.join("a/below"), 30_000);
        let limit = getrlimit(Resource::Nofile);
        let few = Rlimit {
            current: Some(16),
            ..limit
        };
        setrlimit(Resource::Nofile, few).unwrap();
        remove(&deep).unwrap();
        let removed = remove(&stuck);
        setrlimit(Resource::Nofile, limit).unwrap();
        assert!(!deep.exists());
        assert!(!stuck.join("a").exists() && !stuck.join("zz-hush").exists());
        assert_eq!(removed.is_err(), stuck.join("b").exists(), "{removed:?}");
        // Not root: rights are in the way here.
        what_a_guest_made_read_only_goes_too();
        eprintln!("all of it went");
    }

    /// The agent removed a folder by itself that it could not rename, and renewed no Lease meanwhile.
    #[test]
    fn what_cannot_be_moved_is_removed_where_it_is_by_whoever_empties() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let trash = Trash::new(dir.path().join("file/trash"));
        let folder = full(dir.path());
        let said = trash.throw(&folder).unwrap_err().to_string();
        assert!(said.contains("is being removed where it is: "), "{said}");
        assert!(folder.join("work/zz-hush/word").exists(), "it was removed at once");
        // The trash cannot be looked into either, and says so.
        assert!(trash.empty(&|| true).is_err());
        assert!(!folder.exists() && trash.elsewhere().is_empty());
    }

    /// A guest that is still there goes on writing. It keeps its own folder only, and nobody waits for it who ends.
    #[test]
    fn whoever_still_writes_keeps_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let trash = Trash::new(dir.path().join("trash"));
        let (live, hush) = (dir.path().join("live"), dir.path().join("hush"));
        for folder in [&live, &hush] {
            std::fs::create_dir_all(folder.join("volumes/v")).unwrap();
            std::fs::write(folder.join("volumes/v/word"), "secret").unwrap();
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let held = openat(CWD, &live, flags, Mode::empty()).unwrap();
        trash.throw(&live).unwrap();
        trash.throw(&hush).unwrap();
        let looks = std::cell::Cell::new(0_u32);
        let writing = || {
            looks.set(looks.get() + 1);
            // It may be gone by now, and nothing can be made in it then.
            let _ = mkdirat(&held, format!("more-{}", looks.get()), Mode::RWXU);
            looks.get() < 1000
        };
        trash.empty(&writing).unwrap();
        trash.empty(&|| true).unwrap();
        assert_eq!(std::fs::read_dir(dir.path().join("trash")).unwrap().count(), 0);
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
