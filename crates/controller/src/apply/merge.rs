//! Merge patches (RFC 7386): the difference between two documents, and its application.

use serde_json::{Map, Value};

/// The merge patch that turns `before` into `after`; none when they are equal.
///
/// Arrays are replaced as a whole. Both sides should come from the same type, so that what the type does not know is in
/// neither and stays untouched in the object the patch is applied to.
pub fn merge_diff(before: &Value, after: &Value) -> Option<Value> {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let mut patch = Map::new();
            for key in before.keys().filter(|key| !after.contains_key(*key)) {
                patch.insert(key.clone(), Value::Null);
            }
            for (key, wanted) in after {
                match before.get(key) {
                    Some(current) => {
                        if let Some(change) = merge_diff(current, wanted) {
                            patch.insert(key.clone(), change);
                        }
                    }
                    None => {
                        patch.insert(key.clone(), wanted.clone());
                    }
                }
            }
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        (before, after) if before == after => None,
        _ => Some(after.clone()),
    }
}

/// Applies a merge patch in place.
pub fn merge_into(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (key, change) in patch {
        if change.is_null() {
            target.remove(key);
        } else {
            merge_into(target.entry(key.clone()).or_insert(Value::Null), change);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_touches_only_what_changed() {
        let before = json!({"a": 1, "b": {"c": 1, "d": 2}, "e": [1]});
        let after = json!({"a": 1, "b": {"c": 3}, "e": [1, 2]});
        let patch = merge_diff(&before, &after).unwrap();
        assert_eq!(patch, json!({"b": {"c": 3, "d": null}, "e": [1, 2]}));
        // Fields of others, unknown to both sides of the diff, survive.
        let mut live = json!({"a": 1, "b": {"c": 1, "d": 2, "theirs": true}, "e": [1], "more": 1});
        merge_into(&mut live, &patch);
        assert_eq!(
            live,
            json!({"a": 1, "b": {"c": 3, "theirs": true}, "e": [1, 2], "more": 1})
        );
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<bool>().prop_map(Value::from), (0_i64..5).prop_map(Value::from)];
        leaf.prop_recursive(3, 30, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-d]", inner, 0..4).prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn applying_the_difference_gives_the_wanted_document(before in any_json(), after in any_json()) {
            let mut document = before.clone();
            if let Some(patch) = merge_diff(&before, &after) {
                merge_into(&mut document, &patch);
            }
            prop_assert_eq!(document, after);
        }
    }
}
