//! Elastic Metal: what is sent, to the letter, and what is made of the answers.

use russet_scaleway::Kind;
use russet_scaleway::baremetal::{
    AttachmentStatus, Install, InstallStatus, Login, MetalFilter, OfferFilter, OptionStatus, OrderMetal, Schema,
    Server, Status, Stock, Subscription, UpdateMetal,
};
use russet_scaleway::error::EffectKnown;
use russet_telemetry::Secret;
use serde_json::{Value, json};

use crate::server::Script;
use crate::{PROJECT, World, mac_id, zone};

const PN: &str = "aaaaaaaa-0000-4000-8000-000000000001";
const ORDER: &str = "POST /baremetal/v1/zones/fr-par-1/servers";
const OFFERS: &str =
    "GET /baremetal/v1/zones/fr-par-1/offers?subscription_period=hourly&name=EM-B220E-NVME&page=1&page_size=100";
const BASE: &str = "/baremetal/v1/zones/fr-par-1/servers/2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b";

fn line(method: &str, tail: &str) -> &'static str {
    Box::leak(format!("{method} {BASE}{tail}").into_boxed_str())
}

/// A server as the API describes it.
fn server(id: &str, name: &str, project: &str, status: &str, tags: &[&str]) -> Value {
    json!({
        "id": id, "organization_id": "99999999-2222-3333-4444-555555555555", "project_id": project, "name": name,
        "description": "", "updated_at": "2026-11-01T10:00:00Z", "created_at": "2026-11-01T10:00:00Z", "status": status,
        "offer_id": "offer-1", "offer_name": "EM-B220E-NVME", "tags": tags,
        "ips": [{"id": "ip-1", "address": "51.159.0.9", "reverse": "x", "version": "IPv4", "reverse_status": "active"}],
        "domain": "", "boot_type": "normal", "zone": "fr-par-1", "ping_status": "ping_status_up",
        "install": {"os_id": "os-1", "hostname": name, "ssh_key_ids": ["key-1"], "status": "installing", "user": "ubuntu",
                    "service_user": "", "service_url": "", "partitioning_schema": null},
        "options": [{"id": "option-pn", "name": "Private Network", "status": "option_status_enabling", "manageable": true,
                     "expires_at": null, "license": null, "public_bandwidth": null,
                     "private_network": {"bandwidth_in_bps": 1_000_000_000_u64}, "remote_access": null, "certification": null}],
        "rescue_server": null, "protected": false, "user_data": null,
    })
}

fn a_server() -> Value {
    server(mac_id().as_str(), "cache-1", PROJECT, "delivering", &["capi"])
}

fn install() -> Install {
    Install {
        os: "os-1".parse().unwrap(),
        hostname: "cache-1".to_owned(),
        ssh_keys: vec!["key-1".parse().unwrap()],
        login: None,
        partitions: None,
    }
}

fn order() -> OrderMetal {
    OrderMetal {
        offer: "offer-1".parse().unwrap(),
        name: "cache-1".to_owned(),
        description: "cache node".to_owned(),
        tags: vec!["capi".to_owned(), "machine-uid=u1".to_owned()],
        install: Some(install()),
        options: vec!["option-pn".parse().unwrap()],
        user_data: Some(Secret::from("#cloud-config\n")),
    }
}

#[tokio::test]
async fn a_server_is_ordered_as_the_api_takes_it_with_its_user_data_in_base64() {
    let sent = json!({
        "offer_id": "offer-1", "project_id": PROJECT, "name": "cache-1", "description": "cache node",
        "tags": ["capi", "machine-uid=u1"], "option_ids": ["option-pn"],
        "install": {"os_id": "os-1", "hostname": "cache-1", "ssh_key_ids": ["key-1"]},
        "user_data": "I2Nsb3VkLWNvbmZpZwo=",
    });
    let mut empty = sent.clone();
    for left_out in ["install", "user_data"] {
        empty.as_object_mut().unwrap().remove(left_out);
    }
    let script = Script::new()
        .exchange(ORDER, sent, 200, a_server())
        .exchange(ORDER, empty, 200, a_server());
    let world = World::new(script).await;
    let made = world.client.order_metal(&zone(), &order()).await.unwrap();
    assert_eq!(made.status, Status::Delivering);
    assert_eq!(made.install.as_ref().unwrap().status, InstallStatus::Installing);
    assert!(!made.is_installed() && !made.has_user_data());
    let bare = OrderMetal {
        install: None,
        user_data: None,
        ..order()
    };
    world.client.order_metal(&zone(), &bare).await.unwrap();
    world.finish();
}

#[tokio::test]
async fn an_order_is_sent_once_and_says_whether_it_can_have_happened() {
    let table = [
        (Script::new().close(ORDER), false),
        (Script::new().answer(ORDER, 500, "{}"), false),
        (
            Script::new().answer(ORDER, 412, json!({"type": "out_of_stock", "resource": "EM-B220E-NVME"})),
            true,
        ),
        (
            Script::new().answer(ORDER, 429, json!({"type": "too_many_requests"})),
            true,
        ),
    ];
    for (script, without_effect) in table {
        let world = World::new(script).await;
        let error = world.client.order_metal(&zone(), &order()).await.unwrap_err();
        assert_eq!(error.is_without_effect(), without_effect, "{error}");
        let unknown = Kind::Unknown {
            effect: EffectKnown::Maybe,
            status: None,
            message: String::new(),
        };
        let same = std::mem::discriminant(&error.kind) == std::mem::discriminant(&unknown);
        assert_ne!(same, without_effect, "{error}");
        world.finish();
    }
}

fn offer(id: &str, name: &str, period: &str) -> Value {
    json!({"id": id, "name": name, "stock": "low", "enable": true, "subscription_period": period, "incompatible_os_ids": [],
           "price_per_hour": {"currency_code": "EUR", "units": 0, "nanos": 164_000_000}, "price_per_month": null,
           "fee": null, "zone": "fr-par-1"})
}

/// An hourly and a monthly offer share a name. Taking the monthly one costs a fee and a month.
#[tokio::test]
async fn an_offer_is_found_by_whole_name_and_by_how_it_is_paid_for() {
    let rows = json!({"offers": [offer("m", "EM-B220E-NVME", "monthly"), offer("x", "EM-B220E-NVME-2", "hourly"),
                                 offer("h", "EM-B220E-NVME", "hourly")], "total_count": 3});
    let twice = json!({"offers": [offer("h", "EM-B220E-NVME", "hourly"), offer("i", "EM-B220E-NVME", "hourly")],
                       "total_count": 2});
    let script = Script::new()
        .answer(OFFERS, 200, rows.clone())
        .answer(OFFERS, 200, json!({"offers": null, "total_count": 0}))
        .answer(OFFERS, 200, twice)
        .answer(
            "GET /baremetal/v1/zones/fr-par-1/offers?page=1&page_size=100",
            200,
            rows,
        );
    let world = World::new(script).await;
    let zone = zone();
    let find = || {
        world
            .client
            .find_metal_offer(&zone, "EM-B220E-NVME", Subscription::Hourly)
    };
    let found = find().await.unwrap().unwrap();
    assert_eq!((found.id.as_str(), &found.stock), ("h", &Stock::Low));
    assert!((found.euros_per_hour().unwrap() - 0.164).abs() < 1e-9);
    assert_eq!(find().await.unwrap(), None);
    let error = find().await.unwrap_err();
    assert_eq!(error.reason(), "Ambiguous", "{error}");
    let all = world.client.metal_offers(&zone, &OfferFilter::default()).await.unwrap();
    assert_eq!(all.len(), 3);
    world.finish();
}

#[tokio::test]
async fn images_options_and_events_are_read() {
    let os = json!({"id": "os-1", "name": "Ubuntu", "version": "24.04 LTS (Noble Numbat)", "enabled": true, "allowed": true,
                    "license_required": false, "cloud_init_supported": true, "custom_partitioning_supported": true,
                    "logo_url": "", "ssh": {"editable": true, "required": true, "default_value": null}, "zone": "fr-par-1"});
    let option = |id: &str, network: Value| json!({"id": id, "name": id, "manageable": true, "private_network": network, "license": null});
    let script = Script::new()
        .answer(
            "GET /baremetal/v1/zones/fr-par-1/os?offer_id=offer-1&page=1&page_size=100",
            200,
            json!({"os": [os], "total_count": 1}),
        )
        .answer(
            "GET /baremetal/v1/zones/fr-par-1/options?offer_id=offer-1&page=1&page_size=100",
            200,
            json!({"options": [option("option-ra", Value::Null), option("option-pn", json!({"bandwidth_in_bps": 1}))],
                   "total_count": 2}),
        )
        .answer(
            line("GET", "/events?order_by=created_at_asc&page=1&page_size=100"),
            200,
            json!({"events": [{"id": "event-1", "action": "server_delivered", "created_at": "2026-11-01T10:00:00Z",
                               "updated_at": "2026-11-01T10:00:00Z"}], "total_count": 1}),
        );
    let world = World::new(script).await;
    let (client, zone, offer) = (&world.client, zone(), "offer-1".parse().unwrap());
    let images = client.metal_os(&zone, &offer).await.unwrap();
    let noble = images.iter().find(|os| os.is_labelled("ubuntu_noble")).unwrap();
    assert!(noble.cloud_init_supported && noble.can_be_installed());
    let options = client.metal_options(&zone, &offer).await.unwrap();
    let network = options.iter().find(|option| option.private_network.is_some()).unwrap();
    assert_eq!(network.id.as_str(), "option-pn");
    let events = client.metal_events(&zone, &mac_id()).await.unwrap();
    assert_eq!(events[0].action, "server_delivered");
    world.finish();
}

#[tokio::test]
async fn the_acts_on_a_server_send_exactly_what_the_api_takes() {
    let attachment = json!({"id": "at-1", "project_id": PROJECT, "server_id": mac_id(), "private_network_id": PN, "vlan": 0,
                            "status": "attaching", "created_at": "2026-11-01T10:00:00Z"});
    let with_login = json!({"os_id": "os-1", "hostname": "cache-1", "ssh_key_ids": ["key-1"], "user": "ubuntu",
                            "password": "hunter2", "partitioning_schema": {"disks": [], "raids": [], "filesystems": []}});
    let script = Script::new()
        .exchange(
            line("PATCH", ""),
            json!({"name": "cache-2", "tags": ["capi"]}),
            200,
            a_server(),
        )
        .exchange(line("PATCH", ""), json!({"user_data": ""}), 200, a_server())
        .exchange(line("POST", "/install"), with_login, 200, a_server())
        .exchange(line("POST", "/reboot"), json!({"boot_type": "normal"}), 200, a_server())
        .exchange(line("POST", "/options/option-pn"), json!({}), 200, a_server())
        .exchange(
            line("POST", "/private-networks"),
            json!({"private_network_id": PN}),
            200,
            attachment,
        )
        .answer(line("DELETE", &format!("/private-networks/{PN}")), 204, "")
        .answer(line("DELETE", ""), 200, a_server());
    let world = World::new(script).await;
    let (client, zone, id, pn) = (&world.client, zone(), mac_id(), PN.parse().unwrap());
    let rename = UpdateMetal {
        name: Some("cache-2".to_owned()),
        tags: Some(vec!["capi".to_owned()]),
        user_data: None,
    };
    client.update_metal(&zone, &id, &rename).await.unwrap();
    let forget = UpdateMetal {
        user_data: Some(Secret::from("")),
        ..UpdateMetal::default()
    };
    client.update_metal(&zone, &id, &forget).await.unwrap();
    let again = Install {
        login: Some(Login {
            user: "ubuntu".to_owned(),
            password: Secret::from("hunter2"),
        }),
        partitions: Some(Schema::default()),
        ..install()
    };
    client.install_metal(&zone, &id, &again).await.unwrap();
    client.reboot_metal(&zone, &id).await.unwrap();
    client
        .add_metal_option(&zone, &id, &"option-pn".parse().unwrap())
        .await
        .unwrap();
    let attachment = client.attach_metal_private_network(&zone, &id, &pn).await.unwrap();
    assert_eq!(
        (attachment.vlan, attachment.status),
        (None, AttachmentStatus::Attaching)
    );
    client.detach_metal_private_network(&zone, &id, &pn).await.unwrap();
    client.delete_metal(&zone, &id).await.unwrap();
    world.finish();
}

/// The API gives a VLAN although the option is off. A host that believes it has an interface that carries nothing.
#[tokio::test]
async fn a_network_without_its_option_is_told_from_one_that_works() {
    let list = "GET /baremetal/v1/zones/fr-par-1/server-private-networks?order_by=created_at_asc&server_id=2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b&page=1&page_size=100";
    let mut without = a_server();
    without["options"] = json!([]);
    let script = Script::new()
        .answer(
            list,
            200,
            json!({"server_private_networks": [{"id": "at-1", "server_id": mac_id(), "private_network_id": PN, "vlan": 2319,
                   "status": "attached"}], "total_count": 1}),
        )
        .answer(line("GET", ""), 200, without)
        .answer(line("GET", ""), 200, a_server());
    let world = World::new(script).await;
    let attachments = world.client.metal_private_networks(&zone(), &mac_id()).await.unwrap();
    assert_eq!(attachments[0].vlan, Some(2319));
    let dark = world.client.metal_server(&zone(), &mac_id()).await.unwrap();
    assert_eq!(dark.private_network_option(), None);
    let soon = world.client.metal_server(&zone(), &mac_id()).await.unwrap();
    assert_eq!(soon.private_network_option().unwrap().status, OptionStatus::Enabling);
    world.finish();
}

#[tokio::test]
async fn servers_are_found_by_whole_name_all_tags_and_our_project_whatever_their_state() {
    const LIST: &str = "GET /baremetal/v1/zones/fr-par-1/servers?order_by=created_at_asc&project_id=11111111-2222-3333-4444-555555555555&tags=capi&tags=machine-uid%3Du1&name=cache-1&page=1&page_size=100";
    const READY: &str = "GET /baremetal/v1/zones/fr-par-1/servers?order_by=created_at_asc&project_id=11111111-2222-3333-4444-555555555555&status=ready&status=stopped&page=1&page_size=100";
    let tags = ["capi", "machine-uid=u1"];
    let rows = json!({"servers": [
        server("a", "cache-1", PROJECT, "dismantling", &tags),
        server("b", "cache-10", PROJECT, "ready", &tags),
        server("c", "cache-1", "22222222-2222-3333-4444-555555555555", "ready", &tags),
        server("d", "cache-1", PROJECT, "ready", &["capi"]),
    ], "total_count": 4});
    let script = Script::new().answer(LIST, 200, rows.clone()).answer(READY, 200, rows);
    let world = World::new(script).await;
    let filter = MetalFilter {
        name: Some("cache-1".to_owned()),
        tags: tags.map(str::to_owned).to_vec(),
        statuses: Vec::new(),
    };
    let found = world.client.metal_servers(&zone(), &filter).await.unwrap();
    assert_eq!((found.len(), found[0].id.as_str()), (1, "a"));
    assert_eq!(found[0].status, Status::Other("dismantling".to_owned()));
    let filter = MetalFilter {
        statuses: vec![Status::Ready, Status::Stopped],
        ..MetalFilter::default()
    };
    let found = world.client.metal_servers(&zone(), &filter).await.unwrap();
    let ids: Vec<&str> = found.iter().map(|server: &Server| server.id.as_str()).collect();
    assert_eq!(ids, ["b", "d"]);
    world.finish();
}

#[tokio::test]
async fn an_installation_under_way_is_waited_for_and_not_begun_again() {
    let busy = json!({"type": "transient_state", "resource": "server", "resource_id": mac_id(), "current_state": "installing"});
    let world = World::new(Script::new().answer(line("POST", "/install"), 409, busy)).await;
    let error = world
        .client
        .install_metal(&zone(), &mac_id(), &install())
        .await
        .unwrap_err();
    assert!(error.is_transient() && error.is_without_effect(), "{error}");
    assert!(matches!(&error.kind, Kind::TransientState { state, .. } if state == "installing"));
    world.finish();
}

#[tokio::test]
async fn a_division_of_disks_comes_back_as_it_was_given_and_is_judged_as_often_as_need_be() {
    const DEFAULT: &str = "GET /baremetal/v1/zones/fr-par-1/partitioning-schemas/default?offer_id=offer-1&os_id=os-1";
    const VALIDATE: &str = "POST /baremetal/v1/zones/fr-par-1/partitioning-schemas/validate";
    let given = json!({
        "disks": [{"device": "/dev/nvme0n1", "partitions": [
            {"label": "uefi", "number": 1, "size": 536_870_912_u64, "use_all_available_space": false},
            {"label": "raid", "number": 2, "size": 0, "use_all_available_space": true}]}],
        "raids": [{"name": "/dev/md0", "level": "raid_level_1", "devices": ["/dev/nvme0n1p2", "/dev/nvme1n1p2"]}],
        "filesystems": [{"device": "/dev/md0", "format": "ext4", "mountpoint": "/"}],
        "zfs": null,
    });
    let mut back = given.clone();
    back.as_object_mut().unwrap().remove("zfs");
    let body = json!({"offer_id": "offer-1", "os_id": "os-1", "partitioning_schema": back});
    let no = json!({"type": "invalid_arguments", "details": [{"argument_name": "partitioning_schema.filesystems[0]",
                    "reason": "constraint", "help_message": "no such device"}]});
    let script = Script::new()
        .answer(DEFAULT, 200, given)
        .close(VALIDATE)
        .exchange(VALIDATE, body, 204, "")
        .answer(VALIDATE, 400, no);
    let world = World::new(script).await;
    let (client, zone) = (&world.client, zone());
    let (offer, os) = ("offer-1".parse().unwrap(), "os-1".parse().unwrap());
    let schema = client.default_metal_partitions(&zone, &offer, &os).await.unwrap();
    assert!(schema.disks[0].partitions[1].use_all_available_space);
    client
        .validate_metal_partitions(&zone, &offer, &os, &schema)
        .await
        .unwrap();
    let error = client
        .validate_metal_partitions(&zone, &offer, &os, &schema)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("no such device"), "{error}");
    world.finish();
}
