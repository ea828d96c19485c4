//! Pods for tests.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::{Value, json};

/// A Pod with this spec. Containers need a name and nothing else.
pub(crate) fn pod(mut spec: Value) -> Pod {
    for list in ["containers", "initContainers"] {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            let container = container.as_object_mut().expect("containers are objects");
            container.entry("image").or_insert(json!("registry.test/mac:1"));
        }
    }
    serde_json::from_value(json!({
        "metadata": {
            "name": "job", "namespace": "ci", "uid": "0b5d7f3c", "generation": 1,
            "labels": {"app": "x"}, "annotations": {"note": "two\nlines"},
        },
        "spec": spec,
    }))
    .expect("a Pod")
}

/// A Pod with one container.
pub(crate) fn pod_of(container: Value) -> (Pod, Container) {
    let pod = pod(json!({"containers": Value::Array(vec![container])}));
    let container = pod.spec.as_ref().expect("a spec").containers[0].clone();
    (pod, container)
}

/// A moment.
pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}
