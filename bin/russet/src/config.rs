//! What the process takes from its surroundings: the environment, the working directory, the terminal. Read here, once.

use crate::table::Colour;
use russet_telemetry::Secret;
use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::path::PathBuf;

/// The surroundings as plain values.
#[derive(Debug, Clone)]
pub struct Surroundings {
    pub working_dir: PathBuf,
    pub stdout: Stream,
    pub stderr: Stream,
}

/// What can be done with an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    pub terminal: bool,
    pub colour: Colour,
}

impl Surroundings {
    pub fn read() -> io::Result<Self> {
        let no_colour = std::env::var_os("NO_COLOR");
        let term = std::env::var_os("TERM");
        let stream = |terminal| Stream {
            terminal,
            colour: colour(terminal, no_colour.as_deref(), term.as_deref()),
        };
        Ok(Self {
            working_dir: std::env::current_dir()?,
            stdout: stream(io::stdout().is_terminal()),
            stderr: stream(io::stderr().is_terminal()),
        })
    }
}

/// The token `russet cache try` shows to a cache: from the environment, since arguments are world-readable.
pub fn cache_token() -> Option<Secret<String>> {
    let token = std::env::var_os("RUSSET_CACHE_TOKEN")?.into_string().ok()?;
    (!token.is_empty()).then(|| Secret::new(token))
}

/// <https://no-color.org>: set and not empty means no colour.
fn colour(terminal: bool, no_colour: Option<&OsStr>, term: Option<&OsStr>) -> Colour {
    let forbidden = no_colour.is_some_and(|value| !value.is_empty());
    let dumb = term.is_some_and(|value| value == "dumb");
    if terminal && !forbidden && !dumb {
        Colour::Always
    } else {
        Colour::Never
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_needs_a_terminal_and_no_objection() {
        let set = Some(OsStr::new("1"));
        let empty = Some(OsStr::new(""));
        assert_eq!(colour(true, None, None), Colour::Always);
        assert_eq!(colour(true, empty, None), Colour::Always);
        assert_eq!(colour(true, set, None), Colour::Never);
        assert_eq!(colour(false, None, None), Colour::Never);
        assert_eq!(colour(true, None, Some(OsStr::new("dumb"))), Colour::Never);
    }
}
