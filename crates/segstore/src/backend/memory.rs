//! A store in memory: for tests, and for a node that wants no disk at all.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use super::{Backend, File, LockError};
use crate::sync::{lock, read, write};

/// Files in memory. Clones share them, so a store can be closed and opened again.
#[derive(Clone, Debug, Default)]
pub struct MemoryBackend {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    files: Mutex<BTreeMap<String, Arc<MemoryFile>>>,
    locked: AtomicBool,
    faults: Arc<Faults>,
}

/// What the "disk" refuses, set by tests.
#[derive(Debug, Default)]
struct Faults {
    fail_sync: AtomicBool,
    refuse: AtomicBool,
    /// Bytes that may still be written, plus one; 0 = no limit.
    space: AtomicU64,
}

impl MemoryBackend {
    pub fn new() -> Self {
        Self::default()
    }

    /// Every sync fails from now on.
    pub fn fail_syncs(&self, fail: bool) {
        self.inner.faults.fail_sync.store(fail, Ordering::SeqCst);
    }

    /// Creating, writing and removing is refused, as if the permission were lost.
    pub fn refuse_writes(&self, refuse: bool) {
        self.inner.faults.refuse.store(refuse, Ordering::SeqCst);
    }

    /// So many bytes may still be written; `None` lifts the limit.
    pub fn limit_space(&self, bytes: Option<u64>) {
        self.inner
            .faults
            .space
            .store(bytes.map_or(0, |b| b + 1), Ordering::SeqCst);
    }

    /// Changes stored bytes behind the store's back; false when there is no such file.
    pub fn tamper(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> bool {
        let file = lock(&self.inner.files).get(name).cloned();
        file.map(|f| change(&mut write(&f.data))).is_some()
    }

    /// All file names.
    pub fn names(&self) -> Vec<String> {
        lock(&self.inner.files).keys().cloned().collect()
    }

    /// A copy that shares nothing.
    #[must_use]
    pub fn fork(&self) -> Self {
        let copy = Self::default();
        for (name, file) in lock(&self.inner.files).iter() {
            let twin = MemoryFile {
                data: RwLock::new(read(&file.data).clone()),
                punched: AtomicU64::new(file.punched.load(Ordering::SeqCst)),
                faults: Arc::clone(&copy.inner.faults),
            };
            lock(&copy.inner.files).insert(name.clone(), Arc::new(twin));
        }
        copy
    }
}

#[derive(Debug)]
struct Guard(Arc<Inner>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.locked.store(false, Ordering::SeqCst);
    }
}

impl Backend for MemoryBackend {
    fn lock(&self) -> Result<Box<dyn std::fmt::Debug + Send + Sync>, LockError> {
        if self.inner.locked.swap(true, Ordering::SeqCst) {
            return Err(LockError::Held {
                pid: Some(std::process::id()),
            });
        }
        Ok(Box::new(Guard(Arc::clone(&self.inner))))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.inner.faults.check(0)?;
        let mut files = lock(&self.inner.files);
        if files.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = Arc::new(MemoryFile {
            data: RwLock::default(),
            punched: AtomicU64::new(0),
            faults: Arc::clone(&self.inner.faults),
        });
        files.insert(name.to_owned(), Arc::clone(&file));
        Ok(Arc::new(Handle(file)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let file = lock(&self.inner.files).get(name).cloned();
        file.map(|f| Arc::new(Handle(f)) as Arc<dyn File>)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.faults.check(0)?;
        let gone = lock(&self.inner.files).remove(name).ok_or(io::ErrorKind::NotFound)?;
        self.inner.faults.give_back(gone.occupied());
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = lock(&self.inner.files);
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let prefix = format!("{dir}/");
        let files = lock(&self.inner.files);
        Ok(files
            .keys()
            .filter_map(|n| n.strip_prefix(&prefix))
            .map(ToOwned::to_owned)
            .collect())
    }

    fn create_dir(&self, _dir: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, _dir: &str) -> io::Result<()> {
        self.inner.faults.check_sync()
    }

    fn free_space(&self) -> io::Result<u64> {
        Ok(match self.inner.faults.space.load(Ordering::SeqCst) {
            0 => u64::MAX,
            n => n - 1,
        })
    }

    fn describe(&self) -> std::path::PathBuf {
        "memory".into()
    }
}

impl Faults {
    fn check(&self, bytes: u64) -> io::Result<()> {
        if self.refuse.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let taken = self
            .space
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |space| match space {
                0 => Some(0),
                n => (n > bytes).then(|| n - bytes),
            });
        taken.map(drop).map_err(|_| io::ErrorKind::StorageFull.into())
    }

    /// What was removed can be written again.
    fn give_back(&self, bytes: u64) {
        let _ = self
            .space
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |space| match space {
                0 => None,
                n => Some(n + bytes),
            });
    }

    fn check_sync(&self) -> io::Result<()> {
        if self.fail_sync.load(Ordering::SeqCst) {
            Err(io::Error::other("injected sync failure"))
        } else {
            Ok(())
        }
    }
}

#[derive(Debug)]
struct MemoryFile {
    data: RwLock<Vec<u8>>,
    punched: AtomicU64,
    faults: Arc<Faults>,
}

impl MemoryFile {
    /// Bytes that removing it gives back.
    fn occupied(&self) -> u64 {
        let len = read(&self.data).len() as u64;
        len.saturating_sub(self.punched.load(Ordering::SeqCst))
    }
}

/// Reads from a byte image the way a file would.
pub(super) fn read_image(data: &[u8], buf: &mut [u8], offset: u64) -> usize {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
    let rest = data.get(start..).unwrap_or_default();
    let n = rest.len().min(buf.len());
    if let (Some(to), Some(from)) = (buf.get_mut(..n), rest.get(..n)) {
        to.copy_from_slice(from);
    }
    n
}

/// Writes into a byte image the way a file would, growing it with zeros.
pub(super) fn write_image(data: &mut Vec<u8>, bytes: &[u8], offset: u64) {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let end = start.saturating_add(bytes.len());
    if data.len() < end {
        data.resize(end, 0);
    }
    if let Some(to) = data.get_mut(start..end) {
        to.copy_from_slice(bytes);
    }
}

/// An open file: how many hold it says whether somebody reads, as with files of the system.
#[derive(Debug)]
struct Handle(Arc<MemoryFile>);

impl File for Handle {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(read_image(&read(&self.0.data), buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.0.faults.check(buf.len() as u64)?;
        write_image(&mut write(&self.0.data), buf, offset);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.faults.check_sync()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(read(&self.0.data).len() as u64)
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<bool> {
        let mut data = write(&self.0.data);
        let end = usize::try_from(offset + len).unwrap_or(usize::MAX).min(data.len());
        if let Some(range) = data.get_mut(usize::try_from(offset).unwrap_or(usize::MAX).min(end)..end) {
            // Only what was not a hole before is given back.
            let taken = range.iter().filter(|&&byte| byte != 0).count() as u64;
            range.fill(0);
            self.0.punched.fetch_add(taken, Ordering::SeqCst);
            self.0.faults.give_back(taken);
        }
        Ok(true)
    }
}
