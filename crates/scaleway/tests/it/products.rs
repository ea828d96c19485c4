//! What each operation sends, to the letter, and what it understands of the answer.

use std::net::Ipv4Addr;

use russet_scaleway::Kind;
use russet_scaleway::apple_silicon::{AttachmentStatus, Password, ServerStatus, Stock, VpcStatus};
use russet_scaleway::ipam::{IpFilter, ResourceType, Source};
use serde_json::{Value, json};

use crate::server::Script;
use crate::{PROJECT, World, mac, mac_id, zone};

const PN: &str = "aaaaaaaa-0000-4000-8000-000000000001";

fn region() -> russet_api::values::Region {
    zone().region()
}

fn a_mac() -> Value {
    mac(mac_id().as_str(), "tuist-pool-1", PROJECT)
}

#[tokio::test]
async fn a_mac_is_read_with_its_password_as_a_secret() {
    let world = World::new(Script::new().answer(
        "GET /apple-silicon/v1alpha1/zones/fr-par-1/servers/2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b",
        200,
        a_mac(),
    ))
    .await;
    let mac = world.client.get_mac(&zone(), &mac_id()).await.unwrap();
    assert_eq!(mac.status, ServerStatus::Ready);
    assert_eq!(mac.vpc_status, VpcStatus::Disabled);
    assert_eq!(mac.ip.unwrap().to_string(), "51.159.120.4");
    assert_eq!(mac.os.as_ref().unwrap().family, "Tahoe");
    assert_eq!(mac.deletable_at.unwrap().to_string(), "2026-11-02T10:00:00Z");
    let Password::Known(password) = mac.password() else {
        panic!("no password")
    };
    assert_eq!(password.expose(), "canary-sudo-password");
    world.finish();
}

#[tokio::test]
async fn the_acts_on_a_mac_send_exactly_what_the_api_takes() {
    let base = "/apple-silicon/v1alpha1/zones/fr-par-1/servers/2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b";
    let line =
        |method: &str, tail: &str| -> &'static str { Box::leak(format!("{method} {base}{tail}").into_boxed_str()) };
    let script = Script::new()
        .exchange(line("PATCH", ""), json!({"name": "mac-1"}), 200, a_mac())
        .exchange(line("PATCH", ""), json!({"enable_vpc": true}), 200, a_mac())
        .exchange(line("PATCH", ""), json!({"schedule_deletion": true}), 200, a_mac())
        .exchange(line("POST", "/reboot"), json!({}), 200, a_mac())
        .exchange(line("POST", "/reinstall"), json!({"os_id": "os-1"}), 200, a_mac())
        .exchange(line("POST", "/reinstall"), json!({}), 200, a_mac())
        .exchange(
            line("POST", "/private-networks"),
            json!({"private_network_id": PN}),
            200,
            json!({"id": "at-1", "project_id": PROJECT, "server_id": mac_id(), "private_network_id": PN, "vlan": null,
                   "status": "attaching", "ipam_ip_ids": []}),
        )
        .answer(line("DELETE", &format!("/private-networks/{PN}")), 204, "")
        .answer(line("DELETE", ""), 204, "");
    let world = World::new(script).await;
    let (client, zone, id, pn) = (&world.client, zone(), mac_id(), PN.parse().unwrap());
    client.rename_mac(&zone, &id, "mac-1").await.unwrap();
    client.set_mac_vpc(&zone, &id, true).await.unwrap();
    client.schedule_mac_deletion(&zone, &id, true).await.unwrap();
    client.reboot_mac(&zone, &id).await.unwrap();
    client
        .reinstall_mac(&zone, &id, Some(&"os-1".parse().unwrap()))
        .await
        .unwrap();
    client.reinstall_mac(&zone, &id, None).await.unwrap();
    let attachment = client.attach_mac(&zone, &id, &pn).await.unwrap();
    assert_eq!(
        (attachment.vlan, attachment.status),
        (None, AttachmentStatus::Attaching)
    );
    client.detach_mac(&zone, &id, &pn).await.unwrap();
    client.delete_mac(&zone, &id).await.unwrap();
    world.finish();
}

#[tokio::test]
async fn images_types_attachments_and_diagnostics_are_read() {
    let os = json!({"id": "os-1", "name": "macos-tahoe-26.3", "label": "macOS Tahoe 26.3", "family": "Tahoe",
                    "is_beta": false, "version": "26.3", "xcode_version": "26", "image_url": ""});
    let script = Script::new()
        .answer(
            "GET /apple-silicon/v1alpha1/zones/fr-par-1/os?server_type=M2-L&page=1&page_size=100",
            200,
            json!({"os": [os], "total_count": 1}),
        )
        .answer(
            "GET /apple-silicon/v1alpha1/zones/fr-par-1/server-types",
            200,
            json!({"server_types": [{"name": "M2-L", "stock": "low_stock", "minimum_lease_duration": "86400s", "default_os": os}]}),
        )
        .answer(
            "GET /apple-silicon/v1alpha1/zones/fr-par-1/server-private-networks?server_id=2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b&page=1&page_size=100",
            200,
            json!({"server_private_networks": [{"id": "at-1", "server_id": mac_id(), "private_network_id": PN, "vlan": 2319,
                   "status": "attached"}], "total_count": 1}),
        )
        .exchange(
            "POST /apple-silicon/v1alpha1/zones/fr-par-1/connectivity-diagnostics",
            json!({"server_id": mac_id()}),
            200,
            json!({"diagnostic_id": "diag-1"}),
        )
        .answer(
            "GET /apple-silicon/v1alpha1/zones/fr-par-1/connectivity-diagnostics/diag-1",
            200,
            json!({"id": "diag-1", "status": "completed", "is_healthy": false,
                   "health_details": {"is_server_alive": true, "is_ssh_port_up": false},
                   "supported_actions": ["reboot_server"], "error_message": ""}),
        );
    let world = World::new(script).await;
    let (client, zone) = (&world.client, zone());
    assert_eq!(client.list_mac_os(&zone, "M2-L").await.unwrap()[0].version, "26.3");
    assert_eq!(client.list_mac_types(&zone).await.unwrap()[0].stock, Stock::Low);
    assert_eq!(
        client.list_mac_attachments(&zone, &mac_id()).await.unwrap()[0].vlan,
        Some(2319)
    );
    let diagnostic = client.start_mac_diagnostic(&zone, &mac_id()).await.unwrap();
    let found = client.get_mac_diagnostic(&zone, &diagnostic).await.unwrap();
    let health = found.health_details.unwrap();
    assert!(health.is_server_alive && !health.is_ssh_port_up && !found.is_healthy);
    assert_eq!(found.supported_actions, ["reboot_server"]);
    world.finish();
}

/// Keys were once listed without a project; a policy limited to one then refused the call and no fleet could be added.
#[tokio::test]
async fn every_iam_call_names_the_project() {
    let key = json!({"id": "key-1", "name": "macs", "public_key": "ssh-ed25519 AAAAC3 tuist-capi-macs",
                     "fingerprint": "x", "project_id": PROJECT, "disabled": false});
    let script = Script::new()
        .answer(
            "GET /iam/v1alpha1/ssh-keys?project_id=11111111-2222-3333-4444-555555555555&page=1&page_size=100",
            200,
            json!({"ssh_keys": [key], "total_count": 1}),
        )
        .exchange(
            "POST /iam/v1alpha1/ssh-keys",
            json!({"name": "macs", "public_key": "ssh-ed25519 AAAAC3 tuist-capi-macs", "project_id": PROJECT}),
            200,
            key.clone(),
        )
        .answer("DELETE /iam/v1alpha1/ssh-keys/key-1", 204, "");
    let world = World::new(script).await;
    let keys = world.client.list_ssh_keys().await.unwrap();
    assert!(keys[0].is_key("ssh-ed25519 AAAAC3 another comment"));
    let made = world
        .client
        .create_ssh_key("macs", "ssh-ed25519 AAAAC3 tuist-capi-macs")
        .await
        .unwrap();
    world.client.delete_ssh_key(&made.id).await.unwrap();
    world.finish();
}

#[tokio::test]
async fn a_private_network_is_found_by_its_whole_name_in_our_project() {
    const LIST: &str = "GET /vpc/v2/regions/fr-par/private-networks?name=cache&project_id=11111111-2222-3333-4444-555555555555&page=1&page_size=100";
    let network = |id: &str, name: &str, project: &str| json!({"id": id, "name": name, "project_id": project, "tags": [], "subnets": [{"id": "s", "subnet": "172.16.0.0/22"}]});
    let other = "22222222-2222-3333-4444-555555555555";
    let script = Script::new()
        .answer(
            LIST,
            200,
            json!({"private_networks": [network("n1", "cache-old", PROJECT), network("n2", "cache", other), network("n3", "cache", PROJECT)], "total_count": 3}),
        )
        .answer(LIST, 200, json!({"private_networks": null, "total_count": 0}))
        .answer(
            LIST,
            200,
            json!({"private_networks": [network("n3", "cache", PROJECT), network("n4", "cache", PROJECT)], "total_count": 2}),
        )
        .exchange(
            "POST /vpc/v2/regions/fr-par/private-networks",
            json!({"name": "cache", "project_id": PROJECT, "tags": ["capi"], "subnets": ["172.16.0.0/22"]}),
            200,
            network("n5", "cache", PROJECT),
        );
    let world = World::new(script).await;
    let find = || {
        world
            .client
            .find_private_network(&*Box::leak(Box::new(region())), "cache")
    };
    assert_eq!(find().await.unwrap().unwrap().id.as_str(), "n3");
    assert_eq!(find().await.unwrap(), None);
    let error = find().await.unwrap_err();
    assert_eq!(
        error.kind,
        Kind::Ambiguous {
            name: "cache".into(),
            ids: vec!["n3".into(), "n4".into()]
        }
    );
    let cidr = "172.16.0.0/22".parse().unwrap();
    let made = world
        .client
        .create_private_network(&region(), "cache", Some(&cidr), &["capi"])
        .await
        .unwrap();
    assert_eq!(made.subnets[0].subnet, "172.16.0.0/22");
    world.finish();
}

/// Five mistakes once kept an address from being found: two sources at once, no region, MACs in the other case, the IPv6 row
/// first, and only the first page.
#[tokio::test]
async fn an_address_is_found_past_the_first_page_behind_ipv6_and_in_either_case() {
    const PAGE_1: &str = "GET /ipam/v1/regions/fr-par/ips?project_id=11111111-2222-3333-4444-555555555555&order_by=created_at_asc&attached=true&private_network_id=aaaaaaaa-0000-4000-8000-000000000001&resource_type=apple_silicon_private_nic&page=1&page_size=1";
    const PAGE_2: &str = "GET /ipam/v1/regions/fr-par/ips?project_id=11111111-2222-3333-4444-555555555555&order_by=created_at_asc&attached=true&private_network_id=aaaaaaaa-0000-4000-8000-000000000001&resource_type=apple_silicon_private_nic&page=2&page_size=1";
    let row = |id: &str, address: &str| {
        json!({"ips": [{"id": id, "address": address, "is_ipv6": address.contains(':'), "project_id": PROJECT,
               "resource": {"type": "apple_silicon_private_nic", "id": "nic-1", "mac_address": "02:00:00:AB:CD:EF", "name": "mac-1"}}],
               "total_count": 2})
    };
    let script = Script::new()
        .answer(PAGE_1, 200, row("i6", "fd00::7/64"))
        .answer(PAGE_2, 200, row("i4", "172.16.0.7/22"))
        .answer(PAGE_1, 200, row("i6", "fd00::7/64"))
        .answer(PAGE_2, 200, row("i4", "172.16.0.7/22"));
    let world = World::with(script, |config| config.page_size = 1).await;
    let filter = IpFilter {
        resource_type: Some(ResourceType::AppleSiliconPrivateNic),
        mac_address: Some("02:00:00:ab:cd:ef".into()),
        ..IpFilter::of(Source::PrivateNetwork(PN.parse().unwrap()))
    };
    let ips = world.client.ipam_ips(&region(), &filter).await.unwrap();
    let found = ips.iter().find_map(russet_scaleway::ipam::Ip::ipv4);
    assert_eq!(found, Some(Ipv4Addr::new(172, 16, 0, 7)));
    world.finish();
}

#[tokio::test]
async fn a_base_address_with_a_path_keeps_it() {
    let server = crate::server::Server::start(Script::new().answer(
        "GET /scw/apple-silicon/v1alpha1/zones/fr-par-1/server-types",
        200,
        json!({"server_types": []}),
    ))
    .await;
    let mut config = russet_scaleway::Config::new(
        "SCWKEY",
        russet_telemetry::Secret::from(crate::KEY),
        PROJECT.parse().unwrap(),
        &format!("{}/scw/", server.url()),
    )
    .unwrap();
    config.proxy = russet_scaleway::config::Proxy::Never;
    let client = russet_scaleway::Client::new(&config, russet_scaleway::Context::default()).unwrap();
    assert!(client.list_mac_types(&zone()).await.unwrap().is_empty());
    server.finish();
}
