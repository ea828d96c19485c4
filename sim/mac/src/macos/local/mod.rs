//! Tools that need no answer from the emulator: they work on files with the rights of whoever called them, or they are Linux tools
//! with the flags of a Mac.

mod bsd;
mod codesign;
mod defaults;
mod owners;

use super::inside::{self, Desk};
use std::io::Write as _;
use std::process::ExitCode;

/// What a tool has to say at its end.
#[derive(Debug, Default)]
struct Said {
    out: Vec<u8>,
    err: String,
    code: i32,
    unexpected: bool,
}

impl Said {
    fn silent() -> Self {
        Self::default()
    }

    fn out(text: impl Into<Vec<u8>>) -> Self {
        Self {
            out: text.into(),
            ..Self::default()
        }
    }

    fn err(code: i32, text: impl Into<String>) -> Self {
        Self {
            err: text.into(),
            code,
            ..Self::default()
        }
    }

    fn unknown(code: i32, text: impl Into<String>) -> Self {
        Self {
            unexpected: true,
            ..Self::err(code, text)
        }
    }
}

/// Runs the tool here; none if the emulator has to answer.
pub(super) fn run(desk: &Desk) -> Option<ExitCode> {
    let said = match desk.name.as_str() {
        "base64" => bsd::base64(desk),
        "codesign" => codesign::run(desk),
        "defaults" => defaults::run(desk),
        "chown" => owners::chown(desk),
        "ls" => owners::ls(desk),
        "plutil" => defaults::plutil(desk),
        // Port 22 of the Mac itself is the emulator's to answer for: it listens elsewhere.
        "nc" if bsd::is_own_sshd(desk) => return None,
        "nc" => bsd::nc(desk),
        "sed" => bsd::sed(desk),
        "shasum" => bsd::shasum(desk),
        "md5" => bsd::md5(desk),
        "stat" => bsd::stat(desk),
        "xattr" => bsd::xattr(desk),
        _ => return None,
    };
    let words = format!("{} {}", desk.name, desk.args.join(" "));
    desk.note(said.unexpected.then_some(words.as_str()));
    // A reader that left misses the end, as it does on a Mac.
    let _ = std::io::stdout().write_all(&said.out);
    let _ = std::io::stdout().flush();
    let _ = std::io::stderr().write_all(said.err.as_bytes());
    Some(inside::exit_code(said.code))
}
