//! Every way a call can fail.
//!
//! The kind is for programs: it comes from the status and the headers of the answer, never from its text. [`Error::advice`]
//! is for people: a sentence that says what to do, fit for a condition.

use std::fmt;

use jiff::Timestamp;
use russet_rest::text::{no_answer, or};

use crate::call::Bearer;

/// The permission all of this needs.
pub const PERMISSION: &str = "organization_self_hosted_runners: write";

/// A call that did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What was called.
    pub endpoint: &'static str,
    /// What went wrong.
    pub kind: Kind,
    /// GitHub's name of the exchange, for its support.
    pub request_id: Option<String>,
}

/// Which of GitHub's limits was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// So many calls per hour.
    Primary,
    /// Too many at once, or too fast.
    Secondary,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// GitHub does not believe who we are.
    BadCredentials { bearer: Bearer },
    /// The App has no such installation, or there is no such App.
    NotInstalled { app: u64, installation: u64 },
    /// The installation is in another organisation.
    WrongOrg { installed_on: String, asked: String },
    /// The owner of the organisation suspended the installation.
    Suspended,
    /// The App or its installation may not do this.
    PermissionDenied { what: String },
    /// Too many calls. Nothing happened, and nothing will be sent until then.
    RateLimited { until: Timestamp, limit: Limit },
    /// There is no such thing.
    NotFound { what: String },
    /// There is one already.
    Conflict { message: String },
    /// GitHub does not take what was sent.
    Invalid { message: String },
    /// Nobody could be asked, or GitHub itself failed. Nothing happened that matters.
    Server { status: Option<u16>, message: String },
    /// The answer to a call with an effect was lost. Look at the world before doing anything else.
    Unknown { status: Option<u16>, message: String },
    /// A list kept changing while it was read.
    ListRestless { sweeps: u32 },
    /// An answer we do not understand.
    Unexpected { status: u16, message: String },
}

impl Error {
    /// One CamelCase word for conditions, events and metrics.
    pub fn reason(&self) -> &'static str {
        match &self.kind {
            Kind::BadCredentials { .. } => "BadCredentials",
            Kind::NotInstalled { .. } => "NotInstalled",
            Kind::WrongOrg { .. } => "WrongOrg",
            Kind::Suspended => "Suspended",
            Kind::PermissionDenied { .. } => "PermissionDenied",
            Kind::RateLimited { .. } => "RateLimited",
            Kind::NotFound { .. } => "NotFound",
            Kind::Conflict { .. } => "Conflict",
            Kind::Invalid { .. } => "Invalid",
            Kind::Server { .. } => "Server",
            Kind::Unknown { .. } => "Unknown",
            Kind::ListRestless { .. } => "ListRestless",
            Kind::Unexpected { .. } => "Unexpected",
        }
    }

    /// What to do about it, in a sentence.
    pub fn advice(&self) -> String {
        match &self.kind {
            Kind::BadCredentials { bearer: Bearer::App } => {
                "check that app-id and private-key in the Secret are of the same GitHub App and that the key was not deleted there".into()
            }
            Kind::BadCredentials {
                bearer: Bearer::Installation,
            } => "nothing to do: a new token is asked for; if it lasts, check that the App is still installed".into(),
            Kind::NotInstalled { .. } => {
                "check app-id and installation-id in the Secret; install the App in the organisation if it is not".into()
            }
            Kind::WrongOrg { installed_on, asked } => format!(
                "set ghOrg to {installed_on}, or install the App in {asked} and put that installation-id into the Secret"
            ),
            Kind::Suspended => {
                "an owner of the organisation has to lift the suspension (Settings, GitHub Apps, Configure)".into()
            }
            Kind::PermissionDenied { .. } => {
                "give the App Organization permissions, Self-hosted runners: Read and write, and let an owner of the \
                 organisation accept it"
                    .into()
            }
            Kind::RateLimited { .. } => "nothing to do: it is tried again after the wait".into(),
            Kind::NotFound { .. } => "it was removed, or the name of the organisation is wrong; check ghOrg".into(),
            Kind::Conflict { .. } => "remove the runner of that name, or use another name".into(),
            Kind::Invalid { .. } => "correct the field that GitHub names".into(),
            Kind::Server { .. } => {
                "check the network path to the GitHub API and githubstatus.com; it is tried again".into()
            }
            Kind::Unknown { .. } => "nothing to do: it is found out what happened before anything is repeated".into(),
            Kind::ListRestless { .. } => "nothing to do: the list is read again later".into(),
            Kind::Unexpected { .. } => {
                "check that the address is a GitHub API (an Enterprise Server's ends in /api/v3); if it is, report this"
                    .into()
            }
        }
    }

    /// Whether the same call may go well later without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        matches!(
            self.kind,
            Kind::RateLimited { .. }
                | Kind::Server { .. }
                | Kind::Unknown { .. }
                | Kind::ListRestless { .. }
                | Kind::BadCredentials {
                    bearer: Bearer::Installation
                }
        )
    }

    /// When a repeat makes sense at the earliest, if GitHub said so.
    pub fn not_before(&self) -> Option<Timestamp> {
        match self.kind {
            Kind::RateLimited { until, .. } => Some(until),
            _ => None,
        }
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GitHub, {}: {}", self.endpoint, self.kind)?;
        if let Some(id) = &self.request_id {
            write!(f, " (request {id})")?;
        }
        Ok(())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadCredentials { bearer: Bearer::App } => f.write_str("the App's key is refused"),
            Self::BadCredentials {
                bearer: Bearer::Installation,
            } => f.write_str("the installation's token is refused"),
            Self::NotInstalled { app, installation } => {
                write!(
                    f,
                    "App {app} has no installation {installation}, or there is no such App"
                )
            }
            Self::WrongOrg { installed_on, asked } => {
                write!(f, "the App is installed in {installed_on}, not in {asked}")
            }
            Self::Suspended => f.write_str("the installation of the App is suspended"),
            Self::PermissionDenied { what } => write!(f, "the App may not do this, it needs {what}"),
            Self::RateLimited { until, limit } => {
                let limit = match limit {
                    Limit::Primary => "hourly",
                    Limit::Secondary => "secondary",
                };
                write!(f, "the {limit} rate limit is reached, next call at {until}")
            }
            Self::NotFound { what } => write!(f, "there is no {what}"),
            Self::Conflict { message } => write!(f, "conflict: {}", or(message, "there is one already")),
            Self::Invalid { message } => write!(f, "not accepted: {}", or(message, "no reason given")),
            Self::Server { status, message } => no_answer(f, "the API could not be asked", *status, message),
            Self::Unknown { status, message } => {
                no_answer(f, "no certain answer, the call may have taken effect", *status, message)
            }
            Self::ListRestless { sweeps } => write!(f, "the list changed during each of {sweeps} readings"),
            Self::Unexpected { status, message } => write!(f, "unexpected answer {status}: {}", or(message, "no text")),
        }
    }
}
