//! Reading a log: line by line, from its end or from its beginning, until nothing more will be written.

#[cfg(test)]
mod tests;

use std::io::{self, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use bytes::BytesMut;
use futures::StreamExt as _;
use futures::stream;
use jiff::Timestamp;
use russet_kubelet_api::{LogEntry, LogStream};
use russet_vm::PodVm;
use russet_vm::log::Part;
use russet_vm::log::marks::Marks;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};

use crate::ledger::Ledger;
use crate::pods::journal::{Origin, plain};

/// How often a log that is followed is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// A longer line comes in pieces.
const LONGEST: usize = 16 * 1024;
const PIECE: usize = 64 * 1024;
/// How many files are opened in one look. There are a few; more often than this nothing is found by opening another.
const TURNS: u32 = 16;
/// How far back the last lines of what a guest left are looked for: as much as a stock node keeps of a log. Nobody keeps a guest from
/// leaving a file of any length.
const FARTHEST: u64 = 50 * 1024 * 1024;

/// A log, and how to tell when it is complete.
pub(super) struct Source {
    pub(super) origin: Origin,
    /// When what was said.
    pub(super) marks: PathBuf,
    pub(super) ledger: Ledger,
    pub(super) vm: PodVm,
    pub(super) follow: bool,
    /// A line that is not whole is given as far as it is there: who is attached answers to it.
    pub(super) pieces: bool,
}

impl Source {
    /// Where in the whole log the last so many lines begin.
    async fn tail(&self, lines: u64) -> io::Result<u64> {
        let farthest = match &self.origin {
            Origin::Kept(_) => u64::MAX,
            Origin::Left(_) => FARTHEST,
        };
        tail(&self.origin.parts()?, lines, farthest).await
    }

    /// Whether nothing more will be written.
    fn over(&self) -> bool {
        self.ledger
            .get(&self.vm)
            .is_none_or(|entry| entry.stage.ending().is_some())
    }

    pub(super) fn reading(self, tail: Option<u64>) -> Reading {
        Reading {
            source: self,
            file: None,
            offset: 0,
            pending: BytesMut::new(),
            marks: Marks::default(),
            unmarked: false,
            changed: None,
            tail,
        }
    }
}

/// The file that is read.
struct Opened {
    file: tokio::fs::File,
    inode: u64,
    /// Where in the whole log it begins.
    begins: u64,
}

pub(super) struct Reading {
    source: Source,
    file: Option<Opened>,
    /// Where in the whole log the next byte to give is.
    offset: u64,
    /// Read and not given yet.
    pending: BytesMut,
    marks: Marks,
    /// Something was read after the marks were.
    unmarked: bool,
    /// When the file had last been written to, when it was last read.
    changed: Option<Timestamp>,
    /// The last lines that are wanted, before the first is read.
    tail: Option<u64>,
}

impl Reading {
    pub(super) fn entries(self) -> LogStream {
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
        let mut text = self.pending.split_to(end);
        text.truncate(length);
        let last = self.offset.saturating_add((end as u64).saturating_sub(1));
        self.offset = self.offset.saturating_add(end as u64);
        LogEntry {
            at: self.written(last),
            text: text.freeze(),
            partial,
        }
    }

    /// When a byte was written: as the marks have it, or else when its file last was. Marks are looked at again once for all that came
    /// with one read, not for each line.
    fn written(&mut self, offset: u64) -> Timestamp {
        if std::mem::take(&mut self.unmarked) {
            self.marks.refresh(&self.source.marks);
        }
        self.marks.at(offset).or(self.changed).unwrap_or_else(Timestamp::now)
    }

    /// Where in the whole log the next byte to read is.
    fn position(&self) -> u64 {
        self.offset.saturating_add(self.pending.len() as u64)
    }

    /// Reads on. `false` if there is nothing.
    pub(super) async fn more(&mut self) -> io::Result<bool> {
        if let Some(lines) = self.tail.take() {
            self.offset = self.source.tail(lines).await?;
        }
        for _ in 0..TURNS {
            if self.read().await? {
                return Ok(true);
            }
            if !self.turn().await? {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Reads on in the file that is open. `false` at its end.
    async fn read(&mut self) -> io::Result<bool> {
        let Some(opened) = &mut self.file else {
            return Ok(false);
        };
        self.pending.reserve(PIECE);
        if opened.file.read_buf(&mut self.pending).await? == 0 {
            return Ok(false);
        }
        let changed = opened.file.metadata().await?.modified()?;
        self.changed = Timestamp::try_from(changed).ok();
        self.unmarked = true;
        Ok(true)
    }

    /// Goes on to the file that holds the next byte. `false` if there is none but the one that is read.
    async fn turn(&mut self) -> io::Result<bool> {
        if self.file.is_some() && matches!(self.source.origin, Origin::Left(_)) {
            return Ok(false);
        }
        let parts = self.source.origin.parts()?;
        let position = self.position();
        let Some(part) = parts.iter().find(|part| position < part.ends()) else {
            return Ok(false);
        };
        if let Some(opened) = &self.file
            && (opened.begins, opened.inode) == (part.begins, part.inode)
        {
            // It was written to after it was read.
            return Ok(true);
        }
        let Some((file, found)) = plain(&part.path)? else {
            return Ok(false);
        };
        if found.ino() != part.inode {
            // The file was set aside before it was opened, and another is in its place.
            return Ok(true);
        }
        if position < part.begins {
            // What was between is gone: too much was said too fast.
            self.pending.clear();
            self.offset = part.begins;
        }
        let mut file = tokio::fs::File::from_std(file);
        file.seek(SeekFrom::Start(self.position().saturating_sub(part.begins)))
            .await?;
        self.file = Some(Opened {
            file,
            inode: part.inode,
            begins: part.begins,
        });
        Ok(true)
    }
}

/// Where in the whole log the last so many lines begin, or so many bytes if those are fewer.
async fn tail(parts: &[Part], lines: u64, farthest: u64) -> io::Result<u64> {
    let length = parts.last().map_or(0, Part::ends);
    if lines == 0 {
        return Ok(length);
    }
    let begins = parts.first().map_or(0, |part| part.begins);
    let begins = begins.max(length.saturating_sub(farthest));
    let mut found = 0;
    for part in parts.iter().rev() {
        let Some((file, now)) = plain(&part.path)? else {
            continue;
        };
        if now.ino() != part.inode {
            continue;
        }
        let mut file = tokio::fs::File::from_std(file);
        let mut end = part.length;
        while end > 0 && part.begins.saturating_add(end) > begins {
            let start = end.saturating_sub(PIECE as u64);
            file.seek(SeekFrom::Start(start)).await?;
            let mut piece = vec![0; usize::try_from(end - start).unwrap_or(PIECE)];
            match file.read_exact(&mut piece).await {
                Ok(_) => {}
                // Somebody has shortened it since.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => piece.clear(),
                Err(error) => return Err(error),
            }
            for (index, byte) in piece.iter().enumerate().rev() {
                let next = part.begins.saturating_add(start).saturating_add(index as u64 + 1);
                // The end of the last line is no beginning of another.
                if *byte == b'\n' && next < length {
                    found += 1;
                    if found == lines {
                        return Ok(next);
                    }
                }
            }
            end = start;
        }
    }
    Ok(begins)
}
