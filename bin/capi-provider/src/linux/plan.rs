//! One call to Scaleway about a Linux server, as [`crate::flight`] drives it.

use std::time::Duration;

use jiff::Timestamp;
use russet_api::values::ServerId;

use super::call::{Call, Guard, Sight, Target};
use super::journal::{How, Journal, Refusal, Release, Wipe, Work};
use crate::flight::Course;
use crate::journal::later;

/// A call that was decided on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The record with this attempt in it.
    pub journal: Journal,
    /// Id of the attempt.
    pub attempt: String,
    /// When it was decided.
    pub at: Timestamp,
    /// The call.
    pub call: Call,
    /// What is looked at right before.
    pub target: Target,
    /// What must hold then.
    pub guard: Guard,
}

/// What became of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was done.
    Done {
        /// The server that was made.
        made: Option<ServerId>,
    },
    /// It certainly was not done.
    NotDone {
        /// One word.
        reason: String,
        /// A sentence.
        why: String,
        /// How long to wait before it is tried again.
        retry: Duration,
    },
    /// Nobody knows.
    Unknown,
}

/// What is written when a call is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// The record, if the work goes on.
    pub journal: Option<Journal>,
    /// What was done, to be noted with it.
    pub done: Option<Done>,
}

/// A call that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// Which.
    pub call: Call,
    /// The server that was made or taken.
    pub server: Option<ServerId>,
}

/// Why nothing was sent although nothing was refused; it is decided anew at once.
pub const NOT_SENT: &str = "NotSent";

impl Course for Plan {
    type Journal = Journal;
    type Target = Target;
    type Call = Call;
    type Sight = Sight;
    type Answer = Answer;
    type Ending = Ending;

    fn attempt(&self) -> (&str, Timestamp) {
        (&self.attempt, self.at)
    }

    fn journal(&self) -> &Journal {
        &self.journal
    }

    fn target(&self) -> Target {
        self.target.clone()
    }

    fn call(&self) -> Call {
        self.call.clone()
    }

    fn check(&self, sight: Option<&Sight>) -> Result<(), String> {
        self.guard.check(&self.call, sight)
    }

    fn not_sent(why: String) -> Answer {
        Answer::NotDone {
            reason: NOT_SENT.to_owned(),
            why,
            retry: Duration::from_secs(1),
        }
    }

    fn resolve(&self, answer: &Answer, now: Timestamp) -> Option<Ending> {
        let mut journal = Journal {
            attempt: None,
            ..self.journal.clone()
        };
        match answer {
            Answer::Unknown => None,
            Answer::NotDone { reason, why, retry } => {
                journal.refusal = Some(Refusal {
                    step: self.call.step().to_owned(),
                    reason: reason.clone(),
                    message: why.clone(),
                    retry_at: later(now, *retry),
                });
                Some(Ending {
                    journal: Some(journal),
                    done: None,
                })
            }
            Answer::Done { made } => {
                let server = match &self.journal.work {
                    Work::Adopt(server) => Some(server.clone()),
                    _ => made.clone(),
                };
                let done = Done {
                    call: self.call.clone(),
                    server,
                };
                Some(Ending {
                    journal: self.after(&journal, now),
                    done: Some(done),
                })
            }
        }
    }
}

impl Plan {
    /// The record after the call was done.
    fn after(&self, journal: &Journal, now: Timestamp) -> Option<Journal> {
        let Work::Release(release) = &journal.work else {
            return None;
        };
        let mut release: Release = release.clone();
        match &self.call {
            Call::DeleteVolume(volume) => release.volumes.retain(|other| other != volume),
            Call::DeleteIp(ip) => release.ips.retain(|other| other != ip),
            Call::Wipe => release.how = How::Free(Wipe::Asked(now)),
            _ => {}
        }
        Some(journal.with(Work::Release(release)))
    }
}
