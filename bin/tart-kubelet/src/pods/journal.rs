//! The log of a container, and when it said what. Whoever keeps a container's line keeps the times as well, whether an agent runs or not;
//! what a guest leaves by itself has only an agent that looks.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use russet_vm::log::marks::{Marker, Marks};
use russet_vm::log::{self, Part};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Who writes a log, and where.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// The supervisor of the container's program, in several files.
    Kept(PathBuf),
    /// The guest. It may put anything there at any time, so this is one plain file: the first that is found. What else lies beside it,
    /// or in its place later, is not looked at.
    Left(PathBuf),
}

impl Origin {
    /// The files of the log, the oldest first.
    pub(crate) fn parts(&self) -> io::Result<Vec<Part>> {
        match self {
            Self::Kept(log) => log::parts(log),
            Self::Left(path) => {
                let part = |(_, found): (std::fs::File, Metadata)| Part {
                    path: path.clone(),
                    begins: 0,
                    length: found.len(),
                    inode: found.ino(),
                };
                Ok(plain(path)?.map(part).into_iter().collect())
            }
        }
    }
}

/// A plain file; what a guest put there instead is not read. `None` if there is none yet.
pub(crate) fn plain(path: &Path) -> io::Result<Option<(std::fs::File, Metadata)>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => std::fs::File::from(file),
        // Nothing, a link, a socket.
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::OPNOTSUPP) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let found = file.metadata()?;
    Ok(found.is_file().then_some((file, found)))
}

/// Looks at a log that a guest writes, and writes down when it was seen to grow.
#[derive(Debug)]
pub(crate) struct Witness {
    log: PathBuf,
    marks: Marker,
    /// How far the log was looked at.
    length: u64,
    last: Option<Timestamp>,
}

impl Witness {
    pub(crate) fn new(log: PathBuf, marks: PathBuf) -> Self {
        let length = Marks::read(&marks).looked_at();
        Self {
            log,
            marks: Marker::new(marks),
            length,
            last: None,
        }
    }

    /// Looks whether the log has grown. What it has grown by is as old as the last write, as far as that can be believed: a guest may give its
    /// file any time, and nobody looks while there is no agent.
    pub(crate) fn look(&mut self, now: Timestamp) -> io::Result<()> {
        let Some((_, found)) = plain(&self.log)? else {
            return Ok(());
        };
        if found.len() <= self.length {
            return Ok(());
        }
        let written = Timestamp::try_from(found.modified()?).unwrap_or(now);
        let at = written.max(self.last.unwrap_or(written)).min(now);
        self.marks.between(self.length, found.len(), at)?;
        (self.length, self.last) = (found.len(), Some(at));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn write(log: &Path, text: &str, second: i64) {
        std::fs::write(log, text).unwrap();
        let file = std::fs::File::options().append(true).open(log).unwrap();
        file.set_modified(SystemTime::from(at(second))).unwrap();
    }

    /// What a guest had said while no agent ran was as old as the next agent, however long ago it was.
    #[test]
    fn what_a_guest_said_is_as_old_as_its_last_word_of_then_also_if_nobody_looked() {
        let dir = tempfile::tempdir().unwrap();
        let (log, marks) = (dir.path().join("log"), dir.path().join("marks"));
        let mut witness = Witness::new(log.clone(), marks.clone());
        witness.look(at(1)).unwrap();
        write(&log, "one\n", 2);
        witness.look(at(3)).unwrap();
        witness.look(at(4)).unwrap();
        write(&log, "one\ntwo\n", 10);
        // Another agent.
        let mut witness = Witness::new(log.clone(), marks.clone());
        witness.look(at(500)).unwrap();
        let told = Marks::read(&marks);
        assert_eq!([told.at(0), told.at(3)], [Some(at(2)), Some(at(2))]);
        assert_eq!([told.at(4), told.at(7)], [Some(at(10)), Some(at(10))]);
        assert_eq!(told.at(8), None);
        // A guest that gives its file another time changes neither the order nor the present.
        write(&log, "one\ntwo\nthree\n", 5);
        witness.look(at(600)).unwrap();
        write(&log, "one\ntwo\nthree\nfour\n", 9_999);
        witness.look(at(700)).unwrap();
        let told = Marks::read(&marks);
        assert_eq!([told.at(8), told.at(14)], [Some(at(10)), Some(at(700))]);
    }
}
