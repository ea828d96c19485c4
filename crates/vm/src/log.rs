//! Logs that do not fill a disk: a file that is long enough is set aside, and the oldest of those goes.
//!
//! ```text
//! log.00000000000000000000   the first bytes that are left
//! log.00000000000010485772   what came after them; the number is where in the whole log it begins
//! log                        what is being written
//! ```
//!
//! Offsets count from the first byte that was ever written, so they mean the same before and after a file is set aside: whoever
//! reads goes on where it was, and times that are noted by offset ([`marks`]) stay true.

pub mod marks;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// How large a log may become.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Rotation {
    /// A file that is longer is set aside.
    pub bytes: u64,
    /// How many files there are at most, the one that is written included; at least two.
    pub files: usize,
}

/// A part of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it is.
    pub path: PathBuf,
    /// Where in the whole log it begins.
    pub begins: u64,
    /// How long it is.
    pub length: u64,
    /// Which file it is: one that is set aside keeps this, one that is put in its place has another.
    pub inode: u64,
}

impl Part {
    fn new(path: PathBuf, begins: u64, found: &Metadata) -> Self {
        Self {
            path,
            begins,
            length: found.len(),
            inode: found.ino(),
        }
    }

    /// Where in the whole log it ends, so far.
    pub fn ends(&self) -> u64 {
        self.begins.saturating_add(self.length)
    }
}

/// How often a log is looked at before it is given up on. Each time takes a whole file that was filled and set aside meanwhile.
const LOOKS: u32 = 10;

/// The parts of a log that are left, the oldest first. None if nothing was ever written.
pub fn parts(log: &Path) -> io::Result<Vec<Part>> {
    settled(log, || aside(log))
}

/// A file may be set aside between two looks at those that are; then the log is looked at again, though not for ever.
fn settled(log: &Path, mut aside: impl FnMut() -> io::Result<Vec<Part>>) -> io::Result<Vec<Part>> {
    let ends = |parts: &[Part]| parts.last().map_or(0, Part::ends);
    for _ in 0..LOOKS {
        let mut parts = aside()?;
        let begins = ends(&parts);
        match std::fs::symlink_metadata(log) {
            Ok(found) if found.is_file() => parts.push(Part::new(log.to_owned(), begins, &found)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        if ends(&aside()?) == begins {
            return Ok(parts);
        }
    }
    Err(io::Error::other(
        "the files of the log are set aside faster than they can be looked at",
    ))
}

/// How much was ever written.
pub fn length(log: &Path) -> io::Result<u64> {
    Ok(parts(log)?.last().map_or(0, Part::ends))
}

fn aside(log: &Path) -> io::Result<Vec<Part>> {
    let (Some(folder), Some(name)) = (log.parent(), log.file_name().and_then(|name| name.to_str())) else {
        return Ok(Vec::new());
    };
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut parts = Vec::new();
    for entry in entries {
        let entry = entry?;
        let file = entry.file_name();
        let number = file
            .to_str()
            .and_then(|file| file.strip_prefix(name)?.strip_prefix('.'))
            .filter(|number| number.len() == DIGITS)
            .and_then(|number| number.parse().ok());
        let Some(begins) = number else { continue };
        // One that vanishes meanwhile is one that was too old.
        let Ok(found) = entry.metadata() else { continue };
        if found.is_file() {
            parts.push(Part::new(entry.path(), begins, &found));
        }
    }
    parts.sort_by_key(|part| part.begins);
    Ok(parts)
}

const DIGITS: usize = 20;

/// Writes a log.
#[derive(Debug)]
pub struct Writer {
    log: PathBuf,
    rotation: Rotation,
    file: File,
    begins: u64,
    length: u64,
    /// Whether the last byte ended a line: a line is cut in two only if it is longer than a whole file.
    whole: bool,
    marks: marks::Marker,
}

impl Writer {
    /// Goes on with a log, or begins one with mode 0600.
    pub fn open(log: &Path, rotation: Rotation) -> io::Result<Self> {
        let file = append(log)?;
        let begins = aside(log)?.last().map_or(0, Part::ends);
        let length = file.metadata()?.len();
        Ok(Self {
            log: log.to_owned(),
            rotation,
            file,
            begins,
            length,
            whole: true,
            marks: marks::Marker::new(marks::beside(log)),
        })
    }

    /// What is written from here on is said now. A time that cannot be written down is no reason to lose the words.
    pub fn said(&mut self, now: Timestamp) {
        let here = self.begins.saturating_add(self.length);
        let oldest = || Ok(aside(&self.log)?.first().map_or(self.begins, |part| part.begins));
        let _ = self.marks.begins(here, now, oldest);
    }

    /// Sets the file aside and begins another. What cannot be set aside is written on: a long log is better than none.
    fn turn(&mut self) -> io::Result<()> {
        let name = self.log.file_name().and_then(|name| name.to_str()).unwrap_or("log");
        let old = self.log.with_file_name(format!("{name}.{:0DIGITS$}", self.begins));
        std::fs::rename(&self.log, &old)?;
        self.file = match append(&self.log) {
            Ok(file) => file,
            Err(error) => {
                std::fs::rename(&old, &self.log)?;
                return Err(error);
            }
        };
        self.begins = self.begins.saturating_add(self.length);
        self.length = 0;
        let parts = aside(&self.log)?;
        let surplus = parts.len().saturating_sub(self.rotation.files.max(2) - 1);
        for part in parts.iter().take(surplus) {
            std::fs::remove_file(&part.path)?;
        }
        Ok(())
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let full = self.length >= self.rotation.bytes;
        let far_too_full = self.length >= self.rotation.bytes.saturating_mul(2);
        if full && (self.whole || far_too_full) {
            // It is tried again with the next line.
            let _ = self.turn();
        }
        // Up to the end of a line, so that the next file can begin with one.
        let room = self.rotation.bytes.saturating_sub(self.length);
        let room = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
        let rest = bytes.get(room..).unwrap_or_default();
        let end = rest
            .iter()
            .position(|byte| *byte == b'\n')
            .map_or(bytes.len(), |at| room + at + 1);
        let piece = bytes.get(..end).unwrap_or(bytes);
        let count = self.file.write(piece)?;
        self.length = self.length.saturating_add(count as u64);
        self.whole = count > 0 && piece.get(count - 1) == Some(&b'\n');
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn append(log: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(log)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SMALL: Rotation = Rotation { bytes: 20, files: 3 };

    fn shown(log: &Path) -> (u64, String) {
        let parts = parts(log).unwrap();
        let text = parts.iter().map(|part| std::fs::read_to_string(&part.path).unwrap());
        (parts.first().map_or(0, |part| part.begins), text.collect())
    }

    #[test]
    fn a_log_is_a_few_files_of_whole_lines() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut all = String::new();
        for number in 0..100 {
            // Another supervisor goes on with it now and then.
            let mut writer = Writer::open(&log, SMALL).unwrap();
            for number in [number * 2, number * 2 + 1] {
                let line = format!("line {number}\n");
                writer.write_all(line.as_bytes()).unwrap();
                all.push_str(&line);
            }
        }
        let (begins, text) = shown(&log);
        assert_eq!(text, all[usize::try_from(begins).unwrap()..]);
        assert_eq!(length(&log).unwrap(), all.len() as u64);
        assert!(text.starts_with("line "), "{text:?}");
        let parts = parts(&log).unwrap();
        assert_eq!(parts.len(), 3);
        assert!(parts.iter().all(|part| part.length < 30), "{parts:?}");
    }

    #[test]
    fn a_line_without_an_end_does_not_fill_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut writer = Writer::open(&log, SMALL).unwrap();
        for _ in 0..1000 {
            writer.write_all(b"xxxxx").unwrap();
        }
        assert_eq!(length(&log).unwrap(), 5000);
        let left: u64 = parts(&log).unwrap().iter().map(|part| part.length).sum();
        assert!(left <= 3 * 45, "{left}");
    }

    #[test]
    fn what_else_lies_there_is_no_part() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        for name in ["log.times", "log.1", "log.x0000000000000000000", "other"] {
            std::fs::write(dir.path().join(name), "x").unwrap();
        }
        assert_eq!(parts(&log).unwrap(), []);
        std::fs::write(&log, "one\n").unwrap();
        assert_eq!(length(&log).unwrap(), 4);
    }

    /// A folder in which a part grew with every look was looked at for ever, and the agent with its one thread did nothing else.
    #[test]
    fn a_log_that_never_stands_still_is_given_up_on() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut length = 0;
        let error = settled(&log, || {
            length += 1;
            Ok(vec![Part {
                path: log.clone(),
                begins: 0,
                length,
                inode: 1,
            }])
        })
        .unwrap_err();
        assert!(error.to_string().contains("faster"), "{error}");
        assert!(length < 100, "it was looked at {length} times");
    }

    #[test]
    fn a_file_that_is_set_aside_stays_the_same_file() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut writer = Writer::open(&log, SMALL).unwrap();
        writer.write_all(b"as long as a file may become\n").unwrap();
        let before = parts(&log).unwrap();
        writer.write_all(b"more\n").unwrap();
        let after = parts(&log).unwrap();
        assert_eq!(before.len(), 1);
        assert_eq!(after.len(), 2);
        assert_eq!(after[0].inode, before[0].inode);
        assert_ne!(after[1].inode, before[0].inode);
    }

    proptest! {
        #[test]
        fn nothing_that_is_left_is_changed(
            pieces in proptest::collection::vec("[a-c\n]{0,40}", 0..60),
            bytes in 1_u64..50,
            files in 0_usize..5,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let log = dir.path().join("log");
            let mut writer = Writer::open(&log, Rotation { bytes, files }).unwrap();
            let mut all = String::new();
            for piece in &pieces {
                writer.write_all(piece.as_bytes()).unwrap();
                all.push_str(piece);
            }
            let (begins, text) = shown(&log);
            prop_assert_eq!(&text, &all[usize::try_from(begins).unwrap()..]);
            prop_assert!(parts(&log).unwrap().len() <= files.max(2));
        }
    }
}
