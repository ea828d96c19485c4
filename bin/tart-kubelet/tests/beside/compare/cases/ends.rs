//! How containers end, and whether they are started again.

use serde_json::json;

use super::super::case::container;
use super::super::{Case, Step};
use super::{STAY, WAIT_IN_TURN, wait};

pub(super) fn cases() -> Vec<Case> {
    // What comes once it is let go.
    let after = |name, shows, script: &str| Case::new(name, shows, &format!("{}; {script}", wait("go")));
    let turns = |name, shows, then: &str| Case::new(name, shows, &format!("{WAIT_IN_TURN}; {then}"));
    let killed_child = format!("sh -c '{}; kill -9 $$$$'; exit $?", wait("go"));
    let default_path = "echo bye >/dev/termination-log; exit 4";
    let patch = |spec| Step::Patch(json!({"spec": spec}));
    let other_image = json!({"containers": [{"name": "main", "image": super::super::OTHER_IMAGE}]});
    vec![
        after("never-0", "success, never restarted", "exit 0").goes("Ready, make go, over"),
        after("never-1", "failure, never restarted", "exit 1").goes("Ready, make go, over"),
        after("on-failure-0", "success, restarted on failure", "exit 0")
            .spec(json!({"restartPolicy": "OnFailure"}))
            .goes("Ready, make go, over"),
        turns("on-failure-1-0", "failure, then success", "[ $n -ge 2 ] || exit 1")
            .spec(json!({"restartPolicy": "OnFailure"}))
            .goes("Ready, make go1, main again 1, make go2, over"),
        turns("always-0", "success, always restarted", "exit 0")
            .spec(json!({"restartPolicy": "Always"}))
            .goes("Ready, make go1, main again 1"),
        turns("crash-loop", "failures, restarted after a back-off", "exit 2")
            .spec(json!({"restartPolicy": "Always"}))
            .goes("Ready, make go1, main again 1, make go2, main again 2"),
        after("two-containers", "one fails, one succeeds", "exit 3")
            .spec(json!({"containers": [{}, container("second", &format!("{}; exit 0", wait("end")))]}))
            .goes("Ready, make go, main is ended 3 (Error), make end, over"),
        // A container's program is process 1 of its namespace, and the kernel shields that from its own signals, but not from
        // those by which it enforces a limit: whoever has used up the processor time it was allowed is killed.
        after("signal", "ended by a signal", "ulimit -t 1; while :; do :; done").goes("Ready, make go, over"),
        // Kubernetes makes one `$` of two.
        Case::new("signal-child", "passes on that a signal ended its child", &killed_child)
            .goes("Ready, make go, over"),
        after("last-words", "a termination message", "echo bye >/opt/words; exit 4")
            .main(json!({"terminationMessagePath": "/opt/words"}))
            .goes("Ready, make go, over"),
        after(
            "last-words-default-path",
            "a termination message where it is by default",
            default_path,
        )
        .goes("Ready, make go, over"),
        after(
            "last-words-log",
            "a log that stands in for a message",
            "echo oh; exit 5",
        )
        .main(json!({"terminationMessagePath": "/opt/words", "terminationMessagePolicy": "FallbackToLogsOnError"}))
        .goes("Ready, make go, over"),
        Case::new("deadline", "a deadline passes while it runs", STAY)
            .goes("Ready, found listens")
            .then(patch(json!({"activeDeadlineSeconds": 1})))
            .goes("over"),
        Case::new("deadline-pending", "a deadline passes before it runs", STAY)
            .main(json!({"image": "localhost/none:1"}))
            .goes("main is waiting (ImagePullBackOff)")
            .then(patch(json!({"activeDeadlineSeconds": 1})))
            .goes("over"),
        Case::new("new-image", "another image for a container that runs", STAY)
            .spec(json!({"restartPolicy": "Always"}))
            .goes("Ready, found listens")
            .then(patch(other_image))
            .goes("main again 1"),
    ]
}
