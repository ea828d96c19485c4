//! What GitHub, and the emulator before it, does not take.

use crate::World;
use serde_json::{Value, json};

const RUNNERS: &str = "/orgs/tuist/actions/runners";
const JIT: &str = "/orgs/tuist/actions/runners/generate-jitconfig";

#[tokio::test]
async fn headers_that_are_missing_or_wrong_are_refused() {
    let world = World::new().await;
    let token = world.token().await;
    let url = format!("{}{RUNNERS}", world.sim.url());
    let bare = || world.http.get(&url).bearer_auth(&token);
    let anonymous = bare().header("x-github-api-version", "2022-11-28");
    assert_eq!(world.send(anonymous).await.status, 403);
    let unversioned = world.send(bare().header("user-agent", "x")).await;
    assert_eq!(unversioned.status, 400);
    let of_version = |version| bare().header("user-agent", "x").header("x-github-api-version", version);
    let answer = world.send(of_version("1999-01-01")).await;
    assert_eq!(answer.status, 400);
    assert!(answer.message().contains("not a supported version"), "{}", answer.body);
    let versioned = || of_version("2022-11-28");
    assert_eq!(world.send(versioned().header("accept", "text/html")).await.status, 415);
    assert_eq!(world.send(versioned()).await.status, 200);
    world.sim.handle().set(|settings| settings.require_api_version = false);
    assert_eq!(world.send(bare().header("user-agent", "x")).await.status, 200);
}

#[tokio::test]
async fn nobody_gets_in_without_a_token_or_with_a_wrong_one() {
    let world = World::new().await;
    let answer = world.send(world.request("GET", RUNNERS)).await;
    assert_eq!((answer.status, answer.message()), (401, "Requires authentication"));
    let answer = world.as_app("GET", RUNNERS, "ghs_nonsense").await;
    assert_eq!((answer.status, answer.message()), (401, "Bad credentials"));
    // A JWT is no installation token.
    let answer = world.as_app("GET", RUNNERS, &crate::good_jwt()).await;
    assert_eq!(answer.status, 401);
}

#[tokio::test]
async fn unknown_paths_parameters_and_fields_are_refused() {
    let world = World::new().await;
    let named = Some(json!({"name": "x"}));
    let cases = [
        ("GET", "?pagesize=3", None, 422, "pagesize"),
        ("GET", "?page=0", None, 422, "page"),
        ("GET", "?page=1&page=2", None, 422, "more than once"),
        ("POST", "/registration-token", named, 422, "not a permitted key"),
        ("POST", "/registration-token?x=1", None, 422, "x"),
        ("PATCH", "", None, 404, "Not Found"),
        ("DELETE", "/none", None, 404, "Not Found"),
    ];
    for (method, below, body, status, message) in cases {
        let path = format!("{RUNNERS}{below}");
        let answer = world.as_installation(method, &path, body).await;
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.body);
        assert!(answer.message().contains(message), "{method} {path}: {}", answer.body);
        assert!(answer.body["documentation_url"].is_string());
    }
    let other = world.as_installation("GET", "/repos/tuist/tuist", None).await;
    assert_eq!(other.status, 501, "{}", other.body);
    assert!(other.message().contains("does not have this"), "{}", other.body);
    assert!(other.body["documentation_url"].is_string());
    let request = world.request("POST", JIT).bearer_auth(world.token().await);
    let broken = request.body("{\"name\":");
    assert_eq!(world.send(broken).await.message(), "Problems parsing JSON");
}

#[tokio::test]
async fn a_just_in_time_runner_needs_all_its_fields() {
    let world = World::new().await;
    let good = json!({"name": "job", "runner_group_id": 1, "labels": ["macos"], "work_folder": "_w"});
    let with = |name: &str, value: Value| {
        let mut body = good.clone();
        body[name] = value;
        body
    };
    let without = |name: &str| {
        let mut body = good.clone();
        body.as_object_mut().unwrap().remove(name);
        body
    };
    let cases = [
        (without("name"), 422, "missing required key: name"),
        (without("runner_group_id"), 422, "missing required key: runner_group_id"),
        (without("labels"), 422, "missing required key: labels"),
        (with("labels", json!([])), 422, "labels"),
        (with("labels", json!([1])), 422, "labels"),
        (with("name", json!("")), 422, "name"),
        (with("work_folder", json!(1)), 422, "work_folder"),
        (
            with("ephemeral", json!(true)),
            422,
            "\"ephemeral\" is not a permitted key",
        ),
        (with("runner_group_id", json!(2)), 403, "not accessible"),
        (with("runner_group_id", json!(99)), 404, "Not Found"),
        (good.clone(), 201, ""),
        (good.clone(), 409, "Already exists"),
    ];
    for (body, status, message) in cases {
        let answer = world.as_installation("POST", JIT, Some(body)).await;
        assert_eq!(answer.status, status, "{message}: {}", answer.body);
        assert!(answer.message().contains(message), "{message}: {}", answer.body);
    }
    assert_eq!(world.sim.handle().runner_names("tuist"), ["job"]);
}
