//! Faults: what goes wrong with which call.
//!
//! A fault names calls by method and path, lets some of them pass, then strikes a number of them: before the call had any
//! effect, or after it had all of it and only the answer is lost. The second kind is what makes a client pay twice.

use crate::call::Reply;
use crate::deed::Deed;
use http::StatusCode;
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
        /// How many.
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

/// What the client gets instead of the answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Instead {
    Reply(Reply),
    Cut,
    Hang,
}

impl Act {
    /// The answer a struck client gets; none if it gets the usual one.
    pub(crate) fn instead(&self) -> Option<Instead> {
        match self {
            Self::TooManyRequests { retry_after } => Some(Instead::Reply(too_many(*retry_after))),
            Self::Status(status) => Some(Instead::Reply(Reply {
                status: StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
                headers: vec![("content-type", "text/plain".to_owned())],
                body: Some(json!("upstream connect error or disconnect/reset before headers")),
            })),
            Self::QuotaExceeded { resource, quota } => Some(Instead::Reply(used_up(resource, *quota))),
            Self::Cut => Some(Instead::Cut),
            Self::Hang => Some(Instead::Hang),
            Self::Meanwhile(_) => None,
        }
    }
}

/// 403 as the real API sends it when a quota is used up.
fn used_up(resource: &str, quota: u32) -> Reply {
    Reply {
        status: StatusCode::FORBIDDEN,
        headers: Vec::new(),
        body: Some(json!({
            "type": "quotas_exceeded",
            "message": "quota(s) exceeded for this resource",
            "details": [{"resource": resource, "quota": quota, "current": quota}],
        })),
    }
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
