//! Private NICs of Instances.

use crate::harness::{Api, IPAM, VPC, instance, shows, text};
use russet_sim_scaleway::{Id, PrivateNics};
use serde_json::{Value, json};
use std::time::Duration;

async fn nic(api: &Api, id: &Id, network: &Id) -> Value {
    let body = json!({"private_network_id": network});
    let made = api.post(format!("{}/private_nics", instance(id)), body).await;
    assert_eq!(made.status, 201, "{made:?}");
    made.body["private_nic"].clone()
}

async fn rows(api: &Api, query: &str) -> Vec<Value> {
    api.read(format!("{IPAM}/ips?{query}")).await["ips"]
        .as_array()
        .unwrap()
        .clone()
}

#[tokio::test]
async fn a_nic_syncs_first_and_its_addresses_come_later_in_upper_case_and_ipv6_first() {
    let api = Api::start().await;
    let (id, network) = (api.instance("a").await, api.network("cache").await);
    let made = nic(&api, &id, &network).await;
    assert_eq!((&made["state"], &made["mac_address"]), (&json!("syncing"), &json!("")));
    api.advance(Duration::from_secs(5));
    let list = api.read(format!("{}/private_nics", instance(&id))).await;
    let ready = &list["private_nics"][0];
    assert_eq!(ready["state"], "available");
    let mac = text(&ready["mac_address"]);
    assert_eq!(mac, mac.to_lowercase());
    let of_network = format!("private_network_id={network}");
    assert!(rows(&api, &of_network).await.is_empty(), "not yet");
    api.advance(Duration::from_secs(2));
    let found = rows(&api, &of_network).await;
    assert_eq!(
        found
            .iter()
            .map(|row| row["is_ipv6"].as_bool().unwrap())
            .collect::<Vec<_>>(),
        [true, false]
    );
    shows!(found[1], {
        "resource": {"type": "instance_private_nic", "id": ready["id"], "mac_address": mac.to_uppercase(), "name": "a"},
    });
    assert!(
        rows(&api, &format!("{of_network}&mac_address={mac}")).await.is_empty(),
        "compared as it is"
    );
    assert_eq!(
        rows(&api, &format!("{of_network}&mac_address={}", mac.to_uppercase()))
            .await
            .len(),
        2
    );
    assert_eq!(
        rows(&api, &format!("{of_network}&resource_id={}", text(&ready["id"])))
            .await
            .len(),
        2
    );
    // The vendor's SDK always names a type, and means none by this one: it found nothing here once.
    assert_eq!(
        rows(&api, &format!("{of_network}&resource_type=unknown_type"))
            .await
            .len(),
        2
    );
    api.get(format!("{IPAM}/ips?{of_network}&zonal=fr-par-1"))
        .await
        .invalid();
}

#[tokio::test]
async fn a_server_says_nothing_of_its_nics_unless_told_to() {
    for (setting, expected) in [(PrivateNics::Omitted, None), (PrivateNics::Shown, Some(1))] {
        let api = Api::with_settings(|settings| settings.private_nics = setting).await;
        let (id, network) = (api.instance("a").await, api.network("cache").await);
        nic(&api, &id, &network).await;
        let shown = api.instance_shown(&id).await;
        let count = shown.get("private_nics").map(|nics| nics.as_array().unwrap().len());
        assert_eq!(count, expected);
    }
}

#[tokio::test]
async fn a_deleted_nic_holds_on_to_its_network_for_a_moment() {
    let api = Api::start().await;
    let (id, network) = (api.instance("a").await, api.network("cache").await);
    let made = nic(&api, &id, &network).await;
    api.advance(Duration::from_secs(5));
    let again = json!({"private_network_id": network});
    api.post(format!("{}/private_nics", instance(&id)), again)
        .await
        .refused(409, "already_exists");
    let path = format!("{}/private_nics/{}", instance(&id), text(&made["id"]));
    assert_eq!(api.delete(&path).await.status, 204);
    assert_eq!(api.read(&path).await["private_nic"]["state"], "syncing");
    api.delete(&path).await.busy();
    let pn = format!("{VPC}/private-networks/{network}");
    api.delete(&pn).await.unmet();
    api.advance(Duration::from_secs(5));
    api.get(&path).await.missing();
    nic(&api, &id, &network).await;
    api.delete(instance(&id)).await.ok();
    api.delete(&pn).await.unmet();
    api.advance(Duration::from_secs(5));
    assert_eq!(api.delete(&pn).await.status, 204);
}

#[tokio::test]
async fn a_nic_can_fail_to_sync() {
    let api = Api::start().await;
    let (id, network) = (api.instance("a").await, api.network("cache").await);
    api.decide("nic", Some("a"), "error");
    let made = nic(&api, &id, &network).await;
    api.advance(Duration::from_secs(5));
    let path = format!("{}/private_nics/{}", instance(&id), text(&made["id"]));
    assert_eq!(api.read(path).await["private_nic"]["state"], "syncing_error");
}
