//! Nothing passes unseen.

use crate::harness::{APPLE, Api, IAM, IPAM, PUBLIC_KEY, VPC, order, provider_without, server};
use russet_sim_scaleway::{DEFAULT_PROJECT, Deed, Minis, PermissionSet, Zone};
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
        let body = api
            .get(&format!("{APPLE}/servers"))
            .await
            .refused(401, "denied_authentication");
        assert_eq!(
            (body["method"].as_str(), body["reason"].as_str()),
            (Some("api_key"), Some(reason))
        );
    }
}

#[tokio::test]
async fn an_expired_key_is_denied_with_its_own_reason() {
    let api = Api::start().await;
    let access_key = russet_sim_scaleway::DEFAULT_ACCESS_KEY.to_owned();
    api.handle().perform(Deed::ExpireKey { access_key }).unwrap();
    let body = api
        .get(&format!("{APPLE}/servers"))
        .await
        .refused(401, "denied_authentication");
    assert_eq!(body["reason"], "expired");
}

#[tokio::test]
async fn an_unknown_field_is_named_in_the_refusal_and_nothing_is_done() {
    let api = Api::start().await;
    let mut body = order("a");
    body["proyect_id"] = json!("x");
    let body = api
        .post(&format!("{APPLE}/servers"), body)
        .await
        .refused(400, "invalid_arguments");
    assert_eq!(body["details"][0]["argument_name"], "proyect_id");
    assert_eq!(body["details"][0]["reason"], "unknown");
    assert!(api.handle().servers().is_empty());
    let id = api.mini("m");
    api.patch(&server(&id), json!({"tags": ["a"]}))
        .await
        .refused(400, "invalid_arguments");
    api.post(&format!("{}/reboot", server(&id)), json!({"force": true}))
        .await
        .refused(400, "invalid_arguments");
    api.post(
        &format!("{IAM}/ssh-keys"),
        json!({"public_key": PUBLIC_KEY, "project_id": DEFAULT_PROJECT, "key": 1}),
    )
    .await
    .refused(400, "invalid_arguments");
    api.post(
        &format!("{VPC}/private-networks"),
        json!({"project_id": DEFAULT_PROJECT, "cidr": "x"}),
    )
    .await
    .refused(400, "invalid_arguments");
}

#[tokio::test]
async fn an_unknown_query_parameter_is_refused_rather_than_ignored() {
    let api = Api::start().await;
    for path in [
        format!("{APPLE}/servers?name=x"),
        format!("{APPLE}/servers?project_id={DEFAULT_PROJECT}&project_id={DEFAULT_PROJECT}"),
        format!("{APPLE}/os?family=Tahoe"),
        format!("{APPLE}/server-types?page=1"),
        format!("{VPC}/private-networks?subnet=x"),
        format!("{IPAM}/ips?private_network_id={DEFAULT_PROJECT}&mac=x"),
        format!("{IAM}/ssh-keys?project_id={DEFAULT_PROJECT}&fingerprint=x"),
        format!("{APPLE}/servers?project_id=mine"),
        format!("{APPLE}/servers?order_by=name_asc"),
    ] {
        api.get(&path).await.refused(400, "invalid_arguments");
    }
}

#[tokio::test]
async fn a_body_that_is_no_json_object_is_refused() {
    let api = Api::start().await;
    let path = format!("{APPLE}/servers");
    for body in ["{", "[]", "\"x\""] {
        let response = api.request("POST", &path).body(body).send().await.unwrap();
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
        let body = api.patch(&server(&id), body).await.refused(400, "invalid_arguments");
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
        api.get(path).await.refused(400, "invalid_arguments");
    }
}

#[tokio::test]
async fn a_server_is_found_only_in_its_own_zone() {
    let api = Api::start().await;
    let id = api.mini("m");
    let elsewhere = format!("/apple-silicon/v1alpha1/zones/fr-par-3/servers/{id}");
    api.get(&elsewhere).await.refused(404, "not_found");
    assert_eq!(api.get(&server(&id)).await.status, 200);
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
    api.get(&format!("{APPLE}/runners")).await.refused(501, "not_emulated");
    api.get("/instance/v1/zones/fr-par-1/snapshots")
        .await
        .refused(501, "not_emulated");
}

#[tokio::test]
async fn a_wrong_method_is_told_the_right_ones() {
    let api = Api::start().await;
    let id = api.mini("m");
    for (method, path, allowed) in [
        ("PUT", format!("{APPLE}/servers"), "GET, POST"),
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
    let body = api
        .get(&format!("{APPLE}/servers/mine"))
        .await
        .refused(400, "invalid_arguments");
    assert_eq!(body["details"][0]["argument_name"], "server_id");
}

#[tokio::test]
async fn an_order_without_a_project_or_for_a_foreign_one_is_refused() {
    let api = Api::start().await;
    let path = format!("{APPLE}/servers");
    let body = api
        .post(&path, json!({"name": "a", "type": "M2-L"}))
        .await
        .refused(400, "invalid_arguments");
    assert_eq!(body["details"][0]["argument_name"], "project_id");
    let foreign = "deadbeef-0000-4000-a000-000000000001";
    let body = json!({"name": "a", "type": "M2-L", "project_id": foreign});
    api.post(&path, body).await.refused(403, "permissions_denied");
    assert!(api.handle().bill().lines.is_empty());
}

/// Scaleway tightened this one day, and a new fleet could not be added to a running cluster.
#[tokio::test]
async fn listing_or_making_ssh_keys_without_a_project_is_denied() {
    let api = Api::start().await;
    let body = api
        .get(&format!("{IAM}/ssh-keys"))
        .await
        .refused(403, "permissions_denied");
    assert_eq!(body["details"], json!([{"action": "list", "resource": "ssh_key"}]));
    assert_eq!(body["message"], "insufficient permissions");
    let body = json!({"name": "fleet", "public_key": PUBLIC_KEY});
    api.post(&format!("{IAM}/ssh-keys"), body)
        .await
        .refused(403, "permissions_denied");
    assert_eq!(
        api.get(&format!("{IAM}/ssh-keys?project_id={DEFAULT_PROJECT}"))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn a_key_for_the_whole_organisation_may_list_ssh_keys_of_all_projects() {
    let mut api = Api::start().await;
    let deed = Deed::AddKey {
        access_key: "SCWORG".to_owned(),
        secret_key: "org".to_owned(),
        organization_id: None,
        projects: None,
        permission_sets: PermissionSet::PROVIDER.into(),
        expires_at: None,
    };
    api.handle().perform(deed).unwrap();
    api.use_token(Some("org"));
    assert_eq!(api.get(&format!("{IAM}/ssh-keys")).await.ok()["total_count"], 0);
}

#[tokio::test]
async fn each_product_needs_its_own_permission_set() {
    let mut api = Api::start().await;
    let id = api.mini("m");
    let cases = [
        (
            PermissionSet::AppleSiliconFullAccess,
            format!("{APPLE}/servers"),
            "server",
        ),
        (
            PermissionSet::PrivateNetworksFullAccess,
            format!("{VPC}/private-networks"),
            "private_network",
        ),
        (
            PermissionSet::IpamReadOnly,
            format!("{IPAM}/ips?private_network_id={DEFAULT_PROJECT}"),
            "ip",
        ),
        (
            PermissionSet::SshKeysFullAccess,
            format!("{IAM}/ssh-keys?project_id={DEFAULT_PROJECT}"),
            "ssh_key",
        ),
    ];
    for (set, path, resource) in cases {
        let deed = Deed::AddKey {
            access_key: "SCWLIMITED".to_owned(),
            secret_key: "limited".to_owned(),
            organization_id: None,
            projects: Some([DEFAULT_PROJECT.parse().unwrap()].into()),
            permission_sets: provider_without(&[set]),
            expires_at: None,
        };
        api.handle().perform(deed).unwrap();
        api.use_token(Some("limited"));
        let body = api.get(&path).await.refused(403, "permissions_denied");
        assert_eq!(body["details"][0]["resource"], resource);
    }
    let deed = Deed::AddKey {
        access_key: "SCWLOOKS".to_owned(),
        secret_key: "looks".to_owned(),
        organization_id: None,
        projects: Some([DEFAULT_PROJECT.parse().unwrap()].into()),
        permission_sets: [PermissionSet::AppleSiliconReadOnly].into(),
        expires_at: None,
    };
    api.handle().perform(deed).unwrap();
    api.use_token(Some("looks"));
    assert_eq!(api.get(&server(&id)).await.status, 200);
    api.patch(&server(&id), json!({"name": "x"}))
        .await
        .refused(403, "permissions_denied");
    api.delete(&server(&id)).await.refused(403, "permissions_denied");
}

#[tokio::test]
async fn a_foreign_project_is_visible_to_a_key_that_may_and_denied_to_others() {
    let mut api = Api::start().await;
    let foreign: russet_sim_scaleway::Id = "deadbeef-0000-4000-a000-000000000001".parse().unwrap();
    let project = Deed::AddProject {
        id: foreign.clone(),
        name: "theirs".to_owned(),
        organization_id: None,
    };
    api.handle().perform(project).unwrap();
    let ours = api.mini("ours");
    let theirs = Minis {
        name: "theirs".to_owned(),
        project_id: Some(foreign.clone()),
        ..Minis::default()
    };
    let theirs = api.handle().add_minis(theirs).unwrap().pop().unwrap();
    let list = api.get(&format!("{APPLE}/servers")).await.ok();
    assert_eq!(crate::harness::names(&list), ["ours"]);
    api.get(&server(&theirs)).await.refused(403, "permissions_denied");
    api.get(&format!("{APPLE}/servers?project_id={foreign}"))
        .await
        .refused(403, "permissions_denied");

    let both = Deed::AddKey {
        access_key: "SCWBOTH".to_owned(),
        secret_key: "both".to_owned(),
        organization_id: None,
        projects: Some([DEFAULT_PROJECT.parse().unwrap(), foreign].into()),
        permission_sets: PermissionSet::PROVIDER.into(),
        expires_at: None,
    };
    api.handle().perform(both).unwrap();
    api.use_token(Some("both"));
    let list = api.get(&format!("{APPLE}/servers")).await.ok();
    assert_eq!(
        list["total_count"], 2,
        "without project_id the list has whatever the key sees"
    );
    let list = api
        .get(&format!("{APPLE}/servers?project_id={DEFAULT_PROJECT}"))
        .await
        .ok();
    assert_eq!(list["servers"][0]["id"], json!(ours));
    assert_eq!(list["total_count"], 1);
}

#[tokio::test]
async fn projects_can_be_looked_up_and_prices_need_no_token() {
    let mut api = Api::start().await;
    let project = api.get(&format!("/account/v3/projects/{DEFAULT_PROJECT}")).await.ok();
    let organization = project["organization_id"].as_str().unwrap();
    let list = api
        .get(&format!("/account/v3/projects?organization_id={organization}"))
        .await
        .ok();
    assert_eq!(list["projects"][0]["id"], DEFAULT_PROJECT);
    api.get("/account/v3/projects").await.refused(400, "invalid_arguments");
    api.use_token(None);
    let zone = Zone::new("fr-par-1");
    let path = format!("/product-catalog/v2alpha1/public-catalog/products?product_types=apple_silicon&zone={zone}");
    let prices = api.get(&path).await.ok();
    let of_m2_l = |product: &&serde_json::Value| {
        product["properties"]["apple_silicon"]["server_type"] == "M2-L" && product["unit_of_measure"]["unit"] == "hour"
    };
    let product = prices["products"].as_array().unwrap().iter().find(of_m2_l).unwrap();
    assert_eq!(product["price"]["retail_price"]["nanos"], 210_000_000);
}
