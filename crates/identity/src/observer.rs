//! What the authoriser tells about its work. The binary turns these calls into the metrics dashboards already query;
//! this crate knows no metrics library.

use std::fmt;
use std::time::Duration;

/// What settled a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// No credential was needed, or one was missing.
    Anonymous,
    /// The account is not the one this node serves.
    Tenant,
    /// A static token.
    Static,
    /// The claims of a signed token.
    Jwt,
    /// The introspection endpoint.
    Introspection,
    /// `/api/cache/access`.
    Access,
    /// Nobody could be asked.
    Backend,
}

impl Stage {
    /// Value of the label `stage`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Tenant => "tenant",
            Self::Static => "static",
            Self::Jwt => "jwt",
            Self::Introspection => "introspection",
            Self::Access => "access",
            Self::Backend => "backend",
        }
    }
}

/// What the memory of earlier answers had to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CacheResult {
    /// It settled the decision.
    Hit,
    /// It settled the decision and a new answer is being fetched.
    Stale,
    /// It did not settle the decision.
    Miss,
}

impl CacheResult {
    /// Value of the label `result`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Stale => "stale",
            Self::Miss => "miss",
        }
    }
}

/// Which endpoint of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// `POST /oauth2/introspect`
    Introspect,
    /// `GET /api/cache/access`
    Access,
}

impl Route {
    /// Value of the label `route`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Introspect => "introspect",
            Self::Access => "access",
        }
    }
}

/// Why a request to the control plane gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// No connection.
    Connect,
    /// No answer in time.
    Timeout,
    /// The connection broke.
    Transport,
    /// A status that is no answer.
    Status,
    /// A body that is no answer.
    Body,
    /// Too many requests of ours are waiting already.
    Overload,
}

impl ErrorKind {
    /// Value of the label `error_kind`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Transport => "transport",
            Self::Status => "status",
            Self::Body => "body",
            Self::Overload => "overload",
        }
    }
}

/// One request to the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendRequest {
    /// Which endpoint.
    pub route: Route,
    /// Status of the response, if there was one.
    pub status: Option<u16>,
    /// Why there was no usable answer.
    pub error: Option<ErrorKind>,
    /// How long it took.
    pub duration: Duration,
}

impl BackendRequest {
    /// Value of the label `result`.
    pub const fn result(&self) -> &'static str {
        if self.error.is_some() { "error" } else { "ok" }
    }

    /// Value of the label `status_class`: `2xx` and so on, `none` without a response.
    pub const fn status_class(&self) -> &'static str {
        match self.status {
            Some(200..=299) => "2xx",
            Some(300..=399) => "3xx",
            Some(400..=499) => "4xx",
            Some(500..=599) => "5xx",
            Some(_) => "other",
            None => "none",
        }
    }

    /// Value of the label `error_kind`, `none` if all went well.
    pub const fn error_kind(&self) -> &'static str {
        match self.error {
            Some(kind) => kind.as_str(),
            None => "none",
        }
    }
}

/// Receives what the authoriser tells. Calls come from the request path and must not block.
pub trait Observer: Send + Sync + fmt::Debug {
    /// A decision: `auth_decisions_total{stage,result}`. `waited` is there when the backend was asked:
    /// `auth_decision_duration_seconds{stage}`.
    fn decision(&self, stage: Stage, outcome: Verdict, waited: Option<Duration>) {
        let _ = (stage, outcome, waited);
    }

    /// A look into the memory of answers: `auth_cache_total{cache="access",result}`.
    fn cache(&self, result: CacheResult) {
        let _ = result;
    }

    /// A request to the control plane: `auth_backend_requests_total{route,result,status_class,error_kind}` and
    /// `auth_backend_request_duration_seconds{route}`.
    fn backend(&self, request: BackendRequest) {
        let _ = request;
    }

    /// Key or token files were read again: whether the new content is in force.
    fn reload(&self, outcome: Reload) {
        let _ = outcome;
    }
}

/// How a decision came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Allowed.
    Allow,
    /// Refused for a reason of the caller's.
    Deny,
    /// Refused because nobody could be asked.
    Unavailable,
}

impl Verdict {
    /// Value of the label `result`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Unavailable => "unavailable",
        }
    }
}

/// What reading the files again gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reload {
    /// The content is as before.
    Unchanged,
    /// New content is in force, and everything remembered under the old one is void.
    Applied,
    /// The new content is not valid; the old one stays in force.
    Failed,
}

/// Listens to nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deaf;

impl Observer for Deaf {}
