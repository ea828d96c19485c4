//! Block storage and the marketplace.

use russet_scaleway::block::{VolumeFilter, VolumeStatus};
use russet_scaleway::marketplace::LocalImageType;
use serde_json::{Value, json};

use crate::server::Script;
use crate::{PROJECT, World, mac_id, zone};

fn volume(id: &str, name: &str, project: &str, status: &str) -> Value {
    let used = json!({"id": "ref-1", "product_resource_type": "instance_server", "product_resource_id": mac_id(),
                      "type": "exclusive", "status": "attached", "created_at": "2026-11-01T10:00:00Z"});
    let references = if status == "in_use" { json!([used]) } else { Value::Null };
    json!({"id": id, "name": name, "type": "sbs_5k", "size": 50_000_000_000_u64, "project_id": project,
           "created_at": "2026-11-01T10:00:00Z", "updated_at": "2026-11-01T10:00:00Z", "references": references,
           "parent_snapshot_id": null, "status": status, "tags": ["capi"], "zone": "fr-par-1",
           "specs": {"perf_iops": 5000, "class": "sbs"}, "last_detached_at": null})
}

#[tokio::test]
async fn block_volumes_left_behind_are_found_and_deleted_unless_somebody_uses_them() {
    const LIST: &str = "GET /block/v1/zones/fr-par-1/volumes?project_id=11111111-2222-3333-4444-555555555555&order_by=created_at_asc&tags=capi&name=root&page=1&page_size=100";
    let rows = json!({"volumes": [
        volume("v-1", "root", PROJECT, "in_use"),
        volume("v-2", "root", PROJECT, "available"),
        volume("v-3", "root-2", PROJECT, "available"),
        volume("v-4", "root", "22222222-2222-3333-4444-555555555555", "available"),
    ], "total_count": 4});
    let busy = json!({"type": "precondition_failed", "precondition": "resource_still_in_use", "help_message": "detach it first"});
    let script = Script::new()
        .answer(LIST, 200, rows)
        .answer("DELETE /block/v1/zones/fr-par-1/volumes/v-1", 412, busy)
        .answer("DELETE /block/v1/zones/fr-par-1/volumes/v-2", 204, "");
    let world = World::new(script).await;
    let filter = VolumeFilter {
        name: Some("root".to_owned()),
        tags: vec!["capi".to_owned()],
    };
    let found = world.client.block_volumes(&zone(), &filter).await.unwrap();
    let ids: Vec<&str> = found.iter().map(|volume| volume.id.as_str()).collect();
    assert_eq!(ids, ["v-1", "v-2"]);
    assert_eq!(found[0].status, VolumeStatus::InUse);
    assert_eq!(found[0].references[0].product_resource_id, mac_id().as_str());
    let error = world
        .client
        .delete_block_volume(&zone(), &found[0].id)
        .await
        .unwrap_err();
    assert_eq!(error.reason(), "PreconditionFailed", "{error}");
    world.client.delete_block_volume(&zone(), &found[1].id).await.unwrap();
    world.finish();
}

/// A label means several images at once: one per architecture, and none of them runs everywhere.
#[tokio::test]
async fn an_image_is_chosen_by_label_zone_kind_of_volume_and_type_of_instance() {
    const LIST: &str = "GET /marketplace/v2/local-images?image_label=ubuntu_noble&zone=fr-par-1&type=instance_sbs&page=1&page_size=100";
    let image = |id: &str, zone: &str, arch: &str, types: &[&str]| {
        json!({"id": id, "zone": zone, "arch": arch, "label": "ubuntu_noble", "type": "instance_sbs",
               "compatible_commercial_types": types})
    };
    let rows = json!({"local_images": [
        image("arm", "fr-par-1", "arm64", &["COPARM1-2C-8G"]),
        image("far", "nl-ams-1", "x86_64", &["PRO2-S"]),
        image("x86", "fr-par-1", "x86_64", &["PRO2-XS", "PRO2-S"]),
    ], "total_count": 3});
    let world = World::new(Script::new().answer(LIST, 200, rows)).await;
    let images = world
        .client
        .local_images("ubuntu_noble", &zone(), &LocalImageType::Sbs)
        .await
        .unwrap();
    let fitting: Vec<&str> = images
        .iter()
        .filter(|image| image.runs_on("PRO2-S"))
        .map(|image| image.id.as_str())
        .collect();
    assert_eq!(fitting, ["x86"]);
    world.finish();
}
