//! Machines attached from the same process.

use crate::harness::{Api, options, server};
use russet_sim_scaleway::{AddressPlan, HostChange, HostEvent, HostFactory, Minis, Options, Sim};
use serde_json::json;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

struct Recorder(UnboundedSender<HostEvent>);

impl HostFactory for Recorder {
    async fn changed(&self, event: &HostEvent) {
        let _ = self.0.send(event.clone());
    }
}

async fn next(events: &mut UnboundedReceiver<HostEvent>) -> HostEvent {
    tokio::time::timeout(Duration::from_secs(30), events.recv())
        .await
        .unwrap()
        .unwrap()
}

#[tokio::test]
async fn a_factory_is_told_of_every_installation_wipe_and_end() {
    let (sender, mut events) = unbounded_channel();
    let sim = Sim::start_with(options(), Recorder(sender)).await.unwrap();
    let api = Api::around(sim);
    let id = api.mini("m");
    let first = next(&mut events).await;
    assert_eq!((first.change, &first.host.server_id), (HostChange::Installed, &id));
    assert_eq!(json!(first.host.address), api.server(&id).await["ip"]);
    api.post(format!("{}/reinstall", server(&id)), json!({})).await.ok();
    assert_eq!(next(&mut events).await.change, HostChange::Wiped);
    api.advance(Duration::from_mins(10));
    let again = next(&mut events).await;
    assert_eq!((again.change, again.host.generation), (HostChange::Installed, 2));
    assert_ne!(first.host.host_key, again.host.host_key);
    api.delete(server(&id)).await;
    assert_eq!(next(&mut events).await.change, HostChange::Gone);
}

/// A clock that runs lets things happen although nobody asks.
#[tokio::test]
async fn a_running_clock_delivers_while_nobody_looks() {
    let (sender, mut events) = unbounded_channel();
    let fast = Options {
        clock_factor: 100_000.0.try_into().unwrap(),
        ..options()
    };
    let api = Api::around(Sim::start_with(fast, Recorder(sender)).await.unwrap());
    api.order("a").await.ok();
    assert_eq!(next(&mut events).await.change, HostChange::Installed);
    assert_eq!(api.handle().calls("GET", "/**"), 0);
}

#[tokio::test]
async fn machines_get_an_address_each_or_a_port_each() {
    let two = Minis {
        count: 2,
        ..Minis::default()
    };
    for (plan, addresses, ports) in [
        (
            AddressPlan::LoopbackEach { ssh_port: 2222 },
            ["127.77.0.1", "127.77.0.2"],
            [2222, 2222],
        ),
        (
            AddressPlan::OneAddress { first_port: 2200 },
            ["127.0.0.1", "127.0.0.1"],
            [2200, 2201],
        ),
    ] {
        let api = Api::with(Options {
            addresses: plan,
            ..options()
        })
        .await;
        let ids = api.handle().add_minis(two.clone()).unwrap();
        let hosts: Vec<_> = ids.iter().map(|id| api.handle().host(id).unwrap()).collect();
        assert_eq!([hosts[0].address.to_string(), hosts[1].address.to_string()], addresses);
        assert_eq!([hosts[0].ssh_port, hosts[1].ssh_port], ports);
    }
}
