//! Init containers and sidecars.

use serde_json::{Value, json};

use super::super::Case;
use super::super::case::container;
use super::{STAY, WAIT_IN_TURN, wait};

fn sidecar(name: &str, script: &str) -> Value {
    let mut container = container(name, script);
    if let Some(fields) = container.as_object_mut() {
        fields.insert("restartPolicy".to_owned(), json!("Always"));
    }
    container
}

pub(super) fn cases() -> Vec<Case> {
    let ends = |file: &str, code: u8| format!("{}; exit {code}", wait(file));
    vec![
        Case::new("init", "two init containers, one after the other", STAY)
            .spec(json!({"initContainers": [container("one", &ends("go1", 0)), container("two", &ends("go2", 0))]}))
            .goes("one is running, make go1, two is running, make go2, Ready"),
        Case::new("init-fails", "an init container fails for good", STAY)
            .spec(json!({"initContainers": [container("one", &ends("go", 1))]}))
            .goes("one is running, make go, over"),
        Case::new("init-again", "an init container fails and is tried again", STAY)
            .spec(json!({
                "restartPolicy": "Always",
                "initContainers": [container("one", &format!("{WAIT_IN_TURN}; [ $n -ge 2 ] || exit 1"))],
            }))
            .goes("one is running, make go1, one again 1, make go2, Ready"),
        Case::new("sidecar", "a sidecar ends with the Pod", &ends("go", 0))
            .spec(json!({"initContainers": [sidecar("side", STAY)]}))
            .goes("Ready, found listens, make go, over"),
        Case::new("sidecar-again", "a sidecar fails and is started again", STAY)
            .spec(json!({"initContainers": [sidecar("side", &format!("{WAIT_IN_TURN}; exit 1"))]}))
            .goes("Ready, make go1, side again 1"),
        Case::new("sidecar-late", "nothing starts before a sidecar has", STAY)
            .spec(json!({"initContainers": [{
                "startupProbe": {"exec": {"command": ["test", "-e", "/opt/work/up"]}, "periodSeconds": 1, "timeoutSeconds": 60, "failureThreshold": 600},
                "name": "side", "restartPolicy": "Always",
                "image": super::super::IMAGE, "imagePullPolicy": "IfNotPresent",
                "command": ["/bin/sh", "-c", STAY],
                "volumeMounts": [{"name": "work", "mountPath": super::super::VOLUME}],
            }]}))
            .goes("side is running, make up, Ready"),
    ]
}
