//! How a tree goes that a guest made: flat, a layer at a time.
//!
//! ```text
//!   top/a/b/c/…      b is renamed to top/b', and a, which is empty then, removed; then c is renamed to top/c', and so on
//! ```
//!
//! Nobody walks down, so that no depth takes more than two open folders or any of the stack, and there is no way back that a guest
//! could lead elsewhere. What lies near the top goes first, and no folder has to wait for a larger one beside it: that is where
//! Secrets are.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use russet_pod::volumes::{enter, grant};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, fchmod, fstat, renameat, statat, unlinkat};
use rustix::io::Errno;

/// So much goes of one folder before it is the turn of the next.
const TURN: usize = 20_000;
/// Names that something has already.
const MOST_TRIES: u32 = 1_000_000;

/// Removes a folder and what is in it, whatever rights it has. Links are not followed. A file that somebody is just writing into it
/// goes with it. What cannot be removed does not keep what is beside it; the error is that of the first.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    remove_while(folder, &|| true)
}

/// The same, as long as it is wanted.
pub(super) fn remove_while(folder: &Path, wanted: &dyn Fn() -> bool) -> io::Result<()> {
    let top = match enter(CWD, folder, Mode::RWXU) {
        Ok(top) => top,
        Err(error) => {
            return match Errno::from_io_error(&error) {
                Some(Errno::NOENT) => Ok(()),
                // It is a file, or a link, which is no way to anything.
                Some(Errno::NOTDIR | Errno::LOOP) => gone(unlinkat(CWD, folder, AtFlags::empty())),
                _ => Err(error),
            };
        }
    };
    let emptied = empty(&top, wanted);
    drop(top);
    emptied.and_then(|()| gone(unlinkat(CWD, folder, AtFlags::REMOVEDIR)))
}

/// Removes what is in a folder that is ours, as long as it is wanted.
pub(super) fn empty(top: &File, wanted: &dyn Fn() -> bool) -> io::Result<()> {
    unlock(top)?;
    let mut names = 0;
    while wanted() {
        let mut pass = Pass::default();
        for entry in Dir::read_from(top)? {
            let entry = entry?;
            if is_itself(entry.file_name()) || !wanted() {
                continue;
            }
            let (name, known) = (entry.file_name(), entry.file_type());
            match is_folder(top, name, known) {
                Ok(true) => hollow(top, name, &mut names, &mut pass),
                Ok(false) => pass.did(unlinkat(top, name, AtFlags::empty())),
                Err(error) => pass.failed(error),
            }
        }
        // Whatever moved is looked at again; what did not move will not do so the next time.
        if !pass.moved {
            return pass.first.map_or(Ok(()), Err);
        }
    }
    Ok(())
}

/// Removes a folder of the top, and brings the folders in it there.
fn hollow(top: &File, name: &CStr, names: &mut u64, pass: &mut Pass) {
    let folder = match enter(top, name, Mode::RWXU) {
        Ok(folder) => folder,
        Err(error) => return pass.failed(error),
    };
    let listed = unlock(&folder).and_then(|()| Ok(Dir::read_from(&folder)?));
    let entries = match listed {
        Ok(entries) => entries,
        Err(error) => return pass.failed(error),
    };
    let (mut failed, mut turn) = (false, 0);
    for entry in entries {
        if turn == TURN {
            break;
        }
        let done = entry.map_err(io::Error::from).and_then(|entry| {
            let name = entry.file_name();
            if is_itself(name) {
                return Ok(false);
            }
            if is_folder(&folder, name, entry.file_type())? {
                raise(&folder, name, top, names)?;
            } else {
                gone(unlinkat(&folder, name, AtFlags::empty()))?;
            }
            Ok(true)
        });
        match done {
            Ok(false) => {}
            Ok(true) => {
                turn += 1;
                pass.moved = true;
            }
            Err(error) => {
                failed = true;
                pass.failed(error);
            }
        }
    }
    match unlinkat(top, name, AtFlags::REMOVEDIR) {
        // There was more in it than its turn, or somebody has just written to it. What is left for another reason was told.
        Err(Errno::NOTEMPTY | Errno::EXIST) if failed || pass.moved => {}
        removed => pass.did(removed),
    }
}

/// Brings a folder to the top under a name that nothing has, or removes it if it is empty.
fn raise(from: &File, name: &CStr, top: &File, names: &mut u64) -> io::Result<()> {
    match unlinkat(from, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(_) => {}
    }
    let mut granted = false;
    let mut tries = 0;
    loop {
        tries += 1;
        match renameat(from, name, top, format!("below-{names}")) {
            // Whose `..` changes must be open to writers.
            Err(Errno::ACCESS | Errno::PERM) if !granted => {
                grant(from, name, Mode::RWXU)?;
                granted = true;
            }
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR | Errno::ISDIR) if tries < MOST_TRIES => *names += 1,
            // Files go without that, and leave room.
            Err(Errno::NOSPC | Errno::DQUOT) => return dig(from, name),
            raised => {
                *names += 1;
                return gone(raised);
            }
        }
    }
}

/// Removes what can be reached of a folder by one way down, where it is: a disk may have no room for another name. An error if that
/// was nothing.
fn dig(from: &File, name: &CStr) -> io::Result<()> {
    let (mut above, mut name) = (from.try_clone()?, name.to_owned());
    let mut dug = Err(Errno::NOSPC.into());
    loop {
        let here = enter(&above, &*name, Mode::RWXU)?;
        unlock(&here)?;
        let mut down = None;
        for entry in Dir::read_from(&here)? {
            let entry = entry?;
            let found = entry.file_name();
            if is_itself(found) {
                continue;
            }
            let folder = is_folder(&here, found, entry.file_type())?;
            let how = if folder { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            if unlinkat(&here, found, how).is_ok() {
                dug = Ok(());
            } else if folder {
                down = Some(found.to_owned());
            }
        }
        let Some(down) = down else {
            return if unlinkat(&above, &*name, AtFlags::REMOVEDIR).is_ok() {
                Ok(())
            } else {
                dug
            };
        };
        (above, name) = (here, down);
    }
}

/// What came of a look at all that is at the top.
#[derive(Default)]
struct Pass {
    /// Something went, or came up.
    moved: bool,
    first: Option<io::Error>,
}

impl Pass {
    fn did(&mut self, done: Result<(), Errno>) {
        match gone(done) {
            Ok(()) => self.moved = true,
            Err(error) => self.failed(error),
        }
    }

    fn failed(&mut self, error: io::Error) {
        if error.kind() != io::ErrorKind::NotFound {
            self.first.get_or_insert(error);
        }
    }
}

/// That something is not there is fine.
fn gone(done: Result<(), Errno>) -> io::Result<()> {
    match done {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Gives us every right to an open folder.
fn unlock(folder: &File) -> io::Result<()> {
    let mode = Mode::from_raw_mode(fstat(folder)?.st_mode);
    if !mode.contains(Mode::RWXU) {
        fchmod(folder, mode | Mode::RWXU)?;
    }
    Ok(())
}

fn is_folder(above: impl AsFd, name: &CStr, known: FileType) -> io::Result<bool> {
    if known != FileType::Unknown {
        return Ok(known == FileType::Directory);
    }
    let found = statat(above, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(found.st_mode) == FileType::Directory)
}

fn is_itself(name: &CStr) -> bool {
    name == c"." || name == c".."
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{OFlags, mkdirat, openat};

    /// On a disk without room for another name nothing can be renamed. What is in the way goes then where it is.
    #[test]
    fn a_tree_goes_without_being_moved_where_there_is_no_room() {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["top/a/b/c", "top/a/d", "top/a/b/e"] {
            std::fs::create_dir_all(dir.path().join(folder)).unwrap();
            std::fs::write(dir.path().join(folder).join("file"), "").unwrap();
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = File::from(openat(CWD, dir.path().join("top"), flags, Mode::empty()).unwrap());
        let mut times = 0;
        while dir.path().join("top/a").exists() {
            times += 1;
            assert!(times < 10, "nothing goes");
            dig(&top, c"a").unwrap();
        }
        mkdirat(&top, "empty", Mode::RWXU).unwrap();
        dig(&top, c"empty").unwrap();
        assert!(dig(&top, c"empty").is_err());
    }
}
