//! What a folder takes on the disk, whatever a guest does to hide it.
//!
//! Folders are opened one after the other, each by its name in the one above it: two or three are open at a time, however deep
//! they lie. The way back up is `..`. A guest that moves folders meanwhile makes that another way; so who is there is compared with
//! who was there, and if it is somebody else the place is looked for from the top.

use super::enter;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// What it takes to look into a folder.
const RIGHTS: Mode = Mode::RUSR.union(Mode::XUSR);
/// How much of names of folders is kept that are still to be looked into.
const MOST_NAMES: usize = 64 * 1024 * 1024;
/// What a name takes beside its letters.
const NAME: usize = 32;
/// How many folders are opened in search of a place that was lost.
const MOST_SEARCHED: u32 = 1_000_000;

/// What a folder takes.
#[derive(Debug, Default)]
pub struct Measured {
    /// So many bytes at least.
    pub bytes: u64,
    /// Why there may be more that was not found.
    pub hidden: Option<Hidden>,
}

/// Why not all of a folder can be measured.
#[derive(Debug, thiserror::Error)]
pub enum Hidden {
    /// The rights to it could not be taken either.
    #[error("a folder in it cannot be looked into: {0}")]
    Closed(#[source] io::Error),
    /// Every look finds them elsewhere.
    #[error("folders in it are moved faster than they can be found")]
    Moving,
    /// Their names would fill the memory.
    #[error("it has too many folders side by side")]
    Crowded,
}

/// What a folder takes on the disk. Links are not followed, and what vanishes meanwhile counts as nothing. An error is one of the
/// host, which has no more files or memory for it: nothing is known then, and the guest is not to blame.
pub fn usage(folder: &Path) -> io::Result<Measured> {
    let mut walk = Walk {
        top: folder,
        levels: Vec::new(),
        names: 0,
        searched: 0,
        measured: Measured::default(),
    };
    match walk.run() {
        Err(Stop::Host(error)) => return Err(error),
        Err(Stop::Hidden(why)) => walk.measured.hidden = Some(why),
        Ok(()) => {}
    }
    Ok(walk.measured)
}

/// A folder that is being looked into, or one above it.
struct Level {
    /// Which it is, wherever it is moved.
    id: (u64, u64),
    /// What it is called in the one above it.
    name: CString,
    /// Folders in it that are still to be looked into.
    waiting: Vec<CString>,
}

/// A folder that is open, and which it is.
type Open = (File, (u64, u64));

struct Walk<'a> {
    top: &'a Path,
    /// From the top to where we are.
    levels: Vec<Level>,
    /// What the names of all folders that wait take.
    names: usize,
    searched: u32,
    measured: Measured,
}

/// Why a walk ends early.
enum Stop {
    Host(io::Error),
    Hidden(Hidden),
}

impl Walk<'_> {
    fn run(&mut self) -> Result<(), Stop> {
        let Some((mut here, id)) = self.open(None)? else {
            return Ok(());
        };
        self.look(&here, id, CString::default())?;
        while let Some(level) = self.levels.last_mut() {
            if let Some(name) = level.waiting.pop() {
                self.names = self.names.saturating_sub(room_of(&name));
                if let Some((below, id)) = self.open(Some((&here, &name)))? {
                    self.look(&below, id, name)?;
                    here = below;
                }
            } else {
                self.levels.pop();
                let Some(above) = self.up(&here)? else { return Ok(()) };
                here = above;
            }
        }
        Ok(())
    }

    /// Opens a folder in another one, or the one at the top. `None` if it is gone or stays closed.
    fn open(&mut self, at: Option<(&File, &CStr)>) -> Result<Option<Open>, Stop> {
        let entered = match at {
            Some((above, name)) => enter(above, name, RIGHTS),
            None => enter(CWD, self.top, RIGHTS),
        };
        let opened = entered.and_then(|folder| id(&folder).map(|id| (folder, id)));
        self.pass(opened)
    }

    /// What was not possible is noted, and passed over, unless the host is to blame.
    fn pass<T>(&mut self, tried: io::Result<T>) -> Result<Option<T>, Stop> {
        let error = match tried {
            Ok(done) => return Ok(Some(done)),
            Err(error) => error,
        };
        match Errno::from_io_error(&error) {
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => return Err(Stop::Host(error)),
            // It is gone, or something else has its name by now.
            Some(Errno::NOENT | Errno::STALE) => {}
            Some(Errno::NOTDIR | Errno::LOOP) if !self.levels.is_empty() => {}
            _ => {
                self.measured.hidden.get_or_insert(Hidden::Closed(error));
            }
        }
        Ok(None)
    }

    /// Counts what is in a folder, and remembers the folders there.
    fn look(&mut self, here: &File, id: (u64, u64), name: CString) -> Result<(), Stop> {
        self.levels.push(Level {
            id,
            name,
            waiting: Vec::new(),
        });
        let Some(entries) = self.pass(Dir::read_from(here).map_err(Into::into))? else {
            return Ok(());
        };
        for entry in entries {
            let Some(entry) = self.pass(entry.map_err(Into::into))? else {
                break;
            };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if entry.file_type() == FileType::Directory {
                self.wait(name)?;
                continue;
            }
            let found = statat(here, name, AtFlags::SYMLINK_NOFOLLOW).map_err(Into::into);
            let Some(found) = self.pass(found)? else { continue };
            if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
                self.wait(name)?;
            } else {
                let bytes = u64::try_from(found.st_blocks).unwrap_or(0).saturating_mul(512);
                self.measured.bytes = self.measured.bytes.saturating_add(bytes);
            }
        }
        Ok(())
    }

    fn wait(&mut self, name: &CStr) -> Result<(), Stop> {
        self.names = self.names.saturating_add(room_of(name));
        if self.names > MOST_NAMES {
            return Err(Stop::Hidden(Hidden::Crowded));
        }
        if let Some(level) = self.levels.last_mut() {
            level.waiting.push(name.to_owned());
        }
        Ok(())
    }

    /// The last of the levels, seen from a folder that was in it. `None` if nothing is left.
    fn up(&mut self, from: &File) -> Result<Option<File>, Stop> {
        let Some(above) = self.levels.last() else {
            return Ok(None);
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = openat(from, c"..", flags, Mode::empty()).map(File::from);
        match found {
            Ok(found) if id(&found).ok() == Some(above.id) => Ok(Some(found)),
            _ => self.search(),
        }
    }

    /// The lowest of the levels that is still where it was. Those below it are forgotten: they are gone, or elsewhere.
    fn search(&mut self) -> Result<Option<File>, Stop> {
        let mut found = None;
        for depth in 0..self.levels.len() {
            self.searched = self.searched.saturating_add(1);
            if self.searched > MOST_SEARCHED {
                return Err(Stop::Hidden(Hidden::Moving));
            }
            let Some((wanted, name)) = self.levels.get(depth).map(|level| (level.id, level.name.clone())) else {
                break;
            };
            let at = found.as_ref().map(|above| (above, name.as_c_str()));
            match self.open(at)? {
                Some((folder, id)) if id == wanted => found = Some(folder),
                _ => {
                    for lost in self.levels.drain(depth..) {
                        let room = lost.waiting.iter().map(|name| room_of(name)).sum();
                        self.names = self.names.saturating_sub(room);
                    }
                    break;
                }
            }
        }
        Ok(found)
    }
}

fn id(folder: &File) -> io::Result<(u64, u64)> {
    folder.metadata().map(|found| (found.dev(), found.ino()))
}

fn room_of(name: &CStr) -> usize {
    name.count_bytes().saturating_add(NAME)
}
