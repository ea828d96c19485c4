//! The control API over HTTP.

use crate::harness::{Api, MINIS, shows, text};
use serde_json::json;

#[tokio::test]
async fn the_world_is_controlled_over_http_too() {
    let mut api = Api::start().await;
    api.use_token(None);
    assert_eq!(api.read("/_sim/health").await, json!({"ok": true}));
    let deeds = json!([
        {"deed": "add_minis", "name": "pool", "count": 2, "vpc": true},
        {"deed": "rename", "server": {"name": "pool-1"}, "name": "claimed"},
    ]);
    let made = api.post("/_sim/deeds", deeds).await.ok();
    assert_eq!(made["servers"].as_array().unwrap().len(), 2);
    let servers = api.read("/_sim/servers").await;
    let mut names: Vec<&str> = servers
        .as_array()
        .unwrap()
        .iter()
        .map(|server| text(&server["name"]))
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["claimed", "pool-2"]);

    let before = api.read("/_sim/clock").await;
    assert_eq!(before, json!({"now": "2026-10-01T08:00:00Z", "factor": 0.0}));
    let after = api.post("/_sim/clock", json!({"advance_seconds": 90})).await.ok();
    assert_eq!(after["now"], "2026-10-01T08:01:30Z");

    let fault = json!({"path": "/apple-silicon/**", "act": {"too_many_requests": {"retry_after": 3}}});
    let id = api.post("/_sim/faults", fault).await.ok()["id"].clone();
    assert_eq!(api.read("/_sim/faults").await[0]["id"], id);
    assert_eq!(api.get(MINIS).await.status, 429);
    assert_eq!(api.delete("/_sim/faults/1").await.status, 404, "it is spent");
    let lasting = json!({"path": "/**", "times": null, "act": {"status": 500}});
    api.post("/_sim/faults", lasting).await.ok();
    api.delete("/_sim/faults").await.ok();

    let bill = api.read("/_sim/bill").await;
    assert_eq!(bill["per_hour_micro_eur"], 420_000);
    let journal = api.read("/_sim/journal?after=0").await;
    assert_eq!(journal.as_array().unwrap().len(), 1, "control calls are not in it");
    api.delete("/_sim/journal").await.ok();
    assert_eq!(api.read("/_sim/journal").await, json!([]));
    let hosts = api.read("/_sim/hosts").await;
    shows!(hosts[0], {"username": "m1", "generation": 1});
    let events = api.read("/_sim/events?after=1&wait=true").await;
    assert_eq!(
        (events.as_array().unwrap().len(), &events[0]["change"]),
        (1, &json!("installed"))
    );
}

#[tokio::test]
async fn settings_are_changed_field_by_field_and_misspelt_ones_refused() {
    let api = Api::start().await;
    let changed = api
        .patch("/_sim/settings", json!({"delays": {"reboot": 5}, "page_cap": 1}))
        .await
        .ok();
    shows!(changed["delays"], {"reboot": 5.0, "reinstall": 600.0});
    for bad in [
        json!({"pagecap": 1}),
        json!({"delays": {"reboot": -1}}),
        json!({"vanished": "maybe"}),
    ] {
        let answer = api.patch("/_sim/settings", bad).await;
        assert_eq!(answer.status, 400, "{answer:?}");
    }
    assert_eq!(api.read("/_sim/settings").await, changed);
}

#[tokio::test]
async fn wrong_control_calls_say_what_is_wrong() {
    let api = Api::start().await;
    for (path, body, says) in [
        (
            "/_sim/deeds",
            json!({"deed": "rename", "server": {"name": "x"}, "name": "y"}),
            "no server",
        ),
        ("/_sim/deeds", json!({"deed": "dance"}), "unknown variant"),
        (
            "/_sim/deeds",
            json!({"deed": "add_minis", "zone": "mars-1"}),
            "not offered",
        ),
        ("/_sim/faults", json!({"act": "cut"}), "path"),
        ("/_sim/clock", json!({"factor": -1.0}), "factor"),
    ] {
        let answer = api.post(path, body).await;
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(text(&answer.body["message"]).contains(says), "{answer:?}");
    }
    assert_eq!(api.get("/_sim/nothing").await.status, 404);
    assert_eq!(api.post("/_sim/bill", json!({})).await.status, 404);
}

#[tokio::test]
async fn deeds_are_done_together_or_not_at_all() {
    let api = Api::start().await;
    let deeds = json!([{"deed": "add_minis"}, {"deed": "vanish", "server": {"name": "nobody"}}]);
    assert_eq!(api.post("/_sim/deeds", deeds).await.status, 400);
    assert!(api.handle().servers().is_empty());
}

#[tokio::test]
async fn a_follower_of_events_is_woken_when_something_happens() {
    let api = Api::start().await;
    let waiting = api.get("/_sim/events?after=0&wait=true");
    let acting = async {
        api.mini("m");
    };
    let (events, ()) = tokio::join!(waiting, acting);
    assert_eq!(events.ok()[0]["host"]["name"], "m");
}
