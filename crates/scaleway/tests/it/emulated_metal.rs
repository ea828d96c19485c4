//! Elastic Metal, as the client and the emulator both understand the same facts.

use std::time::Duration;

use russet_scaleway::baremetal::{
    AttachmentStatus, Install, InstallStatus, MetalFilter, OfferFilter, OptionStatus, OrderMetal, Status, Subscription,
    UpdateMetal,
};
use russet_scaleway::ipam::ResourceType;
use russet_scaleway::{Client, Kind, OfferId, OsId};
use russet_sim_scaleway::{Act, DEFAULT_SECRET_KEY, Fault, Sim};
use russet_telemetry::Secret;

use crate::emulator::{client, sim_with};
use crate::zone;

const OFFER: &str = "EM-B220E-NVME";
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE1Yb8mYUoSlJ4Yl0b2q1bG8i8w2G2mXv1oV1yCkq8qV tuist-capi-cache";

async fn world() -> (Sim, Client) {
    let sim = sim_with(|_| ()).await;
    let client = client(&sim, DEFAULT_SECRET_KEY, 2);
    (sim, client)
}

async fn offer_and_os(client: &Client) -> (OfferId, OsId) {
    let offer = client
        .find_metal_offer(&zone(), OFFER, Subscription::Hourly)
        .await
        .unwrap()
        .unwrap();
    assert!(offer.euros_per_hour().unwrap() > 0.0);
    let images = client.metal_os(&zone(), &offer.id).await.unwrap();
    let noble = images.iter().find(|os| os.is_labelled("ubuntu_noble")).unwrap();
    assert!(noble.can_be_installed() && noble.cloud_init_supported);
    (offer.id, noble.id.clone())
}

async fn order(client: &Client, name: &str) -> OrderMetal {
    let (offer, os) = offer_and_os(client).await;
    let key = client.create_ssh_key("cache", KEY).await.unwrap();
    OrderMetal {
        offer,
        name: name.to_owned(),
        description: String::new(),
        tags: vec!["capi".to_owned(), format!("machine-uid={name}")],
        install: Some(Install {
            os,
            hostname: name.to_owned(),
            ssh_keys: vec![key.id],
            login: None,
            partitions: None,
        }),
        options: Vec::new(),
        user_data: Some(Secret::from("#cloud-config\nruncmd: []\n")),
    }
}

#[tokio::test]
async fn the_life_of_an_elastic_metal_server_is_understood() {
    let (sim, client) = world().await;
    let zone = zone();
    let order = order(&client, "em-1").await;
    let made = client.order_metal(&zone, &order).await.unwrap();
    assert!(!made.is_installed() && made.has_user_data(), "{made:?}");
    sim.handle().advance(Duration::from_hours(2));
    let there = client.metal_server(&zone, &made.id).await.unwrap();
    assert!(there.is_installed() && there.public_ipv4().is_some(), "{there:?}");
    assert_eq!(there.offer_name, OFFER);

    let install = order.install.clone().unwrap();
    let schema = client
        .default_metal_partitions(&zone, &order.offer, &install.os)
        .await
        .unwrap();
    assert!(schema.filesystems.iter().any(|mounted| mounted.mountpoint == "/"));
    client
        .validate_metal_partitions(&zone, &order.offer, &install.os, &schema)
        .await
        .unwrap();
    let again = Install {
        partitions: Some(schema),
        ..install
    };
    client.install_metal(&zone, &made.id, &again).await.unwrap();
    sim.handle().advance(Duration::from_secs(10));
    let busy = client.install_metal(&zone, &made.id, &again).await.unwrap_err();
    assert!(matches!(&busy.kind, Kind::TransientState { .. }), "{busy}");
    let wiping = client.metal_server(&zone, &made.id).await.unwrap();
    assert_eq!(wiping.install.unwrap().status, InstallStatus::Installing);
    sim.handle().advance(Duration::from_hours(2));
    assert!(client.metal_server(&zone, &made.id).await.unwrap().is_installed());

    let update = UpdateMetal {
        name: Some("em-2".to_owned()),
        tags: Some(vec!["capi".to_owned()]),
        user_data: Some(Secret::from("")),
    };
    let changed = client.update_metal(&zone, &made.id, &update).await.unwrap();
    assert_eq!((changed.name.as_str(), changed.tags.len()), ("em-2", 1));
    assert!(!changed.has_user_data());
    client.reboot_metal(&zone, &made.id).await.unwrap();
    sim.handle().advance(Duration::from_mins(30));
    assert!(!client.metal_events(&zone, &made.id).await.unwrap().is_empty());
    client.delete_metal(&zone, &made.id).await.unwrap();
    sim.handle().advance(Duration::from_mins(30));
    assert!(client.metal_server(&zone, &made.id).await.unwrap_err().is_not_found());
    sim.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_gets_an_address_on_a_private_network_once_it_has_the_option() {
    let (sim, client) = world().await;
    let (zone, region) = (zone(), zone().region());
    let order = order(&client, "em-1").await;
    let made = client.order_metal(&zone, &order).await.unwrap();
    sim.handle().advance(Duration::from_hours(2));
    let options = client.metal_options(&zone, &order.offer).await.unwrap();
    let option = options
        .iter()
        .find(|option| option.private_network.is_some() && option.manageable)
        .unwrap();
    let enabling = client.add_metal_option(&zone, &made.id, &option.id).await.unwrap();
    let status = |server: &russet_scaleway::baremetal::Server| {
        server.private_network_option().map(|option| option.status.clone())
    };
    assert_eq!(status(&enabling), Some(OptionStatus::Enabling));
    sim.handle().advance(Duration::from_mins(10));
    let enabled = client.metal_server(&zone, &made.id).await.unwrap();
    assert_eq!(status(&enabled), Some(OptionStatus::Enabled));
    let network = client
        .create_private_network(&region, "cache", None, &["capi"])
        .await
        .unwrap();
    let attaching = client
        .attach_metal_private_network(&zone, &made.id, &network.id)
        .await
        .unwrap();
    assert_eq!(attaching.vlan, None);
    sim.handle().advance(Duration::from_mins(10));
    let attached = client.metal_private_networks(&zone, &made.id).await.unwrap();
    assert_eq!((attached.len(), &attached[0].status), (1, &AttachmentStatus::Attached));
    assert!(attached[0].vlan.is_some());
    let address = client
        .private_ipv4(&region, &network.id, ResourceType::BaremetalPrivateNic, &attached[0].id)
        .await
        .unwrap();
    assert!(address.is_some(), "IPAM calls the attachment the resource");
    client
        .detach_metal_private_network(&zone, &made.id, &network.id)
        .await
        .unwrap();
    sim.stop().await.unwrap();
}

#[tokio::test]
async fn an_order_of_metal_whose_answer_was_lost_is_found_by_its_tags_and_not_made_twice() {
    for act in [Act::Status(504), Act::Cut] {
        let (sim, client) = world().await;
        let order = order(&client, "em-1").await;
        sim.handle()
            .inject(Fault::new("POST", "/baremetal/**", act).after_effect());
        let error = client.order_metal(&zone(), &order).await.unwrap_err();
        assert!(!error.is_without_effect(), "{error}");
        let filter = MetalFilter {
            tags: order.tags.clone(),
            statuses: vec![Status::Ordered, Status::Delivering, Status::Ready],
            ..MetalFilter::default()
        };
        let found = client.metal_servers(&zone(), &filter).await.unwrap();
        assert_eq!((found.len(), found[0].name.as_str()), (1, "em-1"));
        assert_eq!(sim.handle().calls("POST", "/baremetal/**"), 1);
        sim.stop().await.unwrap();
    }
}

#[tokio::test]
async fn the_hourly_and_the_monthly_offer_of_a_name_are_told_apart() {
    let (sim, client) = world().await;
    let filter = OfferFilter {
        name: Some(OFFER.to_owned()),
        subscription: None,
    };
    let both = client.metal_offers(&zone(), &filter).await.unwrap();
    assert!(both.iter().all(|offer| offer.name == OFFER));
    let hourly = client
        .find_metal_offer(&zone(), OFFER, Subscription::Hourly)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(hourly.subscription_period, Subscription::Hourly);
    sim.stop().await.unwrap();
}
