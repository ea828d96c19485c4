//! `russet logs`: the log of one part, its end, its continuation, its predecessor.

use crate::cli::{self, Tail};
use crate::config::Surroundings;
use crate::exit::Exit;
use crate::signals::Signals;
use crate::state::{Layout, run};
use crate::status::view::bytes;
use crate::suggest;
use crate::table::{Colour, Table};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Between two looks at a file that is followed.
const POLL: Duration = Duration::from_millis(200);

/// How much is read at a time from the end, looking for line starts.
const BLOCK: u64 = 64 << 10;

pub(crate) async fn logs(args: &cli::Logs, surroundings: &Surroundings) -> Result<Exit> {
    let layout = Layout::new(&surroundings.working_dir, &args.dir.dir);
    let known = known(&layout);
    let Some(part) = &args.part else {
        return list(&known, &layout);
    };
    let Some(log) = known.get(part) else {
        if known.is_empty() {
            bail!(
                "there are no logs in {}; `russet up` writes them",
                layout.logs().display()
            );
        }
        bail!(suggest::unknown("part", part, known.keys().map(String::as_str)));
    };
    let path = if args.previous { previous(log) } else { log.clone() };
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound && args.previous => {
            bail!("{part} has no earlier log: this directory has seen one `up` only");
        }
        Err(error) => return Err(error).with_context(|| format!("failed to open {}", path.display())),
    };
    let start = match args.tail {
        Tail::All => 0,
        Tail::Lines(lines) => {
            tail_start(&mut file, lines).with_context(|| format!("failed to read {}", path.display()))?
        }
    };
    file.seek(SeekFrom::Start(start))?;
    let mut out = io::stdout().lock();
    if quiet_pipe(io::copy(&mut file, &mut out).map(drop))? {
        return Ok(Exit::Success);
    }
    if args.follow {
        follow(&path, file, &mut out).await
    } else {
        Ok(Exit::Success)
    }
}

/// Logs by part name: those of the last run, and any other file in the log folder.
fn known(layout: &Layout) -> BTreeMap<String, PathBuf> {
    let mut known = BTreeMap::new();
    for entry in std::fs::read_dir(layout.logs()).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "log")
            && let Some(name) = path.file_stem()
        {
            known.insert(name.to_string_lossy().into_owned(), path);
        }
    }
    known.extend(
        run::read(layout)
            .into_iter()
            .flat_map(|run| run.parts)
            .map(|part| (part.name, part.log)),
    );
    known.retain(|_, path| path.exists());
    known
}

fn list(known: &BTreeMap<String, PathBuf>, layout: &Layout) -> Result<Exit> {
    if known.is_empty() {
        bail!(
            "there are no logs in {}; `russet up` writes them",
            layout.logs().display()
        );
    }
    let mut table = Table::new(&["PART", "SIZE", "LOG"]);
    for (name, path) in known {
        let size = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        table.row([
            name.clone().into(),
            bytes(size).into(),
            path.display().to_string().into(),
        ]);
    }
    quiet_pipe(io::stdout().write_all(table.render(Colour::Never).as_bytes()))?;
    Ok(Exit::Success)
}

/// The supervisor moves the log of an earlier run here. Restarts within a run append to the same log.
fn previous(log: &Path) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(".1");
    PathBuf::from(name)
}

/// Where the last `lines` lines begin. A last line without a newline counts.
fn tail_start(file: &mut (impl Read + Seek), lines: usize) -> io::Result<u64> {
    let end = file.seek(SeekFrom::End(0))?;
    if lines == 0 {
        return Ok(end);
    }
    let mut position = end;
    let mut seen = 0;
    let mut block = Vec::new();
    while position > 0 {
        let size = position.min(BLOCK);
        position -= size;
        file.seek(SeekFrom::Start(position))?;
        block.clear();
        file.by_ref().take(size).read_to_end(&mut block)?;
        for (offset, _) in block.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let after = position + u64::try_from(offset).unwrap_or_default() + 1;
            // The newline that ends the file begins no line.
            if after == end {
                continue;
            }
            seen += 1;
            if seen == lines {
                return Ok(after);
            }
        }
    }
    Ok(0)
}

/// Prints what is appended until Ctrl-C. A file that was replaced (the part was restarted) or cut is read from its start.
async fn follow(path: &Path, mut file: File, out: &mut impl Write) -> Result<Exit> {
    let mut signals = Signals::listen().context("failed to listen for signals")?;
    loop {
        tokio::select! {
            () = tokio::time::sleep(POLL) => {}
            _ = signals.next() => return Ok(Exit::Success),
        }
        if quiet_pipe(io::copy(&mut file, out).and_then(|_| out.flush()))? {
            return Ok(Exit::Success);
        }
        let Ok(named) = std::fs::metadata(path) else { continue };
        let open = file.metadata()?;
        if (named.dev(), named.ino()) != (open.dev(), open.ino()) {
            file = File::open(path).with_context(|| format!("failed to open {} again", path.display()))?;
        } else if named.len() < file.stream_position()? {
            file.seek(SeekFrom::Start(0))?;
        }
    }
}

/// `true` when the reader went away (`| head`), which is not a failure of ours.
fn quiet_pipe(result: io::Result<()>) -> Result<bool> {
    match result {
        Ok(()) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(true),
        Err(error) => Err(error).context("failed to copy the log"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn tail(text: &str, lines: usize) -> String {
        let start = tail_start(&mut Cursor::new(text.as_bytes()), lines).unwrap();
        text.get(usize::try_from(start).unwrap()..).unwrap().to_owned()
    }

    #[test]
    fn the_last_lines_are_found_with_and_without_a_final_newline() {
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc\n");
        assert_eq!(tail("a\nb\nc", 2), "b\nc");
        assert_eq!(tail("a\nb\nc\n", 9), "a\nb\nc\n");
        assert_eq!(tail("a\nb\n", 0), "");
        assert_eq!(tail("", 3), "");
        assert_eq!(tail("\n\n", 1), "\n");
    }

    #[test]
    fn lines_longer_than_a_block_are_not_cut() {
        let long = "x".repeat(200_000);
        let text = format!("first\n{long}\nlast\n");
        assert_eq!(tail(&text, 2), format!("{long}\nlast\n"));
    }
}
