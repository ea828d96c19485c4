//! Faults, limits and time, from behind the scenes.

use crate::{START, World, good_jwt};
use russet_sim_github::{Act, Fault};
use serde_json::{Value, json};

const RUNNERS: &str = "/orgs/tuist/actions/runners";

impl World {
    async fn control(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let url = format!("{}/_sim/{path}", self.sim.url());
        let request = self.http.request(method.parse().unwrap(), url);
        let answer = self.send(request.json(&body)).await;
        (answer.status, answer.body)
    }
}

#[tokio::test]
async fn every_answer_says_what_time_it_is_and_how_many_calls_are_left() {
    let world = World::new().await;
    let first = world.as_installation("GET", RUNNERS, None).await;
    assert_eq!(first.headers["date"], "Tue, 14 Nov 2023 22:13:20 GMT");
    assert_eq!(first.headers["x-ratelimit-remaining"], "4999");
    assert_eq!(first.headers["x-ratelimit-reset"], (START + 3600).to_string());
    assert_ne!(first.headers["x-github-request-id"], "");
    let skewed = world.control("PATCH", "settings", json!({"skew_seconds": 60})).await;
    assert_eq!(skewed.0, 200);
    let refused = world.as_app("POST", "/app/installations/42/access_tokens", "x").await;
    assert_eq!(refused.headers["date"], "Tue, 14 Nov 2023 22:14:20 GMT");
}

#[tokio::test]
async fn the_hour_is_counted_for_each_bearer() {
    let world = World::new().await;
    world.sim.handle().set(|settings| settings.hourly_limit = 2);
    let token = world.token().await;
    let list = || world.as_app("GET", RUNNERS, &token);
    assert_eq!((list().await.status, list().await.status), (200, 200));
    let spent = list().await;
    assert_eq!(spent.status, 403);
    assert_eq!(spent.headers["x-ratelimit-remaining"], "0");
    let (_, body) = world.control("POST", "clock", json!({"advance_seconds": 3599})).await;
    assert_eq!(body["factor"], 0.0);
    assert_eq!(list().await.status, 403);
    // The App is another bearer.
    let shown = world.as_app("GET", "/app/installations/42", &good_jwt()).await;
    assert_eq!(shown.status, 401, "its JWT ended long ago: {}", shown.body);
}

#[tokio::test]
async fn a_fault_strikes_before_or_after_the_effect() {
    let world = World::new().await;
    world.deed(json!({"deed": "add_runners", "org": "tuist", "count": 2}));
    let fault = json!({"method": "DELETE", "path": "/orgs/**", "act": {"status": 502}});
    assert_eq!(world.control("POST", "faults", fault).await.0, 200);
    let remove = || world.as_installation("DELETE", "/orgs/tuist/actions/runners/1", None);
    assert_eq!(remove().await.status, 502);
    assert_eq!(world.sim.handle().runner_names("tuist").len(), 2);
    let lost = Fault::new("DELETE", "/orgs/**", Act::Status(502)).after_effect();
    world.sim.handle().inject(lost);
    assert_eq!(remove().await.status, 502);
    assert_eq!(world.sim.handle().runner_names("tuist"), ["runner-2"]);
    assert_eq!(remove().await.status, 404);
    let journal = world.control("GET", "journal", Value::Null).await.1;
    let entries = journal.as_array().unwrap().iter();
    assert_eq!(entries.filter(|entry| !entry["fault"].is_null()).count(), 2);
    assert!(!journal.to_string().contains("ghs_"), "tokens are in the journal");
}

#[tokio::test]
async fn a_control_call_with_a_misspelt_word_is_refused_and_does_nothing() {
    let world = World::new().await;
    let half_good = json!([{"deed": "add_org", "org": "x"}, {"deed": "uninstall", "installation": 1}]);
    for (method, path, body) in [
        ("PATCH", "settings", json!({"skew": 1})),
        ("POST", "deeds", json!({"deed": "add_orgs", "org": "x"})),
        ("POST", "deeds", half_good),
        ("POST", "faults", json!({"paths": "/x", "act": "cut"})),
        ("POST", "clock", json!({"advance": 1})),
        ("POST", "clock", json!({"advance_seconds": -1.0})),
        ("DELETE", "faults/9", Value::Null),
        ("GET", "nothing", Value::Null),
    ] {
        let (status, answer) = world.control(method, path, body).await;
        assert!(status == 400 || status == 404, "{path}: {status}");
        assert!(!answer["message"].as_str().unwrap().is_empty(), "{path}");
    }
    let answer = world.as_installation("GET", "/orgs/x/actions/runners", None).await;
    let words = "the first of two deeds was done although the second could not be";
    assert_eq!(answer.status, 404, "{words}");
}

#[tokio::test]
async fn pages_follow_each_other_and_names_are_found() {
    let world = World::new().await;
    world.deed(json!({"deed": "add_runners", "org": "tuist", "count": 5}));
    let page = async |query: &str| world.as_installation("GET", &format!("{RUNNERS}?{query}"), None).await;
    let first = page("per_page=2").await;
    assert_eq!(first.body["total_count"], 5);
    assert_eq!(first.body["runners"].as_array().unwrap().len(), 2);
    assert!(first.headers["link"].to_str().unwrap().contains("page=2"));
    let last = page("per_page=2&page=3").await;
    assert_eq!(last.body["runners"][0]["name"], "runner-5");
    assert!(!last.headers.contains_key("link"));
    assert_eq!(page("name=runner-3").await.body["runners"][0]["id"], 3);
    assert_eq!(page("page=9").await.body["runners"], json!([]));
}
