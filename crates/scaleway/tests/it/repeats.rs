//! What is tried again, what is not, and how long the waits are.

use std::time::Duration;

use russet_scaleway::error::{EffectKnown, Keeper};
use russet_scaleway::observer::Outcome;
use russet_scaleway::{Kind, Rate};
use serde_json::json;

use crate::server::Script;
use crate::{PROJECT, World, assert_unknown, mac, mac_id, zone};

const GET: &str = "GET /apple-silicon/v1alpha1/zones/fr-par-1/servers/2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b";
const PATCH: &str = "PATCH /apple-silicon/v1alpha1/zones/fr-par-1/servers/2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b";
const DELETE: &str = "DELETE /apple-silicon/v1alpha1/zones/fr-par-1/servers/2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b";
const REINSTALL: &str =
    "POST /apple-silicon/v1alpha1/zones/fr-par-1/servers/2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b/reinstall";

fn any_mac() -> serde_json::Value {
    mac(mac_id().as_str(), "tuist-pool-1", PROJECT)
}

#[tokio::test]
async fn a_read_is_repeated_after_errors_of_the_server_and_broken_connections() {
    let script = Script::new()
        .answer(GET, 503, "")
        .close(GET)
        .answer(GET, 502, "<html>")
        .answer(GET, 200, any_mac());
    let world = World::new(script).await;
    let mac = world.client.get_mac(&zone(), &mac_id()).await.unwrap();
    assert_eq!(mac.name, "tuist-pool-1");
    assert_eq!(
        world.sleeps(),
        [250, 500, 1000].map(Duration::from_millis),
        "half of a ceiling that doubles"
    );
    let wanted = [
        Outcome::ServerError,
        Outcome::NoAnswer,
        Outcome::ServerError,
        Outcome::Ok,
    ];
    assert_eq!(world.outcomes(), wanted);
    world.finish();
}

#[tokio::test]
async fn a_read_that_fails_for_ever_is_given_up_and_had_no_effect() {
    let script = (0..6).fold(Script::new(), |script, _| {
        script.answer(GET, 500, r#"{"message":"internal error"}"#)
    });
    let world = World::new(script).await;
    let error = world.client.get_mac(&zone(), &mac_id()).await.unwrap_err();
    assert_eq!(
        error.kind,
        Kind::Unavailable {
            status: Some(500),
            message: "internal error".into()
        }
    );
    assert!(error.is_transient() && error.is_without_effect());
    world.finish();
}

#[tokio::test]
async fn a_429_is_waited_out_for_as_long_as_it_says_and_by_everybody() {
    let busy = r#"{"type":"too_many_requests","help_message":"slow down","limit":{"quota":5,"window_seconds":1}}"#;
    let script = Script::new()
        .answer_with(GET, 429, vec![("Retry-After", "7")], busy)
        .answer(GET, 200, any_mac())
        .answer(GET, 200, any_mac());
    let world = World::new(script).await;
    let before = world.clock_now();
    world.client.get_mac(&zone(), &mac_id()).await.unwrap();
    assert!(world.clock_now() - before >= Duration::from_secs(7));
    assert_eq!(world.outcomes(), [Outcome::RateLimited, Outcome::Ok]);
    world.client.clone().get_mac(&zone(), &mac_id()).await.unwrap();
    world.finish();
}

#[tokio::test]
async fn a_429_to_one_holds_back_the_others() {
    let script = Script::new()
        .answer_with(REINSTALL, 429, vec![("Retry-After", "30")], "")
        .answer(GET, 200, any_mac());
    let world = World::new(script).await;
    let error = world.client.reinstall_mac(&zone(), &mac_id(), None).await.unwrap_err();
    assert_eq!(
        error.kind,
        Kind::RateLimited {
            after: Duration::from_secs(30),
            by: Keeper::Scaleway
        }
    );
    assert!(error.is_without_effect());
    let before = world.clock_now();
    world.client.get_mac(&zone(), &mac_id()).await.unwrap();
    assert!(world.clock_now() - before >= Duration::from_secs(30));
    world.finish();
}

/// A wipe whose answer is lost may have happened. Sent again blindly it could wipe the host of its next owner.
#[tokio::test]
async fn a_reinstallation_is_sent_once_whatever_the_answer() {
    for (script, status) in [
        (Script::new().answer(REINSTALL, 504, ""), Some(504)),
        (Script::new().answer(REINSTALL, 500, r#"{"message":""}"#), Some(500)),
        (Script::new().close(REINSTALL), None),
    ] {
        let world = World::new(script).await;
        let error = world.client.reinstall_mac(&zone(), &mac_id(), None).await.unwrap_err();
        assert_unknown(&error, EffectKnown::Maybe, &[status]);
        assert!(!error.is_without_effect());
        assert!(world.sleeps().is_empty());
        world.finish();
    }
}

#[tokio::test]
async fn a_call_that_got_no_answer_in_time_is_of_unknown_effect() {
    let world = World::with(Script::new().hang(PATCH), |config| {
        config.attempt_timeout = Duration::from_millis(50);
    })
    .await;
    let error = world.client.rename_mac(&zone(), &mac_id(), "mine").await.unwrap_err();
    assert_unknown(&error, EffectKnown::Maybe, &[None]);
    assert_eq!(world.outcomes(), [Outcome::NoAnswer]);
    world.finish();
}

#[tokio::test]
async fn a_good_answer_that_cannot_be_read_still_means_that_it_happened() {
    let world = World::new(Script::new().answer(REINSTALL, 200, "{\"id\":")).await;
    let error = world.client.reinstall_mac(&zone(), &mac_id(), None).await.unwrap_err();
    assert_unknown(&error, EffectKnown::Happened, &[Some(200)]);
    world.finish();
}

#[tokio::test]
async fn a_call_that_could_not_be_sent_certainly_had_no_effect() {
    // Bound and dropped: nobody listens there any more.
    let free = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let world = World::with(Script::new(), |config| {
        config.url = format!("http://{free}").parse().unwrap();
    })
    .await;
    let error = world.client.reinstall_mac(&zone(), &mac_id(), None).await.unwrap_err();
    assert!(matches!(error.kind, Kind::Unavailable { status: None, .. }), "{error}");
    assert!(error.is_without_effect());
    assert_eq!(world.outcomes(), [Outcome::NotSent]);
    world.finish();
}

#[tokio::test]
async fn a_deletion_is_repeated_and_gone_then_means_done() {
    let gone = r#"{"type":"not_found","resource":"server","resource_id":"2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b"}"#;
    let world = World::new(Script::new().answer(DELETE, 502, "").answer(DELETE, 404, gone)).await;
    world.client.delete_mac(&zone(), &mac_id()).await.unwrap();
    world.finish();

    let world = World::new(Script::new().answer(DELETE, 404, gone)).await;
    let error = world.client.delete_mac(&zone(), &mac_id()).await.unwrap_err();
    assert!(error.is_not_found(), "nobody of ours deleted it: {error}");
    world.finish();
}

#[tokio::test]
async fn a_deletion_without_any_answer_is_of_unknown_effect() {
    let script = (0..6).fold(Script::new(), |script, _| script.close(DELETE));
    let world = World::new(script).await;
    let error = world.client.delete_mac(&zone(), &mac_id()).await.unwrap_err();
    assert_unknown(&error, EffectKnown::Maybe, &[None]);
    world.finish();
}

#[tokio::test]
async fn our_own_limiter_refuses_rather_than_outlive_the_deadline() {
    let world = World::with(Script::new().answer(GET, 200, any_mac()), |config| {
        config.rate = Rate {
            burst: std::num::NonZeroU32::MIN,
            interval: Duration::from_mins(10),
        };
    })
    .await;
    world.client.get_mac(&zone(), &mac_id()).await.unwrap();
    let error = world.client.get_mac(&zone(), &mac_id()).await.unwrap_err();
    let Kind::RateLimited {
        after,
        by: Keeper::Ours,
    } = error.kind
    else {
        panic!("{error}")
    };
    assert!(after > Duration::from_secs(500));
    world.finish();
}

#[tokio::test]
async fn a_rename_is_never_repeated_not_even_after_a_429() {
    let script = Script::new().answer_with(PATCH, 429, vec![("Retry-After", "1")], "");
    let world = World::new(script).await;
    let error = world.client.rename_mac(&zone(), &mac_id(), "mine").await.unwrap_err();
    let by_scaleway = matches!(error.kind, Kind::RateLimited { by, .. } if by == Keeper::Scaleway);
    assert!(by_scaleway, "{error}");
    world.finish();
}

#[tokio::test]
async fn definite_answers_are_not_questioned() {
    for (status, kind) in [
        (400, "InvalidArguments"),
        (401, "Unauthenticated"),
        (403, "PermissionDenied"),
        (409, "TransientState"),
    ] {
        let body = match status {
            400 => json!({"type": "invalid_arguments", "details": [{"argument_name": "id", "reason": "format"}]}),
            401 => json!({"type": "denied_authentication", "method": "api_key", "reason": "expired"}),
            403 => json!({"type": "permissions_denied", "details": [{"resource": "server", "action": "read"}]}),
            _ => {
                json!({"type": "transient_state", "resource": "server", "resource_id": "x", "current_state": "rebooting"})
            }
        };
        let world = World::new(Script::new().answer(GET, status, body)).await;
        let error = world.client.get_mac(&zone(), &mac_id()).await.unwrap_err();
        assert_eq!(error.reason(), kind);
        assert!(world.sleeps().is_empty());
        world.finish();
    }
}
