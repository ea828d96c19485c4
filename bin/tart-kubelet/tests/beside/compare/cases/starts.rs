//! What keeps containers from starting.

use serde_json::{Value, json};

use super::super::{Case, LATE_IMAGE, Step};
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
            .goes("main is waiting (ImagePullBackOff)"),
        case("late-image", "an image that comes later")
            .main(json!({"image": LATE_IMAGE}))
            .goes("main is waiting (ImagePullBackOff), publish, Ready"),
        case("never-pulled", "an image that must not be pulled")
            .main(json!({"image": "localhost/none:1", "imagePullPolicy": "Never"}))
            .goes("main is waiting (ErrImageNeverPull)"),
        case("bad-image", "an image that cannot be named so")
            .main(json!({"image": "localhost/Upper:1"}))
            .goes("main is waiting (InvalidImageName)"),
        Case::new("no-program", "a program that is not in the image", "")
            .main(json!({"command": ["/no/such/program", "-x", "-y"]}))
            .goes("over"),
        case("no-config-map", "a ConfigMap that comes later")
            .main(from_map("late-map", "key", false))
            .goes("main is waiting (CreateContainerConfigError)")
            .then(map("late-map"))
            .goes("Ready"),
        case("no-key", "a ConfigMap without the key")
            .main(from_map("kube-root-ca.crt", "none", false))
            .goes("main is waiting (CreateContainerConfigError)"),
        case("no-config-map-optional", "a ConfigMap that need not be there")
            .main(from_map("never", "key", true))
            .goes("Ready"),
        case("no-secret", "a Secret that comes later")
            .main(json!({"envFrom": [{"secretRef": {"name": "late-secret"}}]}))
            .goes("main is waiting (CreateContainerConfigError)")
            .then(Step::Make(json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "late-secret"}, "stringData": {"KEY": "value"},
            })))
            .goes("Ready"),
        case("no-volume", "a volume whose ConfigMap comes later")
            .spec(volume(json!({"configMap": {"name": "late-volume"}})))
            .goes("main is waiting (ContainerCreating)")
            .then(map("late-volume"))
            .goes("Ready"),
        case("no-volume-optional", "a volume whose Secret need not be there")
            .spec(volume(json!({"secret": {"secretName": "never", "optional": true}})))
            .goes("Ready"),
        case("readiness-gate", "a gate that others open")
            .spec(json!({"readinessGates": [{"conditionType": "example.com/open"}]}))
            .goes("ContainersReady, not Ready")
            .then(Step::Set("example.com/open", true))
            .goes("Ready"),
    ]
}
