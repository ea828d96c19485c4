use super::*;
use crate::facts::{Ending, Exit, reasons};
use crate::testing::{at, pod};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use std::time::Duration;

const NOW: i64 = 1_000_000;

fn facts() -> PodFacts {
    PodFacts {
        prepared: true,
        started: Some(at(NOW)),
        host_ips: vec!["10.0.0.1".parse().unwrap()],
        ..PodFacts::default()
    }
}

fn running(facts: &mut PodFacts, name: &str) {
    let known = facts.container_mut(name);
    known.begun(at(NOW));
    known.running(format!("tart://{name}"), at(NOW));
}

fn exited(facts: &mut PodFacts, name: &str, code: i32) {
    running(facts, name);
    facts.container_mut(name).exited(Exit::with_code(code, at(NOW + 1)));
}

/// Each try of a container that could not start was told as `ContainerCreating` for a moment, two writes every few seconds.
#[test]
fn why_a_container_did_not_start_is_told_until_another_try_has_come_further() {
    let pod = pod(json!({"containers": [{"name": "a"}]}));
    let mut facts = facts();
    facts.container_mut("a").begun(at(NOW));
    assert_eq!(waiting(&status(&pod, &facts, at(NOW)), "a").0, reasons::CREATING);
    facts.container_mut("a").stuck(reasons::CONFIG, "no map", at(NOW + 5));
    facts.container_mut("a").begun(at(NOW + 5));
    let told = status(&pod, &facts, at(NOW + 5));
    assert_eq!(waiting(&told, "a"), (reasons::CONFIG, "no map"));
    facts.container_mut("a").before = None;
    assert_eq!(waiting(&status(&pod, &facts, at(NOW + 6)), "a").0, reasons::CREATING);
}

/// It ended well when it was told to, and what comes after it was said to be lost although it never had its turn.
#[test]
fn what_comes_after_an_init_container_that_was_told_to_end_never_had_its_turn() {
    let pod = pod(json!({"initContainers": [{"name": "i"}], "containers": [{"name": "a"}]}));
    let mut facts = facts();
    running(&mut facts, "i");
    facts.ending = Some(ending(Why::Deleted, 30));
    facts.container_mut("i").exited(Exit::with_code(0, at(NOW + 1)));
    let told = status(&pod, &facts, at(NOW + 1));
    assert_eq!(phase(&told), "Failed");
    assert_eq!(waiting(&told, "a").0, reasons::INITIALIZING);
}

fn first(status: &PodStatus) -> &ContainerStatus {
    &status.container_statuses.as_ref().unwrap()[0]
}

/// How the first container ended the time before.
fn code_before(status: &PodStatus) -> i32 {
    let before = first(status).last_state.as_ref().unwrap();
    before.terminated.as_ref().unwrap().exit_code
}

/// Whether a Pod has a condition of a kind.
fn has(status: &PodStatus, kind: &str) -> bool {
    status
        .conditions
        .iter()
        .flatten()
        .any(|condition| condition.type_ == kind)
}

/// The code and the reason of an end.
fn ended<'a>(status: &'a PodStatus, name: &str) -> (i32, &'a str) {
    let terminated = state(status, name).terminated.as_ref().expect("an end");
    (terminated.exit_code, terminated.reason.as_deref().unwrap_or_default())
}

fn stuck(facts: &mut PodFacts, reason: &'static str, message: &str, until: i64) {
    facts.container_mut("a").stuck(reason, message, at(until));
}

fn ending(why: Why, grace: u64) -> Ending {
    Ending::new(why, Duration::from_secs(grace), at(NOW))
}

fn phase(status: &PodStatus) -> &str {
    status.phase.as_deref().unwrap_or_default()
}

fn condition<'a>(status: &'a PodStatus, kind: &str) -> &'a PodCondition {
    let mut all = status.conditions.iter().flatten();
    all.find(|condition| condition.type_ == kind)
        .unwrap_or_else(|| panic!("no {kind}"))
}

/// Status, reason and message of a condition.
fn told<'a>(status: &'a PodStatus, kind: &str) -> (&'a str, &'a str, &'a str) {
    let condition = condition(status, kind);
    let text = |text: &'a Option<String>| text.as_deref().unwrap_or_default();
    (&condition.status, text(&condition.reason), text(&condition.message))
}

fn state<'a>(status: &'a PodStatus, name: &str) -> &'a ContainerState {
    let all = [&status.init_container_statuses, &status.container_statuses];
    let found = all.into_iter().flatten().flatten().find(|status| status.name == name);
    found.and_then(|status| status.state.as_ref()).expect("a state")
}

fn waiting<'a>(status: &'a PodStatus, name: &str) -> (&'a str, &'a str) {
    let waiting = state(status, name).waiting.as_ref().expect("it waits");
    let text = |text: &'a Option<String>| text.as_deref().unwrap_or_default();
    (text(&waiting.reason), text(&waiting.message))
}

fn one() -> Pod {
    pod(json!({"containers": [{"name": "a"}]}))
}

fn with_policy(policy: &str) -> Pod {
    pod(json!({"restartPolicy": policy, "containers": [{"name": "a"}]}))
}

#[test]
fn a_pod_goes_the_way_a_stock_kubelet_writes_it() {
    let (mut pod, mut facts) = (one(), facts());
    facts.prepared = false;
    let first = status(&pod, &facts, at(NOW));
    assert_eq!((phase(&first), waiting(&first, "a").0), ("Pending", reasons::CREATING));
    let conditions = first.conditions.iter().flatten();
    let kinds: Vec<_> = conditions.map(|condition| condition.type_.as_str()).collect();
    let expected = "PodReadyToStartContainers Initialized Ready ContainersReady PodScheduled";
    assert_eq!(kinds.join(" "), expected);
    assert_eq!(told(&first, "PodReadyToStartContainers").0, "False");
    assert_eq!(told(&first, "Initialized").0, "True");
    let unready = ("False", "ContainersNotReady", "containers with unready status: [a]");
    assert_eq!(told(&first, "Ready"), unready);
    assert_eq!(told(&first, "ContainersReady"), unready);
    assert_eq!(first.host_ip.as_deref(), Some("10.0.0.1"));
    assert_eq!(first.observed_generation, Some(1));
    assert_eq!(first.start_time, Some(Time(at(NOW))));

    pod.status = Some(first);
    facts.prepared = true;
    facts.pod_ips = vec!["192.168.64.2".parse().unwrap()];
    running(&mut facts, "a");
    let second = status(&pod, &facts, at(NOW + 30));
    assert_eq!(phase(&second), "Running");
    assert_eq!(second.pod_ip.as_deref(), Some("192.168.64.2"));
    for kind in ["Ready", "PodReadyToStartContainers"] {
        assert_eq!(told(&second, kind).0, "True", "{kind}");
    }
    let since = |kind: &str| condition(&second, kind).last_transition_time.clone();
    assert_eq!(since("Ready"), Some(Time(at(NOW + 30))));
    assert_eq!(since("PodScheduled"), Some(Time(at(NOW))), "unchanged, so is its time");
    let container = self::first(&second);
    assert_eq!((container.ready, container.started), (true, Some(true)));
    assert_eq!(container.container_id.as_deref(), Some("tart://a"));
}

#[test]
fn a_pod_that_is_done_is_complete_and_no_longer_ready() {
    let (pod, mut facts) = (with_policy("Never"), facts());
    exited(&mut facts, "a", 0);
    let done = status(&pod, &facts, at(NOW + 1));
    assert_eq!(phase(&done), "Succeeded");
    assert_eq!(told(&done, "Initialized"), ("True", "PodCompleted", ""));
    assert_eq!(told(&done, "Ready"), ("False", "PodCompleted", ""));
    assert_eq!(told(&done, "PodReadyToStartContainers").0, "False");
    let terminated = state(&done, "a").terminated.as_ref().unwrap();
    assert_eq!(ended(&done, "a"), (0, "Completed"));
    assert_eq!(terminated.started_at, Some(Time(at(NOW))));
    assert_eq!(terminated.finished_at, Some(Time(at(NOW + 1))));
    exited(&mut facts, "a", 7);
    let failed = status(&pod, &facts, at(NOW + 1));
    assert_eq!((phase(&failed), told(&failed, "Ready").1), ("Failed", "PodFailed"));
    assert_eq!(ended(&failed, "a").1, "Error");
}

#[test]
fn a_container_that_waits_for_its_restart_says_so_and_the_pod_runs() {
    let (pod, mut facts) = (one(), facts());
    exited(&mut facts, "a", 1);
    let first = status(&pod, &facts, at(NOW + 1));
    let over = state(&first, "a").terminated.is_some();
    assert!(over, "the first restart does not wait");
    assert_eq!(phase(&first), "Running");
    exited(&mut facts, "a", 1);
    let second = status(&pod, &facts, at(NOW + 2));
    let message = "back-off 10s restarting failed container=a pod=job_ci(0b5d7f3c)";
    assert_eq!(phase(&second), "Running");
    assert_eq!(waiting(&second, "a"), (reasons::CRASH_LOOP, message));
    assert_eq!(self::first(&second).restart_count, 1);
    assert_eq!(code_before(&second), 1);
}

#[test]
fn a_restart_that_is_under_way_shows_the_end_before_it() {
    let (pod, mut facts) = (one(), facts());
    exited(&mut facts, "a", 1);
    facts.container_mut("a").begun(at(NOW + 2));
    let now = status(&pod, &facts, at(NOW + 2));
    assert_eq!((phase(&now), waiting(&now, "a").0), ("Running", reasons::CREATING));
    assert_eq!(code_before(&now), 1);
}

#[test]
fn what_a_container_waits_for_is_said_in_words() {
    let (pod, mut facts) = (one(), facts());
    facts.container_mut("a").note = Some("waiting for a free VM; two run".to_owned());
    let now = status(&pod, &facts, at(NOW));
    let found = waiting(&now, "a");
    assert_eq!(found, (reasons::CREATING, "waiting for a free VM; two run"));
    stuck(&mut facts, reasons::PULL_BACK_OFF, "Back-off pulling image", NOW + 10);
    let now = status(&pod, &facts, at(NOW));
    assert_eq!(waiting(&now, "a"), (reasons::PULL_BACK_OFF, "Back-off pulling image"));
}

#[test]
fn a_failed_pull_is_told_as_what_happened_and_then_as_what_is_waited_for() {
    let (mut pod, mut facts) = (one(), facts());
    let mut told = |facts: &PodFacts| {
        let now = status(&pod, facts, at(NOW));
        let (reason, message) = waiting(&now, "a");
        let told = format!("{reason}: {message}");
        pod.status = Some(now);
        told
    };
    stuck(&mut facts, reasons::ERR_PULL, "denied", NOW + 10);
    assert_eq!(told(&facts), "ErrImagePull: denied");
    let back_off = "ImagePullBackOff: Back-off pulling image \"registry.test/mac:1\": ErrImagePull: denied";
    assert_eq!([told(&facts), told(&facts)], [back_off; 2]);
    facts.container_mut("a").begun(at(NOW + 10));
    // Until the next try has come further, it is told why the one before did not.
    assert!(told(&facts).starts_with("ImagePullBackOff: "));
    stuck(&mut facts, reasons::ERR_PULL, "denied", NOW + 30);
    let same = told(&facts);
    assert!(
        same.starts_with("ImagePullBackOff: "),
        "the same once more is no news: {same}"
    );
    facts.container_mut("a").begun(at(NOW + 30));
    stuck(&mut facts, reasons::ERR_PULL, "not found", NOW + 70);
    assert_eq!(told(&facts), "ErrImagePull: not found");
}

#[test]
fn init_containers_are_told_until_they_are_done() {
    let inits = json!([{"name": "i"}, {"name": "j"}]);
    let pod = pod(json!({"restartPolicy": "Never", "initContainers": inits, "containers": [{"name": "a"}]}));
    let mut facts = facts();
    running(&mut facts, "i");
    let first = status(&pod, &facts, at(NOW));
    assert_eq!(phase(&first), "Pending");
    assert_eq!(waiting(&first, "a").0, reasons::INITIALIZING);
    let message = "containers with incomplete status: [i j]";
    let found = told(&first, "Initialized");
    assert_eq!(found, ("False", "ContainersNotInitialized", message));
    exited(&mut facts, "i", 0);
    exited(&mut facts, "j", 0);
    running(&mut facts, "a");
    assert_eq!(told(&status(&pod, &facts, at(NOW)), "Initialized").0, "True");
    let mut failed = self::facts();
    exited(&mut failed, "i", 3);
    assert_eq!(phase(&status(&pod, &failed, at(NOW))), "Failed");
}

#[test]
fn a_sidecar_counts_for_readiness_and_its_end_for_nothing() {
    let pod = pod(json!({"restartPolicy": "Never", "containers": [{"name": "a"}],
        "initContainers": [{"name": "s", "restartPolicy": "Always"}]}));
    let mut facts = facts();
    running(&mut facts, "s");
    running(&mut facts, "a");
    assert_eq!(told(&status(&pod, &facts, at(NOW)), "Ready").0, "True");
    exited(&mut facts, "a", 0);
    let now = status(&pod, &facts, at(NOW));
    assert_eq!(phase(&now), "Running", "the sidecar still runs");
    exited(&mut facts, "s", 143);
    assert_eq!(phase(&status(&pod, &facts, at(NOW))), "Succeeded");
}

#[test]
fn probes_decide_about_started_and_ready() {
    let probe = json!({"tcpSocket": {"port": 1}});
    let pod = pod(json!({"containers": [{"name": "a", "startupProbe": probe, "readinessProbe": probe}]}));
    let mut facts = facts();
    running(&mut facts, "a");
    let of = |facts: &PodFacts| {
        let status = status(&pod, facts, at(NOW));
        (first(&status).started, first(&status).ready)
    };
    assert_eq!(of(&facts), (Some(false), false));
    facts.container_mut("a").startup_passed = true;
    assert_eq!(of(&facts), (Some(true), false));
    facts.container_mut("a").readiness_passed = true;
    assert_eq!(of(&facts), (Some(true), true));
}

#[test]
fn readiness_gates_of_others_hold_a_pod_back() {
    let mut pod = pod(json!({"containers": [{"name": "a"}], "readinessGates": [{"conditionType": "lb"}]}));
    let mut facts = facts();
    running(&mut facts, "a");
    let closed = status(&pod, &facts, at(NOW));
    let message = "corresponding condition of pod readiness gate \"lb\" does not exist.";
    assert_eq!(told(&closed, "Ready"), ("False", "ReadinessGatesNotReady", message));
    pod.status = serde_json::from_value(json!({"conditions": [{"type": "lb", "status": "False"}]})).unwrap();
    let message = "the status of pod readiness gate \"lb\" is not \"True\", but False";
    assert_eq!(told(&status(&pod, &facts, at(NOW)), "Ready").2, message);
    pod.status = serde_json::from_value(json!({"conditions": [{"type": "lb", "status": "True"}]})).unwrap();
    let open = status(&pod, &facts, at(NOW));
    assert_eq!((told(&open, "Ready").0, told(&open, "lb").0), ("True", "True"));
}

#[test]
fn a_pod_is_failed_only_when_nothing_of_it_runs_any_more() {
    let (pod, mut facts) = (one(), facts());
    running(&mut facts, "a");
    let why = "The node was low on resource: ephemeral-storage. ";
    facts.ending = Some(Ending::evicted(why, Duration::from_secs(1), at(NOW)));
    let first = status(&pod, &facts, at(NOW));
    assert_eq!((phase(&first), first.reason.as_deref()), ("Running", None));
    assert_eq!(told(&first, "DisruptionTarget").1, "TerminationByKubelet");
    facts.container_mut("a").exited(Exit::with_code(0, at(NOW + 1)));
    let second = status(&pod, &facts, at(NOW + 1));
    assert_eq!((phase(&second), second.reason.as_deref()), ("Failed", Some("Evicted")));
    assert!(second.message.unwrap().starts_with("The node was low on resource"));
}

/// A Job that forgives disruptions would have run a Pod that fills its volume again and again.
#[test]
fn a_pod_that_used_more_than_it_may_is_evicted_and_was_not_disrupted() {
    let (pod, mut facts) = (one(), facts());
    running(&mut facts, "a");
    let message = "Usage of EmptyDir volume \"work\" exceeds the limit \"1Mi\". ".to_owned();
    facts.ending = Some(ending(Why::Exceeded { message }, 1));
    facts.container_mut("a").exited(Exit::with_code(0, at(NOW + 1)));
    let told = status(&pod, &facts, at(NOW + 1));
    assert_eq!((phase(&told), told.reason.as_deref()), ("Failed", Some("Evicted")));
    assert!(!has(&told, "DisruptionTarget"), "{:?}", told.conditions);
}

#[test]
fn every_end_from_outside_has_its_reason() {
    let reason = |why: Why| {
        let mut facts = facts();
        facts.ending = Some(ending(why, 0));
        let told = status(&one(), &facts, at(NOW));
        let words = [&told.reason, &told.message].map(|text| text.clone().unwrap_or_default());
        format!("{}|{}", phase(&told), words.join("|"))
    };
    let message = "Pod was active on the node longer than the specified deadline";
    let found = reason(Why::DeadlineExceeded);
    assert_eq!(found, format!("Failed|DeadlineExceeded|{message}"));
    let evicted = reason(Why::Evicted { message: "m".into() });
    assert_eq!(evicted.split('|').nth(1), Some("Evicted"));
    assert_eq!(reason(Why::Deleted), "Failed||");
}

#[test]
fn a_deleted_pod_ends_as_its_containers_did() {
    let (pod, mut facts) = (one(), facts());
    running(&mut facts, "a");
    facts.ending = Some(ending(Why::Deleted, 30));
    let now = status(&pod, &facts, at(NOW));
    assert_eq!(told(&now, "Ready").0, "True", "it is ready until it is not");
    facts.container_mut("a").exited(Exit::with_code(0, at(NOW)));
    assert_eq!(phase(&status(&pod, &facts, at(NOW))), "Succeeded");
    exited(&mut facts, "a", 143);
    assert_eq!(phase(&status(&pod, &facts, at(NOW))), "Failed");
}

#[test]
fn a_container_that_was_called_off_ends_as_unknown_beside_one_that_ran() {
    let pod = pod(json!({"containers": [{"name": "a"}, {"name": "b"}]}));
    let mut facts = facts();
    exited(&mut facts, "a", 0);
    facts.ending = Some(ending(Why::Deleted, 0));
    let last = status(&pod, &facts, at(NOW));
    assert_eq!(ended(&last, "b"), (137, "ContainerStatusUnknown"));
    assert_eq!(phase(&last), "Failed");
}

#[test]
fn a_pod_that_was_ended_before_its_first_container_ran_says_so() {
    let mut facts = facts();
    facts.ending = Some(ending(Why::Deleted, 0));
    let last = status(&one(), &facts, at(NOW));
    assert_eq!((phase(&last), ended(&last, "a").0), ("Failed", 137));
    let pod = pod(json!({"initContainers": [{"name": "i"}, {"name": "j"}], "containers": [{"name": "a"}]}));
    let last = status(&pod, &facts, at(NOW));
    assert!(state(&last, "i").terminated.is_some(), "its turn had come");
    for name in ["j", "a"] {
        assert_eq!(waiting(&last, name).0, reasons::INITIALIZING, "{name}");
    }
}

#[test]
fn a_vm_that_runs_keeps_its_size_and_says_so() {
    let of = |cpu: &str| pod(json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": cpu}}}]}));
    let mut facts = facts();
    running(&mut facts, "a");
    let mut pod = of("2");
    let first = status(&pod, &facts, at(NOW));
    let given = |status: &PodStatus| {
        self::first(status).allocated_resources.clone().unwrap()["cpu"]
            .0
            .clone()
    };
    pod = of("4");
    pod.status = Some(first);
    let second = status(&pod, &facts, at(NOW));
    assert_eq!(given(&second), "2");
    assert_eq!(told(&second, "PodResizePending").1, "Infeasible");
    pod.status = Some(second);
    exited(&mut facts, "a", 1);
    facts.container_mut("a").begun(at(NOW));
    let third = status(&pod, &facts, at(NOW));
    assert_eq!(given(&third), "4", "the next VM has the new size");
    assert!(!has(&third, "PodResizePending"));
}

#[test]
fn a_pod_of_which_nothing_is_known_any_more_does_not_go_back() {
    let mut pod = one();
    pod.status = serde_json::from_value(json!({"phase": "Running"})).unwrap();
    assert_eq!(phase(&status(&pod, &facts(), at(NOW))), "Running");
}

#[test]
fn what_was_published_as_over_stays_so() {
    let (mut pod, mut facts) = (one(), facts());
    pod.status = serde_json::from_value(json!({"phase": "Failed", "reason": "Evicted", "message": "m"})).unwrap();
    running(&mut facts, "a");
    let status = status(&pod, &facts, at(NOW));
    assert_eq!(phase(&status), "Failed");
    assert_eq!(status.reason.as_deref(), Some("Evicted"));
    assert_eq!(status.message.as_deref(), Some("m"));
}

#[test]
fn a_container_that_was_added_to_look_inside_is_told_why_it_does_not_come() {
    let pod = pod(json!({"containers": [{"name": "a"}], "ephemeralContainers": [{"name": "debug", "image": "x"}]}));
    let status = status(&pod, &facts(), at(NOW));
    let added = &status.ephemeral_container_statuses.unwrap()[0];
    let waiting = added.state.as_ref().and_then(|state| state.waiting.as_ref()).unwrap();
    assert!(waiting.message.as_deref().unwrap().contains("kubectl exec"));
}
