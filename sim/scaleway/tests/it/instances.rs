//! Instances, their NICs, addresses and volumes.

use crate::harness::{Answer, Api, BLOCK, INSTANCE, IPAM, PUBLIC_KEY, VPC, instance, names};
use russet_sim_scaleway::{
    Act, BoxFate, BoxOutcome, DEFAULT_PROJECT, Deed, DynamicIp, ErrorStyle, Fault, Id, MicroEuro, NewInstances,
    PrivateNics, Stage, Which, Zone,
};
use serde_json::{Value, json};
use std::time::Duration;

const BOOT: Duration = Duration::from_secs(25);
const STOP: Duration = Duration::from_secs(20);

#[tokio::test]
async fn an_instance_is_made_stopped_and_has_an_address_only_once_it_runs() {
    let api = Api::start().await;
    let id = api.instance("a").await;
    let made = api.instance_shown(&id).await;
    assert_eq!(
        (&made["state"], &made["public_ips"], &made["allowed_actions"]),
        (&json!("stopped"), &json!([]), &json!(["poweron", "backup"]))
    );
    let task = api.act(&id, "poweron").await;
    assert_eq!((task.status, &task.body["task"]["status"]), (202, &json!("pending")));
    let booting = api.instance_shown(&id).await;
    assert_eq!(
        (&booting["state"], &booting["public_ips"]),
        (&json!("starting"), &json!([]))
    );
    api.advance(BOOT);
    let running = api.instance_shown(&id).await;
    assert_eq!(running["state"], "running");
    assert_eq!(running["public_ips"][0]["dynamic"], true);
    assert_eq!(running["public_ip"], running["public_ips"][0]);
    assert!(running["creation_date"].as_str().unwrap().ends_with("+00:00"));
}

#[tokio::test]
async fn an_instance_has_no_public_address_unless_it_asked_for_one() {
    for (setting, expected) in [(DynamicIp::IfAsked, 0), (DynamicIp::UnlessDeclined, 1)] {
        let api = Api::with_settings(|settings| settings.dynamic_ip = setting).await;
        let mut order = api.instance_order("a").await;
        order.as_object_mut().unwrap().remove("dynamic_ip_required");
        let made = api.post(&format!("{INSTANCE}/servers"), order).await.ok();
        let id: Id = made["server"]["id"].as_str().unwrap().parse().unwrap();
        api.act(&id, "poweron").await.ok();
        api.advance(BOOT);
        let addresses = api.instance_shown(&id).await["public_ips"].clone();
        assert_eq!(addresses.as_array().unwrap().len(), expected, "{setting:?}");
    }
}

#[tokio::test]
async fn the_dynamic_address_goes_with_poweroff_and_the_next_one_is_another() {
    let api = Api::start().await;
    let id = api.running("a").await;
    let first = api.instance_shown(&id).await["public_ip"]["address"].clone();
    api.act(&id, "reboot").await.ok();
    assert_eq!(api.instance_shown(&id).await["state"], "starting");
    api.advance(BOOT);
    assert_eq!(
        api.instance_shown(&id).await["public_ip"]["address"],
        first,
        "a reboot keeps it"
    );
    api.act(&id, "poweroff").await.ok();
    assert_eq!(api.instance_shown(&id).await["public_ip"], Value::Null);
    api.advance(STOP);
    api.act(&id, "poweron").await.ok();
    api.advance(BOOT);
    let second = api.instance_shown(&id).await["public_ip"]["address"].clone();
    assert!(second.is_string() && second != first, "{first} {second}");
}

#[tokio::test]
async fn a_stopped_server_cannot_be_stopped_and_a_running_one_not_deleted() {
    let api = Api::start().await;
    let id = api.instance("a").await;
    for action in ["poweroff", "terminate", "reboot", "stop_in_place"] {
        let body = api.act(&id, action).await.refused(412, "precondition_failed");
        assert_eq!(body["help_message"], "server should be running", "{action}");
    }
    api.act(&id, "poweron").await.ok();
    api.delete(&instance(&id)).await.refused(409, "transient_state");
    let body = api.act(&id, "poweroff").await.refused(409, "transient_state");
    assert_eq!(body["current_state"], "starting");
    api.advance(BOOT);
    let body = api.delete(&instance(&id)).await.refused(412, "precondition_failed");
    assert_eq!(body["help_message"], "server should be stopped");
    api.act(&id, "poweron").await.refused(412, "precondition_failed");
    api.act(&id, "poweroff").await.ok();
    api.delete(&instance(&id)).await.refused(409, "transient_state");
    api.advance(STOP);
    assert_eq!(api.delete(&instance(&id)).await.status, 204);
    api.get(&instance(&id)).await.refused(404, "not_found");
}

#[tokio::test]
async fn the_older_words_say_the_same_as_the_present_ones() {
    let api = Api::with_settings(|settings| settings.instance_errors = ErrorStyle::Legacy).await;
    let id = api.instance("a").await;
    let body = api.act(&id, "poweroff").await.refused(400, "invalid_request_error");
    assert_eq!(body["message"], "server should be running");
    api.get(&instance(&DEFAULT_PROJECT.parse().unwrap()))
        .await
        .refused(404, "unknown_resource");
    let body = api
        .post(&format!("{INSTANCE}/servers"), json!({"name": "x", "nmae": 1}))
        .await
        .refused(400, "invalid_request_error");
    assert!(body["fields"]["nmae"][0].is_string(), "{body}");
}

#[tokio::test]
async fn volumes_outlive_a_deleted_server_and_are_paid_until_they_are_deleted_too() {
    let api = Api::start().await;
    let id = api.instance("a").await;
    let volume = api.instance_shown(&id).await["volumes"]["0"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = format!("{BLOCK}/volumes/{volume}");
    let used = api.get(&path).await.ok();
    assert_eq!(
        (&used["status"], &used["size"]),
        (&json!("in_use"), &json!(50_000_000_000_u64))
    );
    assert_eq!(used["references"][0]["product_resource_id"], json!(id));
    api.delete(&path).await.refused(412, "precondition_failed");
    api.get(&format!("{INSTANCE}/volumes/{volume}"))
        .await
        .refused(404, "not_found");
    api.delete(&instance(&id)).await.ok();
    let left = api.get(&path).await.ok();
    assert_eq!(
        (&left["status"], &left["references"]),
        (&json!("available"), &json!([]))
    );
    assert_eq!(api.handle().bill().per_hour, MicroEuro(50 * 118));
    assert_eq!(api.delete(&path).await.status, 204);
    assert_eq!(api.get(&path).await.ok()["status"], "deleting");
    api.advance(Duration::from_secs(2));
    api.get(&path).await.refused(404, "not_found");
    assert_eq!(api.handle().bill().running().count(), 0);
}

#[tokio::test]
async fn terminate_takes_the_local_volumes_along_and_leaves_the_block_ones() {
    let api = Api::start().await;
    let local = "/marketplace/v2/local-images?image_label=ubuntu_noble&zone=fr-par-1&type=instance_local";
    let image = api.get(local).await.ok()["local_images"][0]["id"].clone();
    let order = json!({"name": "l", "project": DEFAULT_PROJECT, "commercial_type": "DEV1-S", "image": image,
        "volumes": {"1": {"volume_type": "sbs_volume", "size": 20_000_000_000_u64}}});
    let made = api.post(&format!("{INSTANCE}/servers"), order).await.ok()["server"].clone();
    assert_eq!(made["volumes"]["0"]["volume_type"], "l_ssd");
    let id: Id = made["id"].as_str().unwrap().parse().unwrap();
    api.act(&id, "poweron").await.ok();
    api.advance(BOOT);
    api.act(&id, "terminate").await.ok();
    assert_eq!(api.instance_shown(&id).await["state"], "stopping");
    api.advance(STOP);
    api.get(&instance(&id)).await.refused(404, "not_found");
    let volumes = api.handle().volumes();
    assert_eq!(volumes.len(), 1, "{volumes:?}");
    assert_eq!(
        (&volumes[0]["id"], &volumes[0]["status"]),
        (&made["volumes"]["1"]["id"], &json!("available"))
    );
    assert_eq!(api.handle().bill().running().count(), 1);
}

#[tokio::test]
async fn a_local_volume_that_was_left_behind_can_be_found_and_deleted() {
    let api = Api::start().await;
    let local = "/marketplace/v2/local-images?image_label=ubuntu_noble&zone=fr-par-1&type=instance_local";
    let image = api.get(local).await.ok()["local_images"][0]["id"].clone();
    let order = json!({"name": "l", "project": DEFAULT_PROJECT, "commercial_type": "DEV1-S", "image": image});
    let made = api.post(&format!("{INSTANCE}/servers"), order).await.ok()["server"].clone();
    let volume = format!("{INSTANCE}/volumes/{}", made["volumes"]["0"]["id"].as_str().unwrap());
    api.delete(&volume).await.refused(412, "precondition_failed");
    api.patch(&volume, json!({"tags": ["mine"]})).await.ok();
    api.delete(&format!("{INSTANCE}/servers/{}", made["id"].as_str().unwrap()))
        .await
        .ok();
    let found = api
        .get(&format!("{INSTANCE}/volumes?tags=mine&project={DEFAULT_PROJECT}"))
        .await
        .ok();
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
            &format!("{INSTANCE}/ips"),
            json!({"project": DEFAULT_PROJECT, "tags": ["kept"]}),
        )
        .await
        .ok()["ip"]
        .clone();
    assert_eq!(ip["state"], "detached");
    let path = format!("{INSTANCE}/ips/{}", ip["id"].as_str().unwrap());
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
    assert_eq!(
        api.patch(&path, json!({"server": null})).await.ok()["ip"]["server"],
        Value::Null
    );
    assert_eq!(
        api.instance_shown(&id).await["public_ip"]["dynamic"],
        true,
        "it gets one again"
    );
    api.patch(&path, json!({"server": id})).await.ok();
    api.act(&id, "terminate").await.ok();
    api.advance(STOP);
    let left = api.get(&format!("{INSTANCE}/ips?tags=kept")).await.ok();
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
    assert_eq!(
        api.handle().bill().per_hour,
        MicroEuro(volume.0 + 219_000 + 4_000 - 4_000)
    );
    api.act(&id, "poweroff").await.ok();
    api.advance(STOP);
    assert_eq!(api.handle().bill().per_hour, volume);
}

async fn nic(api: &Api, id: &Id, network: &Id) -> Value {
    let body = json!({"private_network_id": network});
    let made = api.post(&format!("{}/private_nics", instance(id)), body).await;
    assert_eq!(made.status, 201, "{made:?}");
    made.body["private_nic"].clone()
}

async fn rows(api: &Api, query: &str) -> Vec<Value> {
    api.get(&format!("{IPAM}/ips?{query}")).await.ok()["ips"]
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
    let list = api.get(&format!("{}/private_nics", instance(&id))).await.ok();
    let ready = &list["private_nics"][0];
    assert_eq!(ready["state"], "available");
    let mac = ready["mac_address"].as_str().unwrap();
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
    assert_eq!(
        found[1]["resource"],
        json!({"type": "instance_private_nic", "id": ready["id"], "mac_address": mac.to_uppercase(), "name": "a"})
    );
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
        rows(
            &api,
            &format!("{of_network}&resource_id={}", ready["id"].as_str().unwrap())
        )
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
    api.get(&format!("{IPAM}/ips?{of_network}&zonal=fr-par-1"))
        .await
        .refused(400, "invalid_arguments");
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
    api.post(&format!("{}/private_nics", instance(&id)), again)
        .await
        .refused(409, "already_exists");
    let path = format!("{}/private_nics/{}", instance(&id), made["id"].as_str().unwrap());
    assert_eq!(api.delete(&path).await.status, 204);
    assert_eq!(api.get(&path).await.ok()["private_nic"]["state"], "syncing");
    api.delete(&path).await.refused(409, "transient_state");
    let pn = format!("{VPC}/private-networks/{network}");
    api.delete(&pn).await.refused(412, "precondition_failed");
    api.advance(Duration::from_secs(5));
    api.get(&path).await.refused(404, "not_found");
    nic(&api, &id, &network).await;
    api.delete(&instance(&id)).await.ok();
    api.delete(&pn).await.refused(412, "precondition_failed");
    api.advance(Duration::from_secs(5));
    assert_eq!(api.delete(&pn).await.status, 204);
}

async fn raw(api: &Api, method: &str, path: &str, kind: &str, body: &str) -> Answer {
    let request = api
        .request(method, path)
        .header("Content-Type", kind)
        .body(body.to_owned());
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    Answer { status, body }
}

#[tokio::test]
async fn user_data_is_a_text_by_key_and_can_be_taken_away() {
    let api = Api::start().await;
    let id = api.instance("a").await;
    let all = format!("{}/user_data", instance(&id));
    let one = format!("{all}/cloud-init");
    assert_eq!(api.get(&all).await.ok(), json!({"user_data": []}));
    api.get(&one).await.refused(404, "not_found");
    let text = "#cloud-config\nruncmd: []\n";
    assert_eq!(raw(&api, "PATCH", &one, "text/plain", text).await.status, 204);
    assert_eq!(
        raw(&api, "PATCH", &one, "text/plain; charset=utf-8", text).await.status,
        204
    );
    raw(&api, "PATCH", &one, "application/json", "\"x\"")
        .await
        .refused(400, "invalid_arguments");
    assert_eq!(api.get(&all).await.ok(), json!({"user_data": ["cloud-init"]}));
    assert_eq!(api.get(&one).await.ok(), json!(text));
    assert_eq!(api.delete(&one).await.status, 204);
    api.delete(&one).await.refused(404, "not_found");
    assert_eq!(api.get(&all).await.ok(), json!({"user_data": []}));
}

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

fn fate(stage: Stage, outcome: BoxOutcome) -> Deed {
    let server = Some(Which::Name("a".to_owned()));
    Deed::DecideBox(BoxFate {
        stage,
        server,
        outcome,
        times: 1,
    })
}

#[tokio::test]
async fn a_boot_can_hang_for_ever_or_fail_back_to_stopped() {
    let api = Api::start().await;
    let (a, b) = (api.instance("a").await, api.instance("b").await);
    api.handle().perform(fate(Stage::Boot, BoxOutcome::Stuck)).unwrap();
    api.act(&b, "poweron").await.ok();
    api.act(&a, "poweron").await.ok();
    api.advance(Duration::from_hours(3));
    assert_eq!(api.instance_shown(&a).await["state"], "starting");
    assert_eq!(
        api.instance_shown(&b).await["state"],
        "running",
        "only the one that was meant"
    );
    api.handle()
        .perform(Deed::Unstick {
            server: Which::from(&a),
        })
        .unwrap();
    assert_eq!(api.instance_shown(&a).await["state"], "running");
    api.act(&a, "poweroff").await.ok();
    api.advance(STOP);
    api.handle().perform(fate(Stage::Boot, BoxOutcome::Error)).unwrap();
    api.act(&a, "poweron").await.ok();
    api.advance(BOOT);
    let failed = api.instance_shown(&a).await;
    assert_eq!(
        (&failed["state"], &failed["state_detail"]),
        (&json!("stopped"), &json!("the server failed to boot"))
    );
}

#[tokio::test]
async fn a_nic_can_fail_to_sync() {
    let api = Api::start().await;
    let (id, network) = (api.instance("a").await, api.network("cache").await);
    api.handle().perform(fate(Stage::Nic, BoxOutcome::Error)).unwrap();
    let made = nic(&api, &id, &network).await;
    api.advance(Duration::from_secs(5));
    let path = format!("{}/private_nics/{}", instance(&id), made["id"].as_str().unwrap());
    assert_eq!(api.get(&path).await.ok()["private_nic"]["state"], "syncing_error");
}

#[tokio::test]
async fn a_protected_instance_is_neither_deleted_nor_terminated() {
    let api = Api::start().await;
    let id = api.instance("a").await;
    api.patch(&instance(&id), json!({"protected": true})).await.ok();
    api.delete(&instance(&id)).await.refused(412, "precondition_failed");
    api.act(&id, "poweron").await.ok();
    api.advance(BOOT);
    api.act(&id, "terminate").await.refused(412, "precondition_failed");
    api.patch(
        &instance(&id),
        json!({"protected": false, "name": "b_c", "tags": ["x"]}),
    )
    .await
    .ok();
    let shown = api.instance_shown(&id).await;
    assert_eq!(
        (&shown["name"], &shown["hostname"], &shown["tags"]),
        (&json!("b_c"), &json!("b-c"), &json!(["x"]))
    );
    api.act(&id, "terminate").await.ok();
}

#[tokio::test]
async fn every_call_about_instances_can_be_struck_before_and_after_its_effect() {
    let api = Api::start().await;
    let order = api.instance_order("a").await;
    let path = format!("{INSTANCE}/servers");
    let lost = Fault::new("POST", "/instance/v1/zones/*/servers", Act::Status(502));
    api.handle().inject(lost.clone());
    assert_eq!(api.post(&path, order.clone()).await.status, 502);
    assert!(api.handle().instances().is_empty());
    api.handle().inject(lost.after_effect());
    assert_eq!(api.post(&path, order).await.status, 502);
    let found = api.get(&format!("{path}?tags=machine-uid%3Da")).await.ok();
    assert_eq!(names(&found), ["a"], "it was made all the same");
    let id: Id = found["servers"][0]["id"].as_str().unwrap().parse().unwrap();
    api.handle()
        .inject(Fault::new("POST", "/instance/v1/zones/*/servers/*/action", Act::Cut).after_effect());
    let body = json!({"action": "poweron"});
    assert!(
        api.send("POST", &format!("{}/action", instance(&id)), Some(body))
            .await
            .is_err()
    );
    assert_eq!(api.instance_shown(&id).await["state"], "starting");
    let rename = Deed::Rename {
        server: Which::from(&id),
        name: "theirs".to_owned(),
    };
    api.handle()
        .inject(Fault::new("PATCH", "/instance/**", Act::Meanwhile(vec![rename])).after_effect());
    api.patch(&instance(&id), json!({"name": "ours"})).await.ok();
    assert_eq!(api.instance_shown(&id).await["name"], "theirs");
    let slow = Act::TooManyRequests { retry_after: 2 };
    api.handle().inject(Fault::new("GET", "/block/**", slow));
    assert_eq!(api.get(&format!("{BLOCK}/volumes")).await.status, 429);
}

#[tokio::test]
async fn a_list_that_lags_misses_the_new_server_and_keeps_the_deleted_one() {
    let api = Api::with_settings(|settings| settings.list_lag = Duration::from_secs(10)).await;
    let id = api.instance("a").await;
    let list = format!("{INSTANCE}/servers");
    assert!(names(&api.get(&list).await.ok()).is_empty());
    assert_eq!(
        api.instance_shown(&id).await["name"],
        "a",
        "a read of one sees the present"
    );
    api.advance(Duration::from_secs(10));
    assert_eq!(names(&api.get(&list).await.ok()), ["a"]);
    api.delete(&instance(&id)).await.ok();
    assert_eq!(names(&api.get(&list).await.ok()), ["a"]);
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
async fn keys_are_those_of_the_project_when_it_boots() {
    let api = Api::start().await;
    let id = api.instance("a").await;
    assert!(api.handle().linux_box(&id).unwrap().authorized_keys.is_empty());
    let body = json!({"name": "k", "public_key": PUBLIC_KEY, "project_id": DEFAULT_PROJECT});
    api.post("/iam/v1alpha1/ssh-keys", body).await.ok();
    api.act(&id, "poweron").await.ok();
    api.advance(BOOT);
    assert_eq!(api.handle().linux_box(&id).unwrap().authorized_keys, [PUBLIC_KEY]);
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
