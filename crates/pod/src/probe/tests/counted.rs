//! What answers amount to.

use crate::facts::ContainerFacts;
use crate::probe::{Answer, Due, Kind, News, Probes};
use crate::testing::{at, pod_of};
use k8s_openapi::api::core::v1::Container;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::time::Duration;

const NOW: i64 = 1_000_000;

fn container(more: Value) -> Container {
    let mut container = json!({"name": "a"});
    let Value::Object(more) = more else { panic!("{more}") };
    for (key, value) in more {
        container[&key] = value;
        container[&key]["tcpSocket"] = json!({"port": 1});
    }
    pod_of(container).1
}

fn probes(more: Value) -> Probes {
    Probes::new(&container(more), at(NOW))
}

fn due(probes: &Probes) -> Option<(Kind, i64)> {
    probes.due().map(|due: Due<'_>| (due.kind, due.at.as_second() - NOW))
}

/// What follows from an answer at a second.
fn hear(probes: &mut Probes, kind: Kind, answer: &Answer, second: i64) -> Option<News> {
    probes.observe(kind, answer, at(NOW + second))
}

fn bad() -> Answer {
    Answer::Bad("no".to_owned())
}

#[test]
fn without_probes_a_container_is_ready_and_nobody_asks() {
    let probes = probes(json!({}));
    assert_eq!(
        (probes.started(), probes.ready(), probes.unhealthy(), due(&probes)),
        (true, true, None, None)
    );
}

#[test]
fn the_first_question_waits_for_the_delay_and_the_others_for_the_period() {
    let mut probes = probes(json!({"readinessProbe": {"initialDelaySeconds": 7, "periodSeconds": 5}}));
    assert_eq!(due(&probes), Some((Kind::Readiness, 7)));
    hear(&mut probes, Kind::Readiness, &Answer::Good, 8);
    assert_eq!(due(&probes), Some((Kind::Readiness, 13)));
}

#[test]
fn defaults_are_those_of_kubernetes() {
    let mut probes = probes(json!({"livenessProbe": {}}));
    assert_eq!(probes.due().unwrap().timeout, Duration::from_secs(1));
    for second in [0, 10] {
        assert_eq!(due(&probes), Some((Kind::Liveness, second)));
        assert_eq!(hear(&mut probes, Kind::Liveness, &bad(), second), None);
    }
    let found = hear(&mut probes, Kind::Liveness, &bad(), 20);
    assert_eq!(found, Some(News::Unhealthy(Kind::Liveness)));
    let found = due(&probes);
    assert_eq!(found, None, "it is being ended, and the next instance is asked anew");
}

#[test]
fn a_good_answer_between_bad_ones_begins_the_count_anew() {
    let mut probes = probes(json!({"livenessProbe": {"failureThreshold": 2}}));
    for answer in [bad(), Answer::Good, bad()] {
        assert_eq!(hear(&mut probes, Kind::Liveness, &answer, 0), None);
    }
    let found = hear(&mut probes, Kind::Liveness, &bad(), 0);
    assert_eq!(found, Some(News::Unhealthy(Kind::Liveness)));
}

#[test]
fn a_question_that_could_not_be_asked_counts_for_nothing() {
    let mut probes = probes(json!({"livenessProbe": {"failureThreshold": 1}}));
    let answer = Answer::Unknown("no way in".to_owned());
    assert_eq!(hear(&mut probes, Kind::Liveness, &answer, 0), None);
    assert_eq!(
        due(&probes),
        Some((Kind::Liveness, 10)),
        "but it is asked again only after the period"
    );
}

#[test]
fn nothing_else_is_asked_before_the_startup_probe_has_passed() {
    let mut probes = probes(json!({"startupProbe": {}, "livenessProbe": {}, "readinessProbe": {}}));
    assert_eq!(
        (due(&probes), probes.started(), probes.ready()),
        (Some((Kind::Startup, 0)), false, false)
    );
    assert_eq!(hear(&mut probes, Kind::Startup, &bad(), 0), None);
    assert_eq!(due(&probes), Some((Kind::Startup, 10)));
    let found = hear(&mut probes, Kind::Startup, &Answer::Good, 10);
    assert_eq!(found, Some(News::Started));
    let found = due(&probes);
    assert_eq!(found, Some((Kind::Liveness, 0)), "what was gated is asked at once");
    hear(&mut probes, Kind::Liveness, &Answer::Good, 10);
    assert_eq!(due(&probes), Some((Kind::Readiness, 0)));
    let found = hear(&mut probes, Kind::Readiness, &Answer::Good, 10);
    assert_eq!(found, Some(News::Ready));
    assert!(probes.ready());
}

#[test]
fn every_probe_has_its_own_time_whatever_the_clock_does() {
    let mut probes =
        probes(json!({"livenessProbe": {"periodSeconds": 5}, "readinessProbe": {"initialDelaySeconds": 9}}));
    let all = |probes: &Probes, now: i64| {
        let dues = probes.dues(at(NOW + now));
        dues.iter()
            .map(|due| (due.kind, due.at.as_second() - NOW))
            .collect::<Vec<_>>()
    };
    assert_eq!(all(&probes, 0), [(Kind::Liveness, 0), (Kind::Readiness, 9)]);
    hear(&mut probes, Kind::Liveness, &Answer::Good, 3600);
    assert_eq!(all(&probes, 3600)[0], (Kind::Liveness, 3605));
    let found = all(&probes, 10)[0];
    assert_eq!(found, (Kind::Liveness, 10), "the clock went back by an hour");
    hear(&mut probes, Kind::Liveness, &Answer::Good, 10);
    assert_eq!(all(&probes, 10)[0], (Kind::Liveness, 15));
}

#[test]
fn a_startup_probe_that_gives_up_ends_the_container_with_its_own_grace() {
    let mut probes = probes(json!({"startupProbe": {"failureThreshold": 1, "terminationGracePeriodSeconds": 3}}));
    let found = hear(&mut probes, Kind::Startup, &bad(), 0);
    assert_eq!(found, Some(News::Unhealthy(Kind::Startup)));
    let unhealthy = probes.unhealthy().unwrap();
    assert_eq!(
        (unhealthy.probe, unhealthy.grace),
        (Kind::Startup, Some(Duration::from_secs(3)))
    );
}

#[test]
fn readiness_comes_and_goes_by_its_thresholds() {
    let mut probes = probes(json!({"readinessProbe": {"successThreshold": 2, "failureThreshold": 2}}));
    let mut told = |answer: Answer| hear(&mut probes, Kind::Readiness, &answer, 0);
    assert_eq!([told(Answer::Good), told(Answer::Good)], [None, Some(News::Ready)]);
    assert_eq!(
        [told(bad()), told(bad()), told(bad())],
        [None, Some(News::NotReady), None]
    );
}

#[test]
fn a_container_that_is_being_ended_is_only_asked_whether_it_is_ready() {
    let mut probes = probes(json!({"livenessProbe": {"failureThreshold": 1}, "readinessProbe": {"periodSeconds": 60}}));
    probes.end();
    assert_eq!(due(&probes).unwrap().0, Kind::Readiness);
    assert_eq!(hear(&mut probes, Kind::Liveness, &bad(), 0), None);
    assert_eq!(probes.unhealthy(), None);
}

#[test]
fn what_an_earlier_agent_knew_stays_true() {
    let container = container(json!({"startupProbe": {}, "readinessProbe": {"failureThreshold": 1}}));
    let known = ContainerFacts {
        startup_passed: true,
        readiness_passed: true,
        ..ContainerFacts::default()
    };
    let mut probes = Probes::adopted(&container, at(NOW), &known);
    assert!(probes.ready());
    assert_eq!(hear(&mut probes, Kind::Readiness, &bad(), 0), Some(News::NotReady));
    let mut facts = known.clone();
    probes.report(&mut facts);
    assert_eq!((facts.startup_passed, facts.readiness_passed), (true, false));
}

#[test]
fn events_have_the_words_of_a_kubelet() {
    let answer = Answer::Bad("HTTP probe failed with statuscode: 500".to_owned());
    let words = "Liveness probe failed: HTTP probe failed with statuscode: 500";
    assert_eq!(answer.event(Kind::Liveness).as_deref(), Some(words));
    assert_eq!(Answer::Good.event(Kind::Liveness), None);
}

proptest! {
    #[test]
    fn a_probe_gives_up_exactly_when_its_last_answers_were_bad_often_enough(
        threshold in 1..5_u32,
        answers in prop::collection::vec(any::<bool>(), 0..40),
    ) {
        let mut probes = probes(json!({"livenessProbe": {"failureThreshold": threshold}}));
        let mut run = 0;
        for (second, good) in (0..).zip(answers) {
            run = if good { 0 } else { run + 1 };
            let news = probes.observe(Kind::Liveness, &if good { Answer::Good } else { bad() }, at(NOW + second));
            prop_assert_eq!(news.is_some(), run == threshold);
            if news.is_some() {
                return Ok(());
            }
        }
    }
}
