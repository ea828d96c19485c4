//! How containers end, and whether they are started again.

use serde_json::json;

use super::super::case::container;
use super::super::{Case, Moment, Step};
use super::{STAY, WAIT_IN_TURN, wait};

pub(super) fn cases() -> Vec<Case> {
    let ends = |name, shows, code: u8| {
        Case::new(name, shows, &format!("{}; exit {code}", wait("go")))
            .until(Moment::True("Ready"))
            .touch("go")
    };
    let let_go = |name, shows, script: &str| {
        let case = Case::new(name, shows, script).until(Moment::True("Ready"));
        case.touch("go").until(Moment::Over)
    };
    let turns = |name, shows, then: &str| Case::new(name, shows, &format!("{WAIT_IN_TURN}; {then}"));
    vec![
        ends("never-0", "success, never restarted", 0).until(Moment::Over),
        ends("never-1", "failure, never restarted", 1).until(Moment::Over),
        ends("on-failure-0", "success, restarted on failure", 0)
            .spec(json!({"restartPolicy": "OnFailure"}))
            .until(Moment::Over),
        turns("on-failure-1-0", "failure, then success", "[ $n -ge 2 ] || exit 1")
            .spec(json!({"restartPolicy": "OnFailure"}))
            .until(Moment::True("Ready"))
            .touch("go1")
            .until(Moment::Again("main", 1))
            .touch("go2")
            .until(Moment::Over),
        turns("always-0", "success, always restarted", "exit 0")
            .spec(json!({"restartPolicy": "Always"}))
            .until(Moment::True("Ready"))
            .touch("go1")
            .until(Moment::Again("main", 1)),
        turns("crash-loop", "failures, restarted after a back-off", "exit 2")
            .spec(json!({"restartPolicy": "Always"}))
            .until(Moment::True("Ready"))
            .touch("go1")
            .until(Moment::Again("main", 1))
            .touch("go2")
            .until(Moment::Again("main", 2)),
        Case::new(
            "two-containers",
            "one fails, one succeeds",
            &format!("{}; exit 3", wait("go")),
        )
        .spec(json!({"containers": [{}, container("second", &format!("{}; exit 0", wait("end")))]}))
        .until(Moment::True("Ready"))
        .touch("go")
        .until(Moment::State("main", "ended 3 (Error)"))
        .touch("end")
        .until(Moment::Over),
        // A container's program is process 1 of its namespace, and the kernel shields that from its own signals, but not from
        // those by which it enforces a limit: whoever has used up the processor time it was allowed is killed.
        let_go(
            "signal",
            "ended by a signal",
            &format!("{}; ulimit -t 1; while :; do :; done", wait("go")),
        ),
        // Kubernetes makes one `$` of two.
        let_go(
            "signal-child",
            "passes on that a signal ended its child",
            &format!("sh -c '{}; kill -9 $$$$'; exit $?", wait("go")),
        ),
        Case::new(
            "last-words",
            "a termination message",
            &format!("{}; echo bye >/opt/words; exit 4", wait("go")),
        )
        .main(json!({"terminationMessagePath": "/opt/words"}))
        .until(Moment::True("Ready"))
        .touch("go")
        .until(Moment::Over),
        let_go(
            "last-words-default-path",
            "a termination message where it is by default",
            &format!("{}; echo bye >/dev/termination-log; exit 4", wait("go")),
        ),
        Case::new(
            "last-words-log",
            "a log that stands in for a message",
            &format!("{}; echo oh; exit 5", wait("go")),
        )
        .main(json!({"terminationMessagePath": "/opt/words", "terminationMessagePolicy": "FallbackToLogsOnError"}))
        .until(Moment::True("Ready"))
        .touch("go")
        .until(Moment::Over),
        Case::new("deadline", "a deadline passes while it runs", STAY)
            .until_it_listens()
            .then(Step::Patch(json!({"spec": {"activeDeadlineSeconds": 1}})))
            .until(Moment::Over),
        Case::new("deadline-pending", "a deadline passes before it runs", STAY)
            .main(json!({"image": "localhost/none:1"}))
            .until(Moment::State("main", "waiting (ImagePullBackOff)"))
            .then(Step::Patch(json!({"spec": {"activeDeadlineSeconds": 1}})))
            .until(Moment::Over),
        Case::new("new-image", "another image for a container that runs", STAY)
            .spec(json!({"restartPolicy": "Always"}))
            .until_it_listens()
            .then(Step::Patch(
                json!({"spec": {"containers": [{"name": "main", "image": super::super::OTHER_IMAGE}]}}),
            ))
            .until(Moment::Again("main", 1)),
    ]
}
