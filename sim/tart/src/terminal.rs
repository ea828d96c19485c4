//! Terminals: the guest's side of `tart exec -t`, and the raw mode of the caller's. Tests sit at one, too.

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, Termios, Winsize, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};
use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

/// The first argument of a process that becomes the leader of its terminal before it becomes the command.
pub(crate) const WORD: &str = "--sim-tart-terminal";

pub(crate) fn main(words: &[String]) -> ExitCode {
    let _ = rustix::process::setsid();
    let _ = rustix::process::ioctl_tiocsctty(io::stdin());
    let Some((program, rest)) = words.split_first() else {
        return ExitCode::from(64);
    };
    let error = Command::new(program).args(rest).exec();
    let _ = writeln!(io::stderr(), "{program}: {error}");
    ExitCode::from(127)
}

/// A terminal: the master, and the end that the command gets.
pub fn open(columns: u16, rows: u16) -> io::Result<(File, File)> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let slave = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    let master = File::from(master);
    resize(&master, columns, rows)?;
    Ok((master, File::from(slave)))
}

/// Gives a terminal another size, which whoever it is the controlling one of is told.
pub fn resize(master: &File, columns: u16, rows: u16) -> io::Result<()> {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    Ok(tcsetwinsize(master, size)?)
}

/// Columns and rows of standard input, if it is a terminal.
pub(crate) fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(io::stdin()).ok()?;
    Some((size.ws_col, size.ws_row))
}

/// Standard input passes every key on, until this is dropped.
#[derive(Debug)]
pub(crate) struct Raw(Termios);

impl Raw {
    pub(crate) fn enter() -> Option<Self> {
        if !io::stdin().is_terminal() {
            return None;
        }
        let before = tcgetattr(io::stdin()).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw).ok()?;
        Some(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}
