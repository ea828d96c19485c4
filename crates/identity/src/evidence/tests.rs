//! The bound on revocation, over random histories.

use proptest::prelude::*;

use super::*;

fn rules(backing: Backing, introspect_signed: bool) -> Rules {
    Rules {
        memory: Memory::default(),
        backing,
        introspect_signed,
    }
}

fn at(start: Instant, millis: u64) -> Moment {
    Moment {
        instant: start + Duration::from_millis(millis),
        unix_seconds: 1_000_000 + millis / 1000,
    }
}

fn holds(scope: &Scope<'static>) -> Answer {
    Answer::Holds {
        grants: Grants::of([(scope.clone(), Access::Write)]),
        expires: None,
    }
}

#[derive(Clone, Debug)]
enum Event {
    Wait(u64),
    Answer { route: Route, took: u64, holds: bool },
    Silence,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let route = prop_oneof![Just(Route::Introspect), Just(Route::Access)];
    let event = prop_oneof![
        (0_u64..40_000).prop_map(Event::Wait),
        (route, 0_u64..9000, prop::bool::weighted(0.7)).prop_map(|(route, took, holds)| Event::Answer {
            route,
            took,
            holds
        }),
        Just(Event::Silence),
    ];
    prop::collection::vec(event, 1..40)
}

proptest! {
    /// Whatever happens, an allow means that the control plane vouched for the token in answer to a question sent less
    /// than 60 s ago, and has not refused it since.
    #[test]
    fn an_allow_is_never_older_than_the_bound(events in events(), both: bool) {
        let rules = rules(if both { Backing::Both } else { Backing::AccessOnly }, false);
        let scope = Scope::parse("acme", "app").unwrap();
        let start = Instant::now();
        let mut now = 0;
        let mut entry = Entry::new(Signed::Unknown { until: None }, at(start, 0), 0);
        let mut vouched: Option<u64> = None;
        for event in events {
            match event {
                Event::Wait(millis) => now += millis,
                Event::Silence => entry.learn_silence(at(start, now).instant, &rules),
                Event::Answer { route, took, holds: positive } => {
                    let asked = now;
                    now += took;
                    let answer = if positive { holds(&scope) } else { Answer::Rejected };
                    entry.learn(route, at(start, asked), at(start, now), answer, &rules);
                    vouched = positive.then_some(vouched.unwrap_or(0).max(asked));
                }
            }
            let judgement = entry.judge(&scope, Access::Write, at(start, now).instant, &rules);
            if matches!(judgement, Judgement::Allow { .. }) {
                let asked = vouched.expect("allowed though nobody vouched");
                prop_assert!(now - asked < 60_000, "{} ms old", now - asked);
            }
        }
    }

    /// The same with a token whose signature is good, where a signature is not enough.
    #[test]
    fn a_signature_under_introspection_has_the_same_bound(events in events()) {
        let rules = rules(Backing::Both, true);
        let scope = Scope::parse("acme", "app").unwrap();
        let start = Instant::now();
        let mut now = 0;
        let signed = Signed::Valid { grants: Grants::of([(scope.clone(), Access::Write)]), until: u64::MAX };
        let mut entry = Entry::new(signed, at(start, 0), 0);
        let mut introspected: Option<u64> = None;
        for event in events {
            match event {
                Event::Wait(millis) => now += millis,
                Event::Silence => entry.learn_silence(at(start, now).instant, &rules),
                Event::Answer { route, took, holds: positive } => {
                    let asked = now;
                    now += took;
                    let answer = if positive { holds(&scope) } else { Answer::Rejected };
                    entry.learn(route, at(start, asked), at(start, now), answer, &rules);
                    match (positive, route) {
                        (true, Route::Introspect) => introspected = Some(asked),
                        (true, Route::Access) => {}
                        (false, _) => introspected = None,
                    }
                }
            }
            let judgement = entry.judge(&scope, Access::Read, at(start, now).instant, &rules);
            if matches!(judgement, Judgement::Allow { .. }) {
                let asked = introspected.expect("allowed without introspection");
                prop_assert!(now - asked < 60_000);
            }
        }
    }
}

#[test]
fn a_refresh_is_due_after_half_a_minute_but_not_while_backing_off() {
    let rules = rules(Backing::Both, false);
    let scope = Scope::parse("acme", "").unwrap();
    let start = Instant::now();
    let mut entry = Entry::new(Signed::Unknown { until: None }, at(start, 0), 0);
    entry.learn(Route::Introspect, at(start, 0), at(start, 10), holds(&scope), &rules);
    let refresh = |entry: &Entry, millis| match entry.judge(&scope, Access::Read, at(start, millis).instant, &rules) {
        Judgement::Allow { refresh, .. } => refresh,
        other => panic!("{other:?}"),
    };
    assert_eq!(refresh(&entry, 29_999), None);
    assert_eq!(refresh(&entry, 30_000), Some(Route::Introspect));
    entry.learn_silence(at(start, 30_100).instant, &rules);
    assert_eq!(refresh(&entry, 33_000), None);
    assert_eq!(refresh(&entry, 33_100), Some(Route::Introspect));
    entry.learn_silence(at(start, 59_000).instant, &rules);
    let (stage, denial) = (Stage::Backend, UNAVAILABLE);
    let judgement = entry.judge(&scope, Access::Read, at(start, 60_000).instant, &rules);
    assert_eq!(judgement, Judgement::Deny { stage, denial });
}

#[test]
fn a_refused_token_cannot_fall_back_on_its_signature() {
    let rules = rules(Backing::Both, false);
    let [mine, other] = ["app", "other"].map(|project| Scope::parse("acme", project).unwrap());
    let start = Instant::now();
    let signed = Signed::Valid {
        grants: Grants::of([(mine.clone(), Access::Write)]),
        until: u64::MAX,
    };
    let mut entry = Entry::new(signed, at(start, 0), 0);
    let judge = |entry: &Entry, millis| entry.judge(&mine, Access::Write, at(start, millis).instant, &rules);
    assert!(matches!(judge(&entry, 0), Judgement::Allow { .. }));
    // A question about another project brought out that the token was revoked.
    let judgement = entry.judge(&other, Access::Read, start, &rules);
    assert_eq!(judgement, Judgement::Ask(Route::Introspect));
    entry.learn(Route::Access, at(start, 1), at(start, 2), Answer::Rejected, &rules);
    assert!(matches!(judge(&entry, 3), Judgement::Deny { .. } | Judgement::Ask(_)));
    assert!(matches!(judge(&entry, 10_000), Judgement::Ask(_)));
}

#[test]
fn answers_end_with_the_token() {
    let rules = rules(Backing::Both, false);
    let scope = Scope::parse("acme", "").unwrap();
    let start = Instant::now();
    let mut entry = Entry::new(Signed::Unknown { until: None }, at(start, 0), 0);
    let answer = Answer::Holds {
        grants: Grants::of([(scope.clone(), Access::Read)]),
        expires: Some(1_000_005),
    };
    entry.learn(Route::Introspect, at(start, 0), at(start, 0), answer, &rules);
    let allowed = |entry: &Entry, millis| {
        let judgement = entry.judge(&scope, Access::Read, at(start, millis).instant, &rules);
        matches!(judgement, Judgement::Allow { .. })
    };
    assert!(allowed(&entry, 4999) && !allowed(&entry, 5000));
    // The same for a token that says of itself when it ends, though we hold no key for it.
    let mut entry = Entry::new(Signed::Unknown { until: Some(1_000_005) }, at(start, 0), 0);
    entry.learn(Route::Introspect, at(start, 0), at(start, 0), holds(&scope), &rules);
    assert!(allowed(&entry, 4999) && !allowed(&entry, 5000));
}
