//! Exit codes, so that scripts can tell "it failed" from "it is not there".

use std::process::ExitCode;

/// How a command ended. The numbers are part of the interface: `russet --help` lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It did what was asked.
    Success,
    /// It tried and failed; the reason is on standard error.
    Failure,
    /// The command line was wrong.
    Usage,
    /// `status`: nothing runs, or what runs is not healthy.
    NotHealthy,
    /// Another `russet` works on the same state directory.
    InUse,
    /// Stopped by a signal before the work was done.
    Interrupted,
    /// `host exec`: as the command on the host ended.
    Command(u8),
}

/// Shown at the end of `russet --help`.
pub const TABLE: &str = "\
Exit codes:
  0    done
  1    failed, the reason is on standard error
  2    wrong command line
  3    status: not running, or degraded
  4    another russet uses the same state directory
  130  interrupted before it was done
  host exec ends with the exit code of the command";

impl Exit {
    pub fn number(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
            Self::Usage => 2,
            Self::NotHealthy => 3,
            Self::InUse => 4,
            Self::Interrupted => 130,
            Self::Command(code) => code,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_documented_in_the_help() {
        let all = [
            Exit::Success,
            Exit::Failure,
            Exit::Usage,
            Exit::NotHealthy,
            Exit::InUse,
            Exit::Interrupted,
        ];
        for exit in all {
            let number = exit.number().to_string();
            assert!(
                TABLE
                    .lines()
                    .any(|line| line.split_whitespace().next() == Some(&number)),
                "{exit:?} is missing"
            );
        }
    }
}
