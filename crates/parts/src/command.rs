//! Runs a package tool for a part: its lines are progress, its last ones the reason when it fails.

use std::path::Path;

use tokio::process::Command;

use crate::{Options, Part, Progress, SourceError, attempt::Failure, golang};

/// What is kept of a command that explains itself on standard output.
const TAIL_LINES: usize = 12;

/// Flags that say nothing about what is done.
const QUIET: [&str; 6] = ["-qq", "-m", "-B", "-q", "-ntp", "-C"];

/// Runs to the end and returns standard output. The first telling argument names the command in errors.
pub(crate) async fn run(
    options: &Options,
    part: &Part,
    program: &Path,
    args: &[&str],
    folder: &Path,
    progress: &dyn Progress,
) -> Result<String, Failure> {
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let verb = args.iter().find(|arg| !QUIET.contains(*arg)).copied();
    let shown = format!("{name} {}", verb.unwrap_or_default());
    let mut command = Command::new(program);
    command
        .args(args)
        .current_dir(folder)
        .env("PATH", options.path())
        .env("LC_ALL", "C")
        .env("DEBIAN_FRONTEND", "noninteractive");
    let (status, stdout, tail) = golang::stream(command, |line| progress.advance(&part.name, 0, line))
        .await
        .map_err(|source| SourceError::Spawn {
            command: shown.clone(),
            source,
        })?;
    if status.success() {
        return Ok(stdout);
    }
    Err(SourceError::Command {
        command: shown,
        status,
        tail: if tail.is_empty() { last_lines(&stdout) } else { tail },
    }
    .into())
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let from = lines.len().saturating_sub(TAIL_LINES);
    lines.get(from..).unwrap_or_default().join("\n")
}

pub(crate) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
