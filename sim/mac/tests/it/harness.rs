//! An emulated Scaleway with minis that answer.

use russet_sim_mac::{Fleet, Options, Phase, State};
use russet_sim_scaleway::{Factor, Host, Minis, Sim};
use serde_json::{Value, json};
use std::time::Duration;

use crate::shared;
pub(crate) use crate::shared::{client, until};

pub(crate) struct World {
    pub(crate) sim: Sim,
    pub(crate) fleet: Fleet,
}

impl World {
    /// Some minis, and a clock that stands still unless it is moved.
    pub(crate) async fn with(count: u32) -> Self {
        let fleet = Fleet::new(Options::default()).await.unwrap();
        let options = russet_sim_scaleway::Options {
            clock_factor: Factor::MANUAL,
            ..russet_sim_scaleway::Options::default()
        };
        let sim = Sim::start_with(options, fleet.clone()).await.unwrap();
        sim.handle()
            .add_minis(Minis {
                count,
                ..Minis::default()
            })
            .unwrap();
        let world = Self { sim, fleet };
        // Machines are made one after the other.
        let last = world.host(count);
        until("the last mini answers", || async { world.state(&last).await.is_some() }).await;
        world
    }

    pub(crate) fn host(&self, number: u32) -> Host {
        shared::host(&self.sim, number)
    }

    pub(crate) fn url(&self, host: &Host, path: &str) -> String {
        format!("http://{}:{}{path}", host.address, self.fleet.port())
    }

    /// What a machine says of itself; none if it does not answer or does not let us in.
    pub(crate) async fn state(&self, host: &Host) -> Option<State> {
        state(&self.url(host, "/state"), host).await
    }

    pub(crate) async fn post(&self, host: &Host, body: &Value) -> (u16, Value) {
        let request = client().post(self.url(host, "/join")).json(body);
        let answer = request
            .basic_auth(&host.username, Some(&host.password))
            .send()
            .await
            .unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    /// What the provider does at Scaleway.
    pub(crate) async fn act(&self, host: &Host, action: &str) {
        shared::act(&self.sim, host, action).await;
    }

    pub(crate) fn pass(&self, time: Duration) {
        self.sim.handle().advance(time);
    }
}

pub(crate) async fn state(url: &str, host: &Host) -> Option<State> {
    let request = client().get(url).basic_auth(&host.username, Some(&host.password));
    let answer = request.send().await.ok()?;
    if answer.status() != 200 {
        return None;
    }
    answer.json().await.ok()
}

/// Orders for a machine, for a cluster that is not there: the port 9 of a loopback address discards.
pub(crate) fn orders(host: &Host) -> Value {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "tart-kubelet",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
        "users": [{"name": "tart-kubelet-mac", "user": {"token": "s3cret.s3cret"}}],
        "contexts": [{"name": "tart-kubelet", "context": {"cluster": "c", "user": "tart-kubelet-mac"}}],
    });
    json!({
        "nodeName": "mac-1",
        "providerID": format!("scw-applesilicon://{}/{}", host.zone, host.server_id),
        "labels": {"tuist.dev/fleet": "runners"},
        "taints": [],
        "kubeconfig": kubeconfig.to_string(),
        "hash": "0123abcd",
    })
}

pub(crate) fn idle(state: &State) -> bool {
    state.phase == Phase::Idle && state.hash.is_empty()
}
