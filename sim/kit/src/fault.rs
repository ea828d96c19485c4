//! Faults: what goes wrong with which call.
//!
//! A fault names calls by method and path, lets some of them pass, then strikes a number of them: before the call had any
//! effect, or after it had all of it and only the answer is lost. The second kind is what makes a client pay twice.
//!
//! What a fault does is for the emulator to say: the type `A`.

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

/// A fault to inject.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault<A> {
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
    pub act: A,
}

// The default of an optional number: once.
#[expect(clippy::unnecessary_wraps, reason = "serde wants the type of the field")]
fn once() -> Option<u32> {
    Some(1)
}

impl<A> Fault<A> {
    /// A fault that strikes the next matching call, before its effect.
    pub fn new(method: &str, path: &str, act: A) -> Self {
        Self {
            method: Some(method.to_owned()),
            path: path.to_owned(),
            ..Self::any(act)
        }
    }

    /// A fault that strikes the next call, whatever it is. With [`Fault::skip`] that is the n-th call of a whole scenario.
    pub fn any(act: A) -> Self {
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

    fn matches(&self, method: &str, path: &str, key: Option<&str>) -> bool {
        if self.access_key.is_some() && self.access_key.as_deref() != key {
            return false;
        }
        let wanted = self.method.as_deref();
        wanted.is_none_or(|wanted| method.eq_ignore_ascii_case(wanted)) && glob(&self.path, path)
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
#[derive(Debug)]
pub struct Faults<A> {
    waiting: Vec<(FaultId, Fault<A>)>,
    last: u64,
}

impl<A> Default for Faults<A> {
    fn default() -> Self {
        Self {
            waiting: Vec::new(),
            last: 0,
        }
    }
}

impl<A: Clone> Faults<A> {
    /// Lets one more wait.
    pub fn add(&mut self, fault: Fault<A>) -> FaultId {
        self.last += 1;
        let id = FaultId(self.last);
        self.waiting.push((id, fault));
        id
    }

    /// Takes one away. Whether it was there.
    pub fn remove(&mut self, id: FaultId) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|(waiting, _)| *waiting != id);
        self.waiting.len() != before
    }

    /// Takes all away.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Those that wait, the oldest first.
    pub fn all(&self) -> &[(FaultId, Fault<A>)] {
        &self.waiting
    }

    /// The fault that strikes this call. Of several the oldest strikes, but each that matches counts the call.
    pub fn strike(&mut self, method: &str, path: &str, key: Option<&str>) -> Option<(FaultId, When, A)> {
        let mut struck = None;
        let matching = |(_, fault): &&mut (FaultId, Fault<A>)| fault.matches(method, path, key);
        for (id, fault) in self.waiting.iter_mut().filter(matching) {
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

/// Whether a path fits a pattern.
pub fn glob(pattern: &str, path: &str) -> bool {
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

    fn struck(faults: &mut Faults<()>, method: &str, path: &str, key: Option<&str>) -> bool {
        faults.strike(method, path, key).is_some()
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
        faults.add(Fault::new("GET", "/x", ()).skip(2).times(2));
        let six: Vec<bool> = (0..6).map(|_| struck(&mut faults, "GET", "/x", None)).collect();
        assert_eq!(six, [false, false, true, true, false, false]);
        assert!(faults.all().is_empty());
    }

    #[test]
    fn other_methods_and_paths_and_keys_are_not_counted() {
        let mut faults = Faults::default();
        faults.add(Fault::new("GET", "/x", ()).only_key("ours"));
        assert!(!struck(&mut faults, "POST", "/x", Some("ours")));
        assert!(!struck(&mut faults, "GET", "/y", Some("ours")));
        assert!(!struck(&mut faults, "GET", "/x", Some("theirs")));
        assert!(!struck(&mut faults, "GET", "/x", None));
        assert!(struck(&mut faults, "GET", "/x", Some("ours")));
    }
}
