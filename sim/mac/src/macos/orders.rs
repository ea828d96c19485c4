//! What the emulator and process 1 of a Mac say to each other.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// From the emulator to process 1.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Arrange the files of the Mac and move into them; the first order, and given once.
    Boot(Layout),
    /// Start a program. Its standard input, output and error come along.
    Start(Box<Start>),
    /// Send a signal to a process, or to its whole group.
    Signal { pid: i32, group: bool, signal: i32 },
}

/// Where the files of a Mac come from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Layout {
    /// What becomes `/`.
    pub(super) root: PathBuf,
    /// In this order.
    pub(super) binds: Vec<Bind>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Bind {
    pub(super) from: PathBuf,
    /// Below the root, without a leading slash.
    pub(super) to: PathBuf,
    pub(super) read_only: bool,
}

/// A program to start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Start {
    /// Comes back with the answer.
    pub(super) id: u64,
    /// What to execute.
    pub(super) program: String,
    /// What it sees, its own name first.
    pub(super) argv: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) folder: String,
    pub(super) run_as: RunAs,
}

/// Who a program runs as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunAs {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) groups: Vec<u32>,
    /// False where only one user exists: without root, the kernel maps no other.
    pub(super) switch: bool,
}

/// From process 1 to the emulator.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Notice {
    /// The Mac is up.
    Booted,
    /// It is not, and why.
    NotBooted(String),
    Started {
        id: u64,
        pid: i32,
    },
    NotStarted {
        id: u64,
        error: String,
    },
    /// A process ended; also of those that were adopted.
    Ended {
        pid: i32,
        how: Ending,
    },
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Ending {
    Code(i32),
    Signal(i32),
}

impl Ending {
    /// As a shell tells it.
    pub(super) fn as_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}
