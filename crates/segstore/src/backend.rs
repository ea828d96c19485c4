//! Where bytes live. The store talks to this trait only, so that the same code runs on files, in memory, and on a disk that
//! loses power at any operation.
//!
//! Contract: `sync` makes every earlier write to that file survive power loss, but not its name; `sync_dir` does that for
//! names. A write that was not synced may survive, vanish, or survive in part, by sectors.

mod crash;
mod file;
mod memory;

pub use crash::{CrashBackend, Survival};
pub use file::FileBackend;
pub use memory::MemoryBackend;

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

/// A folder with a lock, FORMAT and `segments/`. Names are relative, with `/`.
pub trait Backend: Debug + Send + Sync {
    /// Takes the lock of the folder, made if absent. The guard releases it on drop.
    fn lock(&self) -> Result<Box<dyn Debug + Send + Sync>, LockError>;
    /// Creates a file that must not exist.
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>>;
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// The name goes; open handles keep reading.
    fn remove(&self, name: &str) -> io::Result<()>;
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Names in a folder, without it. A missing folder is empty.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;
    /// Creates a folder if absent.
    fn create_dir(&self, dir: &str) -> io::Result<()>;
    /// Makes the names in a folder durable; "" is the root.
    fn sync_dir(&self, dir: &str) -> io::Result<()>;
    /// Bytes a file may still take.
    fn free_space(&self) -> io::Result<u64>;
    /// The folder, for messages.
    fn describe(&self) -> std::path::PathBuf;
}

/// An open file. All calls take an offset, so that threads share it.
#[expect(clippy::len_without_is_empty, reason = "the length of a file, asked once at open")]
pub trait File: Debug + Send + Sync {
    /// Reads up to `buf.len()` bytes; fewer only at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    fn sync(&self) -> io::Result<()>;
    fn len(&self) -> io::Result<u64>;
    /// Gives the blocks of a range back; it reads as zeros. `Ok(false)`: not possible here.
    fn punch(&self, offset: u64, len: u64) -> io::Result<bool>;
    /// This range is going to be read; the disk may begin with it.
    fn will_read(&self, _offset: u64, _len: u64) {}
    /// The operating system's file, for `sendfile`.
    fn as_std(&self) -> Option<&std::fs::File> {
        None
    }
}

/// Why the folder could not be locked.
#[derive(Debug)]
pub enum LockError {
    /// Another process holds it.
    Held {
        pid: Option<u32>,
    },
    Io(io::Error),
}

/// Reads exactly `len` bytes, or `None` when the file is shorter.
pub(crate) fn read_exact_at(file: &dyn File, offset: u64, len: usize) -> io::Result<Option<Vec<u8>>> {
    let mut buf = vec![0; len];
    Ok((file.read_at(&mut buf, offset)? == len).then_some(buf))
}
