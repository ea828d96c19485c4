//! A tool of macOS that was called inside a Mac, and the conversation it has with the emulator.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a tool says first. Its standard input, output and error come along.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Call {
    /// The name it was called by.
    pub(super) tool: String,
    pub(super) args: Vec<String>,
    pub(super) folder: String,
    pub(super) env: BTreeMap<String, String>,
    /// Who called, where the kernel cannot tell (see [`super::orders::RunAs::switch`]).
    pub(super) claimed_uid: u32,
    /// What was on standard input, for tools that read all of it.
    pub(super) input: Option<String>,
    /// Whether a tool that did its work by itself met something it does not know.
    pub(super) unexpected: Option<String>,
    /// The caller, filled in by the emulator.
    #[serde(skip)]
    pub(super) uid: u32,
}

impl Call {
    /// The arguments as words to match on.
    pub(super) fn words(&self) -> Vec<&str> {
        self.args.iter().map(String::as_str).collect()
    }

    pub(super) fn is_root(&self) -> bool {
        self.uid == 0
    }
}

/// What the emulator answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Answer {
    Out(String),
    Err(String),
    /// Read a line from standard input, if the caller allowed that.
    AskPassword(String),
    Exit(i32),
    /// End as if by this signal.
    Die(i32),
}

/// What a tool says later.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum More {
    /// A line; none at the end of the input.
    Password(Option<String>),
}

/// The whole output of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Reply {
    pub(super) out: String,
    pub(super) err: String,
    pub(super) code: i32,
    /// The tool was called in a way the emulator does not know.
    pub(super) unexpected: bool,
}

impl Reply {
    pub(super) fn silent() -> Self {
        Self::default()
    }

    pub(super) fn out(text: impl Into<String>) -> Self {
        Self {
            out: text.into(),
            ..Self::default()
        }
    }

    pub(super) fn err(code: i32, text: impl Into<String>) -> Self {
        Self {
            err: text.into(),
            code,
            ..Self::default()
        }
    }

    pub(super) fn with_code(mut self, code: i32) -> Self {
        self.code = code;
        self
    }

    pub(super) fn with_err(mut self, text: impl Into<String>) -> Self {
        self.err = text.into();
        self
    }

    /// What the real tool says to words it does not know, and a note for the tests.
    pub(super) fn unknown(code: i32, text: impl Into<String>) -> Self {
        Self {
            unexpected: true,
            ..Self::err(code, text)
        }
    }
}
