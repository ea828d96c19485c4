//! The Linux machines behind the API.

use crate::harness::{Api, instance, options, shows};
use russet_sim_scaleway::{BoxChange, BoxEvent, BoxFactory, NoHosts, Options, Power, Sim};
use serde_json::json;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

struct Recorder(UnboundedSender<BoxEvent>);

impl BoxFactory for Recorder {
    async fn changed(&self, event: &BoxEvent) {
        let _ = self.0.send(event.clone());
    }
}

async fn next(events: &mut UnboundedReceiver<BoxEvent>) -> BoxEvent {
    tokio::time::timeout(Duration::from_mins(2), events.recv())
        .await
        .unwrap()
        .unwrap()
}

#[tokio::test]
async fn a_factory_is_told_what_changed_about_an_instance() {
    let (sender, mut events) = unbounded_channel();
    let sim = Sim::start_with_boxes(options(), NoHosts, Recorder(sender))
        .await
        .unwrap();
    let api = Api::around(sim);
    let id = api.instance("a").await;
    let added = next(&mut events).await;
    assert_eq!(
        (added.change, &added.row.server_id, added.row.power),
        (BoxChange::Added, &id, Power::Off)
    );
    let path = format!("{}/user_data/cloud-init", instance(&id));
    let text = api
        .request("PATCH", &path)
        .header("Content-Type", "text/plain")
        .body("#cloud-config\n");
    assert_eq!(text.send().await.unwrap().status(), 204);
    let told = next(&mut events).await;
    assert_eq!(
        (told.fields.as_slice(), told.row.user_data.as_deref()),
        (["user_data".to_owned()].as_slice(), Some("#cloud-config\n"))
    );
    let network = api.network("cache").await;
    let nics = format!("{}/private_nics", instance(&id));
    api.post(nics, json!({"private_network_id": network})).await.ok();
    api.advance(Duration::from_secs(5));
    let leg = next(&mut events).await.row.private.unwrap();
    assert_eq!(
        (leg.address.as_str(), leg.vlan, &leg.private_network_id),
        ("172.16.0.2/22", None, &network)
    );
    api.act(&id, "poweron").await.ok();
    api.advance(Duration::from_secs(25));
    let on = next(&mut events).await;
    assert_eq!(
        (on.row.power, on.row.boots, on.row.ssh_user.as_str()),
        (Power::On, 1, "root")
    );
    assert_eq!(on.row.public_ip.unwrap().to_string(), "127.78.0.2");
    api.act(&id, "reboot").await.ok();
    assert_eq!(next(&mut events).await.row.power, Power::Off);
    api.advance(Duration::from_secs(25));
    assert_eq!(next(&mut events).await.row.boots, 2);
    api.act(&id, "terminate").await.ok();
    assert_eq!(next(&mut events).await.row.power, Power::Off);
    api.advance(Duration::from_secs(20));
    assert_eq!(next(&mut events).await.change, BoxChange::Gone);
}

#[tokio::test]
async fn another_process_reads_rows_and_follows_what_changes() {
    let api = Api::start().await;
    let id = api.instance("a").await;
    let rows = api.read("/_sim/boxes").await;
    let row = &rows[0];
    shows!(row, {"server_id": id, "kind": "instance", "power": "off"});
    for field in [
        "name",
        "zone",
        "generation",
        "authorized_keys",
        "hostname",
        "os",
        "ssh_user",
    ] {
        assert!(!row[field].is_null(), "{field}");
    }
    for field in ["public_ip", "private", "user_data"] {
        assert!(row[field].is_null(), "{field}");
    }
    let first = api.read("/_sim/box-events?after=0").await;
    shows!(first[0], {"number": 1, "change": "added", "box": row});
    let waiting = api.get("/_sim/box-events?after=1");
    let acting = async {
        api.handle().rename(&id, "b").unwrap();
    };
    let (events, ()) = tokio::join!(waiting, acting);
    let events = events.ok();
    shows!(events[0], {"change": "changed", "fields": ["hostname", "name"]});
    assert_eq!(api.read("/_sim/box-events?after=2&wait=false").await, json!([]));
    assert_eq!(api.get("/_sim/boxes?x=1").await.status, 400);
}

#[tokio::test]
async fn addresses_come_from_the_ranges_of_the_settings_and_are_not_given_twice() {
    let mut options = options();
    options.settings.linux_public = "10.77.3.0/29".parse().unwrap();
    options.settings.private_networks = "10.78.0.0/24".parse().unwrap();
    let api = Api::with(options).await;
    let network = api.network("cache").await;
    let shown = api
        .read(format!("/vpc/v2/regions/fr-par/private-networks/{network}"))
        .await;
    assert_eq!(shown["subnets"][0]["subnet"], "10.78.0.0/24");
    let mut seen = Vec::new();
    for number in 0..6 {
        let id = api.running(&format!("a{number}")).await;
        seen.push(api.handle().linux_box(&id).unwrap().public_ip.map(|ip| ip.to_string()));
    }
    let expected = ["10.77.3.2", "10.77.3.3", "10.77.3.4", "10.77.3.5", "10.77.3.6"];
    let expected = expected.into_iter().map(|ip| Some(ip.to_owned())).chain([None]);
    assert_eq!(seen, expected.collect::<Vec<_>>(), "the last one runs without");
}

#[tokio::test]
async fn machines_are_announced_again_after_a_restart_and_after_a_restore() {
    let folder = tempfile::tempdir().unwrap();
    let kept = || Options {
        state: Some(folder.path().join("state.json")),
        ..options()
    };
    let api = Api::with(kept()).await;
    let id = api.running("a").await;
    let before = api.handle().boxes();
    let snapshot = api.handle().snapshot();
    api.sim.stop().await.unwrap();
    let api = Api::with(kept()).await;
    assert_eq!(api.handle().boxes(), before);
    let events = api.handle().box_events_after(0);
    assert_eq!(
        (events.len(), events[0].change, &events[0].row),
        (1, BoxChange::Added, &before[0])
    );
    api.act(&id, "terminate").await.ok();
    api.advance(Duration::from_secs(20));
    api.handle().restore(snapshot).unwrap();
    let changes: Vec<BoxChange> = api
        .handle()
        .box_events_after(1)
        .iter()
        .map(|event| event.change)
        .collect();
    assert_eq!(changes, [BoxChange::Changed, BoxChange::Gone, BoxChange::Added]);
}

/// A state from before there were Linux servers is one without any, not a reason to start afresh.
#[tokio::test]
async fn an_older_state_without_linux_servers_can_still_be_read() {
    let api = Api::start().await;
    api.mini("m");
    let mut state = serde_json::to_value(api.handle().snapshot()).unwrap();
    let world = state["world"].as_object_mut().unwrap();
    for field in ["instance", "block", "linux", "metal"] {
        world.remove(field).unwrap();
    }
    let other = Api::start().await;
    other.handle().restore(serde_json::from_value(state).unwrap()).unwrap();
    assert_eq!(other.handle().servers(), api.handle().servers());
    other.running("a").await;
}
