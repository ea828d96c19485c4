//! Logs of containers, from the files that outlive the agent.

use std::io::{self, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use russet_kubelet_api::{ContainerRef, LogEntry, LogOptions, LogStream, Refusal, Writer};
use russet_vm::PodVm;
use russet_vm::log::{self, Part};
use rustix::fs::{Mode, OFlags};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};

use crate::ledger::Ledger;
use crate::pods::directory::{Handle, Instance};
use crate::pods::journal::Marks;

/// How often a log that is followed is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// A longer line comes in pieces.
const LONGEST: usize = 16 * 1024;
const PIECE: usize = 64 * 1024;

/// The log of a container.
pub(super) fn open(
    handle: &Handle,
    pod: &Pod,
    container: &ContainerRef,
    options: &LogOptions,
) -> Result<LogStream, Refusal> {
    let (name, of) = (&container.container, &container.pod.name);
    let mut starts = handle.ledger.of_pod(&pod.uid().unwrap_or_default());
    starts.retain(|(vm, entry)| vm.container() == name && !entry.given_up);
    let present = starts.pop();
    let chosen = if options.previous {
        let none = || Refusal::NoPrevious {
            pod: of.clone(),
            container: name.clone(),
        };
        starts.pop().ok_or_else(none)?
    } else {
        present.ok_or_else(|| waits(pod, of, name))?
    };
    let (vm, _) = chosen;
    let room = handle.folders.room(&vm);
    // An image that does all by itself leaves its log in the folder for that.
    let own = room.status().join("runner.log");
    let log = if room.log().exists() || !own.exists() {
        room.log()
    } else {
        own
    };
    let source = Source {
        log,
        marks: room.marks(),
        ledger: handle.ledger.clone(),
        vm,
        follow: options.follow,
        pieces: false,
    };
    Ok(source.entries(options.tail))
}

/// Why there is no log yet.
fn waits(pod: &Pod, of: &str, container: &str) -> Refusal {
    let state = super::status(pod, container).and_then(|status| status.state.clone());
    let reason = state.and_then(|state| state.waiting).and_then(|waiting| waiting.reason);
    match reason {
        None => Refusal::NotAvailable {
            pod: of.to_owned(),
            container: container.to_owned(),
        },
        Some(reason) => Refusal::Waiting {
            pod: of.to_owned(),
            container: container.to_owned(),
            reason: match reason.as_str() {
                "ErrImagePull" => "image can't be pulled".to_owned(),
                "ImagePullBackOff" => "trying and failing to pull image".to_owned(),
                _ => reason,
            },
        },
    }
}

/// What a container says from now on, each piece as soon as it is said.
pub(super) async fn from_now(handle: &Handle, instance: &Instance) -> io::Result<LogStream> {
    let room = handle.folders.room(&instance.vm);
    let source = Source {
        log: room.log(),
        marks: room.marks(),
        ledger: handle.ledger.clone(),
        vm: instance.vm.clone(),
        follow: true,
        pieces: true,
    };
    let mut reading = source.reading(Some(0));
    // Where now is, is found now and not when somebody listens.
    reading.more().await?;
    Ok(reading.entries())
}

/// Passes it on to whoever wants it, to its end.
pub(super) async fn pass(mut entries: LogStream, to: Option<Writer>) -> Result<(), Refusal> {
    let Some(mut to) = to else {
        while entries.next().await.is_some() {}
        return Ok(());
    };
    while let Some(entry) = entries.next().await {
        let entry = entry.map_err(super::failed)?;
        let mut text = entry.text.to_vec();
        if !entry.partial {
            text.push(b'\n');
        }
        if to.write_all(&text).await.is_err() {
            return Ok(());
        }
    }
    let _ = to.shutdown().await;
    Ok(())
}

/// A log, and how to tell when it is complete.
struct Source {
    log: PathBuf,
    marks: PathBuf,
    ledger: Ledger,
    vm: PodVm,
    follow: bool,
    /// A line that is not whole is given as far as it is there: who is attached answers to it.
    pieces: bool,
}

struct Reading {
    source: Source,
    /// The file that is read, and where in the whole log it begins.
    file: Option<(tokio::fs::File, u64)>,
    /// Where in the whole log the next byte to give is.
    offset: u64,
    /// Read and not given yet.
    pending: Vec<u8>,
    marks: Marks,
    /// The last lines that are wanted, before the first is read.
    tail: Option<u64>,
}

impl Source {
    /// Whether nothing more will be written.
    fn over(&self) -> bool {
        self.ledger
            .get(&self.vm)
            .is_none_or(|entry| entry.stage.ending().is_some())
    }

    fn entries(self, tail: Option<u64>) -> LogStream {
        self.reading(tail).entries()
    }

    fn reading(self, tail: Option<u64>) -> Reading {
        Reading {
            source: self,
            file: None,
            offset: 0,
            pending: Vec::new(),
            marks: Marks::default(),
            tail,
        }
    }
}

impl Reading {
    fn entries(self) -> LogStream {
        stream::unfold(Some(self), |reading| async {
            let mut reading = reading?;
            match reading.next().await {
                Ok(Some(entry)) => Some((Ok(entry), Some(reading))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        })
        .boxed()
    }

    async fn next(&mut self) -> io::Result<Option<LogEntry>> {
        loop {
            if let Some(entry) = self.line() {
                return Ok(Some(entry));
            }
            // Asked before the read: what is written before the end is read after it.
            let over = !self.source.follow || self.source.over();
            if self.more().await? {
                continue;
            }
            if self.source.pieces && !self.pending.is_empty() {
                return Ok(Some(self.give(self.pending.len(), 0, true)));
            }
            if over {
                let rest = self.pending.len();
                return Ok((rest > 0).then(|| self.give(rest, 0, false)));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// A line that is there, or a piece of a long one.
    fn line(&mut self) -> Option<LogEntry> {
        let end = self.pending.iter().take(LONGEST).position(|byte| *byte == b'\n');
        match end {
            Some(end) => Some(self.give(end, 1, false)),
            None if self.pending.len() >= LONGEST => Some(self.give(LONGEST, 0, true)),
            None => None,
        }
    }

    fn give(&mut self, length: usize, skipped: usize, partial: bool) -> LogEntry {
        let end = length.saturating_add(skipped).min(self.pending.len());
        let mut text: Vec<u8> = self.pending.drain(..end).collect();
        let last = self.offset + (end as u64).saturating_sub(1);
        text.truncate(length);
        self.offset += end as u64;
        let at = self.marks.at(last).or_else(|| {
            self.marks = Marks::read(&self.source.marks);
            self.marks.at(last)
        });
        LogEntry {
            at: at.unwrap_or_else(|| self.changed()),
            text: Bytes::from(text),
            partial,
        }
    }

    /// When the file was last written to.
    fn changed(&self) -> Timestamp {
        let changed = std::fs::metadata(&self.source.log).and_then(|found| found.modified());
        changed
            .ok()
            .and_then(|at| Timestamp::try_from(at).ok())
            .unwrap_or_else(Timestamp::now)
    }

    /// Where in the whole log the next byte to read is.
    fn position(&self) -> u64 {
        self.offset.saturating_add(self.pending.len() as u64)
    }

    /// Reads on. `false` if there is nothing.
    async fn more(&mut self) -> io::Result<bool> {
        if let Some(lines) = self.tail.take() {
            self.offset = tail(&self.source.log, lines).await?;
        }
        loop {
            if let Some((file, _)) = &mut self.file {
                let mut piece = vec![0; PIECE];
                let count = file.read(&mut piece).await?;
                self.pending.extend_from_slice(piece.get(..count).unwrap_or_default());
                if count > 0 {
                    return Ok(true);
                }
            }
            if !self.turn().await? {
                return Ok(false);
            }
        }
    }

    /// Goes on to the file that holds the next byte. `false` if there is none but the one that is read.
    async fn turn(&mut self) -> io::Result<bool> {
        let parts = log::parts(&self.source.log)?;
        let position = self.position();
        let Some(part) = parts.iter().find(|part| position < part.ends()) else {
            return Ok(false);
        };
        if self.file.as_ref().is_some_and(|(_, begins)| *begins == part.begins) {
            // It was written to after it was read.
            return Ok(true);
        }
        let Some(mut file) = plain(&part.path)? else {
            return Ok(false);
        };
        // The file may have been set aside before it was opened, and another be in its place.
        let now = log::parts(&self.source.log)?;
        if !now
            .iter()
            .any(|other| other.begins == part.begins && other.path == part.path)
        {
            return Ok(true);
        }
        if position < part.begins {
            // What was between is gone: too much was said too fast.
            self.pending.clear();
            self.offset = part.begins;
        }
        file.seek(SeekFrom::Start(self.position().saturating_sub(part.begins)))
            .await?;
        self.file = Some((file, part.begins));
        Ok(true)
    }
}

/// A plain file; what a guest put there instead is not read. `None` if there is none yet.
fn plain(path: &Path) -> io::Result<Option<tokio::fs::File>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => std::fs::File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(file.metadata()?.is_file().then(|| tokio::fs::File::from_std(file)))
}

/// Where in the whole log the last so many lines begin.
async fn tail(log: &Path, lines: u64) -> io::Result<u64> {
    let parts = log::parts(log)?;
    let length = parts.last().map_or(0, Part::ends);
    if lines == 0 {
        return Ok(length);
    }
    let mut found = 0;
    for part in parts.iter().rev() {
        let Some(mut file) = plain(&part.path)? else { continue };
        let mut end = part.length;
        while end > 0 {
            let start = end.saturating_sub(PIECE as u64);
            file.seek(SeekFrom::Start(start)).await?;
            let mut piece = vec![0; usize::try_from(end - start).unwrap_or(PIECE)];
            file.read_exact(&mut piece).await?;
            for (index, byte) in piece.iter().enumerate().rev() {
                let offset = part.begins + start + index as u64;
                // The end of the last line is no beginning of another.
                if *byte == b'\n' && offset + 1 < length {
                    found += 1;
                    if found == lines {
                        return Ok(offset + 1);
                    }
                }
            }
            end = start;
        }
    }
    Ok(parts.first().map_or(0, |part| part.begins))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn shown(text: &str, lines: Option<u64>) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("log"), text).unwrap();
        let source = Source {
            follow: true,
            ..source(dir.path())
        };
        let entries: Vec<_> = source.entries(lines).collect().await;
        let text = |entry: io::Result<LogEntry>| {
            let entry = entry.unwrap();
            let more = if entry.partial { "…" } else { "" };
            format!("{}{more}", String::from_utf8_lossy(&entry.text))
        };
        entries.into_iter().map(text).collect()
    }

    #[tokio::test]
    async fn a_log_is_shown_line_by_line_to_its_end() {
        assert_eq!(shown("one\n\ntwo\nthree", None).await, ["one", "", "two", "three"]);
        assert_eq!(shown("", None).await, Vec::<String>::new());
    }

    #[tokio::test]
    async fn only_the_last_lines_are_shown_if_that_is_wanted() {
        assert_eq!(shown("one\ntwo\nthree\n", Some(2)).await, ["two", "three"]);
        assert_eq!(shown("one\ntwo\nthree", Some(1)).await, ["three"]);
        assert_eq!(shown("one\ntwo\n", Some(9)).await, ["one", "two"]);
        assert_eq!(shown("one\ntwo\n", Some(0)).await, Vec::<String>::new());
        let many = (0..40_000)
            .map(|number| format!("line {number}"))
            .collect::<Vec<_>>()
            .join("\n");
        assert_eq!(shown(&many, Some(1)).await, ["line 39999"]);
        assert_eq!(shown(&many, Some(30_000)).await.len(), 30_000);
    }

    fn source(dir: &Path) -> Source {
        Source {
            log: dir.join("log"),
            marks: dir.join("log.times"),
            ledger: Ledger::open(dir.join("vms")).unwrap(),
            vm: PodVm::new("ci", "job", "main", "0b5d7f3c", 0).unwrap(),
            follow: false,
            pieces: false,
        }
    }

    const SMALL: log::Rotation = log::Rotation { bytes: 100, files: 4 };

    #[tokio::test]
    async fn a_log_of_several_files_is_shown_as_one() {
        use std::io::Write as _;
        let dir = tempfile::tempdir().unwrap();
        let mut writer = log::Writer::open(&dir.path().join("log"), SMALL).unwrap();
        for number in 0..100 {
            writeln!(writer, "line {number}").unwrap();
        }
        let show = async |lines| -> Vec<String> {
            let entries: Vec<_> = source(dir.path()).entries(lines).collect().await;
            let text = |entry: io::Result<LogEntry>| String::from_utf8_lossy(&entry.unwrap().text).into_owned();
            entries.into_iter().map(text).collect()
        };
        let all = show(None).await;
        assert!(all.len() > 30 && all.len() < 100, "{}", all.len());
        assert_eq!(all.last().unwrap(), "line 99");
        let numbers: Vec<u32> = all.iter().map(|line| line[5..].parse().unwrap()).collect();
        assert!(numbers.is_sorted_by(|one, next| one + 1 == *next), "{numbers:?}");
        assert_eq!(show(Some(25)).await, all[all.len() - 25..]);
        assert_eq!(show(Some(1000)).await, all);
    }

    /// A reader in the middle of a file that is set aside, or one whose file is gone altogether, goes on with what is left.
    #[tokio::test]
    async fn a_reader_goes_on_when_files_are_set_aside_and_go() {
        use std::io::Write as _;
        let dir = tempfile::tempdir().unwrap();
        let mut writer = log::Writer::open(&dir.path().join("log"), SMALL).unwrap();
        writeln!(writer, "line 0").unwrap();
        let mut reading = Reading {
            source: source(dir.path()),
            file: None,
            offset: 0,
            pending: Vec::new(),
            marks: Marks::default(),
            tail: None,
        };
        let mut seen = Vec::new();
        for number in 1..200 {
            while let Some(entry) = reading.next().await.unwrap() {
                seen.push(String::from_utf8_lossy(&entry.text)[5..].parse::<u32>().unwrap());
            }
            writeln!(writer, "line {number}").unwrap();
        }
        assert_eq!(seen, (0..199).collect::<Vec<_>>());
        for number in 200..400 {
            writeln!(writer, "line {number}").unwrap();
        }
        let next = reading.next().await.unwrap().unwrap();
        assert!(next.text.starts_with(b"line "), "{next:?}");
    }

    #[tokio::test]
    async fn a_long_line_comes_in_pieces() {
        let long = "x".repeat(LONGEST + 5);
        let pieces = shown(&format!("{long}\nnext\n"), None).await;
        assert_eq!(pieces.len(), 3);
        assert!(pieces[0].ends_with('…'));
        assert_eq!(pieces[1..], ["xxxxx", "next"]);
    }
}
