//! Lists, and what errors say to people.

use std::sync::atomic::Ordering;

use russet_scaleway::Kind;
use serde_json::json;

use crate::server::Script;
use crate::{PROJECT, World, mac, mac_id, zone};

const LIST_1: &str = "GET /apple-silicon/v1alpha1/zones/fr-par-1/servers?order_by=created_at_asc&project_id=11111111-2222-3333-4444-555555555555&page=1&page_size=2";
const LIST_2: &str = "GET /apple-silicon/v1alpha1/zones/fr-par-1/servers?order_by=created_at_asc&project_id=11111111-2222-3333-4444-555555555555&page=2&page_size=2";

fn page(ids: &[&str], total: u64) -> serde_json::Value {
    let servers: Vec<_> = ids
        .iter()
        .map(|id| mac(id, &format!("tuist-pool-{id}"), PROJECT))
        .collect();
    json!({ "servers": servers, "total_count": total })
}

async fn world(script: Script) -> World {
    World::with(script, |config| config.page_size = 2).await
}

#[tokio::test]
async fn a_list_of_one_page_is_asked_for_once() {
    let world = world(Script::new().answer(LIST_1, 200, page(&["a", "b"], 2))).await;
    assert_eq!(world.client.list_macs(&zone()).await.unwrap().len(), 2);
    world.finish();
}

/// `a` was deleted and `e` created between the pages, so `c` slipped to page 1 unseen while the totals added up.
#[tokio::test]
async fn a_list_whose_pages_shifted_is_read_until_it_rests() {
    let script = Script::new()
        .answer(LIST_1, 200, page(&["a", "b"], 4))
        .answer(LIST_2, 200, page(&["d", "e"], 4))
        .answer(LIST_1, 200, page(&["b", "c"], 4))
        .answer(LIST_2, 200, page(&["d", "e"], 4))
        .answer(LIST_1, 200, page(&["b", "c"], 4))
        .answer(LIST_2, 200, page(&["d", "e"], 4));
    let world = world(script).await;
    let macs = world.client.list_macs(&zone()).await.unwrap();
    assert_eq!(
        macs.iter().map(|mac| mac.id.as_str()).collect::<Vec<_>>(),
        ["b", "c", "d", "e"]
    );
    assert_eq!(world.log.shifts.load(Ordering::SeqCst), 2);
    world.finish();
}

#[tokio::test]
async fn a_list_that_keeps_moving_is_an_error_not_half_a_list() {
    let script = (0..6).fold(Script::new(), |script, round| {
        let gone = format!("x{round}");
        script
            .answer(LIST_1, 200, page(&[&gone, "b"], 3))
            .answer(LIST_2, 200, page(&["c"], 3))
    });
    let world = world(script).await;
    let error = world.client.list_macs(&zone()).await.unwrap_err();
    assert_eq!(error.kind, Kind::ListRestless { sweeps: 6 });
    world.finish();
}

#[tokio::test]
async fn macs_of_other_projects_are_left_out_of_the_list() {
    let foreign = mac("f", "tuist-pool-f", "22222222-2222-3333-4444-555555555555");
    let body = json!({ "servers": [mac("a", "tuist-pool-a", PROJECT), foreign], "total_count": 2 });
    let world = world(Script::new().answer(LIST_1, 200, body)).await;
    let macs = world.client.list_macs(&zone()).await.unwrap();
    assert_eq!(macs.iter().map(|mac| mac.id.as_str()).collect::<Vec<_>>(), ["a"]);
    world.finish();
}

#[tokio::test]
async fn every_error_says_what_to_do() {
    let get = "GET /apple-silicon/v1alpha1/zones/fr-par-1/servers/2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b";
    let table = [
        (
            401,
            json!({"type": "denied_authentication", "method": "api_key", "reason": "expired"}),
            "SCW_SECRET_KEY",
        ),
        (
            403,
            json!({"type": "permissions_denied", "details": [{"resource": "server", "action": "read"}]}),
            "AppleSiliconFullAccess",
        ),
        (
            403,
            json!({"type": "quotas_exceeded", "details": [{"resource": "m2l", "quota": 3, "current": 3}]}),
            "3 of 3",
        ),
        (
            404,
            json!({"type": "not_found", "resource": "server", "resource_id": "2f1c"}),
            "SCW_DEFAULT_PROJECT_ID",
        ),
        (
            412,
            json!({"type": "out_of_stock", "resource": "M2-L"}),
            "another type or zone",
        ),
        (
            423,
            json!({"type": "locked", "resource": "server", "resource_id": "2f1c"}),
            "support",
        ),
        (302, json!({}), "SCW_API_URL"),
    ];
    for (status, body, wanted) in table {
        let headers = vec![("X-Request-Id", "req-77"), ("Location", "http://127.0.0.1:1/")];
        let world = World::new(Script::new().answer_with(get, status, headers, body)).await;
        let text = world.client.get_mac(&zone(), &mac_id()).await.unwrap_err().to_string();
        assert!(text.starts_with("apple_silicon.get_server: "), "{text}");
        assert!(text.contains(wanted) && text.contains("req-77"), "{text}");
        world.finish();
    }
}
