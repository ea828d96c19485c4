use proptest::prelude::*;
use serde_json::json;

use super::*;

fn custom(desired: &Value, live: &Value) -> Vec<Difference> {
    differences(desired, live, Flavour::Custom)
}

fn builtin(desired: &Value, live: &Value) -> Vec<Difference> {
    differences(desired, live, Flavour::Builtin)
}

fn lost(path: &str) -> Vec<Difference> {
    vec![Difference::Missing(path.to_owned())]
}

fn changed(path: &str) -> Vec<Difference> {
    vec![Difference::Changed(path.to_owned())]
}

/// The story of incident `crd-pruning`: a new controller wrote a field that the old CRD did not know.
#[test]
fn a_field_the_crd_does_not_know_is_reported_by_path() {
    let sent = json!({"spec": {"accountHandle": "a", "egress": {"mbps": 100, "burst": 5}, "replicas": 3}});
    let got = json!({"spec": {"accountHandle": "a", "egress": {"mbps": 100}, "replicas": 3}, "status": {}});
    assert_eq!(custom(&sent, &got), lost("spec.egress.burst"));
    let got = json!({"spec": {"accountHandle": "a", "replicas": 3}});
    assert_eq!(custom(&sent, &got), lost("spec.egress"));
}

#[test]
fn defaults_added_by_the_server_are_no_difference() {
    let sent = json!({"spec": {"containers": [{"name": "a", "image": "x"}]}});
    let got = json!({"spec": {"containers": [{"name": "a", "image": "x", "imagePullPolicy": "Always"}],
        "dnsPolicy": "ClusterFirst"}});
    assert_eq!(builtin(&sent, &got), []);
}

#[test]
fn list_maps_are_matched_by_key_whatever_their_order() {
    let sent = json!({"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]});
    let got = json!({"env": [{"name": "Z", "value": "9"}, {"name": "B", "value": "2"}, {"name": "A", "value": "1"}]});
    assert_eq!(builtin(&sent, &got), []);
    let got = json!({"env": [{"name": "B", "value": "3"}]});
    assert_eq!(
        builtin(&sent, &got),
        vec![
            Difference::Missing("env[name=A]".into()),
            Difference::Changed("env[name=B].value".into())
        ]
    );
}

#[test]
fn ports_match_although_the_server_filled_in_the_protocol() {
    let sent = json!({"ports": [{"port": 80, "targetPort": "web"}, {"port": 443, "protocol": "UDP"}]});
    let got = json!({"ports": [{"port": 443, "protocol": "UDP", "targetPort": 443},
        {"port": 80, "protocol": "TCP", "targetPort": "web", "nodePort": 30000}]});
    assert_eq!(builtin(&sent, &got), []);
}

#[test]
fn quantities_are_compared_by_value_but_only_where_quantities_live() {
    let sent = json!({"resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}, "requests": {"cpu": 2}}});
    let got = json!({"resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "2"}}});
    assert_eq!(builtin(&sent, &got), []);
    assert_eq!(
        builtin(&json!({"data": {"cpu": "1000m"}}), &json!({"data": {"cpu": "1"}})),
        changed("data.cpu")
    );
}

#[test]
fn int_or_string_values_differ_only_when_their_value_does() {
    assert_eq!(builtin(&json!({"targetPort": 80}), &json!({"targetPort": 80})), []);
    assert_eq!(
        builtin(&json!({"targetPort": "web"}), &json!({"targetPort": 80})),
        changed("targetPort")
    );
    assert_eq!(
        missing(&json!({"maxSurge": "25%"}), &json!({"maxSurge": 1}), Flavour::Builtin),
        Vec::<String>::new()
    );
}

#[test]
fn nulls_and_empty_values_may_be_left_out() {
    let sent = json!({"a": null, "b": {}, "c": [], "d": {"e": {"f": null}}});
    assert_eq!(custom(&sent, &json!({})), []);
    assert_eq!(builtin(&sent, &json!({"a": null})), []);
}

#[test]
fn zero_values_may_be_left_out_by_go_types_but_not_by_schemas() {
    let sent = json!({"spec": {"paused": false, "weight": 0, "name": ""}});
    assert_eq!(builtin(&sent, &json!({"spec": {}})), []);
    assert_eq!(builtin(&sent, &json!({})), []);
    assert_eq!(custom(&sent, &json!({"spec": {}})).len(), 3);
}

#[test]
fn a_shorter_list_lost_items_and_an_equally_long_one_was_changed() {
    assert_eq!(
        builtin(&json!({"args": ["a", "b"]}), &json!({"args": ["a"]})),
        lost("args[1]")
    );
    assert_eq!(
        builtin(&json!({"args": ["a", "b"]}), &json!({"args": ["a", "c"]})),
        changed("args")
    );
    assert_eq!(
        builtin(&json!({"args": ["a", "b"]}), &json!({"args": ["b", "a"]})),
        changed("args")
    );
    assert_eq!(
        builtin(&json!({"args": ["a"]}), &json!({"args": ["a", "b"]})),
        changed("args")
    );
}

#[test]
fn finalizers_of_others_are_not_our_business() {
    let sent = json!({"metadata": {"finalizers": ["ours"]}});
    assert_eq!(
        builtin(&sent, &json!({"metadata": {"finalizers": ["theirs", "ours"]}})),
        []
    );
}

#[test]
fn keys_with_dots_stay_readable_in_paths() {
    let sent = json!({"metadata": {"annotations": {"tuist.dev/x": "1"}}});
    assert_eq!(
        builtin(&sent, &json!({"metadata": {"annotations": {}}})),
        lost("metadata.annotations[\"tuist.dev/x\"]")
    );
}

#[test]
fn values_never_appear_in_a_report() {
    let sent = json!({"data": {"token": "canary-secret"}, "list": ["canary-secret", "b"]});
    let text = format!(
        "{:?}",
        builtin(&sent, &json!({"data": {"token": "other"}, "list": ["b"]}))
    );
    assert!(!text.contains("canary"), "{text}");
}

#[test]
fn groups_tell_builtin_kinds_from_custom_ones() {
    for group in ["", "apps", "batch", "coordination.k8s.io", "networking.k8s.io"] {
        assert_eq!(Flavour::of_group(group), Flavour::Builtin, "{group}");
    }
    for group in [
        "tuist.dev",
        "kura.tuist.dev",
        "cluster.x-k8s.io",
        "infrastructure.cluster.x-k8s.io",
    ] {
        assert_eq!(Flavour::of_group(group), Flavour::Custom, "{group}");
    }
}

#[test]
fn removing_what_is_missing_leaves_a_subset() {
    let mut sent = json!({"spec": {"a": 1, "new": true, "items": [{"name": "x", "new": {"deep": 1}, "old": 2}]}});
    let got = json!({"spec": {"a": 1, "items": [{"name": "x", "old": 2}]}});
    remove_paths(&mut sent, &got, Flavour::Custom);
    assert_eq!(sent, got);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        (-5_i64..50).prop_map(Value::from),
        "[a-z]{1,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,3}|name", inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Drops keys that the predicate picks, as pruning would.
fn prune(value: &Value, pick: &mut impl FnMut() -> bool, dropped: &mut usize) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.iter()
                .filter_map(|(key, value)| {
                    let omissible = match value {
                        Value::Object(fields) => fields.is_empty(),
                        Value::Array(items) => items.is_empty(),
                        _ => false,
                    };
                    // Identity keys are never pruned: they are part of every version of a schema.
                    if key != "name" && !omissible && pick() && !is_hollow(value) {
                        *dropped += 1;
                        return None;
                    }
                    Some((key.clone(), prune(value, pick, dropped)))
                })
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(|item| prune(item, pick, dropped)).collect()),
        scalar => scalar.clone(),
    }
}

/// Objects that contain nothing but empty objects and lists, which count as empty.
fn is_hollow(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.values().all(is_hollow),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

proptest! {
    #[test]
    fn an_object_differs_in_nothing_from_itself(value in any_json()) {
        prop_assert_eq!(custom(&value, &value), vec![]);
    }

    #[test]
    fn adding_fields_is_never_a_difference(desired in any_json(), extra in any_json()) {
        let mut live = desired.clone();
        if let Value::Object(map) = &mut live {
            map.insert("added-by-the-server".into(), extra);
        }
        prop_assert!(is_subset(&desired, &live, Flavour::Custom));
    }

    #[test]
    fn every_pruned_field_is_reported_as_missing_and_nothing_as_changed(desired in any_json(), picks in prop::collection::vec(any::<bool>(), 64)) {
        let mut picks = picks.into_iter();
        let mut dropped = 0;
        let live = prune(&desired, &mut || picks.next().unwrap_or(false), &mut dropped);
        let found = custom(&desired, &live);
        prop_assert_eq!(found.len(), dropped, "{:?} {:?}", found, live);
        prop_assert!(found.iter().all(|difference| matches!(difference, Difference::Missing(_))), "{:?}", found);
    }

    #[test]
    fn what_remains_after_removal_is_a_subset(desired in any_json(), picks in prop::collection::vec(any::<bool>(), 64)) {
        let mut picks = picks.into_iter();
        let live = prune(&desired, &mut || picks.next().unwrap_or(false), &mut 0);
        let mut rest = desired;
        remove_paths(&mut rest, &live, Flavour::Custom);
        prop_assert_eq!(missing(&rest, &live, Flavour::Custom), Vec::<String>::new());
    }
}
