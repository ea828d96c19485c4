//! When a container said what: its log is written by the guest's own line and has no times, so the times are beside it.
//!
//! A mark says that the log had so many bytes then. What came between two marks is as old as the later one, which is at most a
//! moment after the truth while an agent watches, and otherwise the moment it looked again.

use std::fs::Metadata;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use russet_vm::log::{self, Part};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::file;

/// Marks that are longer than this are shortened: a log goes on for months.
const LONGEST: u64 = 256 * 1024;

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

    /// Which file is written and how long it is; `None` if there is none.
    fn current(&self) -> io::Result<Option<(u64, u64)>> {
        let (Self::Kept(path) | Self::Left(path)) = self;
        match std::fs::symlink_metadata(path) {
            Ok(found) => Ok(Some((found.ino(), found.len()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
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

/// Writes marks.
#[derive(Debug)]
pub(crate) struct Marker {
    log: Origin,
    marks: PathBuf,
    length: u64,
    /// The file that is written, as it was when the log was last looked at.
    seen: Option<(u64, u64)>,
}

impl Marker {
    pub(crate) fn new(log: Origin, marks: PathBuf) -> Self {
        let length = Marks::read(&marks).0.last().map_or(0, |(length, _)| *length);
        Self {
            log,
            marks,
            length,
            seen: None,
        }
    }

    /// Looks whether the log has grown.
    pub(crate) fn look(&mut self, now: Timestamp) -> io::Result<()> {
        // Most containers are silent most of the time. A file that is set aside leaves another in its place.
        let seen = self.log.current()?;
        if seen == self.seen {
            return Ok(());
        }
        let length = self.log.parts()?.last().map_or(0, Part::ends);
        if length <= self.length {
            self.seen = seen;
            return Ok(());
        }
        let mut file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&self.marks)?;
        writeln!(file, "{length} {}", now.as_millisecond())?;
        self.length = length;
        self.seen = seen;
        if file.metadata()?.len() > LONGEST {
            self.shorten()?;
        }
        Ok(())
    }

    /// Forgets when what was said that nobody can read any more, and of what is left every second time.
    fn shorten(&self) -> io::Result<()> {
        let begins = self.log.parts()?.first().map_or(0, |part| part.begins);
        let mut left = Marks::read(&self.marks).0;
        left.retain(|(length, _)| *length > begins);
        let last = left.len().saturating_sub(1);
        let mut text = String::new();
        for (index, (length, at)) in left.iter().enumerate() {
            if index % 2 == 1 || index == last {
                // Writing to a String does not fail.
                let _ = std::fmt::Write::write_fmt(&mut text, format_args!("{length} {}\n", at.as_millisecond()));
            }
        }
        file::write(&self.marks, text.as_bytes())
    }
}

/// The marks of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks(Vec<(u64, Timestamp)>);

impl Marks {
    /// What was written so far; a line that is not whole is not read.
    pub(crate) fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let mark = |line: &str| {
            let (length, at) = line.split_once(' ')?;
            Some((
                length.parse().ok()?,
                Timestamp::from_millisecond(at.parse().ok()?).ok()?,
            ))
        };
        Self(whole.lines().filter_map(mark).collect())
    }

    /// When the byte at this offset was written; unknown if it is newer than the last mark.
    pub(crate) fn at(&self, offset: u64) -> Option<Timestamp> {
        let index = self.0.partition_point(|(length, _)| *length <= offset);
        self.0.get(index).map(|(_, at)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn what_was_said_is_as_old_as_the_look_that_found_it() {
        let dir = tempfile::tempdir().unwrap();
        let (log, marks) = (dir.path().join("log"), dir.path().join("marks"));
        let mut marker = Marker::new(Origin::Kept(log.clone()), marks.clone());
        marker.look(at(1)).unwrap();
        std::fs::write(&log, "one\n").unwrap();
        marker.look(at(2)).unwrap();
        marker.look(at(3)).unwrap();
        std::fs::write(&log, "one\ntwo\n").unwrap();
        // Another agent.
        let mut marker = Marker::new(Origin::Kept(log), marks.clone());
        marker.look(at(4)).unwrap();
        let marks = Marks::read(&marks);
        assert_eq!([marks.at(0), marks.at(3)], [Some(at(2)), Some(at(2))]);
        assert_eq!([marks.at(4), marks.at(7)], [Some(at(4)), Some(at(4))]);
        assert_eq!(marks.at(8), None);
    }

    /// The marks of a talkative container grew for as long as it ran, although its log did not.
    #[test]
    fn marks_of_what_nobody_can_read_any_more_go() {
        let dir = tempfile::tempdir().unwrap();
        let (log, path) = (dir.path().join("log"), dir.path().join("log.times"));
        let mut marker = Marker::new(Origin::Kept(log.clone()), path.clone());
        let begins = 50_000;
        std::fs::write(dir.path().join(format!("log.{begins:020}")), "x").unwrap();
        let old = (1..30_000).map(|number| format!("{number} 1000\n"));
        let new = (1..5).map(|number| format!("{} 2000\n", begins + number));
        std::fs::write(&path, old.chain(new).collect::<Vec<_>>().concat()).unwrap();
        std::fs::write(&log, "more than that").unwrap();
        marker.look(at(3)).unwrap();
        assert!(std::fs::metadata(&path).unwrap().len() < 100);
        let marks = Marks::read(&path);
        assert_eq!(marks.at(begins), Some(at(2)));
        assert_eq!(marks.at(begins + 14), Some(at(3)));
    }

    #[test]
    fn a_mark_that_was_cut_short_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("marks");
        std::fs::write(&path, "4 2000\n8 30").unwrap();
        assert_eq!(Marks::read(&path).0, [(4, at(2))]);
    }
}
