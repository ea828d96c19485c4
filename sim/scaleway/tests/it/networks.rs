//! Private networks and the addresses on them.

use crate::harness::{APPLE, Api, IPAM, VPC, server, shows, text};
use russet_sim_scaleway::{DEFAULT_PROJECT, Id, Permission};
use serde_json::{Value, json};
use std::time::Duration;

const ATTACH: Duration = Duration::from_secs(15);

fn networked(api: &Api, name: &str) -> Id {
    api.made(json!({"deed": "add_minis", "name": name, "vpc": true}))
}

async fn attach(api: &Api, server_id: &Id, network: &Id) -> Value {
    let path = format!("{}/private-networks", server(server_id));
    api.post(path, json!({"private_network_id": network})).await.ok()
}

async fn ips(api: &Api, query: &str) -> Value {
    api.read(format!("{IPAM}/ips?{query}")).await
}

#[tokio::test]
async fn the_vlan_is_known_only_once_the_network_is_attached() {
    let api = Api::start().await;
    let (mini, network) = (networked(&api, "m"), api.network("cache").await);
    let attaching = attach(&api, &mini, &network).await;
    shows!(attaching, {"status": "attaching", "vlan": null});
    api.advance(ATTACH);
    let path = format!("{}/private-networks/{network}", server(&mini));
    let attached = api.read(path).await;
    assert_eq!(attached["status"], "attached");
    assert!((2..=4094).contains(&attached["vlan"].as_u64().unwrap()), "{attached}");
    assert_eq!(attached["ipam_ip_ids"].as_array().unwrap().len(), 2);
    let list = api
        .read(format!("{APPLE}/server-private-networks?server_id={mini}"))
        .await;
    assert_eq!(list["server_private_networks"], json!([attached]));
}

#[tokio::test]
async fn attaching_needs_the_feature_to_be_on() {
    let api = Api::start().await;
    let (mini, network) = (api.mini("m"), api.network("cache").await);
    let path = format!("{}/private-networks", server(&mini));
    let body = json!({"private_network_id": network});
    api.post(&path, body.clone()).await.unmet();
    api.patch(server(&mini), json!({"enable_vpc": true})).await.ok();
    api.post(&path, body.clone()).await.busy();
    api.set(|settings| settings.attach_while_updating = Permission::Accept);
    assert_eq!(api.post(&path, body).await.ok()["status"], "attaching");
}

#[tokio::test]
async fn a_network_is_attached_once_and_only_in_its_region() {
    let api = Api::start().await;
    let (mini, network) = (networked(&api, "m"), api.network("cache").await);
    attach(&api, &mini, &network).await;
    let path = format!("{}/private-networks", server(&mini));
    api.post(&path, json!({"private_network_id": network}))
        .await
        .refused(409, "already_exists");
    let far = json!({"name": "far", "project_id": DEFAULT_PROJECT});
    let far = api.post("/vpc/v2/regions/nl-ams/private-networks", far).await.ok();
    api.post(&path, json!({"private_network_id": far["id"]}))
        .await
        .missing();
    api.post(&path, json!({})).await.invalid();
    api.post(&path, json!({"private_network_id": network, "ipam_ip_ids": [network]}))
        .await
        .invalid();
}

#[tokio::test]
async fn a_mini_has_at_most_eight_networks_with_a_vlan_each() {
    let api = Api::start().await;
    let mini = networked(&api, "m");
    let mut vlans = std::collections::BTreeSet::new();
    for number in 0..8 {
        let network = api.network(&format!("n{number}")).await;
        attach(&api, &mini, &network).await;
    }
    let ninth = api.network("n9").await;
    let path = format!("{}/private-networks", server(&mini));
    api.post(path, json!({"private_network_id": ninth}))
        .await
        .refused(403, "quotas_exceeded");
    api.advance(ATTACH);
    let list = api
        .read(format!("{APPLE}/server-private-networks?server_id={mini}"))
        .await;
    for attachment in list["server_private_networks"].as_array().unwrap() {
        vlans.insert(attachment["vlan"].as_u64().unwrap());
    }
    assert_eq!(vlans.len(), 8);
}

#[tokio::test]
async fn addresses_appear_late_with_ipv6_first_and_an_upper_case_mac() {
    let api = Api::start().await;
    let (mini, network) = (networked(&api, "m"), api.network("cache").await);
    let attachment = attach(&api, &mini, &network).await;
    api.advance(ATTACH);
    let query = format!("private_network_id={network}");
    shows!(ips(&api, &query).await, {"total_count": 0}, "attached, and not in IPAM yet");
    api.advance(Duration::from_secs(2));
    let rows = ips(&api, &query).await["ips"].clone();
    assert_eq!(
        (&rows[0]["is_ipv6"], &rows[1]["is_ipv6"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(rows[1]["address"], "172.16.0.2/22");
    let resource = &rows[1]["resource"];
    assert_eq!(resource["type"], "apple_silicon_private_nic");
    assert_eq!((&resource["id"], &resource["name"]), (&attachment["id"], &json!("m")));
    let mac = text(&resource["mac_address"]);
    assert_eq!(mac, mac.to_uppercase());
    let by_mac = |mac: &str| format!("{query}&mac_address={}", mac.replace(':', "%3A"));
    assert_eq!(ips(&api, &by_mac(mac)).await["total_count"], 2);
    assert_eq!(ips(&api, &by_mac(&mac.to_lowercase())).await["total_count"], 0);
    shows!(ips(&api, &format!("{query}&is_ipv6=false&resource_type=apple_silicon_private_nic")).await, {
        "total_count": 1,
    });
    shows!(ips(&api, &format!("{query}&resource_name=m&attached=true")).await, {"total_count": 2});
    shows!(ips(&api, &format!("{query}&resource_id={}", text(&attachment["id"]))).await, {"total_count": 2});
}

#[tokio::test]
async fn ipam_wants_exactly_one_source() {
    let api = Api::start().await;
    let network = api.network("cache").await;
    for query in [
        "",
        &format!("zonal=fr-par-1&private_network_id={network}"),
        &format!("resource_name=m&project_id={DEFAULT_PROJECT}"),
    ] {
        let body = api.get(format!("{IPAM}/ips?{query}")).await.invalid();
        assert!(
            text(&body["details"][0]["help_message"]).contains("exactly one"),
            "{body}"
        );
    }
    assert_eq!(ips(&api, "zonal=fr-par-1").await["total_count"], 0);
}

#[tokio::test]
async fn addresses_are_not_shared_and_come_back() {
    let api = Api::start().await;
    let network = api.network("cache").await;
    let v4 = |rows: &Value| -> Vec<String> {
        let rows = rows["ips"].as_array().unwrap().iter();
        let mut v4: Vec<String> = rows.map(|row| text(&row["address"]).to_owned()).collect();
        v4.sort();
        v4
    };
    let query = format!("private_network_id={network}&is_ipv6=false");
    let minis: Vec<Id> = (0..3).map(|number| networked(&api, &format!("m{number}"))).collect();
    for mini in &minis {
        attach(&api, mini, &network).await;
    }
    api.advance(Duration::from_mins(1));
    let found = v4(&ips(&api, &query).await);
    assert_eq!(found, ["172.16.0.2/22", "172.16.0.3/22", "172.16.0.4/22"]);
    api.delete(server(&minis[1])).await;
    shows!(ips(&api, &query).await, {"total_count": 2}, "addresses go with their server");
    let again = networked(&api, "again");
    attach(&api, &again, &network).await;
    api.advance(Duration::from_mins(1));
    assert_eq!(ips(&api, &query).await["total_count"], 3);
    assert!(v4(&ips(&api, &query).await).contains(&"172.16.0.2/22".to_owned()));
}

#[tokio::test]
async fn detaching_takes_a_while_and_frees_the_addresses_at_once() {
    let api = Api::start().await;
    let (mini, network) = (networked(&api, "m"), api.network("cache").await);
    attach(&api, &mini, &network).await;
    api.advance(Duration::from_mins(1));
    let path = format!("{}/private-networks/{network}", server(&mini));
    api.delete(format!("{VPC}/private-networks/{network}")).await.unmet();
    assert_eq!(api.delete(&path).await.status, 204);
    let detaching = api.read(&path).await;
    shows!(detaching, {"status": "detaching", "ipam_ip_ids": []});
    shows!(ips(&api, &format!("private_network_id={network}")).await, {"total_count": 0});
    api.delete(&path).await.busy();
    api.advance(Duration::from_secs(10));
    api.get(&path).await.missing();
    let found = api.delete(format!("{VPC}/private-networks/{network}")).await.status;
    assert_eq!(found, 204);
}

#[tokio::test]
async fn switching_the_feature_off_detaches_everything() {
    let api = Api::start().await;
    let (mini, network) = (networked(&api, "m"), api.network("cache").await);
    attach(&api, &mini, &network).await;
    api.advance(ATTACH);
    api.patch(server(&mini), json!({"enable_vpc": false})).await.ok();
    api.advance(Duration::from_mins(1));
    let list = api
        .read(format!("{APPLE}/server-private-networks?server_id={mini}"))
        .await;
    assert_eq!(list["total_count"], 0);
}

#[tokio::test]
async fn setting_the_networks_of_a_mini_is_all_or_nothing() {
    let api = Api::start().await;
    let mini = networked(&api, "m");
    let (one, two) = (api.network("one").await, api.network("two").await);
    attach(&api, &mini, &one).await;
    api.advance(ATTACH);
    let path = format!("{}/private-networks", server(&mini));
    let set = |ids: &[&Id]| {
        let map: serde_json::Map<String, Value> = ids.iter().map(|id| (id.to_string(), json!([]))).collect();
        json!({"per_private_network_ipam_ip_ids": map})
    };
    let missing: Id = "deadbeef-0000-4000-a000-00000000000f".parse().unwrap();
    let answer = api.put(&path, set(&[&two, &missing])).await;
    answer.missing();
    let list = format!("{APPLE}/server-private-networks?server_id={mini}");
    shows!(api.read(&list).await["server_private_networks"][0], {"status": "attached"});
    api.put(&path, set(&[&two])).await.ok();
    api.advance(Duration::from_mins(1));
    let rest = api.read(&list).await;
    assert_eq!(rest["total_count"], 1);
    assert_eq!(rest["server_private_networks"][0]["private_network_id"], json!(two));
}

/// A client that sets the same networks again and again while one is being detached never saw it go.
#[tokio::test]
async fn setting_the_same_networks_twice_does_not_begin_a_detachment_anew() {
    const DETACH: Duration = Duration::from_secs(10);
    let api = Api::start().await;
    let mini = networked(&api, "m");
    let network = api.network("one").await;
    attach(&api, &mini, &network).await;
    api.advance(ATTACH);
    let path = format!("{}/private-networks", server(&mini));
    let none = json!({"per_private_network_ipam_ip_ids": {}});
    for _ in 0..2 {
        api.put(&path, none.clone()).await.ok();
        api.advance(DETACH / 2);
    }
    let list = format!("{APPLE}/server-private-networks?server_id={mini}");
    assert_eq!(api.read(list).await["total_count"], 0);
}

#[tokio::test]
async fn the_name_of_a_network_is_searched_anywhere_in_it() {
    let api = Api::start().await;
    for name in ["tuist-runner-cache", "tuist-runner-cache-old", "other"] {
        api.network(name).await;
    }
    let list = api.read(format!("{VPC}/private-networks?name=runner-cache")).await;
    assert_eq!(list["total_count"], 2);
}

#[tokio::test]
async fn two_networks_may_have_one_name_but_not_one_block() {
    let api = Api::start().await;
    let path = format!("{VPC}/private-networks");
    let body = json!({"name": "cache", "project_id": DEFAULT_PROJECT, "subnets": ["172.16.0.0/22"], "tags": ["capi"]});
    let made = api.post(&path, body.clone()).await.ok();
    assert_eq!(made["subnets"][0]["subnet"], "172.16.0.0/22");
    let found = made["subnets"].as_array().unwrap().len();
    assert_eq!(found, 2, "an IPv6 subnet comes with it");
    api.post(&path, body).await.invalid();
    let body = json!({"name": "cache", "project_id": DEFAULT_PROJECT});
    let second = api.post(&path, body).await.ok();
    assert_ne!(second["subnets"][0]["subnet"], "172.16.0.0/22");
    let body = json!({"name": "x", "project_id": DEFAULT_PROJECT, "subnets": ["172.16.0.1/22"]});
    api.post(&path, body).await.invalid();
    let listed = api.read(format!("{path}?tags=capi")).await;
    assert_eq!(listed["total_count"], 1);
    let id = text(&made["id"]);
    let renamed = api.patch(format!("{path}/{id}"), json!({"name": "renamed"})).await.ok();
    shows!(renamed, {"name": "renamed", "tags": ["capi"]});
    let vpcs = api.read(format!("{VPC}/vpcs?is_default=true")).await;
    assert_eq!(vpcs["vpcs"][0]["private_network_count"], 2);
    assert_eq!(vpcs["vpcs"][0]["id"], made["vpc_id"]);
}
