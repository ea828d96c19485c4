//! Programs that tests write and run.
//!
//! The kernel runs no file that a process holds open for writing ("text file busy"). A test that writes a script itself may lose that race: another
//! test forks meanwhile, and its child holds a copy of the descriptor until it has become another program. So another process writes it.

use std::io::{Error, Result, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

/// Replaces the file at `path` by a program of this text that can be run at once.
pub fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut child = Command::new("/bin/sh")
        .args(["-ec", r#"cat >"$0.new"; chmod 755 "$0.new"; mv -f "$0.new" "$0""#])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(text.as_bytes())?;
    }
    match child.wait()? {
        status if status.success() => Ok(()),
        status => Err(Error::other(format!("{} was not written: {status}", path.display()))),
    }
}
