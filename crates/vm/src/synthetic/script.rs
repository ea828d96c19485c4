//! What a synthetic host takes, and what its guests answer.

use std::fmt;
use std::time::Duration;

/// Something that takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Downloading an image.
    Pull,
    /// Cloning a VM.
    Clone,
    /// Changing its hardware.
    Configure,
    /// Starting its process.
    Start,
    /// From the start of the process to an address and an agent.
    Boot,
    /// The guest's way down, when asked.
    ShutDown,
    /// Deleting it.
    Delete,
    /// A program in the guest.
    Exec,
}

/// What a program in the guest does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Its exit code.
    pub code: i32,
    /// Its output.
    pub stdout: Vec<u8>,
    /// Its errors.
    pub stderr: Vec<u8>,
    /// It shuts the guest down.
    pub shuts_down: bool,
    /// It does not end before the VM does.
    pub hangs: bool,
    /// How long it runs before it ends.
    pub lasts: Duration,
}

/// Decides for a host. Called often; must not block.
pub trait Script: Send + Sync + fmt::Debug {
    /// How long something takes for a VM or an image.
    fn delay(&self, op: Op, name: &str) -> Duration;

    /// What a program does in a VM.
    fn run(&self, vm: &str, words: &[String], input: &[u8]) -> Reply;
}

/// Fixed delays, and a handful of programs: `true`, `false`, `echo`, `cat`, `sleep` (for ever), `shutdown`, `sh -c "exit N"`.
#[derive(Clone, Debug, Default)]
pub struct Plain {
    /// Downloading an image.
    pub pull: Duration,
    /// Cloning a VM.
    pub clone: Duration,
    /// Until the guest is up.
    pub boot: Duration,
    /// The guest's way down.
    pub shut_down: Duration,
    /// Every other thing.
    pub other: Duration,
}

impl Plain {
    /// About what an M-series mini takes once the image is there (facts/anchors.md A: 15 s from clone to booted).
    pub fn like_a_mini() -> Self {
        Self {
            pull: Duration::from_mins(25),
            clone: Duration::from_secs(1),
            boot: Duration::from_secs(14),
            shut_down: Duration::from_secs(3),
            other: Duration::from_millis(50),
        }
    }
}

impl Script for Plain {
    fn delay(&self, op: Op, _name: &str) -> Duration {
        match op {
            Op::Pull => self.pull,
            Op::Clone => self.clone,
            Op::Boot => self.boot,
            Op::ShutDown => self.shut_down,
            Op::Configure | Op::Start | Op::Delete | Op::Exec => self.other,
        }
    }

    fn run(&self, _vm: &str, words: &[String], input: &[u8]) -> Reply {
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["true"] => Reply::default(),
            ["false"] => Reply {
                code: 1,
                ..Reply::default()
            },
            ["echo", rest @ ..] => Reply {
                stdout: format!("{}\n", rest.join(" ")).into_bytes(),
                ..Reply::default()
            },
            ["cat"] => Reply {
                stdout: input.to_vec(),
                ..Reply::default()
            },
            ["sleep", ..] => Reply {
                hangs: true,
                ..Reply::default()
            },
            ["shutdown", ..] | ["sudo", "shutdown", ..] => Reply {
                shuts_down: true,
                ..Reply::default()
            },
            ["sh", "-c", line] => match line.strip_prefix("exit ").and_then(|code| code.parse().ok()) {
                Some(code) => Reply {
                    code,
                    ..Reply::default()
                },
                None => unknown(line),
            },
            _ => unknown(&words.join(" ")),
        }
    }
}

fn unknown(line: &str) -> Reply {
    Reply {
        code: 127,
        stderr: format!("{line}: not a program of a synthetic guest\n").into_bytes(),
        ..Reply::default()
    }
}
