//! Retry classes: what a failure means for the next attempt.
//!
//! One `error_policy` serves all controllers because every error answers the same question. The answer is a type, never a
//! search in a rendered message: messages change between Kubernetes releases, reasons and codes do not.

use std::time::Duration;

use kube::core::response::reason as k8s;

use crate::leader::NotLeading;

/// What to do after a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Class {
    /// Somebody else wrote first. Read again and retry at once.
    Conflict,
    /// The world was briefly unwell: timeouts, 5xx, connection refused. Retry with back-off.
    Transient,
    /// We were told when to come back.
    RateLimited {
        /// How long to stay away.
        after: Duration,
    },
    /// Nothing is wrong, something is not there yet. A condition, not an error: it is not counted or logged as one.
    Waiting {
        /// What is waited for, in words that fit a condition message.
        what: String,
        /// When to look again if no event comes first.
        poll: Duration,
    },
    /// The object, or what we made of it, is refused as it stands. Retrying cannot help until it changes.
    Invalid,
    /// RBAC is missing. Retried seldom, reported loudly, because only a person can fix it.
    Forbidden,
}

impl Class {
    /// The value of the `class` label.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Transient => "transient",
            Self::RateLimited { .. } => "rate_limited",
            Self::Waiting { .. } => "waiting",
            Self::Invalid => "invalid",
            Self::Forbidden => "forbidden",
        }
    }
}

/// An error that knows how it wants to be retried.
pub trait Classify: std::error::Error {
    /// What to do about it.
    fn class(&self) -> Class;

    /// One CamelCase word for conditions and events.
    fn reason(&self) -> &'static str {
        match self.class() {
            Class::Conflict => "Conflict",
            Class::Transient => "Transient",
            Class::RateLimited { .. } => "RateLimited",
            Class::Waiting { .. } => "Waiting",
            Class::Invalid => "Invalid",
            Class::Forbidden => "Forbidden",
        }
    }
}

/// How long to wait for an API that is not served yet, if no watch event comes first.
const UNSERVED_POLL: Duration = Duration::from_secs(15);

/// The delay for a 429 that names none.
const DEFAULT_RATE_LIMIT: Duration = Duration::from_secs(1);

impl Classify for kube::Error {
    fn class(&self) -> Class {
        match self {
            Self::Api(status) => of_status(status),
            // A request we were not able to build will not build next time either.
            Self::BuildRequest(_)
            | Self::HttpError(_)
            | Self::InferConfig(_)
            | Self::InferKubeconfig(_)
            | Self::ProxyProtocolUnsupported { .. }
            | Self::ProxyProtocolDisabled { .. }
            | Self::TlsRequired => Class::Invalid,
            // Connection errors, time-outs, broken streams, credentials being rotated, and our own fence: all may pass.
            _ => Class::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Service(source) if source.is::<NotLeading>() => "NotLeading",
            Self::Api(_) => match self.class() {
                Class::Conflict => "Conflict",
                Class::RateLimited { .. } => "RateLimited",
                Class::Waiting { .. } => "NotServed",
                Class::Invalid => "Invalid",
                Class::Forbidden => "Forbidden",
                Class::Transient => "ApiServerError",
            },
            _ => "ApiServerUnreachable",
        }
    }
}

/// Classifies what the API server answered.
pub fn of_status(status: &kube::core::Status) -> Class {
    let details = status.details.as_ref();
    let after = details
        .map(|details| u64::from(details.retry_after_seconds))
        .filter(|seconds| *seconds > 0);
    let after = after.map(Duration::from_secs);
    let cause = |wanted: &str| details.is_some_and(|details| details.causes.iter().any(|cause| cause.reason == wanted));

    if status.is_conflict() || status.is_already_exists() || status.code == 410 {
        Class::Conflict
    } else if status.code == 429 || status.reason == k8s::TOO_MANY_REQUESTS {
        Class::RateLimited {
            after: after.unwrap_or(DEFAULT_RATE_LIMIT),
        }
    } else if cause("NamespaceTerminating") {
        Class::Waiting {
            what: "the namespace to be gone".to_owned(),
            poll: UNSERVED_POLL,
        }
    } else if status.is_forbidden() {
        Class::Forbidden
    } else if status.is_not_found() && details.is_none_or(|details| details.name.is_empty() && details.kind.is_empty())
    {
        // A 404 that names no object means that the whole path is unknown: the CRD is missing.
        Class::Waiting {
            what: "the API to be served (is its CRD installed?)".to_owned(),
            poll: UNSERVED_POLL,
        }
    } else if status.is_invalid() || matches!(status.code, 400 | 405 | 406 | 413 | 415) {
        Class::Invalid
    } else if let Some(after) = after {
        Class::RateLimited { after }
    } else {
        Class::Transient
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use kube::core::response::{StatusCause, StatusDetails};

    use super::*;

    fn details() -> StatusDetails {
        StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds: 0,
        }
    }

    fn status(code: u16, reason: &str) -> Status {
        Status::failure("a message nobody matches on", reason).with_code(code)
    }

    #[test]
    fn answers_of_the_api_server_fall_into_their_class() {
        let named = StatusDetails {
            name: "x".into(),
            kind: "configmaps".into(),
            ..details()
        };
        let busy = StatusDetails {
            retry_after_seconds: 7,
            ..details()
        };
        let terminating = StatusDetails {
            causes: vec![StatusCause {
                reason: "NamespaceTerminating".into(),
                message: String::new(),
                field: "metadata.namespace".into(),
            }],
            ..details()
        };
        let table = [
            (status(409, "Conflict"), "conflict"),
            (status(409, "AlreadyExists"), "conflict"),
            (status(410, "Expired"), "conflict"),
            (
                status(429, "TooManyRequests").with_details(busy.clone()),
                "rate_limited",
            ),
            (status(503, "ServiceUnavailable").with_details(busy), "rate_limited"),
            (status(403, "Forbidden"), "forbidden"),
            (status(403, "Forbidden").with_details(terminating), "waiting"),
            (status(404, "NotFound"), "waiting"),
            (status(404, "NotFound").with_details(named), "transient"),
            (status(422, "Invalid"), "invalid"),
            (status(400, "BadRequest"), "invalid"),
            (status(401, "Unauthorized"), "transient"),
            (status(500, "InternalError"), "transient"),
            (status(504, "Timeout"), "transient"),
        ];
        for (status, class) in table {
            assert_eq!(of_status(&status).label(), class, "{status:?}");
        }
    }

    #[test]
    fn a_rate_limit_keeps_the_time_the_server_named() {
        let status = status(429, "TooManyRequests").with_details(StatusDetails {
            retry_after_seconds: 7,
            ..details()
        });
        assert_eq!(
            of_status(&status),
            Class::RateLimited {
                after: Duration::from_secs(7)
            }
        );
    }

    #[test]
    fn a_refusal_by_our_own_fence_has_its_own_reason() {
        let error = kube::Error::Service(Box::new(NotLeading { identity: "a".into() }));
        assert_eq!(error.class(), Class::Transient);
        assert_eq!(error.reason(), "NotLeading");
    }
}
