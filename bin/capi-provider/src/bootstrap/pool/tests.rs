use russet_telemetry::Metrics;

use super::*;
use crate::clock::SystemClock;

fn pool(limit: usize) -> Pool {
    let metrics = ProviderMetrics::new(&Metrics::new());
    Pool::new(
        limit,
        Duration::from_mins(1),
        Registry::default(),
        metrics,
        Arc::new(SystemClock),
    )
}

fn key(name: &str) -> Key {
    Key {
        namespace: "n".into(),
        name: name.into(),
    }
}

fn server(id: &str) -> ServerId {
    id.parse().unwrap()
}

async fn until_ended(pool: &Pool, uid: &str, id: &str) -> Arc<Result<Done, Trouble>> {
    loop {
        if let Seat::Ended(_, result) = pool.seat(uid, &key(uid), &server(id)) {
            return result;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_result_stays_until_it_was_written_down_and_a_failure_rests() {
    let pool = pool(1);
    let stop = CancellationToken::new();
    let running = tokio::spawn(pool.clone().run(stop.clone()));
    let fail: Work = Box::new(|progress, _| {
        Box::pin(async move {
            progress.step("ssh", StepState::Running, None);
            Err(failed("no route to host"))
        })
    });
    assert!(matches!(pool.seat("u1", &key("u1"), &server("a")), Seat::Free));
    pool.start("u1", &key("u1"), &server("a"), Vec::new(), fail);
    let result = until_ended(&pool, "u1", "a").await;
    assert!(matches!(&*result, Err(Trouble::Host(_))));
    assert!(
        matches!(pool.seat("u1", &key("u1"), &server("a")), Seat::Ended(..)),
        "not lost by looking"
    );
    pool.acknowledge("u1");
    assert!(matches!(pool.seat("u1", &key("u1"), &server("a")), Seat::Resting(_)));
    assert!(
        matches!(pool.seat("u1", &key("u1"), &server("b")), Seat::Free),
        "another host does not rest"
    );
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn the_pool_is_bounded_and_what_is_forgotten_ends() {
    let pool = pool(1);
    let stop = CancellationToken::new();
    let running = tokio::spawn(pool.clone().run(stop.clone()));
    let (ended, mut told) = mpsc::unbounded_channel();
    let wait: Work = Box::new(move |_, stop| {
        Box::pin(async move {
            stop.cancelled().await;
            let _ = ended.send(());
            Err(Trouble::Stopped)
        })
    });
    pool.start("u1", &key("u1"), &server("a"), Vec::new(), wait);
    assert!(matches!(pool.seat("u2", &key("u2"), &server("b")), Seat::Full));
    pool.forget("u1");
    told.recv().await.unwrap();
    loop {
        if matches!(pool.seat("u2", &key("u2"), &server("b")), Seat::Free) {
            break;
        }
        tokio::task::yield_now().await;
    }
    stop.cancel();
    running.await.unwrap();
}

/// While many Macs joined, those that were done already asked how their hosts stood, found the pool full and were put into its
/// queue. Each end then woke one of them, who needed nothing, and hosts waited for a minute beside an empty place.
#[tokio::test]
async fn whoever_only_looks_is_not_woken_in_the_place_of_those_who_wait() {
    let pool = pool(1);
    let wait = |_, stop: CancellationToken| -> BoxFuture<'static, _> {
        Box::pin(async move {
            stop.cancelled().await;
            Err(Trouble::Stopped)
        })
    };
    pool.start("u1", &key("u1"), &server("a"), Vec::new(), Box::new(wait));
    assert!(matches!(pool.look("serving", &server("s")), Seat::Full));
    assert!(pool.lock().waiting.is_empty());
    assert!(matches!(pool.seat("u2", &key("u2"), &server("b")), Seat::Full));
    assert!(matches!(pool.seat("u2", &key("u2"), &server("b")), Seat::Full));
    assert_eq!(pool.lock().waiting, [key("u2")], "once");
}

/// A machine that was woken for a place and deleted meanwhile took nobody's place, and nobody else was woken for it.
#[tokio::test]
async fn a_place_that_nobody_took_is_offered_again() {
    let pool = pool(2);
    let stop = CancellationToken::new();
    let running = tokio::spawn(pool.clone().run(stop.clone()));
    let end = Arc::new(tokio::sync::Notify::new());
    for uid in ["u1", "u2"] {
        let end = Arc::clone(&end);
        let work: Work = Box::new(move |_, _| {
            Box::pin(async move {
                end.notified().await;
                Ok(Done::default())
            })
        });
        pool.start(uid, &key(uid), &server(uid), Vec::new(), work);
    }
    for uid in ["deleted", "u3", "u4"] {
        assert!(matches!(pool.seat(uid, &key(uid), &server(uid)), Seat::Full));
    }
    end.notify_one();
    until(|| pool.lock().waiting.len() == 2).await;
    assert_eq!(pool.lock().waiting, [key("u3"), key("u4")]);
    end.notify_one();
    until(|| pool.lock().waiting.is_empty()).await;
    stop.cancel();
    running.await.unwrap();
}

async fn until(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::task::yield_now().await;
    }
}

#[test]
fn steps_keep_their_order_and_count_their_attempts() {
    let mut steps = Vec::new();
    let now = Timestamp::UNIX_EPOCH;
    for (name, state) in [
        ("ssh", StepState::Running),
        ("ssh", StepState::Failed),
        ("join", StepState::Skipped),
        ("ssh", StepState::Running),
    ] {
        note_step(&mut steps, name, state, None, now);
    }
    let seen: Vec<_> = steps.iter().map(|step| (step.name.as_str(), step.attempts)).collect();
    assert_eq!(seen, [("ssh", Some(2)), ("join", None)]);
    assert_eq!(steps[0].finished_at, None, "it runs again");
}
