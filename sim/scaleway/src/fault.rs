//! Faults: what goes wrong with which call.
//!
//! A fault names calls by method and path, lets some of them pass, then strikes a number of them: before the call had any
//! effect, or after it had all of it and only the answer is lost. The second kind is what makes a client pay twice.

use crate::call::{Call, Reply};
use crate::deed::Deed;
use http::StatusCode;
use serde_json::json;
use std::fmt;

/// When a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// Nothing was done.
    #[default]
    BeforeEffect,
    /// Everything was done, only the client does not hear of it.
    AfterEffect,
}

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
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The method, for example `PATCH`; none means any.
    #[serde(default)]
    pub method: Option<String>,
    /// Only calls with this access key: one of two replicas; none means anybody's.
    #[serde(default)]
    pub access_key: Option<String>,
    /// The path. `*` stands for one piece of it, `**` at the end for the rest.
    pub path: String,
    /// Matching calls that pass first.
    #[serde(default)]
    pub skip: u32,
    /// Calls that are struck then; none means all of them.
    #[serde(default = "once")]
    pub times: Option<u32>,
    /// Before or after the effect.
    #[serde(default)]
    pub when: When,
    /// What happens.
    pub act: Act,
}

// The default of an optional number: once.
#[expect(clippy::unnecessary_wraps, reason = "serde wants the type of the field")]
fn once() -> Option<u32> {
    Some(1)
}

impl Fault {
    /// A fault that strikes the next matching call, before its effect.
    pub fn new(method: &str, path: &str, act: Act) -> Self {
        Self {
            method: Some(method.to_owned()),
            ..Self::any(act)
        }
        .at(path)
    }

    /// A fault that strikes the next call, whatever it is. With [`Fault::skip`] that is the n-th call of a whole scenario.
    pub fn any(act: Act) -> Self {
        Self {
            method: None,
            access_key: None,
            path: "/**".to_owned(),
            skip: 0,
            times: Some(1),
            when: When::BeforeEffect,
            act,
        }
    }

    fn at(self, path: &str) -> Self {
        Self {
            path: path.to_owned(),
            ..self
        }
    }

    /// Strikes only calls with this access key.
    #[must_use]
    pub fn only_key(self, access_key: &str) -> Self {
        Self {
            access_key: Some(access_key.to_owned()),
            ..self
        }
    }

    /// Lets some matching calls pass first.
    #[must_use]
    pub fn skip(self, skip: u32) -> Self {
        Self { skip, ..self }
    }

    /// Strikes several calls.
    #[must_use]
    pub fn times(self, times: u32) -> Self {
        Self {
            times: Some(times),
            ..self
        }
    }

    /// Strikes until it is taken away.
    #[must_use]
    pub fn for_ever(self) -> Self {
        Self { times: None, ..self }
    }

    /// Strikes after the effect.
    #[must_use]
    pub fn after_effect(self) -> Self {
        Self {
            when: When::AfterEffect,
            ..self
        }
    }

    fn matches(&self, call: &Call, key: Option<&str>) -> bool {
        if self.access_key.is_some() && self.access_key.as_deref() != key {
            return false;
        }
        let method = self.method.as_deref();
        method.is_none_or(|method| call.method.as_str().eq_ignore_ascii_case(method)) && glob(&self.path, &call.path)
    }
}

/// Which fault; counts from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct FaultId(pub u64);

impl fmt::Display for FaultId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The faults that wait.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    waiting: Vec<(FaultId, Fault)>,
    last: u64,
}

impl Faults {
    pub(crate) fn add(&mut self, fault: Fault) -> FaultId {
        self.last += 1;
        let id = FaultId(self.last);
        self.waiting.push((id, fault));
        id
    }

    pub(crate) fn remove(&mut self, id: FaultId) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|(waiting, _)| *waiting != id);
        self.waiting.len() != before
    }

    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }

    pub(crate) fn all(&self) -> &[(FaultId, Fault)] {
        &self.waiting
    }

    /// The fault that strikes this call. Of several the oldest strikes, but each that matches counts the call.
    pub(crate) fn strike(&mut self, call: &Call, key: Option<&str>) -> Option<(FaultId, When, Act)> {
        let mut struck = None;
        for (id, fault) in self.waiting.iter_mut().filter(|(_, fault)| fault.matches(call, key)) {
            if fault.skip > 0 {
                fault.skip -= 1;
            } else if struck.is_none() {
                if let Some(times) = &mut fault.times {
                    *times = times.saturating_sub(1);
                }
                struck = Some((*id, fault.when, fault.act.clone()));
            }
        }
        self.waiting.retain(|(_, fault)| fault.times != Some(0));
        struck
    }
}

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

/// Whether a path fits a pattern.
pub(crate) fn glob(pattern: &str, path: &str) -> bool {
    let mut pieces = path.trim_matches('/').split('/');
    let mut wanted = pattern.trim_matches('/').split('/');
    loop {
        match (wanted.next(), pieces.next()) {
            (Some("**"), _) | (None, None) => return true,
            (Some("*"), Some(_)) => {}
            (Some(want), Some(piece)) if want == piece => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &str, path: &str) -> Call {
        Call {
            method: method.parse().unwrap(),
            path: path.to_owned(),
            query: String::new(),
            token: None,
            content_type: None,
            body: Vec::new(),
        }
    }

    #[test]
    fn a_star_is_one_piece_and_two_are_the_rest() {
        assert!(glob("/a/*/c", "/a/b/c"));
        assert!(!glob("/a/*", "/a/b/c"));
        assert!(glob("/a/**", "/a/b/c"));
        assert!(glob("/a/**", "/a"));
        assert!(!glob("/a/*/c", "/a/b/d"));
        assert!(!glob("/a/b/c", "/a/b"));
    }

    #[test]
    fn a_fault_strikes_after_it_let_some_pass_and_as_often_as_told() {
        let mut faults = Faults::default();
        faults.add(Fault::new("GET", "/x", Act::Cut).skip(2).times(2));
        let struck: Vec<bool> = (0..6)
            .map(|_| faults.strike(&call("GET", "/x"), None).is_some())
            .collect();
        assert_eq!(struck, [false, false, true, true, false, false]);
        assert!(faults.all().is_empty());
    }

    #[test]
    fn other_methods_and_paths_are_not_counted() {
        let mut faults = Faults::default();
        faults.add(Fault::new("GET", "/x", Act::Cut));
        assert!(faults.strike(&call("POST", "/x"), None).is_none());
        assert!(faults.strike(&call("GET", "/y"), None).is_none());
        assert!(faults.strike(&call("GET", "/x"), None).is_some());
    }
}
