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

mod crew;

pub(crate) use crew::{Crew, fly};

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

/// A kind of call that can be flown: what it is about, what must hold, and what its answer means. Macs and Linux servers
/// differ in these; the order of writing, looking and sending is the same.
pub trait Course {
    /// The record.
    type Journal: Clone;
    /// What is looked at right before.
    type Target: Clone;
    /// The call.
    type Call: Clone;
    /// What is seen.
    type Sight;
    /// What became of it.
    type Answer;
    /// What is written in the end.
    type Ending: Clone;

    /// The attempt's id, by which [`Ask::Settle`] is conditional, and when it was decided.
    fn attempt(&self) -> (&str, Timestamp);
    /// The record with the attempt in it.
    fn journal(&self) -> &Self::Journal;
    /// What is looked at right before.
    fn target(&self) -> Self::Target;
    /// The call.
    fn call(&self) -> Self::Call;
    /// Whether the call may be sent; none if it could not be looked.
    fn check(&self, sight: Option<&Self::Sight>) -> Result<(), String>;
    /// The answer to a call that was not sent.
    fn not_sent(why: String) -> Self::Answer;
    /// What is written after an answer; none if the attempt must stand until it can no longer arrive.
    fn resolve(&self, answer: &Self::Answer, now: Timestamp) -> Option<Self::Ending>;
}

impl Course for Plan {
    type Journal = Journal;
    type Target = ServerId;
    type Call = HostCall;
    type Sight = Sight;
    type Answer = Answer;
    type Ending = Journal;

    fn attempt(&self) -> (&str, Timestamp) {
        (&self.attempt.id, self.attempt.at)
    }

    fn journal(&self) -> &Journal {
        &self.journal
    }

    fn target(&self) -> ServerId {
        self.journal.server.clone()
    }

    fn call(&self) -> HostCall {
        self.call.clone()
    }

    fn check(&self, sight: Option<&Sight>) -> Result<(), String> {
        match sight {
            Some(Sight::There(host)) => self.guard.check(host),
            Some(Sight::Gone) => Err("the host is gone".to_owned()),
            None => Err("the host could not be read".to_owned()),
        }
    }

    fn not_sent(why: String) -> Answer {
        Answer::NotDone { why, busy_with: None }
    }

    fn resolve(&self, answer: &Answer, now: Timestamp) -> Option<Journal> {
        resolve(self, answer, now)
    }
}

/// What the driver has to do.
#[derive(Debug)]
pub enum Ask<C: Course = Plan> {
    /// Write this record, if the object is still the one the decision was made on.
    Write(Box<C::Journal>),
    /// Read this.
    Get(C::Target),
    /// Make this call, once.
    Send(C::Target, C::Call),
    /// Write this, if the attempt in the stored record is still ours. Read and write again if others wrote meanwhile.
    Settle(Box<C::Ending>),
    /// Nothing more.
    End,
}

#[derive(Debug)]
enum State<E> {
    Writing,
    Guarding,
    Sending,
    Settling(Box<E>),
    Over,
}

/// One call under way.
#[derive(Debug)]
pub struct Flight<C: Course = Plan> {
    plan: C,
    send_until: Timestamp,
    state: State<C::Ending>,
}

impl<C: Course> Flight<C> {
    /// Begins.
    pub fn new(plan: C, rules: &Rules) -> Self {
        let send_until = later(plan.attempt().1, rules.send_within);
        Self {
            plan,
            send_until,
            state: State::Writing,
        }
    }

    /// The plan.
    pub fn plan(&self) -> &C {
        &self.plan
    }

    /// What to do. Asked right before it is done, because a call that comes too late must not be sent.
    pub fn ask(&mut self, now: Timestamp) -> Ask<C> {
        if matches!(self.state, State::Sending | State::Guarding) && now > self.send_until {
            self.settle(&C::not_sent("it took too long to get here".to_owned()), now);
        }
        match &self.state {
            State::Writing => Ask::Write(Box::new(self.plan.journal().clone())),
            State::Guarding => Ask::Get(self.plan.target()),
            State::Sending => Ask::Send(self.plan.target(), self.plan.call()),
            State::Settling(ending) => Ask::Settle(ending.clone()),
            State::Over => Ask::End,
        }
    }

    /// Whether the record was written.
    pub fn wrote(&mut self, written: bool) {
        self.state = if written { State::Guarding } else { State::Over };
    }

    /// What was seen; none if it could not be looked.
    pub fn got(&mut self, sight: Option<&C::Sight>, now: Timestamp) {
        match self.plan.check(sight) {
            Ok(()) => self.state = State::Sending,
            Err(why) => self.settle(&C::not_sent(why), now),
        }
    }

    /// What became of the call.
    pub fn answered(&mut self, answer: &C::Answer, now: Timestamp) {
        self.settle(answer, now);
    }

    /// The last record was written, or is not needed any more.
    pub fn settled(&mut self) {
        self.state = State::Over;
    }

    fn settle(&mut self, answer: &C::Answer, now: Timestamp) {
        self.state = match self.plan.resolve(answer, now) {
            Some(ending) => State::Settling(Box::new(ending)),
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
