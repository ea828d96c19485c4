//! Deletions and evictions.

use serde_json::{Value, json};

use super::super::case::container;
use super::super::{Case, Moment, Step};
use super::{STAY, WAIT_IN_TURN, wait};

pub(super) fn cases() -> Vec<Case> {
    let deaf = "trap '' TERM; touch /opt/work/listens; while :; do sleep 0.2; done";
    // A stock kubelet calls an evicted Pod a success if its containers end well.
    let fails = "trap 'exit 3' TERM; touch /opt/work/listens; while :; do sleep 0.2; done";
    let deleted = |case: Case, grace| case.then(Step::Delete(grace)).until(Moment::Gone);
    vec![
        deleted(
            Case::new("delete", "deleted while it runs", STAY).until_it_listens(),
            None,
        ),
        deleted(
            Case::new("delete-deaf", "deleted, and does not listen", deaf).until_it_listens(),
            Some(2),
        ),
        deleted(
            Case::new(
                "delete-no-handler",
                "deleted, and has nothing to say",
                "touch /opt/work/listens; while :; do sleep 0.2; done",
            )
            .until_it_listens(),
            Some(2),
        ),
        deleted(
            Case::new("delete-now", "deleted by force", STAY).until_it_listens(),
            Some(0),
        ),
        deleted(
            Case::new("delete-pending", "deleted while its image is not there", STAY)
                .main(json!({"image": "localhost/none:1"}))
                .until(Moment::State("main", "waiting (ImagePullBackOff)")),
            None,
        ),
        deleted(
            Case::new("delete-unmounted", "deleted while its volume is not there", STAY)
                .spec(json!({"volumes": [{"name": "work", "emptyDir": null, "configMap": {"name": "never"}}]}))
                .until(Moment::State("main", "waiting (ContainerCreating)")),
            None,
        ),
        deleted(
            Case::new("delete-init", "deleted while it initializes", STAY)
                .spec(json!({"initContainers": [container("one", STAY)]}))
                .until(Moment::State("one", "running"))
                .then(Step::Found("listens")),
            None,
        ),
        deleted(
            Case::new("delete-succeeded", "deleted after it was done", &wait("go"))
                .until(Moment::True("Ready"))
                .touch("go")
                .until(Moment::Over),
            None,
        ),
        deleted(
            Case::new(
                "delete-crash-loop",
                "deleted while it waits for a restart",
                &format!("{WAIT_IN_TURN}; exit 2"),
            )
            .spec(json!({"restartPolicy": "Always"}))
            .until(Moment::True("Ready"))
            .touch("go1")
            .until(Moment::Again("main", 1))
            .touch("go2")
            .until(Moment::Down("main")),
            None,
        ),
        deleted(
            Case::new("delete-always", "deleted while it runs, and would be restarted", STAY)
                .spec(json!({"restartPolicy": "Always"}))
                .until_it_listens(),
            None,
        ),
        Case::new("owner", "deleted with its owner", STAY)
            .until_it_listens()
            .then(Step::DeleteOwner)
            .until(Moment::Gone),
        Case::new("taint", "evicted by a taint", STAY)
            .spec(json!({"tolerations": Value::Null}))
            .until_it_listens()
            .then(Step::Taint)
            .until(Moment::Gone),
        Case::new("full-volume", "evicted for a volume that is too full", fails)
            .spec(json!({"volumes": [{"name": "work", "emptyDir": {"sizeLimit": "1Mi"}}]}))
            .until_it_listens()
            .then(Step::Fill("big", 4096))
            .until(Moment::Over),
        Case::new("full-pod", "evicted for all that it keeps", fails)
            .main(json!({"resources": {"limits": {"ephemeral-storage": "1Mi"}}}))
            .until_it_listens()
            .then(Step::Fill("big", 4096))
            .until(Moment::Over),
    ]
}
