//! Who is believed.

use crate::{APP, INSTALLATION, START, World, good_jwt, jwt};
use russet_sim_github::Deed;
use serde_json::json;
use std::time::Duration;

const MINT: &str = "/app/installations/42/access_tokens";

#[tokio::test]
async fn a_jwt_is_checked_to_the_letter() {
    let world = World::new().await;
    let good = json!({"iat": START - 30, "exp": START + 540, "iss": APP});
    let with = |name: &str, value: serde_json::Value| {
        let mut claims = good.clone();
        claims[name] = value;
        claims
    };
    let without = |name: &str| {
        let mut claims = good.clone();
        claims.as_object_mut().unwrap().remove(name);
        claims
    };
    let rs256 = json!({"alg": "RS256", "typ": "JWT"});
    let cases = [
        (jwt(&rs256, &good), 201, ""),
        (jwt(&rs256, &with("exp", json!(START + 600))), 201, ""),
        (jwt(&rs256, &with("iat", json!(START))), 201, ""),
        (
            jwt(&rs256, &with("exp", json!(START + 601))),
            401,
            "too far in the future",
        ),
        (jwt(&rs256, &with("exp", json!(START))), 401, "future time at which"),
        (jwt(&rs256, &with("exp", json!("soon"))), 401, "future time at which"),
        (jwt(&rs256, &with("iat", json!(START + 1))), 401, "'Issued at' claim"),
        (jwt(&rs256, &without("exp")), 401, "Missing 'expiration time'"),
        (jwt(&rs256, &without("iat")), 401, "Missing 'issued at'"),
        (jwt(&rs256, &without("iss")), 401, "Missing 'issuer'"),
        (jwt(&rs256, &with("iss", json!("Iv1.abc"))), 401, "must be an Integer"),
        (jwt(&rs256, &with("iss", json!(8))), 404, "Integration not found"),
        (jwt(&json!({"alg": "none"}), &good), 401, "could not be decoded"),
        (jwt(&json!({"alg": "HS256"}), &good), 401, "could not be decoded"),
        (good_jwt().replacen("ey", "ex", 1), 401, "could not be decoded"),
        (format!("{}x", good_jwt()), 401, "could not be decoded"),
        ("ghs_x".to_owned(), 401, "could not be decoded"),
        (String::new(), 401, ""),
    ];
    for (token, status, message) in cases {
        let answer = world.as_app("POST", MINT, &token).await;
        assert_eq!(answer.status, status, "{message}: {}", answer.body);
        assert!(answer.message().contains(message), "{message}: {}", answer.body);
    }
}

#[tokio::test]
async fn a_key_that_was_taken_away_signs_no_more() {
    let world = World::new().await;
    assert_eq!(world.as_app("POST", MINT, &good_jwt()).await.status, 201);
    world.sim.handle().perform(Deed::RemoveKeys { app: APP }).unwrap();
    assert_eq!(world.as_app("POST", MINT, &good_jwt()).await.status, 401);
}

#[tokio::test]
async fn an_installation_token_ends_after_an_hour() {
    let world = World::new().await;
    let token = world.token().await;
    assert!(token.starts_with("ghs_"), "{token}");
    let list = || world.as_app("GET", "/orgs/tuist/actions/runners", &token);
    world.sim.handle().advance(Duration::from_secs(3599));
    assert_eq!(list().await.status, 200);
    world.sim.handle().advance(Duration::from_secs(1));
    let answer = list().await;
    assert_eq!((answer.status, answer.message()), (401, "Bad credentials"));
}

#[tokio::test]
async fn a_token_may_do_less_than_its_installation_and_never_more() {
    let world = World::new().await;
    let mint = |body| world.send(world.request("POST", MINT).bearer_auth(good_jwt()).json(&body));
    let read = mint(json!({"permissions": {"organization_self_hosted_runners": "read"}})).await;
    let token = read.body["token"].as_str().unwrap().to_owned();
    let list = world.as_app("GET", "/orgs/tuist/actions/runners", &token).await;
    assert_eq!(list.status, 200);
    let register = "/orgs/tuist/actions/runners/registration-token";
    let answer = world.as_app("POST", register, &token).await;
    assert_eq!(answer.status, 403);
    assert_eq!(answer.message(), "Resource not accessible by integration");
    assert!(answer.headers.contains_key("x-accepted-github-permissions"));
    world.deed(json!({"deed": "grant", "installation": INSTALLATION, "runners": "read"}));
    let answer = mint(json!({"permissions": {"organization_self_hosted_runners": "write"}})).await;
    assert_eq!(answer.status, 422, "{}", answer.body);
    let answer = mint(json!({"permissions": {"contents": "write"}})).await;
    assert_eq!(answer.status, 422, "{}", answer.body);
}

#[tokio::test]
async fn an_installation_sees_its_own_organisation_only() {
    let world = World::new().await;
    let register = |org: &str| format!("/orgs/{org}/actions/runners/registration-token");
    for (org, status) in [("tuist", 201), ("Tuist", 201), ("acme", 403), ("nobody", 404)] {
        let answer = world.as_installation("POST", &register(org), None).await;
        assert_eq!(answer.status, status, "{org}: {}", answer.body);
    }
    world.deed(json!({"deed": "suspend", "installation": INSTALLATION, "suspended": true}));
    let answer = world.as_app("POST", MINT, &good_jwt()).await;
    assert_eq!(answer.status, 403);
    assert_eq!(answer.message(), "This installation has been suspended");
    let shown = world.as_app("GET", "/app/installations/42", &good_jwt()).await;
    assert_eq!(shown.body["account"]["login"], "tuist");
    assert!(shown.body["suspended_at"].is_string(), "{}", shown.body);
}

#[tokio::test]
async fn a_registration_token_registers_in_its_organisation_for_an_hour() {
    let world = World::new().await;
    let answer = world
        .as_installation("POST", "/orgs/tuist/actions/runners/registration-token", None)
        .await;
    let token = answer.body["token"].as_str().unwrap().to_owned();
    let register = |org: &str, token: &str| {
        world.sim.handle().perform(Deed::Register {
            org: org.to_owned(),
            token: token.to_owned(),
            name: "mac-1".to_owned(),
            labels: Vec::new(),
        })
    };
    assert!(register("acme", &token).is_err());
    assert!(register("tuist", "AAAA").is_err());
    register("tuist", &token).unwrap();
    register("tuist", &token).unwrap();
    assert_eq!(world.sim.handle().runner_names("tuist"), ["mac-1"]);
    world.sim.handle().advance(Duration::from_hours(1));
    assert!(register("tuist", &token).is_err());
}
