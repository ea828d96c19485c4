//! Instances, block volumes and images, as the client and the emulator both understand the same facts.

use std::time::Duration;

use russet_api::values::ServerId;
use russet_scaleway::instance::{
    Action, CLOUD_INIT, CreateInstance, Instance, InstanceFilter, IpFilter as PublicFilter, NicState, RootVolume,
    State, VolumeFilter, VolumeType,
};
use russet_scaleway::ipam::{Ip, IpFilter, ResourceType, Source};
use russet_scaleway::marketplace::LocalImageType;
use russet_scaleway::{Client, ImageId, Kind, block};
use russet_sim_scaleway::{Act, DEFAULT_SECRET_KEY, ErrorStyle, Fault, Settings, Sim};
use russet_telemetry::Secret;

use crate::emulator::{client, sim_with};
use crate::zone;

const TYPE: &str = "PRO2-S";

async fn world(change: impl FnOnce(&mut Settings)) -> (Sim, Client) {
    let sim = sim_with(change).await;
    let client = client(&sim, DEFAULT_SECRET_KEY, 2);
    (sim, client)
}

async fn image(client: &Client) -> ImageId {
    let images = client
        .local_images("ubuntu_noble", &zone(), &LocalImageType::Sbs)
        .await
        .unwrap();
    images.into_iter().find(|image| image.runs_on(TYPE)).unwrap().id
}

async fn wanted(client: &Client, name: &str) -> CreateInstance {
    CreateInstance {
        name: name.to_owned(),
        commercial_type: TYPE.to_owned(),
        image: image(client).await,
        tags: vec!["capi".to_owned(), format!("machine-uid={name}")],
        dynamic_ip: true,
        root_volume: Some(RootVolume {
            gb: 50,
            volume_type: VolumeType::Block,
        }),
    }
}

async fn read(client: &Client, id: &ServerId) -> Instance {
    client.instance(&zone(), id).await.unwrap()
}

#[tokio::test]
async fn the_life_of_an_instance_is_understood() {
    let (sim, client) = world(|_| ()).await;
    let zone = zone();
    let region = zone.region();
    let made = client
        .create_instance(&zone, &wanted(&client, "cache-1").await)
        .await
        .unwrap();
    assert_eq!((&made.state, made.public_ipv4()), (&State::Stopped, None));
    let script = Secret::from("#cloud-config\nruncmd: []\n");
    client.set_user_data(&zone, &made.id, CLOUD_INIT, script).await.unwrap();
    assert_eq!(client.user_data_keys(&zone, &made.id).await.unwrap(), [CLOUD_INIT]);
    let cidr = "172.16.0.0/22".parse().unwrap();
    let network = client
        .create_private_network(&region, "cache", Some(&cidr), &["capi"])
        .await
        .unwrap();
    let nic = client.create_private_nic(&zone, &made.id, &network.id).await.unwrap();
    assert_eq!((&nic.state, &nic.mac_address), (&NicState::Syncing, &None));
    let twice = client
        .create_private_nic(&zone, &made.id, &network.id)
        .await
        .unwrap_err();
    assert_eq!(twice.reason(), "Conflict", "{twice}");
    client.instance_action(&zone, &made.id, Action::Poweron).await.unwrap();
    assert_eq!(read(&client, &made.id).await.state, State::Starting);
    sim.handle().advance(Duration::from_mins(5));
    let on = read(&client, &made.id).await;
    assert_eq!(on.state, State::Running);
    assert!(on.public_ipv4().is_some(), "{on:?}");
    assert_eq!(on.private_nics, None, "the API leaves them out");

    let nics = client.private_nics(&zone, &made.id).await.unwrap();
    assert_eq!((nics.len(), &nics[0].state), (1, &NicState::Available));
    let by_nic = client
        .private_ipv4(&region, &network.id, ResourceType::InstancePrivateNic, nic.id.as_str())
        .await
        .unwrap();
    let filter = IpFilter {
        mac_address: nics[0].mac_address.clone(),
        ..IpFilter::of(Source::PrivateNetwork(network.id.clone()))
    };
    assert!(filter.mac_address.is_some());
    let by_mac = client.ipam_ips(&region, &filter).await.unwrap();
    assert!(by_mac[0].is_ipv6, "the IPv6 row comes first: {by_mac:?}");
    assert_eq!(by_mac.iter().find_map(Ip::ipv4), by_nic);
    assert!(by_nic.is_some_and(|address| cidr.contains(address.into())));

    client.delete_user_data(&zone, &made.id, CLOUD_INIT).await.unwrap();
    assert!(client.user_data_keys(&zone, &made.id).await.unwrap().is_empty());
    let refused = client.delete_instance(&zone, &made.id).await.unwrap_err();
    assert_eq!(refused.reason(), "PreconditionFailed", "{refused}");
    client.instance_action(&zone, &made.id, Action::Poweroff).await.unwrap();
    let busy = client
        .instance_action(&zone, &made.id, Action::Poweroff)
        .await
        .unwrap_err();
    assert!(
        matches!(&busy.kind, Kind::TransientState { state, .. } if state == "stopping"),
        "{busy}"
    );
    sim.handle().advance(Duration::from_mins(5));
    let off = client
        .instance_action(&zone, &made.id, Action::Poweroff)
        .await
        .unwrap_err();
    assert_eq!(off.reason(), "PreconditionFailed", "{off}");
    client.delete_instance(&zone, &made.id).await.unwrap();
    assert!(client.instance(&zone, &made.id).await.unwrap_err().is_not_found());
    sim.stop().await.unwrap();
}

#[tokio::test]
async fn what_an_instance_leaves_behind_is_found_and_deleted() {
    let (sim, client) = world(|_| ()).await;
    let zone = zone();
    let made = client
        .create_instance(&zone, &wanted(&client, "cache-1").await)
        .await
        .unwrap();
    let volume = made.volumes["0"].id.clone();
    let all = block::VolumeFilter::default();
    sim.handle().advance(Duration::from_mins(5));
    let used = client.block_volumes(&zone, &all).await.unwrap();
    assert_eq!((used.len(), &used[0].id), (1, &volume));
    assert_eq!(used[0].references[0].product_resource_id, made.id.as_str());
    let refused = client.delete_block_volume(&zone, &volume).await.unwrap_err();
    assert!(refused.is_without_effect(), "{refused}");
    client.delete_instance(&zone, &made.id).await.unwrap();
    sim.handle().advance(Duration::from_mins(5));
    let left = client.block_volumes(&zone, &all).await.unwrap();
    assert_eq!((left.len(), left[0].references.len()), (1, 0));
    client.delete_block_volume(&zone, &volume).await.unwrap();
    sim.handle().advance(Duration::from_mins(5));
    assert!(client.block_volumes(&zone, &all).await.unwrap().is_empty());
    let public = client.instance_ips(&zone, &PublicFilter::default()).await.unwrap();
    let local = client.instance_volumes(&zone, &VolumeFilter::default()).await.unwrap();
    assert!(public.is_empty() && local.is_empty(), "{public:?} {local:?}");
    sim.stop().await.unwrap();
}

#[tokio::test]
async fn an_instance_whose_answer_was_lost_is_found_by_its_tags_and_not_made_twice() {
    for act in [Act::Status(502), Act::Cut] {
        let (sim, client) = world(|_| ()).await;
        let order = wanted(&client, "cache-1").await;
        sim.handle()
            .inject(Fault::new("POST", "/instance/**", act).after_effect());
        let error = client.create_instance(&zone(), &order).await.unwrap_err();
        assert!(!error.is_without_effect(), "{error}");
        let filter = InstanceFilter {
            name: None,
            tags: order.tags.clone(),
        };
        let found = client.instances(&zone(), &filter).await.unwrap();
        assert_eq!((found.len(), found[0].name.as_str()), (1, "cache-1"));
        assert_eq!(sim.handle().calls("POST", "/instance/**"), 1);
        sim.stop().await.unwrap();
    }
}

#[tokio::test]
async fn instances_are_listed_past_the_first_page_and_chosen_by_whole_name() {
    let (sim, client) = world(|_| ()).await;
    for name in ["cache-1", "cache-10", "cache-2", "cache-3", "cache-4"] {
        let order = wanted(&client, name).await;
        client.create_instance(&zone(), &order).await.unwrap();
    }
    let all = client.instances(&zone(), &InstanceFilter::default()).await.unwrap();
    assert_eq!(all.len(), 5);
    let filter = InstanceFilter {
        name: Some("cache-1".to_owned()),
        tags: vec!["capi".to_owned()],
    };
    let one = client.instances(&zone(), &filter).await.unwrap();
    assert_eq!((one.len(), one[0].name.as_str()), (1, "cache-1"));
    sim.stop().await.unwrap();
}

#[tokio::test]
async fn old_and_new_refusals_of_the_instance_api_mean_the_same() {
    for style in [ErrorStyle::Current, ErrorStyle::Legacy] {
        let (sim, client) = world(|settings| settings.instance_errors = style).await;
        let gone: ServerId = "2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b".parse().unwrap();
        let error = client.instance(&zone(), &gone).await.unwrap_err();
        assert!(error.is_not_found(), "{error}");
        let order = wanted(&client, "cache-1").await;
        let made = client.create_instance(&zone(), &order).await.unwrap();
        let error = client
            .instance_action(&zone(), &made.id, Action::Poweroff)
            .await
            .unwrap_err();
        assert_eq!(error.reason(), "PreconditionFailed", "{error}");
        assert!(error.to_string().contains("server should be running"), "{error}");
        let unknown = CreateInstance {
            commercial_type: "PRO9-XXL".to_owned(),
            ..order
        };
        let error = client.create_instance(&zone(), &unknown).await.unwrap_err();
        assert!(
            matches!(&error.kind, Kind::InvalidArguments { details } if details[0].name == "commercial_type"),
            "{error}"
        );
        sim.stop().await.unwrap();
    }
}

#[tokio::test]
async fn sizes_cost_something_and_are_in_stock() {
    let (sim, client) = world(|_| ()).await;
    let types = client.instance_types(&zone()).await.unwrap();
    let pro = types.iter().find(|type_| type_.name == TYPE).unwrap();
    assert!(pro.euros_per_hour > 0.0 && types.len() > 2);
    let stock = client.instance_stock(&zone()).await.unwrap();
    assert_eq!(stock.len(), types.len());
    sim.stop().await.unwrap();
}
