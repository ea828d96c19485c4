//! Every way a call can fail.
//!
//! The kind is for programs: it comes from the `type` and the status of the answer, never from its text. [`Error::advice`]
//! is for people: a sentence that says what to do, fit for a condition.

use std::fmt;
use std::time::Duration;

use russet_rest::text::{no_answer, or};

use crate::call::Endpoint;

/// A call that did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What was called.
    pub endpoint: &'static str,
    /// IAM permission set that allows the call.
    pub permission: &'static str,
    /// What went wrong.
    pub kind: Kind,
    /// Scaleway's name of the exchange, for its support.
    pub request_id: Option<String>,
}

/// What is known about the effect of a call whose answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EffectKnown {
    /// It happened or it did not.
    Maybe,
    /// It happened; only the answer could not be read.
    Happened,
}

/// Who keeps the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Keeper {
    /// Scaleway answered 429.
    Scaleway,
    /// Our own limiter; nothing was sent.
    Ours,
}

/// What the key may not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The kind of thing.
    pub resource: String,
    /// What was tried with it.
    pub action: String,
}

/// An argument the API does not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadArgument {
    /// Its name.
    pub name: String,
    /// `required`, `format`, `constraint` or `unknown`.
    pub reason: String,
    /// Scaleway's explanation.
    pub help: String,
}

/// A quota that is used up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Of what.
    pub resource: String,
    /// How many are allowed.
    pub quota: u64,
    /// How many there are.
    pub current: u64,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// There is no such thing.
    NotFound { resource: String, id: String },
    /// The thing is busy with something else, such as a reinstallation.
    TransientState {
        resource: String,
        id: String,
        state: String,
    },
    /// Scaleway has none left.
    OutOfStock { resource: String },
    /// The key may not do this. For a single Mac it may also mean that the host is gone: see [`Error::may_mean_gone`].
    PermissionDenied { what: Vec<Denied> },
    /// The organisation may not have more.
    QuotaExceeded { quotas: Vec<Quota> },
    /// The API does not take what was sent.
    InvalidArguments { details: Vec<BadArgument> },
    /// The thing is not in the state that the call needs.
    PreconditionFailed { precondition: String, help: String },
    /// It exists already, or somebody else changed it.
    Conflict { message: String },
    /// Scaleway locked it, for abuse or unpaid bills.
    Locked { resource: String, id: String },
    /// It had an end date, which has passed.
    Expired { resource: String, id: String },
    /// Too many calls. Nothing happened.
    RateLimited { after: Duration, by: Keeper },
    /// The key is wrong, expired or deleted.
    Unauthenticated { reason: String },
    /// Nobody could be asked. Nothing happened.
    Unavailable { status: Option<u16>, message: String },
    /// The answer to a call with an effect was lost. Look at the world before doing anything else.
    Unknown {
        effect: EffectKnown,
        status: Option<u16>,
        message: String,
    },
    /// A list kept changing while it was read.
    ListRestless { sweeps: u32 },
    /// Several things carry a name that should be unique.
    Ambiguous { name: String, ids: Vec<String> },
    /// An answer we do not understand.
    Unexpected { status: u16, message: String },
}

impl Error {
    /// An error that no answer told.
    pub(crate) fn of(endpoint: &Endpoint, kind: Kind) -> Self {
        Self {
            endpoint: endpoint.name,
            permission: endpoint.permission,
            kind,
            request_id: None,
        }
    }

    /// One CamelCase word for conditions, events and metrics.
    pub fn reason(&self) -> &'static str {
        match &self.kind {
            Kind::NotFound { .. } => "NotFound",
            Kind::TransientState { .. } => "TransientState",
            Kind::OutOfStock { .. } => "OutOfStock",
            Kind::PermissionDenied { .. } => "PermissionDenied",
            Kind::QuotaExceeded { .. } => "QuotaExceeded",
            Kind::InvalidArguments { .. } => "InvalidArguments",
            Kind::PreconditionFailed { .. } => "PreconditionFailed",
            Kind::Conflict { .. } => "Conflict",
            Kind::Locked { .. } => "Locked",
            Kind::Expired { .. } => "Expired",
            Kind::RateLimited { .. } => "RateLimited",
            Kind::Unauthenticated { .. } => "Unauthenticated",
            Kind::Unavailable { .. } => "Unavailable",
            Kind::Unknown { .. } => "Unknown",
            Kind::ListRestless { .. } => "ListRestless",
            Kind::Ambiguous { .. } => "Ambiguous",
            Kind::Unexpected { .. } => "Unexpected",
        }
    }

    /// What to do about it, in a sentence.
    pub fn advice(&self) -> String {
        match &self.kind {
            Kind::NotFound { .. } => {
                "it was deleted or belongs to another zone or project; check the id, the zone and SCW_DEFAULT_PROJECT_ID".into()
            }
            Kind::TransientState { .. } => "nothing to do: it is tried again when the host has finished".into(),
            Kind::OutOfStock { .. } => "wait for stock, or choose another type or zone".into(),
            Kind::PermissionDenied { .. } => format!(
                "grant the permission set {} on this project to the API key's application (Scaleway console, IAM, Policies)",
                self.permission
            ),
            Kind::QuotaExceeded { .. } => {
                "ask Scaleway support for a higher quota, or delete what is not needed".into()
            }
            Kind::InvalidArguments { .. } => "correct the field in the spec that this argument comes from".into(),
            Kind::PreconditionFailed { help, .. } if !help.is_empty() => format!("Scaleway says: {help}"),
            Kind::PreconditionFailed { .. } => "wait until the precondition holds; it is tried again".into(),
            Kind::Conflict { .. } => "nothing to do: the present state is read and the step decided again".into(),
            Kind::Locked { .. } => "open a ticket with Scaleway support; a locked resource cannot be used".into(),
            Kind::Expired { .. } => "it cannot be brought back; remove the object that refers to it".into(),
            Kind::RateLimited { .. } => "nothing to do: it is tried again after the wait".into(),
            Kind::Unauthenticated { .. } => {
                "check SCW_ACCESS_KEY and SCW_SECRET_KEY; an expired key has to be replaced in the provider's Secret".into()
            }
            Kind::Unavailable { .. } => {
                "check the network path to SCW_API_URL and status.scaleway.com; it is tried again".into()
            }
            Kind::Unknown { .. } => "nothing to do: it is found out what happened before anything is repeated".into(),
            Kind::ListRestless { .. } => "nothing to do: the list is read again later".into(),
            Kind::Ambiguous { name, .. } => {
                format!("rename or remove all but one of those named {name}; guessing could take the wrong one")
            }
            Kind::Unexpected { .. } => {
                "check that SCW_API_URL is a Scaleway API; if it is, report this with the request id".into()
            }
        }
    }

    /// Whether the same call may go well later without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        matches!(
            self.kind,
            Kind::TransientState { .. }
                | Kind::Conflict { .. }
                | Kind::RateLimited { .. }
                | Kind::Unavailable { .. }
                | Kind::Unknown { .. }
                | Kind::ListRestless { .. }
        )
    }

    /// Whether the call certainly had no effect.
    pub fn is_without_effect(&self) -> bool {
        !matches!(self.kind, Kind::Unknown { .. })
    }

    /// Whether there is certainly no such thing.
    pub fn is_not_found(&self) -> bool {
        matches!(self.kind, Kind::NotFound { .. })
    }

    /// Whether the thing may be gone: Scaleway has been seen to answer `permissions_denied` for a Mac that no longer exists.
    /// Only a whole list without the host proves it.
    pub fn may_mean_gone(&self) -> bool {
        matches!(self.kind, Kind::NotFound { .. } | Kind::PermissionDenied { .. })
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.endpoint, self.kind, self.advice())?;
        match &self.request_id {
            Some(id) => write!(f, " (request {id})"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { resource, id } => write!(f, "there is no {} {id}", or(resource, "resource")),
            Self::TransientState { resource, id, state } => {
                write!(
                    f,
                    "{} {id} is busy ({})",
                    or(resource, "resource"),
                    or(state, "unknown state")
                )
            }
            Self::OutOfStock { resource } => write!(f, "{} is out of stock", or(resource, "the offer")),
            Self::PermissionDenied { what } => {
                f.write_str("the API key may not")?;
                match what.as_slice() {
                    [] => f.write_str(" do this"),
                    what => list(
                        f,
                        what.iter().map(|d| format!(" {} {}", or(&d.action, "use"), d.resource)),
                    ),
                }
            }
            Self::QuotaExceeded { quotas } => {
                f.write_str("a quota is used up:")?;
                list(
                    f,
                    quotas
                        .iter()
                        .map(|q| format!(" {} ({} of {})", q.resource, q.current, q.quota)),
                )
            }
            Self::InvalidArguments { details } => {
                f.write_str("the API does not take")?;
                list(
                    f,
                    details
                        .iter()
                        .map(|d| format!(" {} ({}: {})", d.name, or(&d.reason, "invalid"), d.help)),
                )
            }
            Self::PreconditionFailed { precondition, .. } => {
                write!(f, "a precondition does not hold: {}", or(precondition, "not named"))
            }
            Self::Conflict { message } => write!(f, "conflict: {}", or(message, "somebody else changed it")),
            Self::Locked { resource, id } => write!(f, "{} {id} is locked by Scaleway", or(resource, "resource")),
            Self::Expired { resource, id } => write!(f, "{} {id} has expired", or(resource, "resource")),
            Self::RateLimited { after, by } => {
                let by = match by {
                    Keeper::Scaleway => "Scaleway's",
                    Keeper::Ours => "our own",
                };
                write!(
                    f,
                    "too many calls by {by} count, next one in {:.1} s",
                    after.as_secs_f64()
                )
            }
            Self::Unauthenticated { reason } => write!(f, "the API key is refused ({})", or(reason, "no reason given")),
            Self::Unavailable { status, message } => no_answer(f, "the API could not be asked", *status, message),
            Self::Unknown {
                effect: EffectKnown::Maybe,
                status,
                message,
            } => no_answer(f, "no certain answer, the call may have taken effect", *status, message),
            Self::Unknown {
                effect: EffectKnown::Happened,
                status,
                message,
            } => no_answer(
                f,
                "the call took effect but its answer cannot be read",
                *status,
                message,
            ),
            Self::ListRestless { sweeps } => write!(f, "the list changed during each of {sweeps} readings"),
            Self::Ambiguous { name, ids } => write!(f, "{} things are named {name}: {}", ids.len(), ids.join(", ")),
            Self::Unexpected { status, message } => write!(f, "unexpected answer {status}: {}", or(message, "no text")),
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, parts: impl Iterator<Item = String>) -> fmt::Result {
    f.write_str(&parts.collect::<Vec<_>>().join(","))
}
