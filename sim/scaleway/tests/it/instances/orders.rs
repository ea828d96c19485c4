//! What an Instance can be made of, and how it is found again.

use super::{BOOT, STOP};
use crate::harness::{Api, INSTANCE, instance, names};
use russet_sim_scaleway::{DEFAULT_PROJECT, Deed, Id, NewInstances, Zone};
use serde_json::{Value, json};

#[tokio::test]
async fn lists_count_in_a_header_have_small_pages_and_filter_by_all_tags() {
    let api = Api::with_settings(|settings| settings.page_cap = Some(2)).await;
    for name in ["one", "two", "two-more"] {
        api.instance(name).await;
    }
    let response = api
        .request("GET", &format!("{INSTANCE}/servers?per_page=100&page=2"))
        .send()
        .await
        .unwrap();
    assert_eq!(response.headers()["x-total-count"], "3");
    let body: Value = response.json().await.unwrap();
    assert_eq!((names(&body).len(), body.get("total_count")), (1, None));
    let found = async |query: &str| {
        let path = format!("{INSTANCE}/servers?order=creation_date_asc&{query}");
        api.get(&path).await.ok()
    };
    assert_eq!(names(&found("tags=capi,machine-uid%3Dtwo").await), ["two"]);
    assert_eq!(
        found("name=two").await["servers"].as_array().unwrap().len(),
        2,
        "a part of the name"
    );
    assert_eq!(found("state=running").await, json!({"servers": []}));
    for bad in [
        "page_size=1",
        "project_id=x",
        "tags=a&tags=b",
        "state=off",
        "order_by=x",
    ] {
        api.get(&format!("{INSTANCE}/servers?{bad}"))
            .await
            .refused(400, "invalid_arguments");
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
        api.post(&format!("{INSTANCE}/servers"), order.clone())
            .await
            .refused(status, kind);
    }
    let body = api
        .post(&format!("{INSTANCE}/servers"), json!({}))
        .await
        .refused(400, "invalid_arguments");
    assert_eq!(body["details"][0]["argument_name"], "commercial_type");
    assert!(api.handle().instances().is_empty() && api.handle().volumes().is_empty());
    assert!(api.handle().bill().lines.is_empty());
}

#[tokio::test]
async fn a_type_that_is_sold_out_can_be_made_but_not_started() {
    let api = Api::start().await;
    let zone = Zone::new("fr-par-1");
    let sold_out = Deed::SetStock {
        zone: zone.clone(),
        server_type: "PRO2-S".to_owned(),
        count: 0,
    };
    api.handle().perform(sold_out).unwrap();
    let id = api.instance("a").await;
    api.act(&id, "poweron").await.refused(412, "out_of_stock");
    let stock = api.get(&format!("{INSTANCE}/products/servers/availability")).await.ok();
    assert_eq!(stock["servers"]["PRO2-S"]["availability"], "shortage");
    api.handle()
        .perform(Deed::SetStock {
            zone: zone.clone(),
            server_type: "PRO2-S".to_owned(),
            count: 1,
        })
        .unwrap();
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
    let project = Deed::AddProject {
        id: other.clone(),
        name: "other".to_owned(),
        organization_id: None,
    };
    api.handle().perform(project).unwrap();
    let new = NewInstances {
        project_id: Some(other.clone()),
        name: "foreign".to_owned(),
        ..NewInstances::default()
    };
    let id = api.handle().perform(Deed::AddInstances(new)).unwrap().pop().unwrap();
    let list = format!("{INSTANCE}/servers");
    assert!(names(&api.get(&list).await.ok()).is_empty());
    api.get(&instance(&id)).await.refused(403, "permissions_denied");
    let key = Deed::AddKey {
        access_key: "SCWWIDE".to_owned(),
        secret_key: "wide".to_owned(),
        organization_id: None,
        projects: None,
        permission_sets: crate::harness::provider_without(&[]),
        expires_at: None,
    };
    api.handle().perform(key).unwrap();
    api.use_token(Some("wide"));
    assert_eq!(names(&api.get(&list).await.ok()), ["foreign"]);
    assert!(names(&api.get(&format!("{list}?project={DEFAULT_PROJECT}")).await.ok()).is_empty());
}

#[tokio::test]
async fn the_marketplace_knows_which_image_boots_which_type_and_asks_for_no_token() {
    let mut api = Api::start().await;
    api.use_token(None);
    let path =
        "/marketplace/v2/local-images?image_label=ubuntu_noble&zone=fr-par-1&order_by=type_asc&type=unknown_type";
    let all = api.get(path).await.ok();
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
    api.get("/marketplace/v2/local-images?zone=fr-par-1")
        .await
        .refused(400, "invalid_arguments");
    api.get("/marketplace/v2/images").await.refused(501, "not_emulated");
}
