//! A disk that can lose power, or its process, at any operation.
//!
//! It counts every operation that changes something. From the chosen one on all of them fail. [`CrashBackend::reboot`] then
//! gives the disk that a restart would find: after a process crash everything written is there; after a power loss each
//! unsynced write is kept, lost or torn by sectors, and each unsynced name change kept or lost, as the seed decides.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use super::memory::{read_image, write_image};
use super::{Backend, File, LockError};
use crate::sync::lock;

const SECTOR: usize = 512;

/// What survives the stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// The process died: all that was written is there.
    Process,
    /// Power was lost: what was not synced is in doubt; the number chooses among the outcomes.
    Power(u64),
}

/// See the module.
#[derive(Clone, Debug)]
pub struct CrashBackend {
    disk: Arc<Mutex<Disk>>,
}

#[derive(Debug, Default)]
struct Disk {
    inodes: Vec<Inode>,
    /// Names as the process sees them.
    names: BTreeMap<String, usize>,
    /// Names as of the last folder sync.
    durable_names: BTreeMap<String, usize>,
    name_changes: Vec<NameChange>,
    locked: bool,
    operations: u64,
    stop_at: Option<u64>,
    stopped: bool,
}

#[derive(Clone, Debug, Default)]
struct Inode {
    now: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Punch { offset: u64, len: u64 },
}

#[derive(Clone, Debug)]
enum NameChange {
    Link(String, usize),
    Unlink(String),
    Rename(String, String),
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Link(name, inode) => {
                names.insert(name.clone(), *inode);
            }
            Self::Unlink(name) => {
                names.remove(name);
            }
            Self::Rename(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
        }
    }

    fn dir(&self) -> &str {
        let (Self::Link(name, _) | Self::Unlink(name) | Self::Rename(name, _)) = self;
        name.rsplit_once('/').map_or("", |(dir, _)| dir)
    }
}

impl Change {
    fn apply(&self, image: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes } => write_image(image, bytes, *offset),
            Self::Punch { offset, len } => punch_image(image, *offset, *len),
        }
    }

    /// Applies each sector of the change with even odds.
    fn tear(&self, image: &mut Vec<u8>, random: &mut Random) {
        match self {
            Self::Write { offset, bytes } => {
                let mut at = *offset;
                let mut rest: &[u8] = bytes;
                while !rest.is_empty() {
                    let in_sector = SECTOR - usize::try_from(at).unwrap_or(0) % SECTOR;
                    let (piece, tail) = rest.split_at(in_sector.min(rest.len()));
                    if random.below(2) == 0 {
                        write_image(image, piece, at);
                    }
                    at += piece.len() as u64;
                    rest = tail;
                }
            }
            Self::Punch { .. } => {
                if random.below(2) == 0 {
                    self.apply(image);
                }
            }
        }
    }
}

fn punch_image(image: &mut [u8], offset: u64, len: u64) {
    let end = usize::try_from(offset + len).unwrap_or(usize::MAX).min(image.len());
    if let Some(range) = image.get_mut(usize::try_from(offset).unwrap_or(usize::MAX).min(end)..end) {
        range.fill(0);
    }
}

/// xorshift64*: enough to choose outcomes, and the same everywhere.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n
    }
}

impl Default for CrashBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl CrashBackend {
    pub fn new() -> Self {
        Self { disk: Arc::default() }
    }

    /// Every operation from this one on fails; counting starts at 0.
    pub fn stop_at(&self, operation: Option<u64>) {
        let mut disk = lock(&self.disk);
        disk.stop_at = operation;
        disk.stopped = false;
    }

    /// How many changing operations were asked for.
    pub fn operations(&self) -> u64 {
        lock(&self.disk).operations
    }

    /// Whether the stop was reached.
    pub fn stopped(&self) -> bool {
        lock(&self.disk).stopped
    }

    /// The disk as a restart finds it. The old one stays as it is.
    #[must_use]
    pub fn reboot(&self, survival: Survival) -> Self {
        let old = lock(&self.disk);
        let mut new = Disk::default();
        match survival {
            Survival::Process => {
                new.inodes.clone_from(&old.inodes);
                new.names.clone_from(&old.names);
                new.durable_names.clone_from(&old.durable_names);
                new.name_changes.clone_from(&old.name_changes);
            }
            Survival::Power(seed) => {
                let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
                // Some disks keep nothing, some everything, most a mixture.
                let mood = random.below(4);
                let mut names = old.durable_names.clone();
                // A journal keeps names in order; a careless file system does not. Both happen.
                let ordered = random.below(2) == 0;
                let keep = random.below(old.name_changes.len() as u64 + 1);
                for (i, change) in old.name_changes.iter().enumerate() {
                    let kept = match mood {
                        0 => false,
                        1 => true,
                        _ if ordered => (i as u64) < keep,
                        _ => random.below(2) == 0,
                    };
                    if kept {
                        change.apply(&mut names);
                    }
                }
                for inode in &old.inodes {
                    let mut image = inode.durable.clone();
                    for change in &inode.unsynced {
                        match (mood, random.below(3)) {
                            (0, _) | (2.., 0) => {}
                            (1, _) | (2.., 1) => change.apply(&mut image),
                            _ => change.tear(&mut image, &mut random),
                        }
                    }
                    new.inodes.push(Inode {
                        now: image.clone(),
                        durable: image,
                        unsynced: Vec::new(),
                    });
                }
                new.durable_names.clone_from(&names);
                new.names = names;
            }
        }
        Self {
            disk: Arc::new(Mutex::new(new)),
        }
    }

    fn file(&self, inode: usize) -> Arc<dyn File> {
        Arc::new(CrashFile {
            disk: Arc::clone(&self.disk),
            inode,
        })
    }
}

impl Disk {
    /// Counts one changing operation, or refuses it.
    fn step(&mut self) -> io::Result<()> {
        if self.stopped || self.stop_at.is_some_and(|at| self.operations >= at) {
            self.stopped = true;
            return Err(io::Error::other("the machine stopped"));
        }
        self.operations += 1;
        Ok(())
    }

    fn change_name(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.name_changes.push(change);
    }
}

#[derive(Debug)]
struct Guard(Arc<Mutex<Disk>>);

impl Drop for Guard {
    fn drop(&mut self) {
        lock(&self.0).locked = false;
    }
}

impl Backend for CrashBackend {
    fn lock(&self) -> Result<Box<dyn std::fmt::Debug + Send + Sync>, LockError> {
        let mut disk = lock(&self.disk);
        if std::mem::replace(&mut disk.locked, true) {
            return Err(LockError::Held { pid: None });
        }
        Ok(Box::new(Guard(Arc::clone(&self.disk))))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let mut disk = lock(&self.disk);
        disk.step()?;
        if disk.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = disk.inodes.len();
        disk.inodes.push(Inode::default());
        disk.change_name(NameChange::Link(name.to_owned(), inode));
        Ok(self.file(inode))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let inode = lock(&self.disk)
            .names
            .get(name)
            .copied()
            .ok_or(io::ErrorKind::NotFound)?;
        Ok(self.file(inode))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut disk = lock(&self.disk);
        disk.step()?;
        if !disk.names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        disk.change_name(NameChange::Unlink(name.to_owned()));
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut disk = lock(&self.disk);
        disk.step()?;
        disk.change_name(NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let prefix = format!("{dir}/");
        let disk = lock(&self.disk);
        Ok(disk
            .names
            .keys()
            .filter_map(|n| n.strip_prefix(&prefix))
            .map(ToOwned::to_owned)
            .collect())
    }

    fn create_dir(&self, _dir: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let mut disk = lock(&self.disk);
        disk.step()?;
        let changes = std::mem::take(&mut disk.name_changes);
        for change in changes {
            if change.dir() == dir {
                change.apply(&mut disk.durable_names);
            } else {
                disk.name_changes.push(change);
            }
        }
        Ok(())
    }

    fn free_space(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    fn describe(&self) -> std::path::PathBuf {
        "crash".into()
    }
}

#[derive(Debug)]
struct CrashFile {
    disk: Arc<Mutex<Disk>>,
    inode: usize,
}

impl CrashFile {
    fn with<T>(&self, f: impl FnOnce(&mut Inode) -> T) -> io::Result<T> {
        lock(&self.disk)
            .inodes
            .get_mut(self.inode)
            .map(f)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn change(&self, change: Change) -> io::Result<()> {
        lock(&self.disk).step()?;
        self.with(|inode| {
            change.apply(&mut inode.now);
            inode.unsynced.push(change);
        })
    }
}

impl File for CrashFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with(|inode| read_image(&inode.now, buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.change(Change::Write {
            offset,
            bytes: buf.to_vec(),
        })
    }

    fn sync(&self) -> io::Result<()> {
        lock(&self.disk).step()?;
        self.with(|inode| {
            inode.durable.clone_from(&inode.now);
            inode.unsynced.clear();
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|inode| inode.now.len() as u64)
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<bool> {
        self.change(Change::Punch { offset, len })?;
        Ok(true)
    }
}
