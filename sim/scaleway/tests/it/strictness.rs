//! Nothing passes unseen.

use crate::harness::{APPLE, Api, IAM, IPAM, MINIS, PUBLIC_KEY, VPC, order, provider_without, server, shows, text};
use russet_sim_scaleway::{DEFAULT_PROJECT, PermissionSet as Set, Zone};
use serde_json::json;

#[tokio::test]
async fn a_call_without_a_token_is_denied_authentication() {
    let mut api = Api::start().await;
    for (token, reason) in [
        (None, "invalid_argument"),
        (Some(""), "invalid_argument"),
        (Some("nobody"), "not_found"),
    ] {
        api.use_token(token);
        let body = api.get(MINIS).await.refused(401, "denied_authentication");
        assert_eq!(
            (body["method"].as_str(), body["reason"].as_str()),
            (Some("api_key"), Some(reason))
        );
    }
}

#[tokio::test]
async fn an_expired_key_is_denied_with_its_own_reason() {
    let api = Api::start().await;
    api.deed(json!({"deed": "expire_key", "access_key": russet_sim_scaleway::DEFAULT_ACCESS_KEY}));
    let body = api.get(MINIS).await.refused(401, "denied_authentication");
    assert_eq!(body["reason"], "expired");
}

#[tokio::test]
async fn an_unknown_field_is_named_in_the_refusal_and_nothing_is_done() {
    let api = Api::start().await;
    let mut body = order("a");
    body["proyect_id"] = json!("x");
    let body = api.post(MINIS, body).await.invalid();
    assert_eq!(body["details"][0]["argument_name"], "proyect_id");
    assert_eq!(body["details"][0]["reason"], "unknown");
    assert!(api.handle().servers().is_empty());
    let id = api.mini("m");
    api.patch(server(&id), json!({"tags": ["a"]})).await.invalid();
    api.post(format!("{}/reboot", server(&id)), json!({"force": true}))
        .await
        .invalid();
    api.post(
        format!("{IAM}/ssh-keys"),
        json!({"public_key": PUBLIC_KEY, "project_id": DEFAULT_PROJECT, "key": 1}),
    )
    .await
    .invalid();
    api.post(
        format!("{VPC}/private-networks"),
        json!({"project_id": DEFAULT_PROJECT, "cidr": "x"}),
    )
    .await
    .invalid();
}

#[tokio::test]
async fn an_unknown_query_parameter_is_refused_rather_than_ignored() {
    let api = Api::start().await;
    for path in [
        format!("{MINIS}?name=x"),
        format!("{MINIS}?project_id={DEFAULT_PROJECT}&project_id={DEFAULT_PROJECT}"),
        format!("{APPLE}/os?family=Tahoe"),
        format!("{APPLE}/server-types?page=1"),
        format!("{VPC}/private-networks?subnet=x"),
        format!("{IPAM}/ips?private_network_id={DEFAULT_PROJECT}&mac=x"),
        format!("{IAM}/ssh-keys?project_id={DEFAULT_PROJECT}&fingerprint=x"),
        format!("{MINIS}?project_id=mine"),
        format!("{MINIS}?order_by=name_asc"),
    ] {
        api.get(&path).await.invalid();
    }
}

#[tokio::test]
async fn a_body_that_is_no_json_object_is_refused() {
    let api = Api::start().await;
    let path = MINIS;
    for body in ["{", "[]", "\"x\""] {
        let response = api.request("POST", path).body(body).send().await.unwrap();
        assert_eq!(response.status(), 400, "{body}");
    }
}

#[tokio::test]
async fn a_wrong_type_of_value_is_a_format_error() {
    let api = Api::start().await;
    let id = api.mini("m");
    for body in [
        json!({"name": 1}),
        json!({"enable_vpc": "yes"}),
        json!({"public_bandwidth_bps": -1}),
    ] {
        let body = api.patch(server(&id), body).await.invalid();
        assert_eq!(body["details"][0]["reason"], "format");
    }
}

#[tokio::test]
async fn a_zone_without_minis_and_a_region_that_is_none_are_refused() {
    let api = Api::start().await;
    for path in [
        "/apple-silicon/v1alpha1/zones/nl-ams-1/servers",
        "/apple-silicon/v1alpha1/zones/fr-par/servers",
        "/vpc/v2/regions/fr-par-1/private-networks",
        "/ipam/v1/regions/mars/ips",
    ] {
        api.get(path).await.invalid();
    }
}

#[tokio::test]
async fn a_server_is_found_only_in_its_own_zone() {
    let api = Api::start().await;
    let id = api.mini("m");
    let elsewhere = format!("/apple-silicon/v1alpha1/zones/fr-par-3/servers/{id}");
    api.get(elsewhere).await.missing();
    assert_eq!(api.get(server(&id)).await.status, 200);
}

#[tokio::test]
async fn an_unknown_path_is_not_mistaken_for_a_missing_server() {
    let api = Api::start().await;
    for path in [
        "/",
        "/apple-silicon/v1/zones/fr-par-1/servers",
        "/apple-silicon/v1alpha1/zones/fr-par-1/server",
        "//x",
    ] {
        api.get(path).await.refused(404, "unknown_route");
    }
    api.get(format!("{APPLE}/runners")).await.refused(501, "not_emulated");
    api.get("/instance/v1/zones/fr-par-1/snapshots")
        .await
        .refused(501, "not_emulated");
}

#[tokio::test]
async fn a_wrong_method_is_told_the_right_ones() {
    let api = Api::start().await;
    let id = api.mini("m");
    for (method, path, allowed) in [
        ("PUT", MINIS.to_owned(), "GET, POST"),
        ("POST", server(&id), "GET, PATCH, DELETE"),
        ("GET", format!("{}/reinstall", server(&id)), "POST"),
        ("POST", format!("{APPLE}/os"), "GET"),
        ("PUT", format!("{IAM}/ssh-keys"), "GET, POST"),
        ("PUT", format!("{VPC}/private-networks"), "GET, POST"),
    ] {
        let response = api.request(method, &path).send().await.unwrap();
        assert_eq!(response.status(), 405, "{method} {path}");
        assert_eq!(response.headers()["allow"], allowed, "{method} {path}");
    }
}

#[tokio::test]
async fn an_id_that_is_no_uuid_is_a_format_error() {
    let api = Api::start().await;
    let body = api.get(format!("{MINIS}/mine")).await.invalid();
    assert_eq!(body["details"][0]["argument_name"], "server_id");
}

#[tokio::test]
async fn an_order_without_a_project_or_for_a_foreign_one_is_refused() {
    let api = Api::start().await;
    let path = MINIS;
    let body = api.post(path, json!({"name": "a", "type": "M2-L"})).await.invalid();
    assert_eq!(body["details"][0]["argument_name"], "project_id");
    let foreign = "deadbeef-0000-4000-a000-000000000001";
    let body = json!({"name": "a", "type": "M2-L", "project_id": foreign});
    api.post(path, body).await.denied();
    assert!(api.handle().bill().lines.is_empty());
}

/// Scaleway tightened this one day, and a new fleet could not be added to a running cluster.
#[tokio::test]
async fn listing_or_making_ssh_keys_without_a_project_is_denied() {
    let api = Api::start().await;
    let body = api.get(format!("{IAM}/ssh-keys")).await.denied();
    assert_eq!(body["details"], json!([{"action": "list", "resource": "ssh_key"}]));
    assert_eq!(body["message"], "insufficient permissions");
    let body = json!({"name": "fleet", "public_key": PUBLIC_KEY});
    api.post(format!("{IAM}/ssh-keys"), body).await.denied();
    assert_eq!(
        api.get(format!("{IAM}/ssh-keys?project_id={DEFAULT_PROJECT}"))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn a_key_for_the_whole_organisation_may_list_ssh_keys_of_all_projects() {
    let mut api = Api::start().await;
    api.use_key("org", None, Set::PROVIDER);
    assert_eq!(api.read(format!("{IAM}/ssh-keys")).await["total_count"], 0);
}

#[tokio::test]
async fn each_product_needs_its_own_permission_set() {
    let mut api = Api::start().await;
    let id = api.mini("m");
    let (of_network, of_project) = (
        format!("private_network_id={DEFAULT_PROJECT}"),
        format!("project_id={DEFAULT_PROJECT}"),
    );
    for (set, path, resource) in [
        (Set::AppleSiliconFullAccess, MINIS.to_owned(), "server"),
        (
            Set::PrivateNetworksFullAccess,
            format!("{VPC}/private-networks"),
            "private_network",
        ),
        (Set::IpamReadOnly, format!("{IPAM}/ips?{of_network}"), "ip"),
        (
            Set::SshKeysFullAccess,
            format!("{IAM}/ssh-keys?{of_project}"),
            "ssh_key",
        ),
    ] {
        api.use_key("limited", Some(json!([DEFAULT_PROJECT])), provider_without(&[set]));
        let body = api.get(&path).await.denied();
        assert_eq!(body["details"][0]["resource"], resource);
    }
    api.use_key("looks", Some(json!([DEFAULT_PROJECT])), [Set::AppleSiliconReadOnly]);
    assert_eq!(api.get(server(&id)).await.status, 200);
    api.patch(server(&id), json!({"name": "x"})).await.denied();
    api.delete(server(&id)).await.denied();
}

#[tokio::test]
async fn a_foreign_project_is_visible_to_a_key_that_may_and_denied_to_others() {
    let mut api = Api::start().await;
    let foreign: russet_sim_scaleway::Id = "deadbeef-0000-4000-a000-000000000001".parse().unwrap();
    api.deed(json!({"deed": "add_project", "id": foreign, "name": "theirs"}));
    let ours = api.mini("ours");
    let theirs = api.made(json!({"deed": "add_minis", "name": "theirs", "project_id": foreign}));
    let list = api.read(MINIS).await;
    assert_eq!(crate::harness::names(&list), ["ours"]);
    api.get(server(&theirs)).await.denied();
    api.get(format!("{MINIS}?project_id={foreign}")).await.denied();

    api.use_key("both", Some(json!([DEFAULT_PROJECT, foreign])), Set::PROVIDER);
    let list = api.read(MINIS).await;
    shows!(list, {"total_count": 2}, "without project_id the list has whatever the key sees");
    let list = api.read(format!("{MINIS}?project_id={DEFAULT_PROJECT}")).await;
    assert_eq!(list["servers"][0]["id"], json!(ours));
    assert_eq!(list["total_count"], 1);
}

#[tokio::test]
async fn projects_can_be_looked_up_and_prices_need_no_token() {
    let mut api = Api::start().await;
    let project = api.read(format!("/account/v3/projects/{DEFAULT_PROJECT}")).await;
    let organization = text(&project["organization_id"]);
    let list = api
        .read(format!("/account/v3/projects?organization_id={organization}"))
        .await;
    assert_eq!(list["projects"][0]["id"], DEFAULT_PROJECT);
    api.get("/account/v3/projects").await.invalid();
    api.use_token(None);
    let zone = Zone::new("fr-par-1");
    let path = format!("/product-catalog/v2alpha1/public-catalog/products?product_types=apple_silicon&zone={zone}");
    let prices = api.read(path).await;
    let of_m2_l = |product: &&serde_json::Value| {
        product["properties"]["apple_silicon"]["server_type"] == "M2-L" && product["unit_of_measure"]["unit"] == "hour"
    };
    let product = prices["products"].as_array().unwrap().iter().find(of_m2_l).unwrap();
    assert_eq!(product["price"]["retail_price"]["nanos"], 210_000_000);
}
