//! Faults: what goes wrong with which call, before it had any effect or after it had all of it.

use crate::call::{Body, Call, Reply};
use crate::deed::Deed;
use crate::refusal::Refusal;
use http::StatusCode;
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
    /// The hour is spent, whatever was counted.
    PrimaryLimit {
        /// 403 or 429: GitHub uses both.
        status: u16,
        /// Seconds until the end of the hour.
        reset_in: i64,
    },
    /// Too fast.
    SecondaryLimit {
        /// 403 or 429: GitHub uses both.
        status: u16,
        /// Seconds; GitHub does not always say.
        retry_after: Option<u64>,
    },
    /// An answer with this status and a body that is not JSON, as gateways send it.
    Status(u16),
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
    /// The method, for example `POST`; none means any.
    #[serde(default)]
    pub method: Option<String>,
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
            path: path.to_owned(),
            skip: 0,
            times: Some(1),
            when: When::BeforeEffect,
            act,
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

    fn matches(&self, call: &Call) -> bool {
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
    pub(crate) fn strike(&mut self, call: &Call) -> Option<(FaultId, When, Act)> {
        let mut struck = None;
        for (id, fault) in self.waiting.iter_mut().filter(|(_, fault)| fault.matches(call)) {
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

/// What the wire does.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    Reply(Reply),
    Cut,
    Hang,
}

impl Act {
    /// What a struck client gets; none if it gets the usual answer.
    pub(crate) fn instead(&self, now: jiff::Timestamp) -> Option<Outcome> {
        Some(match self {
            Self::PrimaryLimit { status, reset_in } => {
                let reset = now.as_second().saturating_add(*reset_in);
                Outcome::Reply(Refusal::primary_limit(*status, "installation", reset).reply())
            }
            Self::SecondaryLimit { status, retry_after } => {
                Outcome::Reply(Refusal::secondary_limit(*status, *retry_after).reply())
            }
            Self::Status(status) => Outcome::Reply(Reply {
                status: StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
                headers: vec![("content-type", "text/html".to_owned())],
                body: Body::Text("<html><head><title>Unicorn!</title></head></html>"),
            }),
            Self::Cut => Outcome::Cut,
            Self::Hang => Outcome::Hang,
            Self::Meanwhile(_) => return None,
        })
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
            headers: http::HeaderMap::new(),
            body: Vec::new(),
        }
    }

    #[test]
    fn a_star_is_one_piece_and_two_are_the_rest() {
        assert!(glob("/a/*/c", "/a/b/c"));
        assert!(!glob("/a/*", "/a/b/c"));
        assert!(glob("/a/**", "/a/b/c"));
        assert!(!glob("/a/b/c", "/a/b"));
    }

    #[test]
    fn a_fault_strikes_after_it_let_some_pass_and_as_often_as_told() {
        let mut faults = Faults::default();
        faults.add(Fault::new("GET", "/x", Act::Cut).skip(2).times(2));
        assert!(faults.strike(&call("POST", "/x")).is_none());
        let struck: Vec<bool> = (0..6).map(|_| faults.strike(&call("GET", "/x")).is_some()).collect();
        assert_eq!(struck, [false, false, true, true, false, false]);
        assert!(faults.all().is_empty());
    }
}
