//! What the control plane says, and what follows when it says nothing.

use std::time::{Duration, Instant};

use futures::future::join_all;
use russet_identity::config::{Jwt, JwtKeys, PemSource, SignedTokens};
use russet_identity::observer::{CacheResult, ErrorKind, Stage, Verdict};
use russet_identity::{Access, Credential, Decision};
use serde_json::{Value, json};

use crate::mint::{Es256, unsigned, with, writer};
use crate::server::{Reply, Server};
use crate::world::{START, World, eventually, scope};

const TOKEN: &str = "opaque-token";

fn active(grants: &Value) -> Reply {
    Reply::json(&json!({"active": true, "cache_grants": grants}))
}

fn writes_acme() -> Reply {
    active(&json!({"account": {"write": ["acme"]}}))
}

/// A control plane that says this of every token, and a world that asks it.
async fn told(reply: Reply) -> (Server, World) {
    let server = Server::start().await;
    server.introspect(reply);
    let world = World::new(server.config());
    (server, world)
}

fn revoked(server: &Server) {
    server.introspect(Reply::json(&json!({"active": false})));
    server.access(Reply::Say(401, "{}".into()));
}

#[tokio::test]
async fn introspection_settles_what_it_can_and_projects_are_asked_for_after_it() {
    let server = Server::start().await;
    let settled = json!({"account": {"read": ["Acme"]}, "project": {"write": ["acme/app"]}});
    server.introspect(active(&settled));
    let projects = json!({"projects": ["Acme/Web", {"full_name": "acme/docs"}]});
    server.access(Reply::json(&projects));
    let world = World::new(server.config());
    assert_eq!(world.now(TOKEN, "acme", Access::Read), Decision::NeedsBackend);
    assert_eq!(world.status(TOKEN, "acme", Access::Read).await, 200);
    assert_eq!(world.status_now(TOKEN, "acme/app", Access::Write), 200);
    assert_eq!(world.status_now(TOKEN, "acme", Access::Write), 403);
    assert_eq!(server.counts(), (1, 0));
    assert_eq!(world.status(TOKEN, "acme/web", Access::Write).await, 200);
    assert_eq!(world.status_now(TOKEN, "acme/docs", Access::Write), 200);
    assert_eq!(world.status_now(TOKEN, "acme/else", Access::Read), 403);
    assert_eq!(server.counts(), (1, 1));
    let questions = server.questions();
    let body: Value = serde_json::from_str(&questions[0].body).unwrap();
    let asked = json!({"client_id": "node", "client_secret": "canary-client-secret", "token": TOKEN});
    assert_eq!(body, asked);
    assert_eq!(questions[0].authorization, None);
    assert_eq!(questions[1].authorization.as_deref(), Some("Bearer opaque-token"));
}

#[tokio::test]
async fn without_client_credentials_only_projects_can_be_asked_about() {
    let server = Server::start().await;
    let owing = json!({"projects": ["acme/app"], "payment_required": ["acme"]});
    server.access(Reply::json(&owing));
    let world = World::new(server.config_without_client());
    assert_eq!(world.status(TOKEN, "acme/app", Access::Write).await, 200);
    assert_eq!(world.status(TOKEN, "acme/else", Access::Write).await, 402);
    assert_eq!(world.status(TOKEN, "acme", Access::Read).await, 503);
    assert_eq!(server.counts(), (0, 1));
}

#[tokio::test]
async fn payment_may_be_a_list_or_a_flag_under_either_name() {
    for (member, value) in [
        ("cache_payment_required", json!(["acme"])),
        ("payment_required", json!(["ACME"])),
        ("payment_required", json!(true)),
    ] {
        let server = Server::start().await;
        server.introspect(Reply::json(&json!({"active": true, member: value})));
        let world = World::new(server.config());
        assert_eq!(world.status(TOKEN, "acme", Access::Read).await, 402, "{member}");
    }
}

#[tokio::test]
async fn basic_credentials_are_forwarded_as_the_token_they_hold() {
    let server = Server::start().await;
    server.access(Reply::json(&json!({"projects": ["acme/app"]})));
    let world = World::new(server.config_without_client());
    // user:opaque-token
    let credential = Credential::from_header(b"Basic dXNlcjpvcGFxdWUtdG9rZW4=").unwrap();
    let app = scope("acme/app");
    let decided = world.authorizer.decide(Some(&credential), &app, Access::Read).await;
    assert_eq!(decided, Ok(()));
    let sent = server.questions()[0].authorization.clone();
    assert_eq!(sent.as_deref(), Some("Bearer opaque-token"));
}

#[tokio::test]
async fn a_signature_settles_its_own_grants_and_the_control_plane_the_rest() {
    let server = Server::start().await;
    let key = Es256::new();
    let mut config = server.config();
    config.jwt = Some(Jwt::new(JwtKeys::Es256(PemSource::Inline(key.public_pem()))));
    let world = World::new(config);
    let token = key.sign(&writer());
    assert_eq!(world.status_now(&token, "acme/app", Access::Write), 200);
    assert_eq!(server.counts(), (0, 0));
    server.introspect(writes_acme());
    assert_eq!(world.status(&token, "acme", Access::Write).await, 200);
    assert_eq!(server.counts(), (1, 0));
    // Expired tokens, and those of the thief's own making, cost the control plane nothing.
    let expired = Es256::new().sign(&with(writer(), "exp", json!(START - 61)));
    assert_eq!(world.status_now(&expired, "acme/app", Access::Write), 401);
    let unsigned = format!("{}.", unsigned(&json!({"alg": "none"}), &writer()));
    assert_eq!(world.status_now(&unsigned, "acme/app", Access::Write), 401);
    assert_eq!(server.counts(), (1, 0));
}

#[tokio::test]
async fn a_hundred_requests_ask_one_question() {
    let server = Server::start().await;
    server.introspect(writes_acme());
    server.hold();
    let world = World::new(server.config());
    let asking = {
        let world = world.clone();
        tokio::spawn(async move { join_all((0..100).map(|_| world.status(TOKEN, "acme", Access::Write))).await })
    };
    eventually("the question is asked", || server.counts() == (1, 0)).await;
    server.release();
    assert_eq!(asking.await.unwrap(), vec![200; 100]);
    assert_eq!(server.counts(), (1, 0));
}

#[tokio::test]
async fn requests_for_many_projects_of_one_token_share_their_questions() {
    let server = Server::start().await;
    server.introspect(active(&json!({})));
    let projects: Vec<String> = (0..50).map(|n| format!("acme/p{n}")).collect();
    server.access(Reply::json(&json!({ "projects": projects })));
    let world = World::new(server.config());
    let targets: Vec<String> = (0..100).map(|n| format!("acme/p{n}")).collect();
    let statuses = join_all(targets.iter().map(|target| world.status(TOKEN, target, Access::Read))).await;
    for (n, status) in statuses.into_iter().enumerate() {
        assert_eq!(status, if n < 50 { 200 } else { 403 }, "p{n}");
    }
    assert_eq!(server.counts(), (1, 1));
}

#[tokio::test]
async fn a_caller_that_goes_away_does_not_take_the_answer_with_it() {
    let server = Server::start().await;
    server.introspect(writes_acme());
    server.hold();
    let world = World::new(server.config());
    let asking = {
        let world = world.clone();
        tokio::spawn(async move { world.status(TOKEN, "acme", Access::Write).await })
    };
    eventually("the question is asked", || server.counts() == (1, 0)).await;
    asking.abort();
    server.release();
    let written = || world.status_now(TOKEN, "acme", Access::Write);
    eventually("the answer is learned", || written() == 200).await;
    assert_eq!(server.counts(), (1, 0));
}

#[tokio::test]
async fn a_thread_without_a_runtime_is_called_back() {
    let (_server, world) = told(writes_acme()).await;
    let credential = Credential::from_header(TOKEN.as_bytes()).unwrap().into_owned();
    let (tell, told) = tokio::sync::oneshot::channel();
    let authorizer = world.authorizer.clone();
    let reactor = std::thread::spawn(move || {
        authorizer.decide_then(Some(credential), scope("acme"), Access::Write, move |decision| {
            tell.send(decision).unwrap();
        });
    });
    assert_eq!(told.await.unwrap(), Ok(()));
    reactor.join().unwrap();
}

#[tokio::test]
async fn a_revoked_token_is_refused_within_a_minute_while_it_is_in_use() {
    let (server, world) = told(writes_acme()).await;
    assert_eq!(world.status(TOKEN, "acme", Access::Write).await, 200);
    revoked(&server);
    world.advance(29);
    assert_eq!(world.status_now(TOKEN, "acme", Access::Write), 200);
    assert_eq!(server.counts(), (1, 0));
    world.advance(1);
    // Still believed, and asked about behind the request's back.
    assert_eq!(world.status_now(TOKEN, "acme", Access::Write), 200);
    let written = || world.status_now(TOKEN, "acme", Access::Write);
    eventually("the revocation is learned", || written() == 401).await;
    assert_eq!(server.counts(), (2, 0));
}

#[tokio::test]
async fn a_revoked_token_is_refused_after_a_minute_of_silence() {
    let (server, world) = told(writes_acme()).await;
    assert_eq!(world.status(TOKEN, "acme", Access::Write).await, 200);
    revoked(&server);
    world.advance(60);
    assert_eq!(world.now(TOKEN, "acme", Access::Write), Decision::NeedsBackend);
    assert_eq!(world.status(TOKEN, "acme", Access::Write).await, 401);
}

#[tokio::test]
async fn an_outage_is_bridged_for_a_minute_and_not_longer() {
    let (server, world) = told(writes_acme()).await;
    assert_eq!(world.status(TOKEN, "acme", Access::Write).await, 200);
    server.all(&Reply::Say(500, String::new()));
    for _ in 0..59 {
        world.advance(1);
        assert_eq!(world.status_now(TOKEN, "acme", Access::Write), 200);
        tokio::task::yield_now().await;
    }
    world.advance_millis(999);
    assert_eq!(world.status_now(TOKEN, "acme", Access::Write), 200);
    world.advance_millis(1);
    assert_ne!(world.status_now(TOKEN, "acme", Access::Write), 200);
    assert_eq!(world.status(TOKEN, "acme", Access::Write).await, 503);
    // It comes back, and so does the build.
    server.introspect(writes_acme());
    world.advance(3);
    assert_eq!(world.status(TOKEN, "acme", Access::Write).await, 200);
}

#[tokio::test]
async fn a_signed_token_under_introspection_is_revoked_within_a_minute_too() {
    let server = Server::start().await;
    server.introspect(active(&json!({})));
    let key = Es256::new();
    let mut config = server.config();
    let mut jwt = Jwt::new(JwtKeys::Es256(PemSource::Inline(key.public_pem())));
    jwt.signed_tokens = SignedTokens::AlsoIntrospect;
    config.jwt = Some(jwt);
    let world = World::new(config);
    let token = key.sign(&writer());
    assert_eq!(world.now(&token, "acme/app", Access::Write), Decision::NeedsBackend);
    assert_eq!(world.status(&token, "acme/app", Access::Write).await, 200);
    revoked(&server);
    world.advance(60);
    assert_eq!(world.status(&token, "acme/app", Access::Write).await, 401);
    server.all(&Reply::Say(503, String::new()));
    world.advance(4);
    assert_eq!(world.status(&token, "acme/app", Access::Write).await, 503);
}

#[tokio::test]
async fn a_refusal_is_repeated_for_three_seconds_and_then_asked_about_again() {
    let (server, world) = told(active(&json!({}))).await;
    for _ in 0..5 {
        assert_eq!(world.status(TOKEN, "acme", Access::Write).await, 403);
    }
    world.advance_millis(2999);
    assert_eq!(world.status_now(TOKEN, "acme", Access::Write), 403);
    assert_eq!(server.counts(), (1, 0));
    // Access was granted in the meantime.
    server.introspect(writes_acme());
    world.advance_millis(1);
    assert_eq!(world.status(TOKEN, "acme", Access::Write).await, 200);
    assert_eq!(server.counts(), (2, 0));
}

#[tokio::test]
async fn one_401_voids_everything_remembered_of_a_token() {
    let server = Server::start().await;
    server.introspect(active(&json!({"project": {"write": ["acme/app"]}})));
    server.access(Reply::Say(401, "{}".into()));
    let world = World::new(server.config());
    assert_eq!(world.status(TOKEN, "acme/app", Access::Write).await, 200);
    assert_eq!(world.status("another-token", "acme/app", Access::Write).await, 200);
    assert_eq!(world.status(TOKEN, "acme/else", Access::Write).await, 401);
    assert_eq!(world.status_now(TOKEN, "acme/app", Access::Write), 401);
    assert_eq!(world.status_now("another-token", "acme/app", Access::Write), 200);
}

#[tokio::test]
async fn whatever_is_no_clear_answer_is_503_and_never_an_allow() {
    let elsewhere = Server::start().await;
    elsewhere.access(Reply::json(&json!({"projects": ["acme/app"]})));
    elsewhere.introspect(active(&json!({"project": {"write": ["acme/app"]}})));
    let to = format!("http://{}/base/api/cache/access", elsewhere.address);
    let say = |status, text: &str| Reply::Say(status, text.into());
    let (good, mistyped) = (
        r#"{"projects":["acme/app"]}"#,
        r#"{"active":"yes","projects":"acme/app"}"#,
    );
    let table = [
        (say(500, "{}"), Some(ErrorKind::Status)),
        (say(403, good), Some(ErrorKind::Status)),
        (say(201, good), Some(ErrorKind::Status)),
        (Reply::Redirect(to), Some(ErrorKind::Status)),
        (say(200, ""), Some(ErrorKind::Body)),
        (say(200, "<html>"), Some(ErrorKind::Body)),
        (say(200, mistyped), Some(ErrorKind::Body)),
        (say(200, &"[".repeat(100_000)), Some(ErrorKind::Body)),
        (Reply::Hang, Some(ErrorKind::Transport)),
        (Reply::Half, Some(ErrorKind::Transport)),
        (Reply::Stall, Some(ErrorKind::Timeout)),
        (Reply::Flood, None),
    ];
    for (reply, kind) in table {
        for with_client in [true, false] {
            let server = Server::start().await;
            server.all(&reply);
            let (with, without) = (server.config(), server.config_without_client());
            let world = World::new(if with_client { with } else { without });
            let denial = world.ask(TOKEN, "acme/app", Access::Read).await.unwrap_err();
            let told = (denial.http_status(), denial.retry_after());
            assert_eq!(told, (503, Some(1)), "{reply:?}");
            let requests = world.notes.backend.lock().unwrap().clone();
            assert!(requests.iter().all(|r| r.error.is_some()), "{requests:?}");
            if let Some(kind) = kind {
                assert_eq!(requests.last().unwrap().error, Some(kind), "{reply:?}");
            }
        }
    }
    assert!(elsewhere.questions().is_empty(), "a redirect was followed");
}

#[tokio::test]
async fn nobody_listening_is_503_within_the_timeouts() {
    let server = Server::start().await;
    let mut config = server.config();
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let control_plane = config.control_plane.as_mut().unwrap();
    control_plane.url.set_port(Some(free.port())).unwrap();
    let world = World::new(config);
    let started = Instant::now();
    assert_eq!(world.status(TOKEN, "acme", Access::Read).await, 503);
    assert!(started.elapsed() < Duration::from_secs(5));
    let requests = world.notes.backend.lock().unwrap().clone();
    assert_eq!(requests.len(), 2, "one retry");
    assert_eq!(requests[0].error, Some(ErrorKind::Connect));
    let labels = (requests[0].status_class(), requests[0].error_kind());
    assert_eq!(labels, ("none", "connect"));
}

#[tokio::test]
async fn a_broken_connection_is_tried_once_more_and_a_timeout_is_not() {
    let server = Server::start().await;
    server.introspect(writes_acme());
    server.first([Reply::Hang]);
    let world = World::new(server.config());
    assert_eq!(world.status(TOKEN, "acme", Access::Write).await, 200);
    assert_eq!(server.counts(), (2, 0));
    let server = Server::start().await;
    server.introspect(writes_acme());
    server.first([Reply::Stall]);
    let world = World::new(server.config());
    assert_eq!(world.status(TOKEN, "acme", Access::Write).await, 503);
    assert_eq!(server.counts(), (1, 0));
}

#[tokio::test]
async fn after_silence_a_credential_waits_before_it_is_asked_about_again() {
    let server = Server::start().await;
    server.all(&Reply::Say(502, String::new()));
    let world = World::new(server.config());
    for _ in 0..10 {
        assert_eq!(world.status(TOKEN, "acme", Access::Write).await, 503);
    }
    assert_eq!(world.status_now(TOKEN, "acme/app", Access::Read), 503);
    assert_eq!(server.counts(), (1, 0));
    // Others are not held up by it.
    assert_eq!(world.status("another-token", "acme", Access::Write).await, 503);
    assert_eq!(server.counts(), (2, 0));
    server.introspect(writes_acme());
    world.advance(3);
    assert_eq!(world.status(TOKEN, "acme", Access::Write).await, 200);
}

#[tokio::test]
async fn a_refresh_that_fails_is_not_repeated_with_every_request() {
    let (server, world) = told(writes_acme()).await;
    assert_eq!(world.status(TOKEN, "acme", Access::Write).await, 200);
    server.all(&Reply::Say(502, String::new()));
    world.advance(31);
    assert_eq!(world.status_now(TOKEN, "acme", Access::Write), 200);
    let asked = || world.notes.backend.lock().unwrap().len();
    eventually("the refresh has failed", || asked() == 2).await;
    world.authorizer.shutdown().await;
    for _ in 0..50 {
        assert_eq!(world.status_now(TOKEN, "acme", Access::Write), 200);
    }
    assert_eq!(server.counts(), (2, 0));
}

#[tokio::test]
async fn the_memory_of_tokens_is_bounded_and_keeps_the_builds_that_run() {
    let server = Server::start().await;
    server.introspect(writes_acme());
    let mut config = server.config();
    config.memory.entries = 64;
    let world = World::new(config);
    assert_eq!(world.status(TOKEN, "acme", Access::Write).await, 200);
    revoked(&server);
    for n in 0..300 {
        assert_eq!(world.status(&format!("made-up-{n}"), "acme", Access::Write).await, 401);
    }
    assert!(world.authorizer.remembered() <= 64);
    assert_eq!(world.status_now(TOKEN, "acme", Access::Write), 200);
    world.authorizer.forget();
    assert_eq!(world.authorizer.remembered(), 0);
    assert_eq!(world.status_now(TOKEN, "acme", Access::Write), 0);
}

#[tokio::test]
async fn a_flood_of_made_up_tokens_is_turned_away_without_piling_up() {
    let server = Server::start().await;
    server.hold();
    let world = World::new(server.config());
    let tokens: Vec<String> = (0..3000).map(|n| format!("made-up-{n}")).collect();
    let statuses = join_all(tokens.iter().map(|token| world.status(token, "acme", Access::Write))).await;
    assert!(statuses.iter().all(|status| *status == 503));
    // At most 64 at a time; the rest gave up waiting or were turned away at once.
    assert!(server.counts().0 <= 64 * 4, "{:?}", server.counts());
}

#[tokio::test]
async fn decisions_and_questions_are_told_to_the_observer() {
    let (_server, world) = told(writes_acme()).await;
    assert_eq!(world.now(TOKEN, "acme", Access::Write), Decision::NeedsBackend);
    assert_eq!(world.status(TOKEN, "acme", Access::Write).await, 200);
    assert_eq!(world.status_now(TOKEN, "acme", Access::Write), 200);
    world.advance(31);
    assert_eq!(world.status_now(TOKEN, "acme", Access::Write), 200);
    let allowed = |waited| (Stage::Introspection, Verdict::Allow, waited);
    let decisions = world.notes.decisions.lock().unwrap().clone();
    assert_eq!(decisions, [true, false, false].map(allowed));
    let cache = world.notes.cache.lock().unwrap().clone();
    assert_eq!(cache, [CacheResult::Miss, CacheResult::Hit, CacheResult::Stale]);
    let request = world.notes.backend.lock().unwrap()[0];
    assert_eq!((request.route.as_str(), request.result()), ("introspect", "ok"));
    assert_eq!((request.status_class(), request.error_kind()), ("2xx", "none"));
    world.authorizer.shutdown().await;
}
