//! What goes wrong on request.

use crate::harness::{Api, MINIS, names, server, shows};
use russet_sim_scaleway::{Act, Deed, Fault, PermissionSet};
use serde_json::json;
use std::time::Duration;

const SERVERS: &str = "/apple-silicon/v1alpha1/zones/*/servers";
const ONE: &str = "/apple-silicon/v1alpha1/zones/*/servers/*";

#[tokio::test]
async fn a_burst_of_429_names_the_time_to_wait() {
    let api = Api::start().await;
    api.inject(Fault::new("GET", SERVERS, Act::TooManyRequests { retry_after: 7 }).times(2));
    for _ in 0..2 {
        let response = api.request("GET", MINIS).send().await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()["retry-after"]),
            (429, &"7".parse().unwrap())
        );
        let body: serde_json::Value = response.json().await.unwrap();
        shows!(body, {"type": "too_many_requests", "reset_seconds": 7});
    }
    assert_eq!(api.get(MINIS).await.status, 200);
}

#[tokio::test]
async fn a_server_error_before_the_effect_leaves_the_world_alone() {
    let api = Api::start().await;
    api.inject(Fault::new("POST", SERVERS, Act::Status(502)));
    let answer = api.order("a").await;
    assert_eq!(answer.status, 502);
    assert!(answer.body.is_string(), "gateways do not speak JSON");
    assert!(api.handle().servers().is_empty());
    assert!(api.handle().bill().lines.is_empty());
}

#[tokio::test]
async fn a_server_error_after_the_effect_hides_what_was_done() {
    let api = Api::start().await;
    api.inject(Fault::new("POST", SERVERS, Act::Status(503)).after_effect());
    assert_eq!(api.order("a").await.status, 503);
    assert_eq!(api.handle().servers().len(), 1);
    assert_eq!(api.handle().bill().running().count(), 1, "and it is paid for");
}

#[tokio::test]
async fn a_cut_connection_may_or_may_not_have_renamed() {
    let api = Api::start().await;
    let id = api.mini("m");
    for (fault, name) in [
        (Fault::new("PATCH", ONE, Act::Cut), "m"),
        (Fault::new("PATCH", ONE, Act::Cut).after_effect(), "x"),
    ] {
        api.inject(fault);
        let lost = api.send("PATCH", &server(&id), Some(json!({"name": "x"}))).await;
        assert!(lost.is_err(), "{lost:?}");
        assert_eq!(api.server(&id).await["name"], name);
    }
}

#[tokio::test]
async fn a_hanging_call_answers_nothing_until_the_client_gives_up() {
    let api = Api::start().await;
    let id = api.mini("m");
    api.inject(Fault::new("POST", "/apple-silicon/**", Act::Hang).after_effect());
    let path = format!("{}/reinstall", server(&id));
    let hanging = api
        .request("POST", &path)
        .timeout(Duration::from_millis(200))
        .send()
        .await;
    assert!(hanging.unwrap_err().is_timeout());
    assert_eq!(api.server(&id).await["status"], "reinstalling");
}

#[tokio::test]
async fn the_nth_matching_call_is_struck_and_the_others_are_not() {
    let api = Api::start().await;
    let id = api.mini("m");
    api.inject(Fault::new("PATCH", ONE, Act::Status(500)).skip(1));
    let mut seen = Vec::new();
    for name in ["a", "b", "c"] {
        api.get(server(&id)).await;
        seen.push(api.patch(server(&id), json!({"name": name})).await.status);
    }
    assert_eq!(seen, [200, 500, 200]);
    assert!(api.handle().faults().is_empty());
}

/// Two controllers want one mini: the claim of the first is overwritten between its write and its check.
#[tokio::test]
async fn a_third_party_renames_in_the_middle_of_a_claim() {
    let api = Api::start().await;
    let id = api.mini("pool-1");
    let stolen = Deed::Rename {
        server: (&id).into(),
        name: "theirs".to_owned(),
    };
    api.inject(Fault::new("PATCH", ONE, Act::Meanwhile(vec![stolen])).after_effect());
    let answer = api.patch(server(&id), json!({"name": "claim-pending-1"})).await.ok();
    assert_eq!(answer["name"], "claim-pending-1", "the answer looks like success");
    shows!(api.server(&id).await, {"name": "theirs"}, "only the check shows the truth");
}

#[tokio::test]
async fn a_lasting_fault_strikes_until_it_is_cleared() {
    let api = Api::start().await;
    api.inject(Fault::new("GET", "/**", Act::Status(500)).for_ever());
    for _ in 0..5 {
        assert_eq!(api.get(MINIS).await.status, 500);
    }
    api.handle().clear_faults();
    assert_eq!(api.get(MINIS).await.status, 200);
}

#[tokio::test]
async fn a_rate_limit_counts_per_key() {
    let api = Api::with_settings(|settings| settings.rate_limit = Some(0)).await;
    api.get(MINIS).await.refused(429, "too_many_requests");
    api.set(|settings| settings.rate_limit = None);
    assert!(names(&api.read(MINIS).await).is_empty());
}

#[tokio::test]
async fn the_journal_has_every_call_with_its_fate_and_no_secret() {
    let api = Api::start().await;
    let id = api.mini("m");
    api.inject(Fault::new("PATCH", ONE, Act::Status(502)).after_effect());
    api.patch(server(&id), json!({"name": "x"})).await;
    api.get(format!("{MINIS}?page=0")).await;
    api.inject(Fault::new("GET", ONE, Act::Cut));
    let _ = api.send("GET", &server(&id), None).await;
    let journal = api.handle().journal();
    let told: Vec<_> = journal
        .iter()
        .map(|entry| (entry.method.as_str(), entry.status, entry.error.as_deref()))
        .collect();
    assert_eq!(
        told,
        [
            ("PATCH", 502, None),
            ("GET", 400, Some("invalid_arguments")),
            ("GET", 0, None)
        ]
    );
    assert!(journal[0].fault.is_some() && journal[0].reached && !journal[2].reached);
    assert_eq!(
        (api.handle().calls("PATCH", ONE), api.handle().calls("DELETE", ONE)),
        (1, 0)
    );
    let text = serde_json::to_string(&journal).unwrap();
    assert!(!text.contains(russet_sim_scaleway::DEFAULT_SECRET_KEY), "{text}");
    assert!(text.contains(russet_sim_scaleway::DEFAULT_ACCESS_KEY));
}

/// What a crash suite does: strike the n-th call of a scenario, whatever it is, and only one of two replicas.
#[tokio::test]
async fn any_call_of_one_key_can_be_struck_by_its_number() {
    let mut api = Api::start().await;
    let id = api.mini("m");
    api.inject(Fault::any(Act::Status(500)).skip(2).only_key("SCWOTHER"));
    for _ in 0..5 {
        assert_eq!(api.get(server(&id)).await.status, 200, "not the key that is struck");
    }
    api.use_key("other", None, PermissionSet::PROVIDER);
    let first = api.get(MINIS).await.status;
    let second = api.patch(server(&id), json!({"name": "x"})).await.status;
    let third = api.delete(server(&id)).await.status;
    assert_eq!([first, second, third], [200, 200, 500]);
    assert_eq!(api.server(&id).await["name"], "x");
}
