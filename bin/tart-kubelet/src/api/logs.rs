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

/// Shows what a container says from now on, until it ends or nobody listens.
pub(super) async fn follow_new(handle: &Handle, instance: Instance, to: Option<Writer>) -> Result<(), Refusal> {
    let room = handle.folders.room(&instance.vm);
    let source = Source {
        log: room.log(),
        marks: room.marks(),
        ledger: handle.ledger.clone(),
        vm: instance.vm,
        follow: true,
    };
    let mut entries = source.entries(Some(0));
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
}

struct Reading {
    source: Source,
    file: Option<tokio::fs::File>,
    /// Where in the file the next byte to give is.
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
        let reading = Reading {
            source: self,
            file: None,
            offset: 0,
            pending: Vec::new(),
            marks: Marks::default(),
            tail,
        };
        stream::unfold(Some(reading), |reading| async {
            let mut reading = reading?;
            match reading.next().await {
                Ok(Some(entry)) => Some((Ok(entry), Some(reading))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        })
        .boxed()
    }
}

impl Reading {
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

    /// Reads on. `false` if there is nothing.
    async fn more(&mut self) -> io::Result<bool> {
        if self.file.is_none() {
            let Some(mut file) = plain(&self.source.log)? else {
                self.tail = None;
                return Ok(false);
            };
            if let Some(lines) = self.tail.take() {
                self.offset = tail(&mut file, lines).await?;
            }
            file.seek(SeekFrom::Start(self.offset)).await?;
            self.file = Some(file);
        }
        let Some(file) = &mut self.file else { return Ok(false) };
        let mut piece = vec![0; PIECE];
        let count = file.read(&mut piece).await?;
        self.pending.extend_from_slice(piece.get(..count).unwrap_or_default());
        Ok(count > 0)
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

/// Where the last so many lines begin.
async fn tail(file: &mut tokio::fs::File, lines: u64) -> io::Result<u64> {
    let length = file.metadata().await?.len();
    if lines == 0 {
        return Ok(length);
    }
    let (mut end, mut found) = (length, 0);
    while end > 0 {
        let start = end.saturating_sub(PIECE as u64);
        file.seek(SeekFrom::Start(start)).await?;
        let mut piece = vec![0; usize::try_from(end - start).unwrap_or(PIECE)];
        file.read_exact(&mut piece).await?;
        for (index, byte) in piece.iter().enumerate().rev() {
            let offset = start + index as u64;
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
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn shown(text: &str, lines: Option<u64>) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("log"), text).unwrap();
        let source = Source {
            log: dir.path().join("log"),
            marks: dir.path().join("marks"),
            ledger: Ledger::open(dir.path().join("vms")).unwrap(),
            vm: PodVm::new("ci", "job", "main", "0b5d7f3c", 0).unwrap(),
            follow: true,
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

    #[tokio::test]
    async fn a_long_line_comes_in_pieces() {
        let long = "x".repeat(LONGEST + 5);
        let pieces = shown(&format!("{long}\nnext\n"), None).await;
        assert_eq!(pieces.len(), 3);
        assert!(pieces[0].ends_with('…'));
        assert_eq!(pieces[1..], ["xxxxx", "next"]);
    }
}
