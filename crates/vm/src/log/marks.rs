//! When what was said: a log has no times of its own, so they are beside it.
//!
//! ```text
//! log.times   <where it begins> <milliseconds since 1970> [<where it ends>]
//! ```
//!
//! A mark says when that was said which begins there; it goes on to the next mark. Who writes a log marks what it is about to write, so its
//! last mark has no end. Who only looks at a log that others write knows how far it has looked, and what is behind that has no time yet.

use jiff::{SignedDuration, Timestamp};
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Marks that are longer than this are shortened: a log goes on for months.
const LONGEST: u64 = 256 * 1024;
/// What is said within this time is said at once.
const AT_ONCE: SignedDuration = SignedDuration::from_millis(10);

/// Where the marks of a log are.
pub fn beside(log: &Path) -> PathBuf {
    let mut name = log.file_name().unwrap_or_default().to_owned();
    name.push(".times");
    log.with_file_name(name)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    begins: u64,
    at: Timestamp,
    ends: Option<u64>,
}

impl Mark {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        Some(Self {
            begins: words.next()?.parse().ok()?,
            at: Timestamp::from_millisecond(words.next()?.parse().ok()?).ok()?,
            ends: words.next().map(str::parse).transpose().ok()?,
        })
    }

    fn write(&self, text: &mut String) {
        // Writing to a String does not fail.
        let _ = write!(text, "{} {}", self.begins, self.at.as_millisecond());
        if let Some(ends) = self.ends {
            let _ = write!(text, " {ends}");
        }
        text.push('\n');
    }
}

/// Writes marks.
#[derive(Debug)]
pub struct Marker {
    path: PathBuf,
    last: Option<Timestamp>,
}

impl Marker {
    /// The marks of a log, which may have some.
    pub fn new(path: PathBuf) -> Self {
        Self { path, last: None }
    }

    /// What will be written from here on is said now. `oldest` tells where the log begins that is left.
    pub fn begins(&mut self, begins: u64, now: Timestamp, oldest: impl FnOnce() -> io::Result<u64>) -> io::Result<()> {
        let soon = |last: Timestamp| {
            let since = now.duration_since(last);
            !since.is_negative() && since < AT_ONCE
        };
        if self.last.is_some_and(soon) {
            return Ok(());
        }
        let ends = None;
        self.append(Mark { begins, at: now, ends }, oldest)?;
        self.last = Some(now);
        Ok(())
    }

    /// What is between these was said then, as far as anybody knows.
    pub fn between(&mut self, begins: u64, ends: u64, at: Timestamp) -> io::Result<()> {
        let ends = Some(ends);
        self.append(Mark { begins, at, ends }, || Ok(0))
    }

    fn append(&self, mark: Mark, oldest: impl FnOnce() -> io::Result<u64>) -> io::Result<()> {
        let mut line = String::new();
        mark.write(&mut line);
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&self.path)?;
        file.write_all(line.as_bytes())?;
        if file.metadata()?.len() > LONGEST {
            self.shorten(oldest()?)?;
        }
        Ok(())
    }

    /// Forgets when what was said that nobody can read any more, and of what is left every second time.
    fn shorten(&self, oldest: u64) -> io::Result<()> {
        let marks = Marks::read(&self.path).marks;
        let first = marks.partition_point(|mark| mark.begins <= oldest).saturating_sub(1);
        let left = marks.get(first..).unwrap_or_default();
        let last = left.len().saturating_sub(1);
        let mut text = String::new();
        for (index, mark) in left.iter().enumerate() {
            if index % 2 == 0 || index == last {
                mark.write(&mut text);
            }
        }
        let fresh = self.path.with_extension("new");
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&fresh)?;
        file.write_all(text.as_bytes())?;
        std::fs::rename(fresh, &self.path)
    }
}

/// The marks of a log, as they were when they were read.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    marks: Vec<Mark>,
    /// Which file they were read from, and how long it was.
    file: Option<(u64, u64)>,
}

impl Marks {
    /// What was written so far; a line that is not whole is not read.
    pub fn read(path: &Path) -> Self {
        let mut marks = Self::default();
        marks.refresh(path);
        marks
    }

    /// Reads them again, if there are others.
    pub fn refresh(&mut self, path: &Path) {
        let file = std::fs::metadata(path).ok().map(|found| (found.ino(), found.len()));
        if file == self.file {
            return;
        }
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        self.marks = whole.lines().filter_map(Mark::parse).collect();
        self.file = file;
    }

    /// When the byte at this offset was said, if that is known yet.
    pub fn at(&self, offset: u64) -> Option<Timestamp> {
        let next = self.marks.partition_point(|mark| mark.begins <= offset);
        let mark = self.marks.get(next.checked_sub(1)?)?;
        let known = next < self.marks.len() || mark.ends.is_none_or(|ends| offset < ends);
        known.then_some(mark.at)
    }

    /// How far a log was looked at.
    pub fn looked_at(&self) -> u64 {
        self.marks.last().and_then(|mark| mark.ends).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn what_follows_a_mark_was_said_then() {
        let dir = tempfile::tempdir().unwrap();
        let path = beside(&dir.path().join("log"));
        assert_eq!(path, dir.path().join("log.times"));
        let mut marks = Marks::read(&path);
        assert_eq!(marks.at(0), None);
        let mut marker = Marker::new(path.clone());
        marker.begins(0, at(1), || Ok(0)).unwrap();
        marker.begins(4, at(2), || Ok(0)).unwrap();
        // As one breath; and a clock that was set back is no reason to tell no times.
        marker
            .begins(8, at(2) + SignedDuration::from_millis(9), || Ok(0))
            .unwrap();
        marker.begins(9, at(1), || Ok(0)).unwrap();
        marks.refresh(&path);
        let times: Vec<_> = [0, 3, 4, 8, 9, 1000].map(|offset| marks.at(offset).unwrap()).into();
        assert_eq!(times, [at(1), at(1), at(2), at(2), at(1), at(1)]);
    }

    /// One that died after its mark and before its words is followed by another, whose words these are.
    #[test]
    fn of_two_marks_of_one_place_the_later_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log.times");
        Marker::new(path.clone()).begins(4, at(1), || Ok(0)).unwrap();
        Marker::new(path.clone()).begins(4, at(2), || Ok(0)).unwrap();
        assert_eq!(Marks::read(&path).at(4), Some(at(2)));
    }

    #[test]
    fn what_nobody_has_looked_at_has_no_time_yet() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log.times");
        let mut marker = Marker::new(path.clone());
        marker.between(0, 4, at(1)).unwrap();
        marker.between(4, 8, at(2)).unwrap();
        let marks = Marks::read(&path);
        assert_eq!(
            [marks.at(3), marks.at(7), marks.at(8)],
            [Some(at(1)), Some(at(2)), None]
        );
        assert_eq!(marks.looked_at(), 8);
    }

    /// The marks of a talkative container grew for as long as it ran, although its log did not.
    #[test]
    fn marks_of_what_nobody_can_read_any_more_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log.times");
        let oldest = 50_000;
        let old = (1..30_000).map(|number| format!("{number} 1000\n"));
        let new = (1..6).map(|number| format!("{} 2000\n", oldest + number));
        std::fs::write(&path, old.chain(new).collect::<Vec<_>>().concat()).unwrap();
        let mut marker = Marker::new(path.clone());
        marker.begins(oldest + 14, at(3), || Ok(oldest)).unwrap();
        assert!(std::fs::metadata(&path).unwrap().len() < 100);
        let marks = Marks::read(&path);
        assert_eq!(marks.at(oldest), Some(at(1)));
        assert_eq!(marks.at(oldest + 3), Some(at(2)));
        assert_eq!(marks.at(oldest + 14), Some(at(3)));
    }

    #[test]
    fn a_mark_that_was_cut_short_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log.times");
        std::fs::write(&path, "0 2000\n8 30").unwrap();
        assert_eq!(Marks::read(&path).at(9), Some(at(2)));
    }
}
