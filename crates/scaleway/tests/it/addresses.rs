//! Addresses and the networks they are of.

use std::net::Ipv4Addr;

use russet_api::values::Zone;
use russet_scaleway::ipam::{IpFilter, ResourceType, Source};
use serde_json::{Value, json};

use crate::server::Script;
use crate::{PROJECT, World, zone};

const PN: &str = "aaaaaaaa-0000-4000-8000-000000000001";

fn row(id: &str, address: &str, nic: &str) -> Value {
    json!({"id": id, "address": address, "is_ipv6": address.contains(':'), "project_id": PROJECT,
           "resource": {"type": "instance_private_nic", "id": nic, "mac_address": "02:00:00:AB:CD:EF", "name": "cache-1"}})
}

/// The API refuses two sources at once, and says nothing sensible without one.
#[tokio::test]
async fn addresses_are_asked_for_with_exactly_one_source() {
    let line = |source: &str| -> &'static str {
        let text = format!(
            "GET /ipam/v1/regions/fr-par/ips?project_id={PROJECT}&order_by=created_at_asc&attached=true&{source}&page=1&page_size=100"
        );
        Box::leak(text.into_boxed_str())
    };
    let none = json!({"ips": [], "total_count": 0});
    let script = Script::new()
        .answer(line("zonal=fr-par-1"), 200, none.clone())
        .answer(line("regional=true"), 200, none.clone())
        .answer(line(&format!("private_network_id={PN}")), 200, none);
    let world = World::new(script).await;
    for source in [
        Source::Zonal(zone()),
        Source::Regional,
        Source::PrivateNetwork(PN.parse().unwrap()),
    ] {
        let found = world
            .client
            .ipam_ips(&zone().region(), &IpFilter::of(source))
            .await
            .unwrap();
        assert!(found.is_empty());
    }
    world.finish();
}

/// The label of a node's private address once held its IPv6 address, which came first.
#[tokio::test]
async fn the_ipv4_address_of_an_interface_is_found_behind_its_ipv6_address() {
    const LIST: &str = "GET /ipam/v1/regions/fr-par/ips?project_id=11111111-2222-3333-4444-555555555555&order_by=created_at_asc&attached=true&private_network_id=aaaaaaaa-0000-4000-8000-000000000001&resource_type=instance_private_nic&resource_id=nic-1&page=1&page_size=100";
    let six = row("i6", "fd00::7/64", "nic-1");
    let script = Script::new()
        .answer(LIST, 200, json!({"ips": [six], "total_count": 1}))
        .answer(
            LIST,
            200,
            json!({"ips": [six, row("i4", "172.16.0.7/22", "nic-1")], "total_count": 2}),
        );
    let world = World::new(script).await;
    let (region, network) = (zone().region(), PN.parse().unwrap());
    let find = || {
        world
            .client
            .private_ipv4(&region, &network, ResourceType::InstancePrivateNic, "nic-1")
    };
    assert_eq!(find().await.unwrap(), None, "it comes later");
    assert_eq!(find().await.unwrap(), Some(Ipv4Addr::new(172, 16, 0, 7)));
    world.finish();
}

#[tokio::test]
async fn a_network_is_looked_for_in_the_region_of_the_zone() {
    const GET: &str = "GET /vpc/v2/regions/nl-ams/private-networks/aaaaaaaa-0000-4000-8000-000000000001";
    const FIND: &str = "GET /vpc/v2/regions/nl-ams/private-networks?name=cache&project_id=11111111-2222-3333-4444-555555555555&page=1&page_size=100";
    let network = json!({"id": PN, "name": "cache", "project_id": PROJECT, "tags": null, "subnets": null});
    let script = Script::new().answer(GET, 200, network.clone()).answer(
        FIND,
        200,
        json!({"private_networks": [network], "total_count": 1}),
    );
    let world = World::new(script).await;
    let far: Zone = "nl-ams-2".parse().unwrap();
    let by_id = world
        .client
        .private_network(&far.region(), &PN.parse().unwrap())
        .await
        .unwrap();
    let by_name = world.client.find_private_network(&far.region(), "cache").await.unwrap();
    assert_eq!(by_name, Some(by_id));
    world.finish();
}
