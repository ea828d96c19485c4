//! Limits, failures and lost answers.

use std::time::Duration;

use russet_github::error::{Kind, Limit};
use russet_sim_github::{Act, Deed, Fault};

use crate::{APP, INSTALLATION, World, credentials, key, tuist};

const REGISTER: &str = "/orgs/*/actions/runners/registration-token";

#[tokio::test]
async fn nothing_is_sent_until_a_limit_is_over() {
    let primary = |status| Act::PrimaryLimit { status, reset_in: 600 };
    let secondary = |status, retry_after| Act::SecondaryLimit { status, retry_after };
    let cases = [
        (primary(403), Limit::Primary, 600),
        (primary(429), Limit::Primary, 600),
        (secondary(403, Some(30)), Limit::Secondary, 30),
        (secondary(429, Some(30)), Limit::Secondary, 30),
        (secondary(403, None), Limit::Secondary, 60),
        (secondary(429, None), Limit::Secondary, 60),
    ];
    for (act, expected, wait) in cases {
        let world = World::new().await;
        world.handle().inject(Fault::new("POST", REGISTER, act));
        let error = world.client.registration_token(&tuist()).await.unwrap_err();
        let Kind::RateLimited { until, limit } = error.kind else {
            panic!("{error}")
        };
        assert_eq!(
            (limit, until.duration_since(world.handle().now()).as_secs()),
            (expected, wait)
        );
        assert!(error.is_transient());
        let before = world.handle().journal().len();
        world.handle().advance(Duration::from_secs(wait.unsigned_abs() - 1));
        let again = world.client.registration_token(&tuist()).await.unwrap_err();
        assert_eq!(again.not_before(), Some(until));
        assert_eq!(world.handle().journal().len(), before);
        world.handle().advance(Duration::from_secs(1));
        world.client.registration_token(&tuist()).await.unwrap();
    }
}

#[tokio::test]
async fn the_hourly_limit_of_a_busy_installation_is_understood() {
    let world = World::new().await;
    world.handle().set(|settings| settings.hourly_limit = 3);
    for _ in 0..3 {
        world.client.registration_token(&tuist()).await.unwrap();
    }
    let error = world.client.registration_token(&tuist()).await.unwrap_err();
    let until = error.not_before().unwrap();
    assert_eq!(until.duration_since(world.handle().now()).as_secs(), 3600);
    world.handle().advance(Duration::from_hours(1));
    world.client.registration_token(&tuist()).await.unwrap();
}

#[tokio::test]
async fn a_token_whose_answer_was_lost_is_asked_for_again() {
    for act in [Act::Status(502), Act::Status(500), Act::Cut] {
        for after in [false, true] {
            let world = World::new().await;
            for path in ["/app/**", REGISTER] {
                let fault = Fault::new("POST", path, act.clone());
                world.handle().inject(if after { fault.after_effect() } else { fault });
            }
            world.client.registration_token(&tuist()).await.unwrap();
            assert_eq!((world.mints(), world.registrations()), (2, 2));
            // A token nobody heard of ends by itself; there is no way to take it back.
            let good = if after { 2 } else { 1 };
            assert_eq!(world.handle().tokens(), (good, good));
            let sleeps = world.clock.sleeps.lock().unwrap().clone();
            assert_eq!(sleeps, [Duration::from_millis(250), Duration::from_millis(250)]);
        }
    }
}

#[tokio::test]
async fn a_github_that_is_down_is_given_up_after_three_tries() {
    let world = World::new().await;
    world
        .handle()
        .inject(Fault::new("POST", "/app/**", Act::Status(503)).for_ever());
    let error = world.client.registration_token(&tuist()).await.unwrap_err();
    assert!(matches!(error.kind, Kind::Server { status: Some(503), .. }), "{error}");
    assert!(error.is_transient());
    assert_eq!(world.mints(), 3);
    world.handle().clear_faults();
    world.client.registration_token(&tuist()).await.unwrap();
}

#[tokio::test]
async fn a_github_that_does_not_answer_is_not_waited_for() {
    let world = World::with(credentials(APP, INSTALLATION, &key().pkcs1_pem()), |config| {
        config.attempt_timeout = Duration::from_millis(50);
    })
    .await;
    world
        .handle()
        .inject(Fault::new("POST", "/app/**", Act::Hang).for_ever());
    let error = world.client.registration_token(&tuist()).await.unwrap_err();
    assert!(
        matches!(&error.kind, Kind::Server { status: None, message } if message.contains("no answer within")),
        "{error}"
    );
}

#[tokio::test]
async fn a_github_that_is_not_there_is_a_server_error() {
    let world = World::new().await;
    let World { sim, client, .. } = world;
    sim.stop().await;
    let error = client.registration_token(&tuist()).await.unwrap_err();
    assert!(matches!(error.kind, Kind::Server { status: None, .. }), "{error}");
}

#[tokio::test]
async fn a_limit_while_the_reason_of_a_refusal_is_sought_hides_nothing() {
    let world = World::new().await;
    let deny = Deed::Grant {
        installation: INSTALLATION,
        runners: None,
    };
    world.client.registration_token(&tuist()).await.unwrap();
    world.handle().perform(deny).unwrap();
    let retry_after = Some(10);
    let act = Act::SecondaryLimit {
        status: 429,
        retry_after,
    };
    world.handle().inject(Fault::new("GET", "/app/**", act));
    let error = world.client.registration_token(&tuist()).await.unwrap_err();
    assert_eq!(error.reason(), "PermissionDenied");
}
