//! The files of a Mac as the emulator sees them from outside: every path is looked up as if the Mac's root were ours, links included.

use rustix::fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// The folders of programs, which exist only inside the namespaces.
const SYSTEM: &[&str] = &["/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/libexec/"];

/// The tree of one Mac.
#[derive(Debug)]
pub(super) struct Tree {
    dir: OwnedFd,
    root: PathBuf,
    system: PathBuf,
    owners: bool,
}

/// What is known about a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mode: u32,
    pub(super) kind: Kind,
    pub(super) size: u64,
    /// The file itself, whatever its name.
    pub(super) identity: Identity,
    /// Changes whenever the content may have changed.
    pub(super) stamp: Stamp,
}

/// Device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Identity(pub(super) u64, pub(super) u64);

/// Size and times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp(u64, i64, i64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Folder,
    Link,
    Other,
}

impl From<Stat> for Meta {
    fn from(stat: Stat) -> Self {
        let nanos = |nanos| i64::try_from(nanos).unwrap_or(0);
        Self {
            uid: stat.st_uid,
            gid: stat.st_gid,
            mode: stat.st_mode & 0o7777,
            kind: match stat.st_mode & 0o170_000 {
                0o100_000 => Kind::File,
                0o040_000 => Kind::Folder,
                0o120_000 => Kind::Link,
                _ => Kind::Other,
            },
            size: u64::try_from(stat.st_size).unwrap_or(0),
            identity: Identity(stat.st_dev, stat.st_ino),
            stamp: Stamp(
                u64::try_from(stat.st_size).unwrap_or(0),
                stat.st_mtime,
                nanos(stat.st_mtime_nsec),
            ),
        }
    }
}

impl Meta {
    /// Whether a user may write it.
    pub(super) fn writable_by(&self, uid: u32, groups: &[u32]) -> bool {
        uid == 0
            || (self.uid == uid && self.mode & 0o200 != 0)
            || (groups.contains(&self.gid) && self.mode & 0o020 != 0)
            || self.mode & 0o002 != 0
    }
}

impl Tree {
    pub(super) fn open(root: &Path, system: &Path, owners: bool) -> io::Result<Self> {
        let dir = rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self {
            dir,
            root: root.to_owned(),
            system: system.to_owned(),
            owners,
        })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Whether files can belong to different users here.
    pub(super) fn has_owners(&self) -> bool {
        self.owners
    }

    fn at(&self, path: &str, flags: OFlags, mode: u32) -> io::Result<OwnedFd> {
        let path = match path.trim_start_matches('/') {
            "" => ".",
            path => path,
        };
        // The kernel may ask to try again when names change under it.
        loop {
            match rustix::fs::openat2(
                &self.dir,
                path,
                flags | OFlags::CLOEXEC,
                Mode::from_bits_truncate(mode),
                ResolveFlags::IN_ROOT,
            ) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    pub(super) fn open_read(&self, path: &str) -> io::Result<File> {
        Ok(File::from(self.at(path, OFlags::RDONLY | OFlags::NONBLOCK, 0)?))
    }

    /// Opens a file to append to it, made if need be and then given to a user.
    pub(super) fn open_append(&self, path: &str, uid: u32, gid: u32) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK;
        match self.at(path, flags, 0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let file = File::from(self.at(path, flags | OFlags::CREATE, 0o644)?);
                if self.owners {
                    fchown(&file, Some(uid), Some(gid))?;
                }
                Ok(file)
            }
            other => Ok(File::from(other?)),
        }
    }

    pub(super) fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open_read(path)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn read_text(&self, path: &str) -> Option<String> {
        self.read(path)
            .ok()
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Replaces a file's content; made as root's if it is not there.
    pub(super) fn write(&self, path: &str, content: &[u8], mode: u32) -> io::Result<()> {
        let mut file = File::from(self.at(path, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC, mode)?);
        file.write_all(content)?;
        file.set_permissions(std::fs::Permissions::from_mode(mode))
    }

    /// Adds a line to a log; a full disk loses it, as on a Mac.
    pub(super) fn log(&self, path: &str, line: &str) {
        if let Ok(mut file) = self.open_append(path, 0, 0) {
            let _ = writeln!(file, "{line}");
        }
    }

    /// Follows links.
    pub(super) fn meta(&self, path: &str) -> Option<Meta> {
        let fd = self.at(path, OFlags::PATH, 0).ok()?;
        rustix::fs::statat(fd, "", AtFlags::EMPTY_PATH).ok().map(Meta::from)
    }

    /// Whether an open file was written to can be told from this.
    pub(super) fn stamp_of(file: &File) -> Option<Stamp> {
        rustix::fs::fstat(file).ok().map(|stat| Meta::from(stat).stamp)
    }

    /// Does not follow a link at the end.
    pub(super) fn link_meta(&self, path: &str) -> Option<Meta> {
        let fd = self.at(path, OFlags::PATH | OFlags::NOFOLLOW, 0).ok()?;
        rustix::fs::statat(fd, "", AtFlags::EMPTY_PATH).ok().map(Meta::from)
    }

    /// The names in a folder, sorted; empty if there is no such folder.
    pub(super) fn list(&self, path: &str) -> Vec<String> {
        let Ok(fd) = self.at(path, OFlags::RDONLY | OFlags::DIRECTORY, 0) else {
            return Vec::new();
        };
        let Ok(dir) = Dir::read_from(fd) else { return Vec::new() };
        let mut names: Vec<String> = dir
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name != "." && name != "..")
            .collect();
        names.sort();
        names
    }

    /// Whether a program is there for those inside.
    pub(super) fn inside_exists(&self, path: &str) -> bool {
        if SYSTEM.iter().any(|place| path.starts_with(place)) {
            return self.system.join(path.trim_start_matches('/')).is_symlink();
        }
        path.starts_with("/.sim/") || self.meta(path).is_some_and(|meta| meta.kind == Kind::File)
    }

    /// Makes a folder and those above it.
    pub(super) fn make_folders(&self, path: &str, mode: u32) -> io::Result<()> {
        let mut so_far = String::new();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            let parent = if so_far.is_empty() {
                "/".to_owned()
            } else {
                so_far.clone()
            };
            so_far = format!("{so_far}/{part}");
            if self.meta(&so_far).is_none() {
                let fd = self.at(&parent, OFlags::PATH | OFlags::DIRECTORY, 0)?;
                match rustix::fs::mkdirat(fd, part, Mode::from_bits_truncate(mode)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// Gives a file to a user.
    pub(super) fn give(&self, path: &str, uid: u32, gid: u32) -> io::Result<()> {
        if self.owners {
            let fd = self.at(path, OFlags::RDONLY | OFlags::NONBLOCK, 0)?;
            fchown(&fd, Some(uid), Some(gid))?;
        }
        Ok(())
    }

    pub(super) fn remove(&self, path: &str) -> io::Result<()> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let fd = self.at(parent, OFlags::PATH | OFlags::DIRECTORY, 0)?;
        Ok(rustix::fs::unlinkat(fd, name, AtFlags::empty())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_of_the_mac_never_leads_out_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("private/etc")).unwrap();
        std::fs::write(root.join("private/etc/hosts"), "inside").unwrap();
        std::fs::write(dir.path().join("secret"), "outside").unwrap();
        symlink("/private/etc", root.join("etc")).unwrap();
        symlink("../secret", root.join("escape")).unwrap();
        let tree = Tree::open(&root, dir.path(), false).unwrap();
        assert_eq!(tree.read_text("/etc/hosts").unwrap(), "inside");
        assert_eq!(tree.read_text("/escape"), None);
        assert_eq!(tree.list("/etc"), ["hosts"]);
    }
}
