//! The option for private networks, and the networks of a server.

use super::{ATTACH, DELIVERY, INSTALL, OPTION, ORDER, row};
use crate::harness::{Api, IPAM, METAL, METAL_V3, METALS, VPC, id_of, metal, shows};
use russet_sim_scaleway::{DEFAULT_PROJECT, EarlyAttachment, Id, MicroEuro};
use serde_json::{Value, json};
use std::time::Duration;

async fn network_option(api: &Api) -> Value {
    let offer = api.offer().await["id"].as_str().unwrap().to_owned();
    api.pick(
        &format!("{METAL}/options?offer_id={offer}"),
        "options",
        &[("name", "Private Network")],
    )
    .await["id"]
        .clone()
}

async fn attach(api: &Api, id: &Id, network: &Id) -> Value {
    let body = json!({"private_network_id": network});
    api.post(format!("{}/private-networks", metal(id)), body).await.ok()
}

#[tokio::test]
async fn an_option_takes_its_time_and_its_money() {
    let api = Api::start().await;
    let id = api.installed("a").await;
    let option = network_option(&api).await;
    let path = format!("{}/options/{}", metal(&id), option.as_str().unwrap());
    let added = api.post(&path, json!({})).await.ok();
    assert_eq!(added["options"][0]["status"], "option_status_enabling");
    assert!(added["options"][0]["private_network"].is_object());
    api.post(&path, json!({})).await.refused(409, "already_exists");
    api.delete(&path).await.busy();
    assert_eq!(api.handle().bill().per_hour, MicroEuro(263_000 + 14_000));
    api.advance(OPTION);
    shows!(api.metal_shown(&id).await["options"][0], {"status": "option_status_enable"});
    shows!(api.delete(&path).await.ok()["options"][0], {"status": "option_status_disabling"});
    api.advance(OPTION);
    assert_eq!(api.metal_shown(&id).await["options"], json!([]));
    assert_eq!(api.handle().bill().per_hour, MicroEuro(263_000));
}

#[tokio::test]
async fn a_network_attached_after_the_option_has_its_vlan_late_and_then_carries_packets() {
    let api = Api::start().await;
    let mut order = api.metal_order("a").await;
    order["option_ids"] = json!([network_option(&api).await]);
    let made = api.post(METALS, order).await.ok();
    let id: Id = id_of(&made);
    let network = api.network("cache").await;
    let body = json!({"private_network_id": network});
    api.post(format!("{}/private-networks", metal(&id)), body).await.busy();
    api.advance(ORDER + DELIVERY + INSTALL);
    let attached = attach(&api, &id, &network).await;
    shows!(attached, {"status": "attaching", "vlan": null});
    assert!(attached.get("ipam_ip_ids").is_none(), "that is version 3");
    assert!(row(&api, &id).private.is_none());
    api.advance(ATTACH);
    let list = format!("server-private-networks?server_id={id}");
    let v1 = api.read(format!("{METAL}/{list}")).await["server_private_networks"][0].clone();
    let v3 = api.read(format!("{METAL_V3}/{list}")).await["server_private_networks"][0].clone();
    assert_eq!((&v1["status"], &v1["vlan"]), (&json!("attached"), &v3["vlan"]));
    assert_eq!(v3["ipam_ip_ids"].as_array().unwrap().len(), 2);
    let leg = row(&api, &id).private.unwrap();
    assert_eq!(
        (json!(leg.vlan), leg.address.as_str()),
        (v1["vlan"].clone(), "172.16.0.2/22")
    );
    let rows = format!("{IPAM}/ips?private_network_id={network}&resource_type=baremetal_private_nic");
    assert_eq!(api.read(&rows).await["total_count"], 0, "not yet");
    api.advance(Duration::from_secs(2));
    let found = api.read(&rows).await;
    let resource = &found["ips"][0]["resource"];
    assert_eq!((&resource["id"], &resource["name"]), (&v1["id"], &json!("a")));
    assert_eq!(resource["mac_address"], leg.mac.to_uppercase());
    let path = format!("{}/private-networks/{network}", metal(&id));
    assert_eq!(api.delete(&path).await.status, 204);
    api.delete(&path).await.busy();
    assert!(row(&api, &id).private.is_none());
    api.advance(Duration::from_secs(10));
    let found = api.delete(format!("{VPC}/private-networks/{network}")).await.status;
    assert_eq!(found, 204);
}

#[tokio::test]
async fn a_network_attached_before_the_option_looks_attached_and_stays_dark() {
    for (setting, lights_up) in [(EarlyAttachment::StaysDark, false), (EarlyAttachment::LightsUp, true)] {
        let api = Api::with_settings(|settings| settings.early_attachment = setting).await;
        let (id, network) = (api.installed("a").await, api.network("cache").await);
        attach(&api, &id, &network).await;
        let option = network_option(&api).await;
        api.post(
            format!("{}/options/{}", metal(&id), option.as_str().unwrap()),
            json!({}),
        )
        .await
        .ok();
        api.advance(ATTACH);
        let list = api
            .read(format!("{METAL}/server-private-networks?server_id={id}"))
            .await;
        assert!(
            list["server_private_networks"][0]["vlan"].is_number(),
            "nothing shows it"
        );
        assert!(row(&api, &id).private.is_none(), "the option is still being enabled");
        api.advance(OPTION);
        assert_eq!(row(&api, &id).private.is_some(), lights_up, "{setting:?}");
        let path = format!("{}/private-networks/{network}", metal(&id));
        api.delete(path).await.ok();
        api.advance(Duration::from_secs(10));
        attach(&api, &id, &network).await;
        api.advance(ATTACH);
        assert!(row(&api, &id).private.is_some(), "attached anew it always works");
    }
}

#[tokio::test]
async fn networks_can_be_set_as_a_whole_in_both_versions() {
    let api = Api::start().await;
    let (id, a, b) = (api.installed("a").await, api.network("a").await, api.network("b").await);
    let body = json!({"private_network_ids": [a, b]});
    let set = api.put(format!("{}/private-networks", metal(&id)), body).await.ok();
    assert_eq!(set["server_private_networks"].as_array().unwrap().len(), 2);
    api.advance(ATTACH);
    let v3 = format!("{METAL_V3}/servers/{id}/private-networks");
    let body = json!({"per_private_network_ipam_ip_ids": {b.as_str(): []}});
    api.put(v3, body).await.ok();
    api.advance(Duration::from_secs(10));
    let left = api
        .read(format!("{METAL}/server-private-networks?server_id={id}"))
        .await;
    assert_eq!(
        (
            &left["total_count"],
            &left["server_private_networks"][0]["private_network_id"]
        ),
        (&json!(1), &json!(b))
    );
    let unknown = json!({"private_network_ids": [DEFAULT_PROJECT]});
    api.put(format!("{}/private-networks", metal(&id)), unknown)
        .await
        .missing();
    let wrong = json!({"private_network_id": b, "ipam_ip_ids": []});
    api.post(format!("{}/private-networks", metal(&id)), wrong)
        .await
        .invalid();
}
