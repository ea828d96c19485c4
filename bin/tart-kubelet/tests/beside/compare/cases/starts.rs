//! What keeps containers from starting.

use serde_json::{Value, json};

use super::super::{Case, LATE_IMAGE, Moment, Step};
use super::STAY;

fn map(name: &str) -> Step {
    Step::Make(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": "value"},
    }))
}

fn from_map(name: &str, key: &str, optional: bool) -> Value {
    json!({"env": [{"name": "KEY", "valueFrom": {"configMapKeyRef": {
        "name": name, "key": key, "optional": optional,
    }}}]})
}

pub(super) fn cases() -> Vec<Case> {
    let case = |name, shows| Case::new(name, shows, STAY);
    let config_error = || Moment::State("main", "waiting (CreateContainerConfigError)");
    let volume = |source: Value| {
        let mut volume = json!({"name": "more"});
        if let (Value::Object(volume), Value::Object(source)) = (&mut volume, source) {
            volume.extend(source);
        }
        json!({
            "containers": [{"volumeMounts": [{}, {"name": "more", "mountPath": "/opt/more"}]}],
            "volumes": [{}, volume],
        })
    };
    vec![
        case("no-image", "an image that is not there")
            .main(json!({"image": "localhost/none:1"}))
            .until(Moment::State("main", "waiting (ImagePullBackOff)")),
        case("late-image", "an image that comes later")
            .main(json!({"image": LATE_IMAGE}))
            .until(Moment::State("main", "waiting (ImagePullBackOff)"))
            .then(Step::Publish)
            .until(Moment::True("Ready")),
        case("never-pulled", "an image that must not be pulled")
            .main(json!({"image": "localhost/none:1", "imagePullPolicy": "Never"}))
            .until(Moment::State("main", "waiting (ErrImageNeverPull)")),
        case("bad-image", "an image that cannot be named so")
            .main(json!({"image": "localhost/Upper:1"}))
            .until(Moment::State("main", "waiting (InvalidImageName)")),
        Case::new("no-program", "a program that is not in the image", "")
            .main(json!({"command": ["/no/such/program", "-x", "-y"]}))
            .until(Moment::Over),
        case("no-config-map", "a ConfigMap that comes later")
            .main(from_map("late-map", "key", false))
            .until(config_error())
            .then(map("late-map"))
            .until(Moment::True("Ready")),
        case("no-key", "a ConfigMap without the key")
            .main(from_map("kube-root-ca.crt", "none", false))
            .until(config_error()),
        case("no-config-map-optional", "a ConfigMap that need not be there")
            .main(from_map("never", "key", true))
            .until(Moment::True("Ready")),
        case("no-secret", "a Secret that comes later")
            .main(json!({"envFrom": [{"secretRef": {"name": "late-secret"}}]}))
            .until(config_error())
            .then(Step::Make(json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "late-secret"}, "stringData": {"KEY": "value"},
            })))
            .until(Moment::True("Ready")),
        case("no-volume", "a volume whose ConfigMap comes later")
            .spec(volume(json!({"configMap": {"name": "late-volume"}})))
            .until(Moment::State("main", "waiting (ContainerCreating)"))
            .then(map("late-volume"))
            .until(Moment::True("Ready")),
        case("no-volume-optional", "a volume whose Secret need not be there")
            .spec(volume(json!({"secret": {"secretName": "never", "optional": true}})))
            .until(Moment::True("Ready")),
        case("readiness-gate", "a gate that others open")
            .spec(json!({"readinessGates": [{"conditionType": "example.com/open"}]}))
            .until(Moment::True("ContainersReady"))
            .until(Moment::NotTrue("Ready"))
            .then(Step::Set("example.com/open", true))
            .until(Moment::True("Ready")),
    ]
}
