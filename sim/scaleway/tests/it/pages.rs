//! Lists: pages, shifting content, lag.

use crate::harness::{Api, MINIS, names, server, shows};
use russet_sim_scaleway::{Act, Deed, Fault};
use serde_json::json;
use std::time::Duration;

async fn page(api: &Api, number: u32, size: u32) -> serde_json::Value {
    api.read(format!("{MINIS}?page={number}&page_size={size}")).await
}

/// Five minis of different age, the oldest first.
fn five(api: &Api) {
    for number in 1..=5_u64 {
        api.deed(json!({"deed": "add_minis", "name": format!("m{number}"), "age_hours": 100 - number}));
    }
}

#[tokio::test]
async fn pages_cover_the_list_in_order_of_age_and_tell_how_much_there_is() {
    let api = Api::start().await;
    five(&api);
    let first = page(&api, 1, 2).await;
    assert_eq!((names(&first), &first["total_count"]), (vec!["m1", "m2"], &json!(5)));
    assert_eq!(names(&page(&api, 3, 2).await), ["m5"]);
    assert!(names(&page(&api, 4, 2).await).is_empty());
    let newest = api.read(format!("{MINIS}?order_by=created_at_desc&page_size=1")).await;
    assert_eq!(names(&newest), ["m5"]);
}

#[tokio::test]
async fn without_a_size_a_page_has_twenty() {
    let api = Api::start().await;
    api.deed(json!({"deed": "add_minis", "count": 25}));
    let list = api.read(MINIS).await;
    assert_eq!((names(&list).len(), &list["total_count"]), (20, &json!(25)));
    api.get(format!("{MINIS}?page_size=101")).await.invalid();
    api.get(format!("{MINIS}?page=0")).await.invalid();
}

#[tokio::test]
async fn a_deletion_between_two_pages_hides_a_server_from_both() {
    let api = Api::start().await;
    five(&api);
    let first = page(&api, 1, 2).await;
    api.handle().vanish("m1").unwrap();
    let second = page(&api, 2, 2).await;
    assert_eq!((names(&first), names(&second)), (vec!["m1", "m2"], vec!["m4", "m5"]));
    assert_eq!(second["total_count"], 4);
}

#[tokio::test]
async fn a_fault_can_shift_the_pages_at_just_the_right_moment() {
    let api = Api::start().await;
    five(&api);
    let deeds = vec![Deed::Vanish { server: "m1".into() }];
    let path = MINIS;
    api.inject(Fault::new("GET", path, Act::Meanwhile(deeds)).after_effect());
    assert_eq!(names(&page(&api, 1, 2).await), ["m1", "m2"]);
    assert_eq!(names(&page(&api, 2, 2).await), ["m4", "m5"]);
}

#[tokio::test]
async fn pages_may_be_smaller_than_asked_for() {
    let api = Api::with_settings(|settings| settings.page_cap = Some(1)).await;
    five(&api);
    assert_eq!(names(&page(&api, 1, 100).await), ["m1"]);
    assert_eq!(names(&page(&api, 5, 100).await), ["m5"]);
    assert_eq!(page(&api, 1, 100).await["total_count"], 5);
}

#[tokio::test]
async fn a_lagging_list_misses_the_new_shows_the_old_name_and_keeps_the_deleted() {
    let api = Api::with_settings(|settings| settings.list_lag = Duration::from_secs(30)).await;
    let gone = api.mini("gone");
    let list = || async { api.read(MINIS).await };
    let kept = api.order("kept").await.ok()["id"].as_str().unwrap().parse().unwrap();
    let old = list().await;
    assert_eq!(
        names(&old),
        ["gone"],
        "what was there long ago is listed, what is new is not"
    );
    api.advance(Duration::from_secs(30));
    assert_eq!(names(&list().await), ["gone", "kept"]);
    api.patch(server(&kept), json!({"name": "renamed"})).await.ok();
    api.delete(server(&gone)).await;
    let stale = list().await;
    assert_eq!(names(&stale), ["gone", "kept"]);
    shows!(api.server(&kept).await, {"name": "renamed"}, "a read of one server is up to date");
    api.advance(Duration::from_secs(30));
    assert_eq!(names(&list().await), ["renamed"]);
}
