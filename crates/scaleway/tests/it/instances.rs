//! Instances: what is sent, to the letter, and the habits of the oldest of the APIs.

use std::net::Ipv4Addr;
use std::sync::atomic::Ordering;

use russet_scaleway::error::EffectKnown;
use russet_scaleway::instance::{
    Action, CLOUD_INIT, CreateInstance, InstanceFilter, IpFilter, NicState, RootVolume, State, Stock, TaskStatus,
    VolumeFilter, VolumeType,
};
use russet_telemetry::Secret;
use serde_json::{Value, json};

use crate::server::Script;
use crate::{PROJECT, World, assert_unknown, mac_id, zone};

const PN: &str = "aaaaaaaa-0000-4000-8000-000000000001";
const OTHER: &str = "22222222-2222-3333-4444-555555555555";
const SERVERS: &str = "POST /instance/v1/zones/fr-par-1/servers";
const GET: &str = "GET /instance/v1/zones/fr-par-1/servers/2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b";
const ACTION: &str = "POST /instance/v1/zones/fr-par-1/servers/2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b/action";
const DELETE: &str = "DELETE /instance/v1/zones/fr-par-1/servers/2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b";
const USER_DATA: &str =
    "PATCH /instance/v1/zones/fr-par-1/servers/2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b/user_data/cloud-init";
const NICS: &str =
    "GET /instance/v1/zones/fr-par-1/servers/2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b/private_nics?page=1&per_page=100";

/// An Instance as the API describes it.
fn instance(id: &str, name: &str, project: &str, tags: &[&str]) -> Value {
    json!({
        "id": id, "name": name, "organization": "99999999-2222-3333-4444-555555555555", "project": project,
        "allowed_actions": ["poweron", "backup"], "tags": tags, "commercial_type": "PRO2-S",
        "creation_date": "2026-11-01T10:00:00.123456+00:00", "modification_date": "2026-11-01T10:00:00.123456+00:00",
        "dynamic_ip_required": true, "routed_ip_enabled": true, "enable_ipv6": false, "hostname": name,
        "image": {"id": "image-1", "name": "Ubuntu 24.04 Noble Numbat", "arch": "x86_64"}, "protected": false,
        "private_ip": null, "public_ip": null, "public_ips": [], "mac_address": "de:00:00:ab:cd:ef",
        "state": "stopped", "state_detail": "", "location": null, "boot_type": "local",
        "volumes": {"0": {"id": "volume-1", "volume_type": "sbs_volume", "boot": false, "zone": "fr-par-1"}},
        "security_group": {"id": "sg-1", "name": "Default security group"}, "maintenances": [], "arch": "x86_64",
        "private_nics": [], "zone": "fr-par-1",
    })
}

fn an_instance() -> Value {
    json!({ "server": instance(mac_id().as_str(), "cache-1", PROJECT, &["capi"]) })
}

fn wanted() -> CreateInstance {
    CreateInstance {
        name: "cache-1".to_owned(),
        commercial_type: "PRO2-S".to_owned(),
        image: "image-1".parse().unwrap(),
        tags: vec!["capi".to_owned(), "machine-uid=u1".to_owned()],
        dynamic_ip: true,
        root_volume: Some(RootVolume {
            gb: 50,
            volume_type: VolumeType::Block,
        }),
    }
}

fn sent() -> Value {
    json!({"name": "cache-1", "commercial_type": "PRO2-S", "image": "image-1", "project": PROJECT,
           "tags": ["capi", "machine-uid=u1"], "dynamic_ip_required": true,
           "volumes": {"0": {"boot": true, "size": 50_000_000_000_u64, "volume_type": "sbs_volume"}}})
}

#[tokio::test]
async fn an_instance_is_made_as_the_api_takes_it_and_is_off_without_an_address() {
    let mut plain = sent();
    plain.as_object_mut().unwrap().remove("volumes");
    let script =
        Script::new()
            .exchange(SERVERS, sent(), 201, an_instance())
            .exchange(SERVERS, plain, 201, an_instance());
    let world = World::new(script).await;
    let made = world.client.create_instance(&zone(), &wanted()).await.unwrap();
    assert_eq!((&made.state, made.name.as_str()), (&State::Stopped, "cache-1"));
    assert!(made.public_ipv4().is_none() && made.dynamic_ip_required);
    let volume = &made.volumes["0"];
    assert_eq!((&volume.volume_type, volume.size), (&VolumeType::Block, None));
    let no_volume = CreateInstance {
        root_volume: None,
        ..wanted()
    };
    world.client.create_instance(&zone(), &no_volume).await.unwrap();
    world.finish();
}

/// Create, attach and switch on were once a single step; when a part of it failed, a paid server was left that nobody knew.
#[tokio::test]
async fn an_order_whose_answer_is_lost_is_sent_once_and_may_have_happened() {
    for script in [
        Script::new().close(SERVERS),
        Script::new().answer(SERVERS, 502, "<html>"),
        Script::new().answer(SERVERS, 504, r#"{"type":"timeout"}"#),
    ] {
        let world = World::new(script).await;
        let error = world.client.create_instance(&zone(), &wanted()).await.unwrap_err();
        assert_unknown(&error, EffectKnown::Maybe, &[None, Some(502), Some(504)]);
        assert!(!error.is_without_effect(), "{error}");
        world.finish();
    }
}

#[tokio::test]
async fn an_order_with_an_answer_that_cannot_be_read_has_happened() {
    let world = World::new(Script::new().answer(SERVERS, 201, r#"{"server":{"id":7}}"#)).await;
    let error = world.client.create_instance(&zone(), &wanted()).await.unwrap_err();
    assert_unknown(&error, EffectKnown::Happened, &[Some(201)]);
    world.finish();
}

#[tokio::test]
async fn an_order_that_is_refused_certainly_had_no_effect() {
    let table = [
        (
            400,
            json!({"type": "invalid_request_error", "message": "Validation Error",
                   "fields": {"commercial_type": ["PRO2-S is not available in fr-par-1"]}}),
            "InvalidArguments",
        ),
        (
            403,
            json!({"type": "quotas_exceeded", "details": [{"resource": "cp_servers_type_PRO2_S", "quota": 1, "current": 1}]}),
            "QuotaExceeded",
        ),
        (412, json!({"type": "out_of_stock", "resource": "PRO2-S"}), "OutOfStock"),
        (429, json!({"type": "too_many_requests"}), "RateLimited"),
    ];
    for (status, body, reason) in table {
        let world = World::new(Script::new().answer(SERVERS, status, body)).await;
        let error = world.client.create_instance(&zone(), &wanted()).await.unwrap_err();
        assert_eq!(error.reason(), reason, "{error}");
        assert!(error.is_without_effect(), "{error}");
        world.finish();
    }
}

#[tokio::test]
async fn instances_are_counted_in_a_header_and_read_past_the_first_page() {
    const PAGE_1: &str = "GET /instance/v1/zones/fr-par-1/servers?project=11111111-2222-3333-4444-555555555555&order=creation_date_asc&page=1&per_page=2";
    const PAGE_2: &str = "GET /instance/v1/zones/fr-par-1/servers?project=11111111-2222-3333-4444-555555555555&order=creation_date_asc&page=2&per_page=2";
    let page = |ids: &[&str]| {
        let rows: Vec<Value> = ids.iter().map(|id| instance(id, id, PROJECT, &[])).collect();
        json!({ "servers": rows })
    };
    // `a` goes and `e` comes between the pages, and `c` slips to page 1 unseen.
    let script = Script::new()
        .counted(PAGE_1, "4", page(&["a", "b"]))
        .counted(PAGE_2, "4", page(&["d", "e"]))
        .counted(PAGE_1, "4", page(&["b", "c"]))
        .counted(PAGE_2, "4", page(&["d", "e"]))
        .counted(PAGE_1, "4", page(&["b", "c"]))
        .counted(PAGE_2, "4", page(&["d", "e"]));
    let world = World::with(script, |config| config.page_size = 2).await;
    let all = world
        .client
        .instances(&zone(), &InstanceFilter::default())
        .await
        .unwrap();
    let ids: Vec<&str> = all.iter().map(|server| server.id.as_str()).collect();
    assert_eq!(ids, ["b", "c", "d", "e"]);
    assert_eq!(world.log.shifts.load(Ordering::SeqCst), 2);
    world.finish();
}

#[tokio::test]
async fn a_list_that_does_not_say_how_long_it_is_is_not_believed() {
    const LIST: &str = "GET /instance/v1/zones/fr-par-1/servers?project=11111111-2222-3333-4444-555555555555&order=creation_date_asc&page=1&per_page=100";
    let world = World::new(Script::new().answer(LIST, 200, json!({"servers": []}))).await;
    let error = world
        .client
        .instances(&zone(), &InstanceFilter::default())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("x-total-count"), "{error}");
    world.finish();
}

#[tokio::test]
async fn instances_are_found_by_whole_name_all_tags_and_our_project() {
    const LIST: &str = "GET /instance/v1/zones/fr-par-1/servers?project=11111111-2222-3333-4444-555555555555&order=creation_date_asc&name=cache-1&tags=capi%2Cmachine-uid%3Du1&page=1&per_page=100";
    let tags = ["capi", "machine-uid=u1", "odd,tag"];
    let rows = json!({"servers": [
        instance("a", "cache-1", PROJECT, &tags),
        instance("b", "cache-10", PROJECT, &tags),
        instance("c", "cache-1", OTHER, &tags),
        instance("d", "cache-1", PROJECT, &["capi", "odd,tag"]),
        instance("e", "cache-1", PROJECT, &["capi", "machine-uid=u1"]),
    ]});
    let world = World::new(Script::new().counted(LIST, "5", rows)).await;
    let filter = InstanceFilter {
        name: Some("cache-1".to_owned()),
        tags: tags.map(str::to_owned).to_vec(),
    };
    let found = world.client.instances(&zone(), &filter).await.unwrap();
    let ids: Vec<&str> = found.iter().map(|server| server.id.as_str()).collect();
    assert_eq!(ids, ["a"], "a tag with a comma cannot be asked for, only looked at");
    world.finish();
}

#[tokio::test]
async fn the_acts_on_an_instance_send_exactly_what_the_api_takes() {
    let base = "/instance/v1/zones/fr-par-1/servers/2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b";
    let line =
        |method: &str, tail: &str| -> &'static str { Box::leak(format!("{method} {base}{tail}").into_boxed_str()) };
    let task = |status: &str| {
        json!({"task": {"id": "task-1", "description": "server_poweron", "progress": 0, "status": status,
                        "href_from": "/servers/x/action", "href_result": "servers/x"}})
    };
    let nic = json!({"id": "nic-1", "server_id": mac_id(), "private_network_id": PN, "mac_address": "02:00:00:AB:cd:ef",
                     "state": "syncing", "tags": []});
    let script = Script::new()
        .text(USER_DATA, "#cloud-config\nruncmd: []\n", 204, "")
        .answer(
            line("GET", "/user_data"),
            200,
            json!({"user_data": ["cloud-init", "ssh-host-fingerprints"]}),
        )
        .exchange(
            line("POST", "/private_nics"),
            json!({"private_network_id": PN}),
            201,
            json!({ "private_nic": nic }),
        )
        .counted(NICS, "1", json!({"private_nics": [nic]}))
        .exchange(ACTION, json!({"action": "poweron"}), 202, task("pending"))
        .exchange(ACTION, json!({"action": "reboot"}), 202, task("started"))
        .exchange(ACTION, json!({"action": "poweroff"}), 202, task("odd"))
        .exchange(ACTION, json!({"action": "terminate"}), 202, task("pending"))
        .answer(line("DELETE", "/user_data/cloud-init"), 204, "")
        .answer(line("DELETE", "/private_nics/nic-1"), 204, "")
        .answer(DELETE, 204, "");
    let world = World::new(script).await;
    let (client, zone, id, pn) = (&world.client, zone(), mac_id(), PN.parse().unwrap());
    let boot = Secret::from("#cloud-config\nruncmd: []\n");
    client.set_user_data(&zone, &id, CLOUD_INIT, boot).await.unwrap();
    let keys = client.user_data_keys(&zone, &id).await.unwrap();
    assert_eq!(keys, [CLOUD_INIT, "ssh-host-fingerprints"]);
    let nic = client.create_private_nic(&zone, &id, &pn).await.unwrap();
    assert_eq!(nic.state, NicState::Syncing);
    assert_eq!(nic.mac_address, Some("02:00:00:ab:CD:EF".into()));
    assert_eq!(
        client.private_nics(&zone, &id).await.unwrap(),
        std::slice::from_ref(&nic)
    );
    let mut ends = Vec::new();
    for action in [Action::Poweron, Action::Reboot, Action::Poweroff, Action::Terminate] {
        ends.push(client.instance_action(&zone, &id, action).await.unwrap().status);
    }
    let odd = TaskStatus::Other("odd".to_owned());
    assert_eq!(
        ends,
        [TaskStatus::Pending, TaskStatus::Started, odd, TaskStatus::Pending]
    );
    client.delete_user_data(&zone, &id, CLOUD_INIT).await.unwrap();
    client.delete_private_nic(&zone, &id, &nic.id).await.unwrap();
    client.delete_instance(&zone, &id).await.unwrap();
    world.finish();
}

#[tokio::test]
async fn a_key_of_user_data_stays_in_its_place_of_the_path() {
    const SET: &str =
        "PATCH /instance/v1/zones/fr-par-1/servers/2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b/user_data/a%2Fb%3Fc%20d";
    let world = World::new(Script::new().text(SET, "x", 204, "")).await;
    world
        .client
        .set_user_data(&zone(), &mac_id(), "a/b?c d", Secret::from("x"))
        .await
        .unwrap();
    world.finish();
}

#[tokio::test]
async fn user_data_is_set_again_after_a_lost_answer() {
    let script = Script::new().close(USER_DATA).text(USER_DATA, "x", 204, "");
    let world = World::new(script).await;
    world
        .client
        .set_user_data(&zone(), &mac_id(), CLOUD_INIT, Secret::from("x"))
        .await
        .unwrap();
    world.finish();
}

/// For a removal, an Instance that is gone after a lost answer is success. For anything that is set it is not.
#[tokio::test]
async fn an_instance_that_goes_while_its_user_data_is_set_is_not_a_success() {
    let gone = json!({"type": "unknown_resource", "message": "\"2f1c7a50\" not found"});
    let script = Script::new()
        .close(USER_DATA)
        .answer(USER_DATA, 404, gone.clone())
        .close(DELETE)
        .answer(DELETE, 404, gone);
    let world = World::new(script).await;
    let error = world
        .client
        .set_user_data(&zone(), &mac_id(), CLOUD_INIT, Secret::from("x"))
        .await
        .unwrap_err();
    assert!(error.is_not_found(), "{error}");
    world.client.delete_instance(&zone(), &mac_id()).await.unwrap();
    world.finish();
}

/// Deletion always switched off first, which the API refuses for an Instance that is off; the finalizer then never went.
#[tokio::test]
async fn switching_off_what_is_off_is_a_precondition_not_a_riddle() {
    let off = json!({"type": "invalid_request_error", "message": "server should be running"});
    let on = json!({"type": "precondition_failed", "precondition": "resource_not_usable",
                    "help_message": "the server must be stopped"});
    let script = Script::new().answer(ACTION, 400, off).answer(DELETE, 412, on);
    let world = World::new(script).await;
    let error = world
        .client
        .instance_action(&zone(), &mac_id(), Action::Poweroff)
        .await
        .unwrap_err();
    assert_eq!(error.reason(), "PreconditionFailed");
    assert!(
        error.is_without_effect() && error.to_string().contains("server should be running"),
        "{error}"
    );
    let error = world.client.delete_instance(&zone(), &mac_id()).await.unwrap_err();
    assert_eq!(error.reason(), "PreconditionFailed", "{error}");
    world.finish();
}

#[tokio::test]
async fn an_instance_that_is_on_is_read_with_its_address_and_without_its_interfaces() {
    let mut on = an_instance();
    let server = on["server"].as_object_mut().unwrap();
    server.remove("private_nics");
    server.insert("state".to_owned(), json!("stopped in place"));
    server.insert(
        "public_ips".to_owned(),
        json!([{"id": "ip-6", "address": "2001:bc8::7", "family": "inet6", "dynamic": false},
               {"id": "ip-4", "address": "51.15.0.7", "family": "inet", "dynamic": true}]),
    );
    let world = World::new(Script::new().answer(GET, 200, on)).await;
    let server = world.client.instance(&zone(), &mac_id()).await.unwrap();
    assert_eq!(server.state, State::StoppedInPlace);
    assert_eq!(server.public_ipv4(), Some(Ipv4Addr::new(51, 15, 0, 7)));
    assert_eq!(server.private_nics, None, "ask for them on their own");
    world.finish();
}

/// What an Instance leaves behind is paid for until somebody finds it.
#[tokio::test]
async fn addresses_and_volumes_left_behind_are_found_and_given_up() {
    const IPS: &str = "GET /instance/v1/zones/fr-par-1/ips?project=11111111-2222-3333-4444-555555555555&tags=capi&page=1&per_page=100";
    const ALL_IPS: &str =
        "GET /instance/v1/zones/fr-par-1/ips?project=11111111-2222-3333-4444-555555555555&page=1&per_page=100";
    const VOLUMES: &str = "GET /instance/v1/zones/fr-par-1/volumes?project=11111111-2222-3333-4444-555555555555&name=root&tags=capi&page=1&per_page=100";
    let ip = |id: &str, project: &str, tags: &[&str], server: Value| {
        json!({"id": id, "address": "51.15.0.8", "reverse": null, "project": project, "tags": tags,
               "server": server, "type": "routed_ipv4", "state": "detached", "zone": "fr-par-1"})
    };
    let holder = json!({"id": mac_id(), "name": "cache-1"});
    let ips = json!({"ips": [ip("ip-1", PROJECT, &["capi"], Value::Null), ip("ip-2", OTHER, &["capi"], Value::Null),
                             ip("ip-3", PROJECT, &[], Value::Null), ip("ip-4", PROJECT, &["capi"], holder.clone())]});
    let volume = |id: &str, name: &str, tags: &[&str]| {
        json!({"id": id, "name": name, "project": PROJECT, "tags": tags, "volume_type": "l_ssd", "size": 50_000_000_000_u64,
               "server": null, "state": "available", "creation_date": "2026-11-01T10:00:00+00:00", "zone": "fr-par-1"})
    };
    let volumes = json!({"volumes": [volume("v-1", "root", &["capi"]), volume("v-2", "root-old", &["capi"]),
                                     volume("v-3", "root", &[])]});
    let script = Script::new()
        .counted(IPS, "4", ips.clone())
        .counted(ALL_IPS, "4", ips)
        .answer("DELETE /instance/v1/zones/fr-par-1/ips/ip-1", 204, "")
        .counted(VOLUMES, "3", volumes)
        .answer("DELETE /instance/v1/zones/fr-par-1/volumes/v-1", 204, "");
    let world = World::new(script).await;
    let (client, zone) = (&world.client, zone());
    let ours = IpFilter {
        tags: vec!["capi".to_owned()],
        server: None,
    };
    let found = client.instance_ips(&zone, &ours).await.unwrap();
    let ids: Vec<&str> = found.iter().map(|ip| ip.id.as_str()).collect();
    assert_eq!(ids, ["ip-1", "ip-4"]);
    let held = IpFilter {
        tags: Vec::new(),
        server: Some(mac_id()),
    };
    let held = client.instance_ips(&zone, &held).await.unwrap();
    assert_eq!((held.len(), held[0].id.as_str()), (1, "ip-4"));
    client.delete_instance_ip(&zone, &found[0].id).await.unwrap();
    let filter = VolumeFilter {
        name: Some("root".to_owned()),
        tags: vec!["capi".to_owned()],
        server: None,
    };
    let found = client.instance_volumes(&zone, &filter).await.unwrap();
    assert_eq!((found.len(), found[0].id.as_str()), (1, "v-1"));
    assert_eq!(found[0].volume_type, VolumeType::Local);
    client.delete_instance_volume(&zone, &found[0].id).await.unwrap();
    world.finish();
}

#[tokio::test]
async fn sizes_prices_and_stock_are_read_from_objects_in_pages() {
    const TYPES: &str = "GET /instance/v1/zones/fr-par-1/products/servers?page=1&per_page=100";
    const STOCK: &str = "GET /instance/v1/zones/fr-par-1/products/servers/availability?page=1&per_page=100";
    let script = Script::new()
        .counted(
            TYPES,
            "2",
            json!({"servers": {"PRO2-S": {"arch": "x86_64", "ncpus": 8, "hourly_price": 0.219, "monthly_price": 159.87},
                               "DEV1-S": {"arch": "x86_64", "hourly_price": 0.009}}}),
        )
        .counted(
            STOCK,
            "2",
            json!({"servers": {"PRO2-S": {"availability": "scarce"}, "DEV1-S": {"availability": "plenty"}}}),
        );
    let world = World::new(script).await;
    let types = world.client.instance_types(&zone()).await.unwrap();
    let pro = types.iter().find(|type_| type_.name == "PRO2-S").unwrap();
    assert!((pro.euros_per_hour - 0.219).abs() < 1e-9 && types.len() == 2);
    let stock = world.client.instance_stock(&zone()).await.unwrap();
    let of = |name: &str| stock.iter().find(|row| row.name == name).map(|row| row.stock.clone());
    assert_eq!(of("PRO2-S"), Some(Stock::Scarce));
    assert_eq!(of("DEV1-S"), Some(Stock::Other("plenty".to_owned())));
    world.finish();
}
