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

/// Whether somebody may be waiting for what changed. Nobody waits for how far a Pod is that does not run yet, nor for which version
/// of its spec was seen: such news can go with the next.
pub fn hurries(old: Option<&PodStatus>, new: &PodStatus) -> bool {
    let Some(old) = old.filter(|old| old.start_time.is_some()) else {
        return true;
    };
    matters(old) != matters(new)
}

fn matters(status: &PodStatus) -> PodStatus {
    let mut status = status.clone();
    (status.qos_class, status.observed_generation) = (None, None);
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_ != "PodReadyToStartContainers");
        for condition in conditions {
            condition.observed_generation = None;
        }
    }
    let lists = [&mut status.init_container_statuses, &mut status.container_statuses];
    for container in lists.into_iter().flatten().flatten() {
        if container.state.as_ref().is_some_and(|state| state.waiting.is_some()) {
            container.image_id.clear();
        }
    }
    status
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
        let found = patch("u", Some(&other_class), &same);
        assert_eq!(found, None, "the class is the API server's");
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
    fn what_nobody_waits_for_can_go_with_the_next_news() {
        let waits = |ready: &str, image: &str, reason: &str| {
            status(json!({
                "phase": "Pending", "startTime": "2026-01-01T00:00:00Z", "observedGeneration": image.len(),
                "conditions": [{"type": "PodReadyToStartContainers", "status": ready}, {"type": "Ready", "status": "False"}],
                "containerStatuses": [{"name": "c", "image": "i", "imageID": image, "ready": false, "restartCount": 0,
                    "state": {"waiting": {"reason": reason}}}],
            }))
        };
        let old = waits("False", "", "ContainerCreating");
        assert!(hurries(None, &old), "that it was seen at all");
        assert!(!hurries(Some(&old), &waits("True", "sha256:1", "ContainerCreating")));
        assert!(hurries(Some(&old), &waits("True", "", "ImagePullBackOff")));
        let runs = PodStatus {
            phase: Some("Running".to_owned()),
            ..old.clone()
        };
        assert!(hurries(Some(&old), &runs));
        let ready = status(json!({"phase": "Running", "startTime": "2026-01-01T00:00:00Z",
            "conditions": [{"type": "Ready", "status": "True"}]}));
        let unready = status(json!({"phase": "Running", "startTime": "2026-01-01T00:00:00Z",
            "conditions": [{"type": "Ready", "status": "False"}]}));
        assert!(hurries(Some(&ready), &unready));
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
