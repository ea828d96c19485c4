//! Hooks after a start and before a stop.

use serde_json::json;

use super::super::Case;
use super::STAY;

pub(super) fn cases() -> Vec<Case> {
    let sh = |script: &str| json!({"exec": {"command": ["/bin/sh", "-c", script]}});
    let wait = |file: &str| super::wait(file);
    let up_and_stay = "trap 'exit 0' TERM; touch /opt/work/up; while :; do sleep 0.2; done";
    let fails_once = "[ -e /opt/work/second ] || { touch /opt/work/second; exit 1; }";
    vec![
        Case::new("post-start", "a hook after the start", STAY)
            .main(json!({"lifecycle": {"postStart": sh("echo hello >/opt/work/hello")}}))
            .goes("Ready"),
        Case::new("post-start-fails", "a hook after the start fails", up_and_stay)
            .spec(json!({"restartPolicy": "Always", "terminationGracePeriodSeconds": 2}))
            .main(json!({"lifecycle": {"postStart": sh(&format!("{}; {fails_once}", wait("up")))}}))
            .goes("main again 1, Ready"),
        Case::new("pre-stop", "a hook before the stop takes its time", STAY)
            .main(json!({"lifecycle": {"preStop": sh(&wait("go"))}}))
            .goes("Ready, found listens, delete, make go, gone"),
        Case::new("pre-stop-hangs", "a hook before the stop never ends", STAY)
            .main(json!({"lifecycle": {"preStop": sh(&wait("never"))}}))
            .goes("Ready, found listens, delete within 2, gone"),
        Case::new("pre-stop-fails", "a hook before the stop fails", STAY)
            .main(json!({"lifecycle": {"preStop": sh("exit 1")}}))
            .goes("Ready, found listens, delete, gone"),
    ]
}
