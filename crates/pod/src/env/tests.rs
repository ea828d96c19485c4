use super::*;
use crate::testing::pod_of;
use serde_json::{Value, json};

fn objects() -> Objects {
    let mut objects = Objects::default();
    let config = serde_json::from_value(json!({"data": {"A": "from config", "B": "b"}})).unwrap();
    objects.config_maps.insert("config".to_owned(), config);
    let secret = serde_json::from_value(json!({"data": {"A": "c2VjcmV0", "RAW": "/w=="}})).unwrap();
    objects.secrets.insert("secret".to_owned(), secret);
    let text = serde_json::from_value(json!({"data": {"A": "c2VjcmV0"}})).unwrap();
    objects.secrets.insert("text".to_owned(), text);
    objects
}

fn made(container: Value) -> Result<Environment, Error> {
    let (pod, container) = pod_of(container);
    let allocatable = BTreeMap::new();
    let context = Context {
        pod: &pod,
        host_ips: &[],
        pod_ips: &[],
        allocatable: &allocatable,
    };
    environment(&context, &container, &objects())
}

fn refused(container: Value) -> String {
    made(container).unwrap_err().to_string()
}

#[test]
fn later_sources_win_over_earlier_ones() {
    let env = made(json!({"name": "a",
        "envFrom": [{"configMapRef": {"name": "config"}}, {"secretRef": {"name": "text"}, "prefix": "P_"}],
        "env": [{"name": "B", "value": "own"}],
    }))
    .unwrap();
    assert_eq!(
        [env.get("A"), env.get("B"), env.get("P_A")],
        [Some("from config"), Some("own"), Some("secret")]
    );
}

#[test]
fn a_value_may_use_what_came_before_it() {
    let env = made(
        json!({"name": "a", "envFrom": [{"configMapRef": {"name": "config"}}], "env": [
            {"name": "ONE", "value": "1"},
            {"name": "TWO", "value": "$(ONE)$(ONE) $(A) $(LATER) $$(ONE)"},
            {"name": "LATER", "value": "x"},
            {"name": "EMPTY"},
        ]}),
    )
    .unwrap();
    assert_eq!(env.get("TWO"), Some("11 from config $(LATER) $(ONE)"));
    assert_eq!(env.get("EMPTY"), Some(""));
}

#[test]
fn what_comes_from_objects_is_not_expanded() {
    let env = made(json!({"name": "a", "env": [
        {"name": "X", "valueFrom": {"secretKeyRef": {"name": "secret", "key": "A"}}},
        {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]}))
    .unwrap();
    assert_eq!([env.get("X"), env.get("N")], [Some("secret"), Some("job")]);
}

#[test]
fn what_is_missing_is_told_in_the_words_of_a_kubelet() {
    let of = |source| json!({"name": "a", "env": [{"name": "X", "valueFrom": source}]});
    let all_of = |source| json!({"name": "a", "envFrom": [source]});
    for (container, said) in [
        (
            of(json!({"configMapKeyRef": {"name": "no", "key": "k"}})),
            "configmap \"no\" not found",
        ),
        (
            of(json!({"secretKeyRef": {"name": "no", "key": "k"}})),
            "secret \"no\" not found",
        ),
        (
            of(json!({"configMapKeyRef": {"name": "config", "key": "k"}})),
            "couldn't find key k in ConfigMap ci/config",
        ),
        (
            of(json!({"secretKeyRef": {"name": "secret", "key": "k"}})),
            "couldn't find key k in Secret ci/secret",
        ),
        (
            all_of(json!({"configMapRef": {"name": "no"}})),
            "configmap \"no\" not found",
        ),
        (all_of(json!({"secretRef": {"name": "no"}})), "secret \"no\" not found"),
    ] {
        assert_eq!(refused(container.clone()), said, "{container}");
    }
}

#[test]
fn what_is_optional_and_missing_is_left_out() {
    let env = made(json!({"name": "a",
        "envFrom": [{"configMapRef": {"name": "no", "optional": true}}, {"secretRef": {"name": "no", "optional": true}}],
        "env": [
            {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "no", "key": "k", "optional": true}}},
            {"name": "Y", "valueFrom": {"secretKeyRef": {"name": "secret", "key": "k", "optional": true}}},
        ],
    }))
    .unwrap();
    assert_eq!(env.iter().count(), 0);
}

#[test]
fn a_secret_that_is_no_text_says_so_and_does_not_show_itself() {
    let refusal = refused(json!({"name": "a", "envFrom": [{"secretRef": {"name": "secret"}}]}));
    assert!(
        refusal.starts_with("key RAW in Secret ci/secret is no text"),
        "{refusal}"
    );
}

#[test]
fn command_and_arguments_are_filled_in_from_the_environment() {
    let (_, container) = pod_of(json!({"name": "a", "command": ["run", "$(X)"], "args": ["--to=$(X)", "$(NO)"]}));
    let env = made(json!({"name": "a", "env": [{"name": "X", "value": "7"}]})).unwrap();
    let command = env.command(&container);
    assert_eq!(command.command, ["run", "7"]);
    assert_eq!(command.args, ["--to=7", "$(NO)"]);
}

#[test]
fn values_are_never_printed() {
    let env = made(json!({"name": "a", "env": [{"name": "X", "value": "canary"}]})).unwrap();
    let text = format!("{env:?}");
    assert!(text.contains('X') && !text.contains("canary"), "{text}");
}

#[test]
fn only_the_address_of_the_pod_has_to_wait_for_the_vm() {
    let needs = |path: &str| {
        let (_, container) =
            pod_of(json!({"name": "a", "env": [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}]}));
        needs_address(&container)
    };
    assert_eq!(
        [needs("status.podIP"), needs("status.podIPs"), needs("status.hostIP")],
        [true, true, false]
    );
}
