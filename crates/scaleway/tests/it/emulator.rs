//! The client and the emulator were written from the same facts by different hands; here they have to understand each other.

use std::sync::Arc;
use std::time::Duration;

use russet_api::values::ServerId;
use russet_scaleway::apple_silicon::{AttachmentStatus, Password, ServerStatus, VpcStatus};
use russet_scaleway::config::Proxy;
use russet_scaleway::error::EffectKnown;
use russet_scaleway::ipam::{Ip, IpFilter, ResourceType, Source};
use russet_scaleway::{Client, Config, Context, Kind};
use russet_sim_scaleway::{
    Act, DEFAULT_ACCESS_KEY, DEFAULT_PROJECT, DEFAULT_SECRET_KEY, Factor, Fault, Minis, Options, Settings, Sim,
};
use russet_telemetry::Secret;

use crate::{Half, JumpyClock, assert_unknown, zone};

async fn sim() -> Sim {
    sim_with(|_| ()).await
}

pub(crate) async fn sim_with(change: impl FnOnce(&mut Settings)) -> Sim {
    let mut options = Options {
        clock_factor: Factor::MANUAL,
        start: Some("2026-10-01T08:00:00Z".parse().unwrap()),
        ..Options::default()
    };
    change(&mut options.settings);
    Sim::start(options).await.unwrap()
}

pub(crate) fn client(sim: &Sim, secret: &str, page_size: u32) -> Client {
    let project = DEFAULT_PROJECT.to_string().parse().unwrap();
    let mut config = Config::new(DEFAULT_ACCESS_KEY, Secret::from(secret), project, sim.url()).unwrap();
    config.proxy = Proxy::Never;
    config.page_size = page_size;
    let context = Context {
        clock: Arc::new(JumpyClock::default()),
        chance: Arc::new(Half),
        ..Context::default()
    };
    Client::new(&config, context).unwrap()
}

async fn with_minis(count: u32) -> (Sim, Client, Vec<ServerId>) {
    let sim = sim().await;
    let ids = sim
        .handle()
        .add_minis(Minis {
            count,
            ..Minis::default()
        })
        .unwrap();
    let client = client(&sim, DEFAULT_SECRET_KEY, 2);
    let ids = ids.iter().map(|id| id.to_string().parse().unwrap()).collect();
    (sim, client, ids)
}

#[tokio::test]
async fn the_life_of_a_mac_is_understood() {
    let (sim, client, ids) = with_minis(5).await;
    let zone = zone();
    let macs = client.list_macs(&zone).await.unwrap();
    assert_eq!(macs.len(), 5);
    let mac = client.get_mac(&zone, &ids[0]).await.unwrap();
    assert_eq!((&mac.status, mac.delivered), (&ServerStatus::Ready, true));
    let Password::Known(before) = mac.password() else {
        panic!("no password")
    };
    assert_eq!(client.rename_mac(&zone, &ids[0], "mac-1").await.unwrap().name, "mac-1");
    let images = client.list_mac_os(&zone, &mac.type_).await.unwrap();
    let image = images.iter().find(|image| !image.is_beta).unwrap();
    let wiping = client.reinstall_mac(&zone, &ids[0], Some(&image.id)).await.unwrap();
    assert_eq!(wiping.status, ServerStatus::Reinstalling);
    let busy = client.reinstall_mac(&zone, &ids[0], None).await.unwrap_err();
    assert!(
        matches!(&busy.kind, Kind::TransientState { state, .. } if state == "reinstalling"),
        "{busy}"
    );
    sim.handle().advance(Duration::from_mins(30));
    let mac = client.get_mac(&zone, &ids[0]).await.unwrap();
    assert_eq!(mac.status, ServerStatus::Ready);
    let Password::Known(after) = mac.password() else {
        panic!("no password")
    };
    assert!(
        !before.matches(after.expose().as_bytes()),
        "a wipe changes the password"
    );
    assert_eq!(
        client.reboot_mac(&zone, &ids[0]).await.unwrap().status,
        ServerStatus::Rebooting
    );
    assert!(!client.list_mac_types(&zone).await.unwrap().is_empty());
    sim.stop().await.unwrap();
}

#[tokio::test]
async fn a_mac_gets_an_address_on_a_private_network() {
    let (sim, client, ids) = with_minis(1).await;
    let (zone, id) = (zone(), &ids[0]);
    let region = zone.region();
    assert_eq!(client.find_private_network(&region, "cache").await.unwrap(), None);
    let cidr = "172.16.0.0/22".parse().unwrap();
    let network = client
        .create_private_network(&region, "cache", Some(&cidr), &["capi"])
        .await
        .unwrap();
    assert_eq!(
        client.find_private_network(&region, "cache").await.unwrap().unwrap().id,
        network.id
    );
    client.set_mac_vpc(&zone, id, true).await.unwrap();
    sim.handle().advance(Duration::from_mins(5));
    assert_eq!(client.get_mac(&zone, id).await.unwrap().vpc_status, VpcStatus::Enabled);
    client.attach_mac(&zone, id, &network.id).await.unwrap();
    sim.handle().advance(Duration::from_mins(5));
    let attachments = client.list_mac_attachments(&zone, id).await.unwrap();
    assert_eq!(attachments[0].status, AttachmentStatus::Attached);
    assert!(attachments[0].vlan.is_some());
    let filter = IpFilter {
        resource_type: Some(ResourceType::AppleSiliconPrivateNic),
        ..IpFilter::of(Source::PrivateNetwork(network.id.clone()))
    };
    let ips = client.ipam_ips(&region, &filter).await.unwrap();
    let address = ips.iter().find_map(Ip::ipv4);
    assert!(address.is_some(), "{ips:?}");
    let nic = ips[0].resource.as_ref().unwrap().id.clone();
    let one = client
        .private_ipv4(&region, &network.id, ResourceType::AppleSiliconPrivateNic, &nic)
        .await
        .unwrap();
    assert_eq!(one, address);
    assert_eq!(
        client.private_network(&region, &network.id).await.unwrap().name,
        "cache"
    );
    client.detach_mac(&zone, id, &network.id).await.unwrap();
    sim.stop().await.unwrap();
}

#[tokio::test]
async fn keys_are_registered_listed_and_removed_in_the_project() {
    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE1Yb8mYUoSlJ4Yl0b2q1bG8i8w2G2mXv1oV1yCkq8qV tuist-capi-macs";
    let (sim, client, _) = with_minis(0).await;
    let made = client.create_ssh_key("macs", KEY).await.unwrap();
    let keys = client.list_ssh_keys().await.unwrap();
    assert!(keys.iter().any(|key| key.id == made.id && key.is_key(KEY)));
    client.delete_ssh_key(&made.id).await.unwrap();
    assert!(client.delete_ssh_key(&made.id).await.unwrap_err().is_not_found());
    sim.stop().await.unwrap();
}

#[tokio::test]
async fn a_call_whose_answer_is_lost_after_its_effect_is_not_repeated() {
    for act in [Act::Status(502), Act::Cut] {
        let (sim, client, ids) = with_minis(1).await;
        sim.handle()
            .inject(Fault::new("PATCH", "/apple-silicon/**", act).after_effect());
        let error = client.rename_mac(&zone(), &ids[0], "mac-1").await.unwrap_err();
        assert_unknown(&error, EffectKnown::Maybe, &[None, Some(502)]);
        assert_eq!(client.get_mac(&zone(), &ids[0]).await.unwrap().name, "mac-1");
        assert_eq!(sim.handle().calls("PATCH", "/apple-silicon/**"), 1);
        sim.stop().await.unwrap();
    }
}

#[tokio::test]
async fn reads_outlive_bad_gateways_cut_connections_and_rate_limits() {
    let (sim, client, _) = with_minis(3).await;
    sim.handle()
        .inject(Fault::new("GET", "/apple-silicon/**", Act::Status(503)));
    sim.handle()
        .inject(Fault::new("GET", "/apple-silicon/**", Act::Cut).skip(1));
    sim.handle()
        .inject(Fault::new("GET", "/apple-silicon/**", Act::TooManyRequests { retry_after: 3 }).skip(3));
    assert_eq!(client.list_macs(&zone()).await.unwrap().len(), 3);
    assert!(
        sim.handle().faults().is_empty(),
        "all of them struck: {:?}",
        sim.handle().faults()
    );
    sim.stop().await.unwrap();
}

#[tokio::test]
async fn wrong_keys_and_vanished_hosts_are_told_apart() {
    let (sim, client_ok, ids) = with_minis(1).await;
    let stranger = client(&sim, "00000000-0000-4000-8000-000000000000", 100);
    let error = stranger.list_macs(&zone()).await.unwrap_err();
    assert_eq!(error.reason(), "Unauthenticated", "{error}");
    let id = sim.handle().servers()[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(id, ids[0].as_str());
    let name = client_ok.get_mac(&zone(), &ids[0]).await.unwrap().name;
    sim.handle().vanish(name.as_str()).unwrap();
    let error = client_ok.get_mac(&zone(), &ids[0]).await.unwrap_err();
    assert!(error.may_mean_gone() && !error.is_not_found(), "{error}");
    assert!(
        client_ok.list_macs(&zone()).await.unwrap().is_empty(),
        "and the list proves it"
    );
    sim.stop().await.unwrap();
}
