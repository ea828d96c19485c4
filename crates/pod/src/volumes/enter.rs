//! The way into a folder that a guest made.
//!
//! A guest gives its folders the names, the depth and the rights it likes. So a folder is opened by its name in the one above it,
//! which no length of a path ends; a link in its place is not followed; and rights that its owner lacks, we take, for we are its
//! owner.

use rustix::fs::{AtFlags, Mode, OFlags, fchmod, fstat, openat, statat};
use rustix::io::Errno;
use rustix::path::Arg;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

/// Opens a folder in another one. What of these rights we need and lack, it has afterwards.
pub fn enter(above: impl AsFd, name: impl Arg + Copy, rights: Mode) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || openat(&above, name, flags, Mode::empty());
    let folder = match open() {
        Err(Errno::ACCESS) => {
            grant(&above, name, rights)?;
            open()?
        }
        opened => opened?,
    };
    // One that can be listed, though nothing in it can be reached.
    if let Err(Errno::ACCESS) = statat(&folder, c".", AtFlags::SYMLINK_NOFOLLOW) {
        fchmod(&folder, Mode::from_raw_mode(fstat(&folder)?.st_mode) | rights)?;
    }
    Ok(folder.into())
}

/// Gives us rights to a folder in another one, which may not be one that we can open.
#[cfg(target_os = "linux")]
pub fn grant(above: impl AsFd, name: impl Arg, rights: Mode) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
    // Linux has no chmod that stops at links and is old enough. What is held by its path needs no right to it.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = openat(above, name, flags, Mode::empty())?;
    let mode = Mode::from_raw_mode(fstat(&held)?.st_mode) | rights;
    Ok(rustix::fs::chmod(format!("/proc/self/fd/{}", held.as_raw_fd()), mode)?)
}

/// Gives us rights to a folder in another one, which may not be one that we can open.
#[cfg(not(target_os = "linux"))]
pub fn grant(above: impl AsFd, name: impl Arg + Copy, rights: Mode) -> io::Result<()> {
    use rustix::fs::{FileType, chmodat};
    let found = statat(&above, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
        return Err(Errno::NOTDIR.into());
    }
    let mode = Mode::from_raw_mode(found.st_mode) | rights;
    Ok(chmodat(above, name, mode, AtFlags::SYMLINK_NOFOLLOW)?)
}
