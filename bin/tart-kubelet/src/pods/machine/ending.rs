//! How a container ended, from everything that was left. Pure.

use jiff::Timestamp;
use russet_pod::facts::reasons;
use russet_pod::status::termination_message;
use russet_vm::{Exit, How, StartFailure, Step};

use crate::ledger::Ending;

/// How much of a container's last words is kept.
pub(super) const LAST_WORDS: u64 = 4096;
const KILLED: i32 = 137;

/// What is known of an end.
#[derive(Clone, Debug)]
pub(super) struct Told {
    /// A program was started in the VM.
    pub(super) command: bool,
    /// How the VM ended.
    pub(super) exit: Option<Exit>,
    /// How the program ended.
    pub(super) step: Option<Step>,
    /// The exit code that the guest wrote down.
    pub(super) code: Option<i32>,
    /// What stands in for last words.
    pub(super) policy: Option<String>,
    /// What the container wrote down.
    pub(super) last_words: Option<Vec<u8>>,
    /// The end of what it said.
    pub(super) log: Vec<u8>,
    pub(super) now: Timestamp,
}

impl Told {
    /// The end. What nobody saw is never a success.
    pub(super) fn ending(self) -> Ending {
        let finished = self.exit.as_ref().and_then(|exit| exit.finished).unwrap_or(self.now);
        let mut ending = match (self.step, self.command, self.code) {
            (Some(Step::Ended { code, finished }), _, _) => Ending::exited(code, finished),
            (_, false, Some(code)) => Ending::exited(code, finished),
            _ => self.by_machine(finished),
        };
        let words = termination_message(
            self.policy.as_deref(),
            ending.code,
            self.last_words.as_deref(),
            &self.log,
        );
        ending.message = words.unwrap_or(ending.message);
        ending
    }

    /// The VM is all that tells.
    fn by_machine(&self, finished: Timestamp) -> Ending {
        let failed = |code, message: String| Ending::failed(code, reasons::ERROR, message, finished);
        let unseen = || {
            Ending::unknown(
                "nobody saw how the container ended: the host or its processes went down",
                finished,
            )
        };
        match self.exit.as_ref().map(|exit| &exit.how) {
            None | Some(How::Unknown) => unseen(),
            Some(How::ShutDown) if self.command => failed(KILLED, "the guest was shut down".to_owned()),
            Some(How::ShutDown) => Ending::exited(0, finished),
            Some(How::Crashed(why)) => failed(1, format!("the guest crashed: {why}")),
            Some(How::Stopped) => failed(KILLED, "the virtual machine was stopped".to_owned()),
            Some(How::Failed(failure)) => failed(1, failure.to_string()),
            Some(How::Killed(signal)) => {
                failed(128 + signal, "the process of the virtual machine was killed".to_owned())
            }
        }
    }
}

/// A start that failed, as opposed to a container that ran and ended: why.
pub(super) fn not_started(exit: &Exit) -> Option<&StartFailure> {
    match &exit.how {
        How::Failed(failure) => Some(failure),
        _ => None,
    }
}

/// We ended it, so that nobody saw its exit code means that it was killed.
pub(super) fn by_us(mut ending: Ending) -> Ending {
    if ending.reason == reasons::UNKNOWN {
        ending.code = KILLED;
        reasons::ERROR.clone_into(&mut ending.reason);
        ending.message.clear();
    }
    ending
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(how: Option<How>) -> Told {
        Told {
            command: false,
            exit: how.map(|how| Exit { how, finished: None }),
            step: None,
            code: None,
            policy: None,
            last_words: None,
            log: Vec::new(),
            now: Timestamp::UNIX_EPOCH,
        }
    }

    /// A VM that crashed was reported as a success, since `tart` ends with 0 and nobody had written anything else down.
    /// (incident lost-exit-code)
    #[test]
    fn only_what_surely_succeeded_is_a_success() {
        assert_eq!(told(Some(How::ShutDown)).ending().code, 0);
        for how in [
            None,
            Some(How::Unknown),
            Some(How::Crashed("panic".to_owned())),
            Some(How::Stopped),
            Some(How::Killed(9)),
            Some(How::Failed(StartFailure::NoGuiSession)),
        ] {
            let ending = told(how.clone()).ending();
            assert_ne!(ending.code, 0, "{how:?}");
        }
        assert_eq!(told(None).ending().reason, reasons::UNKNOWN);
    }

    #[test]
    fn the_exit_code_of_the_program_counts_more_than_the_end_of_its_machine() {
        let step = Step::Ended {
            code: 3,
            finished: Timestamp::UNIX_EPOCH,
        };
        let ending = Told {
            command: true,
            step: Some(step),
            ..told(Some(How::ShutDown))
        }
        .ending();
        assert_eq!((ending.code, ending.reason.as_str()), (3, "Error"));
        let lost = Told {
            command: true,
            step: Some(Step::Lost),
            ..told(Some(How::ShutDown))
        };
        assert_ne!(lost.ending().code, 0);
    }

    #[test]
    fn a_code_that_the_guest_left_is_its_word() {
        let ending = Told {
            code: Some(42),
            last_words: Some(b"tests failed".to_vec()),
            ..told(Some(How::ShutDown))
        }
        .ending();
        assert_eq!((ending.code, ending.message.as_str()), (42, "tests failed"));
    }
}
