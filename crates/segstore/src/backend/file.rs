//! Real files.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Advice, FallocateFlags, FlockOperation, fadvise, fallocate, flock, statvfs};

use super::{Backend, File, LockError};

/// A store in a folder of the file system.
#[derive(Clone, Debug)]
pub struct FileBackend {
    dir: PathBuf,
}

impl FileBackend {
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() {
            self.dir.clone()
        } else {
            self.dir.join(name)
        }
    }
}

impl Backend for FileBackend {
    fn lock(&self) -> Result<Box<dyn std::fmt::Debug + Send + Sync>, LockError> {
        fs::create_dir_all(&self.dir).map_err(LockError::Io)?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.path("LOCK"))
            .map_err(LockError::Io)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                let read = file.read_to_string(&mut text);
                return Err(LockError::Held {
                    pid: read.ok().and_then(|_| text.trim().parse().ok()),
                });
            }
            Err(errno) => return Err(LockError::Io(errno.into())),
        }
        // The pid is a courtesy to whoever comes second; a full disk must not keep the store from opening.
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Box::new(file))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(self.path(name))?;
        Ok(Arc::new(OsFile(file)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let path = self.path(name);
        // A folder that lost its write permission still serves reads.
        let file = match OpenOptions::new().read(true).write(true).open(&path) {
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                fs::File::open(&path)?
            }
            other => other?,
        };
        Ok(Arc::new(OsFile(file)))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.path(dir)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut names = Vec::new();
        for entry in entries {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create_dir(&self, dir: &str) -> io::Result<()> {
        fs::create_dir_all(self.path(dir))
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        fs::File::open(self.path(dir))?.sync_all()
    }

    fn free_space(&self) -> io::Result<u64> {
        let stat = statvfs(existing_ancestor(&self.dir))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn describe(&self) -> PathBuf {
        self.dir.clone()
    }
}

fn existing_ancestor(dir: &Path) -> &Path {
    dir.ancestors().find(|p| p.exists()).unwrap_or(dir)
}

#[derive(Debug)]
struct OsFile(fs::File);

impl File for OsFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|r| !r.is_empty()) {
            match self.0.read_at(rest, offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(buf, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn will_read(&self, offset: u64, len: u64) {
        if let Some(len) = NonZeroU64::new(len) {
            // Advice that is not taken changes nothing but the time.
            let _ = fadvise(&self.0, offset, Some(len), Advice::WillNeed);
        }
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<bool> {
        match fallocate(
            &self.0,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            offset,
            len,
        ) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    fn as_std(&self) -> Option<&fs::File> {
        Some(&self.0)
    }
}
