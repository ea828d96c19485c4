//! Conditions: one type for both Cluster API contracts, and every condition type and reason we write.
//!
//! The wire form is the metav1 one that the v1beta2 contract asks for. Objects written under the v1beta1 contract carry a
//! `severity` and may lack `reason`, `message` or `lastTransitionTime`; the type therefore requires only what both always
//! had, so an old status is neither refused nor stripped.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub mod reasons;
pub mod types;

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

impl ConditionStatus {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// How bad a false condition is. Part of the v1beta1 contract, still written for its readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Error,
    Warning,
    Info,
}

impl Severity {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "Error",
            Self::Warning => "Warning",
            Self::Info => "Info",
        }
    }
}

/// One observation about an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What is observed, in CamelCase. An object has at most one condition of a type.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: ConditionStatus,
    /// One CamelCase word that says why, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A sentence that says why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Error, Warning or Info while the status is False. Written for readers of the v1beta1 contract.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
    /// When the status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// The `metadata.generation` this was observed at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

impl Condition {
    /// A condition with an empty message; [`set`] fills in the time.
    pub fn new(type_: impl Into<String>, status: impl Into<ConditionStatus>, reason: impl Into<String>) -> Self {
        Self {
            type_: type_.into(),
            status: status.into(),
            reason: Some(reason.into()),
            message: Some(String::new()),
            severity: None,
            last_transition_time: None,
            observed_generation: None,
        }
    }

    /// The same condition with a sentence for people.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// The same condition with a severity, which only a false condition may have.
    #[must_use]
    pub fn severity(mut self, severity: Severity) -> Self {
        self.severity = (self.status == ConditionStatus::False).then(|| severity.as_str().to_owned());
        self
    }

    /// The same condition, observed at this generation.
    #[must_use]
    pub fn observed_generation(mut self, generation: Option<i64>) -> Self {
        self.observed_generation = generation;
        self
    }
}

/// Puts `new` into the list and says whether anything changed.
///
/// `lastTransitionTime` moves to `now` only when the status flips (or was never recorded), whatever time `new` carries:
/// a changed reason or message is news about the same state.
pub fn set(conditions: &mut Vec<Condition>, mut new: Condition, now: Timestamp) -> bool {
    let Some(old) = conditions.iter_mut().find(|c| c.type_ == new.type_) else {
        new.last_transition_time = Some(Time(now));
        conditions.push(new);
        return true;
    };
    new.last_transition_time = Some(match &old.last_transition_time {
        Some(since) if old.status == new.status => since.clone(),
        _ => Time(now),
    });
    let changed = *old != new;
    *old = new;
    changed
}

/// The condition of this type.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_)
}

/// Whether the condition of this type is there and True.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|c| c.status == ConditionStatus::True)
}

/// Removes the condition of this type and says whether it was there.
pub fn remove(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|c| c.type_ != type_);
    conditions.len() != before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn the_transition_time_moves_only_when_the_status_flips() {
        let mut list = Vec::new();
        assert!(set(&mut list, Condition::new(types::READY, false, "Waiting"), at(10)));
        assert!(set(
            &mut list,
            Condition::new(types::READY, false, "StillWaiting"),
            at(20)
        ));
        assert_eq!(list[0].last_transition_time, Some(Time(at(10))));
        assert!(set(&mut list, Condition::new(types::READY, true, "Ready"), at(30)));
        assert_eq!(list[0].last_transition_time, Some(Time(at(30))));
        assert_eq!(list.len(), 1);
    }

    #[test]
    fn setting_the_same_condition_again_changes_nothing() {
        let mut list = Vec::new();
        let ready = || {
            Condition::new(types::READY, true, "Ready")
                .message("all good")
                .observed_generation(Some(3))
        };
        assert!(set(&mut list, ready(), at(10)));
        assert!(!set(&mut list, ready(), at(99)));
        assert!(set(&mut list, ready().observed_generation(Some(4)), at(99)));
        assert_eq!(list[0].last_transition_time, Some(Time(at(10))));
    }

    #[test]
    fn a_condition_without_a_time_gets_one() {
        let mut list: Vec<Condition> = serde_json::from_str(r#"[{"type":"Ready","status":"True"}]"#).unwrap();
        assert!(set(&mut list, Condition::new(types::READY, true, "Ready"), at(7)));
        assert_eq!(list[0].last_transition_time, Some(Time(at(7))));
    }

    #[test]
    fn only_a_false_condition_has_a_severity() {
        let bad = Condition::new(types::READY, false, "Broken").severity(Severity::Error);
        assert_eq!(bad.severity.as_deref(), Some("Error"));
        let good = Condition::new(types::READY, true, "Ready").severity(Severity::Error);
        assert_eq!(good.severity, None);
    }

    #[test]
    fn a_v1beta1_condition_survives_reading_and_writing() {
        let text = r#"{"type":"Bootstrapped","status":"False","severity":"Warning","reason":"NodeMissing","message":"gone","lastTransitionTime":"2026-05-01T10:00:00Z"}"#;
        let condition: Condition = serde_json::from_str(text).unwrap();
        let before: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_value(&condition).unwrap(), before);
    }

    #[test]
    fn conditions_are_found_and_removed_by_type() {
        let mut list = vec![Condition::new("A", true, "X"), Condition::new("B", false, "Y")];
        assert!(is_true(&list, "A"));
        assert!(!is_true(&list, "B"));
        assert!(!is_true(&list, "C"));
        assert!(remove(&mut list, "A"));
        assert!(!remove(&mut list, "A"));
        assert!(find(&list, "B").is_some());
    }
}
