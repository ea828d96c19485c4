//! A log that is read once, as it grows, and followed when it is exchanged for a new one.

use anyhow::{Context, Result};
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

#[derive(Debug)]
pub(crate) struct Tail {
    path: PathBuf,
    reader: BufReader<File>,
    /// The beginning of a line that is still being written.
    part: String,
}

impl Tail {
    /// From the beginning of this log.
    pub(crate) fn follow(path: PathBuf) -> Result<Self> {
        let reader = open(&path)?;
        Ok(Self {
            path,
            reader,
            part: String::new(),
        })
    }

    /// Every whole line since the last time.
    pub(crate) fn lines(&mut self) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        loop {
            self.read_to_end(&mut lines)?;
            let fresh = open(&self.path)?;
            let ours = self.reader.get_ref().metadata()?;
            let theirs = fresh.get_ref().metadata()?;
            if (ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino()) {
                return Ok(lines);
            }
            // Whatever was written to the old one between the two is read before the new one is begun.
            self.read_to_end(&mut lines)?;
            self.reader = fresh;
        }
    }

    fn read_to_end(&mut self, lines: &mut Vec<String>) -> Result<()> {
        while self.reader.read_line(&mut self.part)? > 0 {
            if self.part.ends_with('\n') {
                lines.push(std::mem::take(&mut self.part));
            }
        }
        Ok(())
    }
}

fn open(path: &PathBuf) -> Result<BufReader<File>> {
    let file = File::open(path).with_context(|| format!("failed to open the audit log {}", path.display()))?;
    Ok(BufReader::with_capacity(1 << 16, file))
}
