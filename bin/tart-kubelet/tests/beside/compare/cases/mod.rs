//! The Pods.

mod ends;
mod hooks;
mod inits;
mod leaves;
mod places;
mod probes;
mod starts;

use super::Case;

/// All of them.
pub(crate) fn all() -> Vec<Case> {
    [
        ends::cases(),
        starts::cases(),
        inits::cases(),
        probes::cases(),
        hooks::cases(),
        leaves::cases(),
        places::cases(),
    ]
    .concat()
}

/// Runs until it is told to end, and does that at once.
const STAY: &str = "trap 'exit 0' TERM; touch /opt/work/listens; while :; do sleep 0.2; done";

/// Waits for a file.
fn wait(file: &str) -> String {
    format!("until [ -e /opt/work/{file} ]; do sleep 0.2; done")
}

/// Waits for `go1` when it runs for the first time, for `go2` the second time, and so on; `$n` is which.
const WAIT_IN_TURN: &str = "n=$(($(cat /opt/work/runs 2>/dev/null || echo 0) + 1)); echo $n >/opt/work/runs; \
     trap 'exit 0' TERM; until [ -e /opt/work/go$n ]; do sleep 0.2; done";

pub(crate) mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use std::collections::BTreeSet;

    pub(crate) fn there_are_enough_and_each_is_a_pod_with_a_name_of_its_own() {
        let all = all();
        let names: BTreeSet<&str> = all.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), all.len());
        assert!(all.len() >= 40, "{}", all.len());
        for case in &all {
            let pod: Pod = serde_json::from_value(case.pod.clone()).unwrap();
            assert!(!pod.spec.unwrap().containers.is_empty(), "{}", case.name);
            assert!(
                matches!(case.steps.last(), Some(super::super::Step::Until(_))),
                "{} does not say when it is over",
                case.name
            );
        }
    }
}
