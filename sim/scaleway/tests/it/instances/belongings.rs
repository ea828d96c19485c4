//! Volumes and addresses, which outlive their server and cost until they are deleted too.

use super::{BOOT, STOP};
use crate::harness::{Api, BLOCK, INSTANCE, INSTANCES, id_of, instance, shows, text};
use russet_sim_scaleway::{DEFAULT_PROJECT, Id, MicroEuro};
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test]
async fn volumes_outlive_a_deleted_server_and_are_paid_until_they_are_deleted_too() {
    let api = Api::start().await;
    let id = api.instance("a").await;
    let volume = api.instance_shown(&id).await["volumes"]["0"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = format!("{BLOCK}/volumes/{volume}");
    let used = api.read(&path).await;
    shows!(used, {"status": "in_use", "size": 50_000_000_000_u64});
    assert_eq!(used["references"][0]["product_resource_id"], json!(id));
    api.delete(&path).await.unmet();
    api.get(format!("{INSTANCE}/volumes/{volume}")).await.missing();
    api.delete(instance(&id)).await.ok();
    let left = api.read(&path).await;
    shows!(left, {"status": "available", "references": []});
    assert_eq!(api.handle().bill().per_hour, MicroEuro(50 * 118));
    assert_eq!(api.delete(&path).await.status, 204);
    assert_eq!(api.read(&path).await["status"], "deleting");
    api.advance(Duration::from_secs(2));
    api.get(&path).await.missing();
    assert_eq!(api.handle().bill().running().count(), 0);
}

#[tokio::test]
async fn terminate_takes_the_local_volumes_along_and_leaves_the_block_ones() {
    let api = Api::start().await;
    let local = "/marketplace/v2/local-images?image_label=ubuntu_noble&zone=fr-par-1&type=instance_local";
    let image = api.read(local).await["local_images"][0]["id"].clone();
    let order = json!({"name": "l", "project": DEFAULT_PROJECT, "commercial_type": "DEV1-S", "image": image,
        "volumes": {"1": {"volume_type": "sbs_volume", "size": 20_000_000_000_u64}}});
    let made = api.post(INSTANCES, order).await.ok()["server"].clone();
    assert_eq!(made["volumes"]["0"]["volume_type"], "l_ssd");
    let id: Id = id_of(&made);
    api.act(&id, "poweron").await.ok();
    api.advance(BOOT);
    api.act(&id, "terminate").await.ok();
    assert_eq!(api.instance_shown(&id).await["state"], "stopping");
    api.advance(STOP);
    api.get(instance(&id)).await.missing();
    let volumes = api.handle().volumes();
    assert_eq!(volumes.len(), 1, "{volumes:?}");
    shows!(volumes[0], {"id": made["volumes"]["1"]["id"], "status": "available"});
    assert_eq!(api.handle().bill().running().count(), 1);
}

#[tokio::test]
async fn a_local_volume_that_was_left_behind_can_be_found_and_deleted() {
    let api = Api::start().await;
    let local = "/marketplace/v2/local-images?image_label=ubuntu_noble&zone=fr-par-1&type=instance_local";
    let image = api.read(local).await["local_images"][0]["id"].clone();
    let order = json!({"name": "l", "project": DEFAULT_PROJECT, "commercial_type": "DEV1-S", "image": image});
    let made = api.post(INSTANCES, order).await.ok()["server"].clone();
    let volume = format!("{INSTANCE}/volumes/{}", text(&made["volumes"]["0"]["id"]));
    api.delete(&volume).await.unmet();
    api.patch(&volume, json!({"tags": ["mine"]})).await.ok();
    api.delete(format!("{INSTANCES}/{}", text(&made["id"]))).await.ok();
    let found = api
        .read(format!("{INSTANCE}/volumes?tags=mine&project={DEFAULT_PROJECT}"))
        .await;
    assert_eq!(
        (
            found["volumes"].as_array().unwrap().len(),
            &found["volumes"][0]["server"]
        ),
        (1, &Value::Null)
    );
    assert_eq!(api.delete(&volume).await.status, 204);
    assert_eq!(api.handle().bill().running().count(), 0);
}

#[tokio::test]
async fn an_address_one_keeps_outlives_the_server_and_replaces_the_dynamic_one() {
    let api = Api::start().await;
    let id = api.running("a").await;
    let ip = api
        .post(
            format!("{INSTANCE}/ips"),
            json!({"project": DEFAULT_PROJECT, "tags": ["kept"]}),
        )
        .await
        .ok()["ip"]
        .clone();
    assert_eq!(ip["state"], "detached");
    let path = format!("{INSTANCE}/ips/{}", text(&ip["id"]));
    let attached = api.patch(&path, json!({"server": id})).await.ok()["ip"].clone();
    assert_eq!(
        (&attached["state"], &attached["server"]["name"]),
        (&json!("attached"), &json!("a"))
    );
    let shown = api.instance_shown(&id).await["public_ips"].clone();
    assert_eq!(
        (shown.as_array().unwrap().len(), &shown[0]["address"]),
        (1, &ip["address"])
    );
    shows!(api.patch(&path, json!({"server": null})).await.ok()["ip"], {"server": null});
    shows!(api.instance_shown(&id).await["public_ip"], {"dynamic": true}, "it gets one again");
    api.patch(&path, json!({"server": id})).await.ok();
    api.act(&id, "terminate").await.ok();
    api.advance(STOP);
    let left = api.read(format!("{INSTANCE}/ips?tags=kept")).await;
    assert_eq!(left["ips"][0]["state"], "detached");
    assert_eq!(api.delete(&path).await.status, 204);
    assert!(api.handle().addresses().is_empty());
}

#[tokio::test]
async fn a_stopped_instance_costs_its_volume_and_a_running_one_its_type_and_address_too() {
    let api = Api::start().await;
    let id = api.instance("a").await;
    let volume = MicroEuro(50 * 118);
    assert_eq!(api.handle().bill().per_hour, volume);
    api.act(&id, "poweron").await.ok();
    assert_eq!(api.handle().bill().per_hour, MicroEuro(volume.0 + 219_000));
    api.advance(BOOT);
    assert_eq!(api.handle().bill().per_hour, MicroEuro(volume.0 + 219_000 + 4_000));
    api.act(&id, "stop_in_place").await.ok();
    api.advance(STOP);
    assert_eq!(api.instance_shown(&id).await["state"], "stopped in place");
    let found = api.handle().bill().per_hour;
    assert_eq!(found, MicroEuro(volume.0 + 219_000 + 4_000 - 4_000));
    api.act(&id, "poweroff").await.ok();
    api.advance(STOP);
    assert_eq!(api.handle().bill().per_hour, volume);
}
