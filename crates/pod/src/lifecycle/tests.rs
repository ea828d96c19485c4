use super::*;
use crate::facts::{Exit, reasons};
use crate::probe;
use crate::testing::{at, pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

const NOW: i64 = 1_000_000;
const ROOM: Room = Room { free: 2 };

fn facts() -> PodFacts {
    PodFacts {
        prepared: true,
        started: Some(at(NOW)),
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
    facts.container_mut(name).exited(Exit::with_code(code, at(NOW)));
}

fn start(container: &str, attempt: u32) -> Action {
    let container = container.to_owned();
    Action::Start { container, attempt }
}

fn one() -> Pod {
    pod(json!({"containers": [{"name": "a"}]}))
}

fn deleted(mut pod: Pod, grace: i64) -> Pod {
    pod.metadata.deletion_timestamp = Some(Time(at(NOW + grace)));
    pod.metadata.deletion_grace_period_seconds = Some(grace);
    pod
}

/// What is done next, with room for two.
fn actions(pod: &Pod, facts: &PodFacts, now: i64) -> Vec<Action> {
    next(pod, facts, ROOM, at(now)).actions
}

/// The stop that a plan begins with.
#[track_caller]
fn first_stop(plan: &Plan) -> &Stop {
    match plan.actions.first() {
        Some(Action::Stop(stop)) => stop,
        _ => panic!("{plan:?}"),
    }
}

fn unhealthy(grace: Option<Duration>) -> Unhealthy {
    let probe = probe::Kind::Liveness;
    Unhealthy { probe, grace }
}

fn stopped(plan: &Plan) -> Vec<&str> {
    let stops = plan.actions.iter().filter_map(|action| match action {
        Action::Stop(stop) => Some(stop.container.as_str()),
        _ => None,
    });
    stops.collect()
}

fn two_inits() -> Pod {
    pod(json!({"initContainers": [{"name": "i"}, {"name": "j"}], "containers": [{"name": "a"}, {"name": "b"}]}))
}

fn with_sidecars(policy: &str) -> Pod {
    pod(
        json!({"restartPolicy": policy, "containers": [{"name": "a"}], "initContainers": [
            {"name": "s", "restartPolicy": "Always"}, {"name": "t", "restartPolicy": "Always"},
        ]}),
    )
}

#[test]
fn volumes_come_before_everything() {
    let plan = next(&two_inits(), &PodFacts::default(), ROOM, at(NOW));
    assert_eq!(plan.actions, [Action::Prepare]);
}

#[test]
fn init_containers_run_one_after_the_other_and_then_all_main_ones() {
    let (pod, mut facts) = (two_inits(), facts());
    assert_eq!(actions(&pod, &facts, NOW), [start("i", 0)]);
    running(&mut facts, "i");
    assert_eq!(actions(&pod, &facts, NOW), []);
    exited(&mut facts, "i", 0);
    assert_eq!(actions(&pod, &facts, NOW), [start("j", 0)]);
    exited(&mut facts, "j", 0);
    assert_eq!(actions(&pod, &facts, NOW), [start("a", 0), start("b", 0)]);
}

#[test]
fn an_init_container_that_failed_is_tried_again_unless_the_policy_is_never() {
    let mut facts = facts();
    exited(&mut facts, "i", 1);
    assert_eq!(actions(&two_inits(), &facts, NOW), [start("i", 1)]);
    let mut never = two_inits();
    never.spec.as_mut().unwrap().restart_policy = Some("Never".to_owned());
    assert_eq!(outcome(&never, &facts), Some(Outcome::Failed));
    assert_eq!(actions(&never, &facts, NOW), [Action::Finish]);
}

#[test]
fn what_comes_after_a_sidecar_waits_until_it_is_up() {
    let pod = pod(json!({"containers": [{"name": "a"}], "initContainers": [
        {"name": "s", "restartPolicy": "Always", "startupProbe": {"tcpSocket": {"port": 1}}},
    ]}));
    let mut facts = facts();
    running(&mut facts, "s");
    assert_eq!(actions(&pod, &facts, NOW), []);
    facts.container_mut("s").startup_passed = true;
    assert_eq!(actions(&pod, &facts, NOW), [start("a", 0)]);
}

#[test]
fn a_sidecar_that_went_down_comes_back_and_holds_nobody_up() {
    let (pod, mut facts) = (with_sidecars("Never"), facts());
    exited(&mut facts, "s", 0);
    running(&mut facts, "t");
    assert_eq!(actions(&pod, &facts, NOW), [start("s", 1), start("a", 0)]);
}

#[test]
fn there_is_never_a_start_without_room() {
    let pod = pod(json!({"containers": [{"name": "a"}, {"name": "b"}]}));
    let plan = next(&pod, &facts(), Room { free: 1 }, at(NOW));
    assert_eq!((plan.actions, plan.held), (vec![start("a", 0)], vec!["b".to_owned()]));
    let plan = next(&pod, &facts(), Room { free: 0 }, at(NOW));
    assert_eq!((plan.actions, plan.held.len()), (vec![], 2));
}

#[test]
fn stops_come_before_hooks_and_starts() {
    let hook = json!({"postStart": {"exec": {"command": ["x"]}}});
    let pod = pod(json!({"containers": [{"name": "a", "lifecycle": hook}, {"name": "b"}, {"name": "c"}]}));
    let mut facts = facts();
    running(&mut facts, "a");
    running(&mut facts, "b");
    facts.container_mut("b").unhealthy = Some(unhealthy(None));
    let plan = next(&pod, &facts, ROOM, at(NOW));
    assert!(
        matches!(
            &plan.actions[..],
            [Action::Stop(_), Action::PostStart { .. }, Action::Start { .. }]
        ),
        "{plan:?}"
    );
}

#[test]
fn a_restart_waits_for_its_back_off() {
    let (pod, mut facts) = (one(), facts());
    exited(&mut facts, "a", 1);
    assert_eq!(actions(&pod, &facts, NOW), [start("a", 1)], "the first one at once");
    exited(&mut facts, "a", 1);
    let plan = next(&pod, &facts, ROOM, at(NOW));
    assert_eq!((plan.actions, plan.wake), (vec![], Some(at(NOW + 10))));
    assert_eq!(actions(&pod, &facts, NOW + 10), [start("a", 2)]);
}

#[test]
fn a_start_that_failed_is_tried_again_when_it_says_so() {
    let (pod, mut facts) = (one(), facts());
    facts.container_mut("a").begun(at(NOW));
    let known = facts.container_mut("a");
    known.stuck(reasons::ERR_PULL, "denied", at(NOW + 10));
    let plan = next(&pod, &facts, ROOM, at(NOW + 9));
    assert_eq!((plan.actions, plan.wake), (vec![], Some(at(NOW + 10))));
    assert_eq!(actions(&pod, &facts, NOW + 10), [start("a", 0)]);
}

#[test]
fn a_pod_whose_containers_are_done_finishes_by_its_policy() {
    let of = |policy: &str| pod(json!({"restartPolicy": policy, "containers": [{"name": "a"}, {"name": "b"}]}));
    let mut facts = facts();
    exited(&mut facts, "a", 0);
    assert_eq!(outcome(&of("Never"), &facts), None, "the other has not run");
    exited(&mut facts, "b", 2);
    assert_eq!(outcome(&of("Never"), &facts), Some(Outcome::Failed));
    assert_eq!(outcome(&of("OnFailure"), &facts), None);
    assert_eq!(outcome(&of("Always"), &facts), None);
    exited(&mut facts, "b", 0);
    assert_eq!(outcome(&of("OnFailure"), &facts), Some(Outcome::Succeeded));
    assert_eq!(actions(&of("Never"), &facts, NOW), [Action::Finish]);
}

#[test]
fn sidecars_end_after_the_main_containers_and_the_last_one_first() {
    let (pod, mut facts) = (with_sidecars("Never"), facts());
    running(&mut facts, "s");
    running(&mut facts, "t");
    exited(&mut facts, "a", 0);
    let plan = next(&pod, &facts, ROOM, at(NOW));
    assert_eq!(stopped(&plan), ["t"]);
    exited(&mut facts, "t", 143);
    assert_eq!(stopped(&next(&pod, &facts, ROOM, at(NOW))), ["s"]);
    exited(&mut facts, "s", 143);
    assert_eq!(actions(&pod, &facts, NOW), [Action::Finish]);
}

#[test]
fn a_deleted_pod_stops_its_main_containers_first_within_their_grace() {
    let (pod, mut facts) = (deleted(with_sidecars("Always"), 20), facts());
    for name in ["s", "t", "a"] {
        running(&mut facts, name);
    }
    let plan = next(&pod, &facts, ROOM, at(NOW));
    let ending = plan.ending.clone().unwrap();
    assert_eq!((ending.why.clone(), ending.deadline), (Why::Deleted, at(NOW + 20)));
    assert_eq!((stopped(&plan), plan.wake), (vec!["a"], Some(at(NOW + 20))));
    facts.ending = Some(ending);
    facts.container_mut("a").told_to_stop(at(NOW + 20));
    let found = actions(&pod, &facts, NOW + 5);
    assert_eq!(found, [], "it was told once, and that is enough");
    let late = next(&pod, &facts, ROOM, at(NOW + 20));
    assert_eq!(stopped(&late), ["t", "s"], "late, nobody waits for anybody");
}

#[test]
fn less_patience_shortens_a_stop_that_is_under_way_and_runs_no_hook_twice() {
    let container = json!({"name": "a", "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}});
    let (pod, mut facts) = (pod(json!({"containers": [container]})), facts());
    running(&mut facts, "a");
    let first = next(&deleted(pod.clone(), 30), &facts, ROOM, at(NOW));
    let stop = first_stop(&first);
    assert!(stop.pre_stop.is_some());
    facts.ending = first.ending.clone();
    facts.container_mut("a").told_to_stop(stop.deadline);
    let second = next(&deleted(pod.clone(), 5), &facts, ROOM, at(NOW + 10));
    let stop = first_stop(&second);
    assert_eq!((stop.deadline, stop.pre_stop.is_some()), (at(NOW + 15), false));
    facts.ending = second.ending.clone();
    facts.container_mut("a").told_to_stop(stop.deadline);
    assert_eq!(actions(&deleted(pod, 5), &facts, NOW + 11), []);
}

#[test]
fn a_start_that_is_under_way_when_the_pod_is_deleted_is_called_off() {
    let (pod, mut facts) = (deleted(one(), 30), facts());
    facts.container_mut("a").begun(at(NOW));
    let plan = next(&pod, &facts, ROOM, at(NOW));
    let stop = first_stop(&plan);
    assert_eq!((stop.grace, stop.pre_stop.is_none()), (Duration::ZERO, true));
    facts.container_mut("a").abandoned();
    assert_eq!(actions(&pod, &facts, NOW), [Action::Finish]);
}

#[test]
fn a_pod_that_was_active_for_too_long_is_ended() {
    let (mut pod, mut facts) = (one(), facts());
    pod.spec.as_mut().unwrap().active_deadline_seconds = Some(60);
    running(&mut facts, "a");
    let plan = next(&pod, &facts, ROOM, at(NOW + 59));
    assert_eq!((plan.actions, plan.wake), (vec![], Some(at(NOW + 60))));
    let plan = next(&pod, &facts, ROOM, at(NOW + 60));
    assert_eq!(
        (plan.ending.clone().unwrap().why, stopped(&plan)),
        (Why::DeadlineExceeded, vec!["a"])
    );
}

/// A job of ten minutes that was done in time had a sidecar that took its grace to end. The deadline passed meanwhile, and each look
/// said that the next one was due at that moment: the agent did nothing else until the sidecar was gone.
#[test]
fn a_deadline_that_has_passed_wakes_nobody_while_a_pod_that_is_done_stops_its_sidecar() {
    let (mut pod, mut facts) = (with_sidecars("Never"), facts());
    pod.spec.as_mut().unwrap().active_deadline_seconds = Some(60);
    running(&mut facts, "s");
    running(&mut facts, "t");
    exited(&mut facts, "a", 0);
    let plan = next(&pod, &facts, ROOM, at(NOW + 59));
    assert_eq!((stopped(&plan), plan.wake), (vec!["t"], Some(at(NOW + 60))));
    facts.container_mut("t").told_to_stop(at(NOW + 89));
    for passed in [60, 61, 80] {
        let plan = next(&pod, &facts, ROOM, at(NOW + passed));
        assert_eq!((plan.ending, plan.actions, plan.wake), (None, vec![], None));
    }
}

/// An agent that was replaced while a container had its grace was followed by one that took the container for told, and told its
/// VM nothing: the Pod was Terminating for ever.
#[test]
fn a_container_that_was_told_to_end_has_what_is_left_of_its_grace_with_the_next_agent() {
    let (pod, mut facts) = (deleted(one(), 300), facts());
    running(&mut facts, "a");
    let left = |facts: &PodFacts, now| left_to_stop(&pod, facts, "a", at(now)).map(|left| left.as_secs());
    assert_eq!(left(&facts, NOW), None, "nobody told it");
    let plan = next(&pod, &facts, ROOM, at(NOW));
    let stop = first_stop(&plan);
    facts.ending = plan.ending.clone();
    facts.container_mut("a").told_to_stop(stop.deadline);
    assert_eq!(actions(&pod, &facts, NOW + 10), [], "it was begun");
    assert_eq!(left(&facts, NOW + 10), Some(290));
    assert_eq!(left(&facts, NOW + 301), Some(0));
    assert_eq!(left(&facts, NOW - 3600), Some(300), "the clock went back");
}

#[test]
fn what_is_left_of_a_stop_is_never_more_than_was_granted_for_it() {
    let (pod, mut facts) = (one(), facts());
    running(&mut facts, "a");
    let known = facts.container_mut("a");
    known.told_to_stop(at(NOW + 3600));
    let left = |facts: &PodFacts| left_to_stop(&pod, facts, "a", at(NOW)).map(|left| left.as_secs());
    assert_eq!(left(&facts), Some(30), "what the Pod says");
    facts.container_mut("a").unhealthy = Some(unhealthy(Some(Duration::from_mins(10))));
    assert_eq!(left(&facts), Some(600), "what its probe says");
    facts.ending = Some(Ending::new(Why::Deleted, Duration::ZERO, at(NOW)));
    let found = left(&facts);
    assert_eq!(found, Some(LEAST_GRACE.as_secs()), "as with the agent that told it");
}

#[test]
fn a_clock_that_went_back_gives_nobody_more_time() {
    let (pod, mut facts) = (deleted(one(), 30), facts());
    running(&mut facts, "a");
    facts.ending = Some(Ending::new(Why::Deleted, Duration::from_secs(30), at(NOW)));
    let plan = next(&pod, &facts, ROOM, at(NOW - 3600));
    assert_eq!(plan.ending.unwrap().deadline, at(NOW - 3570));
    let mut stuck = self::facts();
    let known = stuck.container_mut("a");
    known.stuck(reasons::ERR_PULL, "denied", at(NOW + 10));
    assert_eq!(actions(&one(), &stuck, NOW - 3600), [start("a", 0)]);
}

#[test]
fn the_first_cause_of_an_end_stays() {
    let (pod, mut facts) = (one(), facts());
    running(&mut facts, "a");
    facts.ending = Some(Ending::evicted("disk", Duration::from_secs(10), at(NOW)));
    let plan = next(&deleted(pod, 3), &facts, ROOM, at(NOW));
    let ending = plan.ending.unwrap();
    assert_eq!(
        (matches!(ending.why, Why::Evicted { .. }), ending.deadline),
        (true, at(NOW + 3))
    );
}

fn disk_is_full() -> Why {
    let message = "disk".to_owned();
    Why::Evicted { message }
}

/// A Pod that was deleted with six hours to end, and ignored TERM, was the first to go when the disk was full. It went on with its six
/// hours, and as one goes at a time, nobody else went either.
#[test]
fn a_pod_that_has_hours_to_end_loses_them_when_it_has_to_go() {
    let hours = 6 * 3600;
    let (pod, mut facts) = (deleted(one(), hours), facts());
    running(&mut facts, "a");
    let plan = next(&pod, &facts, ROOM, at(NOW));
    facts.ending = plan.ending;
    facts.container_mut("a").told_to_stop(at(NOW + hours));
    let now = at(NOW + 60);
    facts.ending = evicted(&pod, &facts, disk_is_full(), now);
    let ending = facts.ending.clone().unwrap();
    assert_eq!((ending.why, ending.since), (Why::Deleted, at(NOW)), "the cause stays");
    assert_eq!((ending.grace, ending.deadline), (evict::GRACE, at(NOW + 61)));
    let plan = next(&pod, &facts, ROOM, now);
    let stop = first_stop(&plan);
    assert_eq!((stop.grace, stop.deadline), (LEAST_GRACE, at(NOW + 62)));
    facts.container_mut("a").told_to_stop(stop.deadline);
    let found = evicted(&pod, &facts, disk_is_full(), at(NOW + 61));
    assert_eq!(found, None, "it is no news");
    assert_eq!(actions(&pod, &facts, NOW + 61), []);
}

#[test]
fn a_pod_that_is_done_loses_the_hours_of_its_sidecar_and_not_what_it_did() {
    let mut pod = with_sidecars("Never");
    pod.spec.as_mut().unwrap().termination_grace_period_seconds = Some(6 * 3600);
    let mut facts = facts();
    for name in ["s", "t"] {
        running(&mut facts, name);
    }
    let found = evicted(&pod, &facts, disk_is_full(), at(NOW)).unwrap().why;
    assert_eq!(found, disk_is_full());
    exited(&mut facts, "a", 0);
    assert_eq!(stopped(&next(&pod, &facts, ROOM, at(NOW))), ["t"]);
    facts.container_mut("t").told_to_stop(at(NOW + 6 * 3600));
    facts.ending = evicted(&pod, &facts, disk_is_full(), at(NOW));
    assert_eq!(facts.ending.as_ref().unwrap().why, Why::Deleted);
    assert_eq!(stopped(&next(&pod, &facts, ROOM, at(NOW))), ["t"], "sooner");
    facts.ending = None;
    for name in ["s", "t"] {
        exited(&mut facts, name, 143);
    }
    let found = evicted(&pod, &facts, disk_is_full(), at(NOW));
    assert_eq!(found, None, "nothing is left to end");
}

#[test]
fn an_unhealthy_container_is_ended_with_the_grace_of_its_probe() {
    let (pod, mut facts) = (one(), facts());
    running(&mut facts, "a");
    facts.container_mut("a").unhealthy = Some(unhealthy(Some(Duration::from_secs(7))));
    let plan = next(&pod, &facts, ROOM, at(NOW));
    let stop = first_stop(&plan);
    assert_eq!(stop.grace, Duration::from_secs(7));
    assert_eq!(stop.message(), "Container a failed liveness probe, will be restarted");
}

#[test]
fn the_hook_after_a_start_runs_once_and_its_failure_ends_the_container() {
    let hook: Value = json!({"postStart": {"exec": {"command": ["x"]}}});
    let (pod, mut facts) = (pod(json!({"containers": [{"name": "a", "lifecycle": hook}]})), facts());
    running(&mut facts, "a");
    assert!(matches!(actions(&pod, &facts, NOW)[..], [Action::PostStart { .. }]));
    facts.container_mut("a").post_start = Hook::Running;
    assert_eq!(actions(&pod, &facts, NOW), []);
    let container = &pod.spec.as_ref().unwrap().containers[0];
    assert!(!is_started(container, facts.container("a")));
    facts.container_mut("a").post_start = Hook::Failed("no".to_owned());
    let plan = next(&pod, &facts, ROOM, at(NOW));
    let stop = first_stop(&plan);
    assert_eq!(stop.message(), "FailedPostStartHook");
}

#[test]
fn a_hook_that_took_too_long_leaves_the_container_two_seconds() {
    assert_eq!(after_hook(Duration::from_secs(20)), Duration::from_secs(20));
    assert_eq!(after_hook(Duration::ZERO), LEAST_GRACE);
}

/// As a kubelet does: whatever the policy says, at once, and with the grace that the container has.
#[test]
fn a_container_whose_image_was_changed_is_started_again_with_the_new_one() {
    let with = |image: &str| pod(json!({"restartPolicy": "Never", "containers": [{"name": "a", "image": image}]}));
    let mut facts = facts();
    running(&mut facts, "a");
    let plan = next(&with("mac:2"), &facts, ROOM, at(NOW));
    assert_eq!(stopped(&plan), [""; 0], "of what it runs nothing is known");
    facts.container_mut("a").image = Some("mac:1".to_owned());
    assert_eq!(stopped(&next(&with("mac:1"), &facts, ROOM, at(NOW))), [""; 0]);
    let plan = next(&with("mac:2"), &facts, ROOM, at(NOW));
    assert_eq!(plan.actions.len(), 1, "{plan:?}");
    let stop = first_stop(&plan);
    assert_eq!(stop.message(), "Container a definition changed, will be restarted");
    assert_eq!(stop.grace, Duration::from_secs(30));
    let known = facts.container_mut("a");
    known.told_to_stop(stop.deadline);
    known.replaced = true;
    known.exited(Exit::with_code(0, at(NOW + 1)));
    assert_eq!(outcome(&with("mac:2"), &facts), None, "its end was none of its own");
    assert_eq!(actions(&with("mac:2"), &facts, NOW + 1), [start("a", 1)]);
    facts.container_mut("a").begun(at(NOW + 1));
    facts.container_mut("a").exited(Exit::with_code(0, at(NOW + 2)));
    assert_eq!(outcome(&with("mac:2"), &facts), Some(Outcome::Succeeded));
}

/// A typo in the name of an image, put right: nobody waits for the next try of a pull that was never meant.
#[test]
fn a_container_that_is_stuck_with_another_image_is_started_at_once() {
    let with = |image: &str| pod(json!({"containers": [{"name": "a", "image": image}]}));
    let mut facts = facts();
    let known = facts.container_mut("a");
    known.begun(at(NOW));
    known.image = Some("mac:typo".to_owned());
    known.stuck(reasons::ERR_PULL, "no such image", at(NOW + 100));
    assert_eq!(next(&with("mac:typo"), &facts, ROOM, at(NOW)).wake, Some(at(NOW + 100)));
    assert_eq!(actions(&with("mac:1"), &facts, NOW), [start("a", 0)]);
}

#[test]
fn a_deadline_that_is_changed_counts_from_the_start_of_the_pod() {
    let with = |seconds: i64| pod(json!({"activeDeadlineSeconds": seconds, "containers": [{"name": "a"}]}));
    let mut facts = facts();
    running(&mut facts, "a");
    let plan = next(&with(100), &facts, ROOM, at(NOW + 50));
    assert_eq!((plan.ending, plan.wake), (None, Some(at(NOW + 100))));
    let plan = next(&with(20), &facts, ROOM, at(NOW + 50));
    assert_eq!(plan.ending.map(|ending| ending.why), Some(Why::DeadlineExceeded));
}
