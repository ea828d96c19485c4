//! One call to Scaleway, from writing it down to knowing what became of it.
//!
//! ```text
//!  Write (compare-and-swap) ─► Get ─► Send ─► Settle (only if the stored attempt is still this one)
//!        │ conflict             │ not as expected, or too late
//!        ▼                      ▼
//!      nothing was sent       Settle without having sent
//! ```
//!
//! The order and the checks are the same in production and in the tests, because both drive this. It does no I/O itself:
//! ask what to do, do it, tell what happened. Dropping a flight anywhere is a crash, and safe.

use jiff::Timestamp;
use russet_api::values::ServerId;
use russet_scaleway::apple_silicon::ServerStatus;
use russet_scaleway::{Kind, OsId, ProjectId};

use crate::decide::Seen;
use crate::host::{Host, Sight};
use crate::journal::{Attempt, Journal, Step, Wipe, Work, later};
use crate::rules::Rules;

/// A call that changes a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostCall {
    /// Give it this name.
    Rename {
        /// The name.
        to: String,
    },
    /// Wipe it and install this image, or Scaleway's default.
    Reinstall {
        /// The image.
        image: Option<OsId>,
    },
    /// Restart it.
    Reboot,
}

/// What a host must look like right before the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// In this project.
    pub project: ProjectId,
    /// With this name.
    pub name: String,
    /// And ready.
    pub ready: bool,
}

impl Guard {
    /// Whether it does; else what is wrong.
    pub fn check(&self, host: &Host) -> Result<(), String> {
        if host.project != self.project {
            return Err("the host belongs to another project".to_owned());
        }
        if host.name != self.name {
            return Err(format!("the host is now named {}, not {}", host.name, self.name));
        }
        if self.ready && host.status != ServerStatus::Ready {
            return Err(format!("the host is {}", host.status));
        }
        Ok(())
    }
}

/// A call that was decided on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The record with this attempt in it.
    pub journal: Journal,
    /// The attempt.
    pub attempt: Attempt,
    /// The call.
    pub call: HostCall,
    /// What must hold right before.
    pub guard: Guard,
}

impl Plan {
    pub(crate) fn new(journal: Journal, step: Step, call: HostCall, guard: Guard, seen: &Seen<'_>) -> Self {
        let attempt = Attempt {
            step,
            id: seen.fresh.to_owned(),
            at: seen.now,
        };
        Self {
            journal: journal.attempting(step, seen.fresh, seen.now),
            attempt,
            call,
            guard,
        }
    }
}

/// What became of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was done; this is the host's status since.
    Done(ServerStatus),
    /// It certainly was not done.
    NotDone {
        /// Why, in a sentence.
        why: String,
        /// What the host is busy with, if that is why.
        busy_with: Option<String>,
    },
    /// Nobody knows.
    Unknown,
}

impl Answer {
    /// The answer in an error of the client's.
    pub fn of_error(error: &russet_scaleway::Error) -> Self {
        if !error.is_without_effect() {
            return Self::Unknown;
        }
        let busy_with = match &error.kind {
            Kind::TransientState { state, .. } => Some(state.clone()),
            _ => None,
        };
        Self::NotDone {
            why: error.to_string(),
            busy_with,
        }
    }
}

/// What the driver has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Write this record, if the object is still the one the decision was made on.
    Write(Box<Journal>),
    /// Read this host.
    Get(ServerId),
    /// Make this call, once.
    Send(ServerId, HostCall),
    /// Write this record, if the attempt in the stored one is still ours. Read and write again if others wrote meanwhile.
    Settle(Box<Journal>),
    /// Nothing more.
    End,
}

#[derive(Debug)]
enum State {
    Writing,
    Guarding,
    Sending,
    Settling(Box<Journal>),
    Over,
}

/// One call under way.
#[derive(Debug)]
pub struct Flight {
    plan: Plan,
    send_until: Timestamp,
    state: State,
}

impl Flight {
    /// Begins.
    pub fn new(plan: Plan, rules: &Rules) -> Self {
        let send_until = later(plan.attempt.at, rules.send_within);
        Self {
            plan,
            send_until,
            state: State::Writing,
        }
    }

    /// The attempt, by which [`Ask::Settle`] is conditional.
    pub fn attempt(&self) -> &Attempt {
        &self.plan.attempt
    }

    /// What to do. Asked right before it is done, because a call that comes too late must not be sent.
    pub fn ask(&mut self, now: Timestamp) -> Ask {
        if matches!(self.state, State::Sending | State::Guarding) && now > self.send_until {
            self.settle(
                &Answer::NotDone {
                    why: "it took too long to get here".to_owned(),
                    busy_with: None,
                },
                now,
            );
        }
        match &self.state {
            State::Writing => Ask::Write(Box::new(self.plan.journal.clone())),
            State::Guarding => Ask::Get(self.plan.journal.server.clone()),
            State::Sending => Ask::Send(self.plan.journal.server.clone(), self.plan.call.clone()),
            State::Settling(journal) => Ask::Settle(journal.clone()),
            State::Over => Ask::End,
        }
    }

    /// Whether the record was written.
    pub fn wrote(&mut self, written: bool) {
        self.state = if written { State::Guarding } else { State::Over };
    }

    /// What was seen; none if the host could not be read.
    pub fn got(&mut self, sight: Option<&Sight>, now: Timestamp) {
        let why = match sight {
            Some(Sight::There(host)) => match self.plan.guard.check(host) {
                Ok(()) => {
                    self.state = State::Sending;
                    return;
                }
                Err(why) => why,
            },
            Some(Sight::Gone) => "the host is gone".to_owned(),
            None => "the host could not be read".to_owned(),
        };
        self.settle(&Answer::NotDone { why, busy_with: None }, now);
    }

    /// What became of the call.
    pub fn answered(&mut self, answer: &Answer, now: Timestamp) {
        self.settle(answer, now);
    }

    /// The last record was written, or is not needed any more.
    pub fn settled(&mut self) {
        self.state = State::Over;
    }

    fn settle(&mut self, answer: &Answer, now: Timestamp) {
        self.state = match resolve(&self.plan, answer, now) {
            Some(journal) => State::Settling(Box::new(journal)),
            None => State::Over,
        };
    }
}

/// The record after an answer; none if the attempt must stand until it can no longer arrive.
fn resolve(plan: &Plan, answer: &Answer, now: Timestamp) -> Option<Journal> {
    let mut journal = plan.journal.clone();
    let wiping = match answer {
        Answer::Unknown => return None,
        Answer::Done(status) => {
            journal.message = None;
            *status == ServerStatus::Reinstalling
        }
        Answer::NotDone { why, busy_with } => {
            journal.message = Some(why.clone());
            busy_with.as_deref() == Some(ServerStatus::Reinstalling.as_str())
        }
    };
    journal.attempt = None;
    if let (Step::Wipe, true, Work::Release(release)) = (plan.attempt.step, wiping, &mut journal.work) {
        release.wipe = Wipe::Seen(now);
    }
    Some(journal)
}
