//! Faults: what goes wrong with which call.
//!
//! A fault names calls by method and path, lets some of them pass, then strikes a number of them: before the call had any
//! effect, or after it had all of it and only the answer is lost. The second kind is what makes a client pay twice.

use crate::deed::Deed;
use http::StatusCode;
use russet_sim_kit::wire::{Outcome, Reply};
use serde_json::json;

/// What a fault does.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// 429 with this Retry-After in seconds.
    TooManyRequests {
        /// Seconds.
        retry_after: u64,
    },
    /// An answer with this status and a body that is not JSON, as gateways send it.
    Status(u16),
    /// 403: so many of this resource there may be, and so many there are.
    QuotaExceeded {
        /// Of what.
        resource: String,
        quota: u32,
    },
    /// The connection ends without an answer.
    Cut,
    /// No answer comes until the client gives up.
    Hang,
    /// Somebody else does something just then; the call itself is answered as usual.
    Meanwhile(Vec<Deed>),
}

/// A fault to inject.
pub type Fault = russet_sim_kit::Fault<Act>;
/// The faults that wait.
pub(crate) type Faults = russet_sim_kit::Faults<Act>;

impl Act {
    /// The answer a struck client gets; none if it gets the usual one.
    pub(crate) fn instead(&self) -> Option<Outcome> {
        Some(Outcome::Reply(match self {
            Self::TooManyRequests { retry_after } => too_many(*retry_after),
            Self::Status(status) => {
                let why = "upstream connect error or disconnect/reset before headers";
                Reply::text(*status, "text/plain", why)
            }
            Self::QuotaExceeded { resource, quota } => used_up(resource, *quota),
            Self::Cut => return Some(Outcome::Cut),
            Self::Hang => return Some(Outcome::Hang),
            Self::Meanwhile(_) => return None,
        }))
    }
}

/// 403 as the real API sends it when a quota is used up.
fn used_up(resource: &str, quota: u32) -> Reply {
    Reply::json(
        StatusCode::FORBIDDEN,
        json!({
            "type": "quotas_exceeded",
            "message": "quota(s) exceeded for this resource",
            "details": [{"resource": resource, "quota": quota, "current": quota}],
        }),
    )
}

/// 429 as the real API sends it.
pub(crate) fn too_many(retry_after: u64) -> Reply {
    Reply {
        status: StatusCode::TOO_MANY_REQUESTS,
        headers: vec![("retry-after", retry_after.to_string())],
        body: Some(json!({
            "type": "too_many_requests",
            "message": "too many requests",
            "help_message": "slow down",
            "limit": {"quota": 50, "window_seconds": 1},
            "reset_seconds": retry_after,
        })),
    }
}
