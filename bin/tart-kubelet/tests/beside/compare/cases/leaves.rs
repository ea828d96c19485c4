//! Deletions and evictions.

use serde_json::{Value, json};

use super::super::Case;
use super::super::case::container;
use super::{STAY, WAIT_IN_TURN, wait};

pub(super) fn cases() -> Vec<Case> {
    let deaf = "trap '' TERM; touch /opt/work/listens; while :; do sleep 0.2; done";
    // A stock kubelet calls an evicted Pod a success if its containers end well.
    let fails = "trap 'exit 3' TERM; touch /opt/work/listens; while :; do sleep 0.2; done";
    let case = |name, shows| Case::new(name, shows, STAY);
    let crashes = format!("{WAIT_IN_TURN}; exit 2");
    let silent = "touch /opt/work/listens; while :; do sleep 0.2; done";
    vec![
        case("delete", "deleted while it runs").goes("Ready, found listens, delete, gone"),
        Case::new("delete-deaf", "deleted, and does not listen", deaf)
            .goes("Ready, found listens, delete within 2, gone"),
        Case::new("delete-no-handler", "deleted, and has nothing to say", silent)
            .goes("Ready, found listens, delete within 2, gone"),
        case("delete-now", "deleted by force").goes("Ready, found listens, delete within 0, gone"),
        case("delete-pending", "deleted while its image is not there")
            .main(json!({"image": "localhost/none:1"}))
            .goes("main is waiting (ImagePullBackOff), delete, gone"),
        case("delete-unmounted", "deleted while its volume is not there")
            .spec(json!({"volumes": [{"name": "work", "emptyDir": null, "configMap": {"name": "never"}}]}))
            .goes("main is waiting (ContainerCreating), delete, gone"),
        case("delete-init", "deleted while it initializes")
            .spec(json!({"initContainers": [container("one", STAY)]}))
            .goes("one is running, found listens, delete, gone"),
        Case::new("delete-succeeded", "deleted after it was done", &wait("go"))
            .goes("Ready, make go, over, delete, gone"),
        Case::new("delete-crash-loop", "deleted while it waits for a restart", &crashes)
            .spec(json!({"restartPolicy": "Always"}))
            .goes("Ready, make go1, main again 1, make go2, main down, delete, gone"),
        case("delete-always", "deleted while it runs, and would be restarted")
            .spec(json!({"restartPolicy": "Always"}))
            .goes("Ready, found listens, delete, gone"),
        Case::new("owner", "deleted with its owner", STAY).goes("Ready, found listens, lose owner, gone"),
        Case::new("taint", "evicted by a taint", STAY)
            .spec(json!({"tolerations": Value::Null}))
            .goes("Ready, found listens, taint node, gone"),
        Case::new("full-volume", "evicted for a volume that is too full", fails)
            .spec(json!({"volumes": [{"name": "work", "emptyDir": {"sizeLimit": "1Mi"}}]}))
            .goes("Ready, found listens, fill big 4096, over"),
        Case::new("full-pod", "evicted for all that it keeps", fails)
            .main(json!({"resources": {"limits": {"ephemeral-storage": "1Mi"}}}))
            .goes("Ready, found listens, fill big 4096, over"),
    ]
}
