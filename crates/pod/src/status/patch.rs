//! What has to be sent so that the API server knows the status.

use k8s_openapi::api::core::v1::PodStatus;
use serde_json::{Map, Value, json};

/// Fields that are ours. `qosClass` is not: it never changes, and to send it is an error.
const FIELDS: [&str; 13] = [
    "phase",
    "reason",
    "message",
    "startTime",
    "hostIP",
    "hostIPs",
    "podIP",
    "podIPs",
    "observedGeneration",
    "conditions",
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
];

/// A strategic merge patch of `pods/<name>/status` that makes `old` into `new`; `None` if nothing would change. `uid` guards
/// against another Pod of the same name.
pub fn patch(uid: &str, old: Option<&PodStatus>, new: &PodStatus) -> Option<Value> {
    let read =
        |status: Option<&PodStatus>| serde_json::to_value(status.cloned().unwrap_or_default()).unwrap_or_default();
    let (old, new) = (read(old), read(Some(new)));
    let mut changed = Map::new();
    for field in FIELDS {
        let of = |status: &'_ Value| status.get(field).cloned().unwrap_or_default();
        let (before, after) = (of(&old), of(&new));
        if before == after {
            continue;
        }
        let value = match field {
            "conditions" => changed_conditions(&before, &after),
            // These merge by address, so an old one would stay beside the new one.
            "hostIPs" | "podIPs" => replaced(&before, &after),
            _ => after,
        };
        changed.insert(field.to_owned(), value);
    }
    let nothing = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
    changed.retain(|field, value| field != "conditions" || !nothing(value));
    (!changed.is_empty()).then(|| json!({"metadata": {"uid": uid}, "status": changed}))
}

fn changed_conditions(before: &Value, after: &Value) -> Value {
    let before = before.as_array().map(Vec::as_slice).unwrap_or_default();
    let after = after.as_array().map(Vec::as_slice).unwrap_or_default();
    let fresh = after.iter().filter(|condition| !before.contains(condition));
    let complete = fresh.map(|condition| {
        // What a condition no longer says has to be taken off, or the merge keeps it.
        let mut condition = condition.clone();
        if let Some(fields) = condition.as_object_mut() {
            for field in ["reason", "message"] {
                fields.entry(field).or_insert(Value::Null);
            }
        }
        condition
    });
    let kind = |condition: &Value| condition.get("type").cloned();
    let gone = before
        .iter()
        .filter(|old| !after.iter().any(|new| kind(new) == kind(old)));
    let removed = gone.map(|old| json!({"type": kind(old), "$patch": "delete"}));
    complete.chain(removed).collect()
}

fn replaced(before: &Value, after: &Value) -> Value {
    let mut list = after.as_array().cloned().unwrap_or_default();
    if before.as_array().is_some_and(|before| !before.is_empty()) {
        list.insert(0, json!({"$patch": "replace"}));
    }
    Value::Array(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(value: Value) -> PodStatus {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn nothing_is_sent_when_nothing_changed() {
        let same = status(json!({"phase": "Running", "qosClass": "Burstable", "podIPs": [{"ip": "10.0.0.1"}]}));
        assert_eq!(patch("u", Some(&same), &same), None);
        let other_class = PodStatus {
            qos_class: None,
            ..same.clone()
        };
        assert_eq!(
            patch("u", Some(&other_class), &same),
            None,
            "the class is the API server's"
        );
    }

    #[test]
    fn only_what_changed_is_sent_and_what_is_gone_is_taken_off() {
        let old = status(json!({"phase": "Pending", "reason": "Old", "conditions": [
            {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "m"},
            {"type": "PodScheduled", "status": "True"},
        ]}));
        let new = status(json!({"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"},
        ]}));
        let expected = json!({"metadata": {"uid": "u"}, "status": {
            "phase": "Running", "reason": null,
            "conditions": [{"type": "Ready", "status": "True", "reason": null, "message": null}],
        }});
        assert_eq!(patch("u", Some(&old), &new), Some(expected));
    }

    #[test]
    fn a_condition_that_is_gone_is_taken_off() {
        let old = status(json!({"conditions": [{"type": "PodResizePending", "status": "True"}]}));
        let sent = patch(
            "u",
            Some(&old),
            &PodStatus {
                conditions: Some(Vec::new()),
                ..PodStatus::default()
            },
        )
        .unwrap();
        assert_eq!(
            sent["status"]["conditions"],
            json!([{"type": "PodResizePending", "$patch": "delete"}])
        );
    }

    #[test]
    fn an_address_that_changed_replaces_the_old_one() {
        let old = status(json!({"podIPs": [{"ip": "10.0.0.1"}]}));
        let new = status(json!({"podIPs": [{"ip": "10.0.0.2"}]}));
        let sent = patch("u", Some(&old), &new).unwrap();
        assert_eq!(
            sent["status"]["podIPs"],
            json!([{"$patch": "replace"}, {"ip": "10.0.0.2"}])
        );
        let first = patch("u", None, &old).unwrap();
        assert_eq!(first["status"]["podIPs"], json!([{"ip": "10.0.0.1"}]));
    }
}
