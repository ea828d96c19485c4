//! Logs of children: one file per process, the previous run's beside it, neither without bounds.
//!
//! Children write to the file themselves (it is their standard output, opened for appending), so a log is complete even
//! when we are the one that dies. The price is that a growing log can only be bounded by copying it away and truncating
//! it; lines written in that moment are lost, which is acceptable for a log that already exceeds its bound.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use super::LogTail;
use crate::files;

/// A log is moved to `<log>.1` when it exceeds this, so a part uses at most twice as much.
pub(super) const MAX_BYTES: u64 = 64 << 20;

/// How much of the end of a log goes into errors.
const TAIL_LINES: usize = 20;
const TAIL_BYTES: u64 = 16 << 10;
const TAIL_LINE_CHARS: usize = 400;

/// Makes room for a new run: the old log becomes `<log>.1`.
pub(super) fn rotate(path: &Path) -> Result<(), files::Error> {
    if let Some(parent) = path.parent() {
        files::create_dir(parent)?;
    }
    match std::fs::rename(path, previous(path)) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(files::Error::new("rotate", path, source)),
    }
}

/// Opens the log for a child to append to.
pub(super) fn open(path: &Path) -> Result<File, files::Error> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(|source| files::Error::new("open", path, source))
}

/// Moves the content of a log that exceeds `max` bytes to `<log>.1`.
pub(super) fn bound(path: &Path, max: u64) -> std::io::Result<()> {
    if std::fs::metadata(path)?.len() <= max {
        return Ok(());
    }
    std::fs::copy(path, previous(path))?;
    // The child has the file open for appending, so its next write lands at the new end.
    OpenOptions::new().write(true).open(path)?.set_len(0)
}

/// The last lines of a log. A log that cannot be read has none: this is only ever used to explain another failure.
pub(super) fn tail(path: &Path) -> LogTail {
    let mut bytes = Vec::new();
    let whole = File::open(path).and_then(|mut file| {
        let length = file.metadata()?.len();
        let start = length.saturating_sub(TAIL_BYTES);
        file.seek(SeekFrom::Start(start))?;
        file.read_to_end(&mut bytes)?;
        Ok(start == 0)
    });
    LogTail {
        path: path.to_owned(),
        lines: last_lines(&bytes, whole.unwrap_or(true)),
    }
}

fn last_lines(bytes: &[u8], whole: bool) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    // The first line of a partial read is most likely cut in two.
    let lines: Vec<&str> = text
        .lines()
        .skip(usize::from(!whole))
        .filter(|line| !line.trim().is_empty())
        .collect();
    let skip = lines.len().saturating_sub(TAIL_LINES);
    lines.into_iter().skip(skip).map(shorten).collect()
}

fn shorten(line: &str) -> String {
    match line.char_indices().nth(TAIL_LINE_CHARS) {
        Some((cut, _)) => format!("{}…", line.split_at(cut).0),
        None => line.to_owned(),
    }
}

fn previous(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn the_previous_run_is_kept_and_the_one_before_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("logs/etcd.log");
        for run in ["first", "second", "third"] {
            rotate(&log).unwrap();
            open(&log).unwrap().write_all(run.as_bytes()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "third");
        let kept = std::fs::read_to_string(dir.path().join("logs/etcd.log.1")).unwrap();
        assert_eq!(kept, "second");
    }

    #[test]
    fn a_log_over_its_bound_is_moved_while_its_writer_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.log");
        let mut writer = open(&path).unwrap();
        writer.write_all(b"0123456789").unwrap();
        bound(&path, 10).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"0123456789");
        bound(&path, 9).unwrap();
        writer.write_all(b"next").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"next");
        assert_eq!(std::fs::read(dir.path().join("x.log.1")).unwrap(), b"0123456789");
    }

    #[test]
    fn the_tail_is_the_last_whole_lines() {
        let text = (0..50).map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n\n");
        let lines = last_lines(text.as_bytes(), true);
        assert_eq!(lines.len(), TAIL_LINES);
        assert_eq!(lines.last().map(String::as_str), Some("line 49"));
        assert_eq!(last_lines(b"half a line\nwhole\n", false), ["whole"]);
    }

    #[test]
    fn a_long_line_is_cut_at_a_character() {
        let lines = last_lines("é".repeat(1000).as_bytes(), true);
        assert_eq!(lines[0].chars().count(), TAIL_LINE_CHARS + 1);
    }

    #[test]
    fn a_missing_log_has_an_empty_tail() {
        assert!(tail(Path::new("/nonexistent/log")).lines.is_empty());
    }
}
