//! What an Instance can be made of, and how it is found again.

use super::{BOOT, STOP};
use crate::harness::{Api, INSTANCE, INSTANCES, instance, names};
use russet_sim_scaleway::{DEFAULT_PROJECT, Id, Zone};
use serde_json::{Value, json};

#[tokio::test]
async fn lists_count_in_a_header_have_small_pages_and_filter_by_all_tags() {
    let api = Api::with_settings(|settings| settings.page_cap = Some(2)).await;
    for name in ["one", "two", "two-more"] {
        api.instance(name).await;
    }
    let response = api
        .request("GET", &format!("{INSTANCES}?per_page=100&page=2"))
        .send()
        .await
        .unwrap();
    assert_eq!(response.headers()["x-total-count"], "3");
    let body: Value = response.json().await.unwrap();
    assert_eq!((names(&body).len(), body.get("total_count")), (1, None));
    let found = async |query: &str| {
        let path = format!("{INSTANCES}?order=creation_date_asc&{query}");
        api.read(path).await
    };
    assert_eq!(names(&found("tags=capi,machine-uid%3Dtwo").await), ["two"]);
    let named = found("name=two").await;
    assert_eq!(named["servers"].as_array().unwrap().len(), 2, "a part of the name");
    assert_eq!(found("state=running").await, json!({"servers": []}));
    for bad in [
        "page_size=1",
        "project_id=x",
        "tags=a&tags=b",
        "state=off",
        "order_by=x",
    ] {
        api.get(format!("{INSTANCES}?{bad}")).await.invalid();
    }
}

#[tokio::test]
async fn what_an_instance_cannot_be_made_of_is_refused_and_nothing_is_made() {
    let api = Api::start().await;
    let good = api.instance_order("a").await;
    let changed = |name: &str, value: Value| {
        let mut order = good.clone();
        order[name] = value;
        order
    };
    for (order, status, kind) in [
        (changed("image", json!("ubuntu_noble")), 400, "invalid_arguments"),
        (changed("image", json!(DEFAULT_PROJECT)), 404, "not_found"),
        (changed("commercial_type", json!("PRO9-S")), 400, "invalid_arguments"),
        (
            changed("commercial_type", json!("COPARM1-2C-8G")),
            400,
            "invalid_arguments",
        ),
        (
            changed("project", json!("0a11ce00-0000-4000-a000-0000000000ff")),
            403,
            "permissions_denied",
        ),
        (changed("project_id", json!(DEFAULT_PROJECT)), 400, "invalid_arguments"),
        (
            changed("volumes", json!({"0": {"volume_type": "l_ssd"}})),
            400,
            "invalid_arguments",
        ),
        (changed("volumes", json!({"0": {"size": 5}})), 400, "invalid_arguments"),
        (changed("volumes", json!({"root": {}})), 400, "invalid_arguments"),
        (changed("volumes", json!({"0": {"sise": 1}})), 400, "invalid_arguments"),
        (changed("public_ips", json!([DEFAULT_PROJECT])), 404, "not_found"),
    ] {
        api.post(INSTANCES, order.clone()).await.refused(status, kind);
    }
    let body = api.post(INSTANCES, json!({})).await.invalid();
    assert_eq!(body["details"][0]["argument_name"], "commercial_type");
    assert!(api.handle().instances().is_empty() && api.handle().volumes().is_empty());
    assert!(api.handle().bill().lines.is_empty());
}

#[tokio::test]
async fn a_type_that_is_sold_out_can_be_made_but_not_started() {
    let api = Api::start().await;
    let zone = Zone::new("fr-par-1");
    api.set_stock("PRO2-S", 0);
    let id = api.instance("a").await;
    api.act(&id, "poweron").await.refused(412, "out_of_stock");
    let stock = api.read(format!("{INSTANCE}/products/servers/availability")).await;
    assert_eq!(stock["servers"]["PRO2-S"]["availability"], "shortage");
    api.set_stock("PRO2-S", 1);
    api.act(&id, "poweron").await.ok();
    assert_eq!(api.handle().stock(&zone, "PRO2-S"), Some(0));
    api.advance(BOOT);
    api.act(&id, "poweroff").await.ok();
    api.advance(STOP);
    assert_eq!(api.handle().stock(&zone, "PRO2-S"), Some(1));
}

#[tokio::test]
async fn servers_of_other_projects_are_seen_only_by_keys_that_may() {
    let mut api = Api::start().await;
    let other: Id = "0a11ce00-0000-4000-a000-00000000000f".parse().unwrap();
    api.deed(json!({"deed": "add_project", "id": other, "name": "other"}));
    let id = api.made(json!({"deed": "add_instances", "project_id": other, "name": "foreign"}));
    let list = INSTANCES;
    assert!(names(&api.read(list).await).is_empty());
    api.get(instance(&id)).await.denied();
    api.use_key("wide", None, crate::harness::provider_without(&[]));
    assert_eq!(names(&api.read(list).await), ["foreign"]);
    assert!(names(&api.read(format!("{list}?project={DEFAULT_PROJECT}")).await).is_empty());
}

#[tokio::test]
async fn the_marketplace_knows_which_image_boots_which_type_and_asks_for_no_token() {
    let mut api = Api::start().await;
    api.use_token(None);
    let path =
        "/marketplace/v2/local-images?image_label=ubuntu_noble&zone=fr-par-1&order_by=type_asc&type=unknown_type";
    let all = api.read(path).await;
    assert_eq!(all["total_count"], 3);
    let boots = |number: usize, name: &str| {
        let types = all["local_images"][number]["compatible_commercial_types"]
            .as_array()
            .unwrap();
        types.iter().any(|known| known == name)
    };
    assert_eq!(all["local_images"][0]["type"], "instance_local");
    assert_eq!([boots(0, "DEV1-S"), boots(0, "PRO2-S")], [true, false]);
    assert_eq!([boots(1, "COPARM1-2C-8G"), boots(1, "PRO2-S")], [true, false]);
    assert_eq!([boots(2, "DEV1-S"), boots(2, "PRO2-S")], [true, true]);
    api.get("/marketplace/v2/local-images?zone=fr-par-1").await.invalid();
    api.get("/marketplace/v2/images").await.refused(501, "not_emulated");
}
