//! What a build is, as data: files to write, commands to run, what is local state, what comes out. Each tool makes one
//! ([`crate::tools`]); the [`Workshop`](crate::Workshop) carries it out.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

/// The folder of one tiny project and everything its builds leave behind.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    pub(crate) dir: PathBuf,
    /// Part of every source file, so that two sites never share an entry of the cache.
    pub(crate) seed: String,
}

impl Site {
    pub(crate) fn project(&self) -> PathBuf {
        self.dir.join("project")
    }

    /// Kept between builds, of no use to a cold build: daemons' sockets, unpacked tools.
    pub(crate) fn keep(&self, name: &str) -> PathBuf {
        self.dir.join("keep").join(name)
    }

    /// Removed before every build.
    pub(crate) fn state(&self, name: &str) -> PathBuf {
        self.dir.join("state").join(name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) content: String,
    pub(crate) mode: u32,
}

/// One command. Its environment is exactly what is named here, plus what the workshop gives every command (PATH, HOME, TMPDIR).
#[derive(Debug, Clone)]
pub(crate) struct Invocation {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: BTreeMap<OsString, OsString>,
    pub(crate) dir: PathBuf,
}

impl Invocation {
    pub(crate) fn new(program: impl Into<PathBuf>, dir: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            dir: dir.into(),
        }
    }

    pub(crate) fn args<I: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = I>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.insert(name.into(), value.as_ref().to_owned());
        self
    }

    /// The program, for messages.
    pub(crate) fn shown(&self) -> String {
        self.program
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    }
}

/// One build from nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plan {
    pub(crate) files: Vec<File>,
    /// Links to make: from, to.
    pub(crate) links: Vec<(PathBuf, PathBuf)>,
    /// Removed before the build, beside everything under [`Site::state`].
    pub(crate) state: Vec<PathBuf>,
    /// How the tool itself forgets, when it keeps state in a server. May fail: there may be nothing to forget.
    pub(crate) forget: Vec<Invocation>,
    /// In order; the first that fails ends the build.
    pub(crate) build: Vec<Invocation>,
    /// Asks the tool what it saw. May fail.
    pub(crate) report: Option<Invocation>,
    /// Ends servers the tool has started.
    pub(crate) stop: Vec<Invocation>,
    pub(crate) outputs: Vec<PathBuf>,
}

impl Plan {
    pub(crate) fn file(&mut self, path: impl AsRef<Path>, content: impl Into<String>) {
        self.files.push(File {
            path: path.as_ref().to_owned(),
            content: content.into(),
            mode: 0o644,
        });
    }

    /// A file with credentials in it.
    pub(crate) fn secret_file(&mut self, path: impl AsRef<Path>, content: impl Into<String>) {
        self.files.push(File {
            path: path.as_ref().to_owned(),
            content: content.into(),
            mode: 0o600,
        });
    }
}

/// What a tool says about a build. `None`: it does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Claim {
    /// Work taken from the cache.
    pub hits: Option<u64>,
    /// Work done here.
    pub misses: Option<u64>,
}

impl Claim {
    pub(crate) fn of(hits: u64, misses: u64) -> Self {
        Self {
            hits: Some(hits),
            misses: Some(misses),
        }
    }
}

/// The number before `word`, wherever it first stands: `2` in `4 processes: 2 remote cache hit, 2 internal`.
pub(crate) fn number_before(text: &str, word: &str) -> Option<u64> {
    let before = text.split(word).next().filter(|before| before.len() < text.len())?;
    let before = before.trim_end();
    let digits = before.len() - before.bytes().rev().take_while(u8::is_ascii_digit).count();
    before.get(digits..)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_before_a_word_is_found_or_none() {
        assert_eq!(
            number_before("4 processes: 2 remote cache hit, 2 internal.", " remote cache hit"),
            Some(2)
        );
        assert_eq!(number_before("no hit here", " remote cache hit"), None);
        assert_eq!(number_before("x cached", " cached"), None);
    }
}
