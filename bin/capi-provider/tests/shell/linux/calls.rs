//! What a machine costs in calls, however often it is looked at.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use russet_api::{ScalewayElasticMetalMachine as Metal, ScalewayInstanceMachine as Instance};
use russet_capi_provider::linux::kind::LinuxKind;
use russet_sim_scaleway::{BoxFate, BoxOutcome, Deed, Delays, Handle, Stage, Zone};
use serde_json::json;
use tokio::task::JoinHandle;

use super::support::{Boots, Trial, provider, sim};
use crate::fleet::{Fleet, is_ready};
use crate::harness::{cluster, identity};

/// What one machine may cost on its way up, and on its way down: the calls that must be made, a look before each, and some more.
const MOST: usize = 15;

/// Waits long enough for many events, and retries as in earnest.
const FLAGS: [&str; 1] = ["--linux-refusal-retry=5m"];

fn takes_a_while(handle: &Handle) {
    let while_ = Duration::from_secs(3);
    handle.set(|settings| {
        settings.delays = Delays {
            nic: Duration::from_secs(1),
            nic_release: Duration::from_secs(1),
            attach: Duration::from_secs(1),
            detach: Duration::from_secs(1),
            ..Delays::linux(while_)
        };
    });
}

/// Calls for one machine rather than for all, by what they are about.
fn own(handle: &Handle) -> BTreeMap<String, usize> {
    let is_id = |part: &str| part.len() == 36 && part.matches('-').count() == 4;
    let mut counts = BTreeMap::new();
    for entry in handle.journal() {
        let narrowed = ["tags=", "server_id=", "resource_id="]
            .into_iter()
            .find(|name| entry.query.contains(name));
        let parts: Vec<&str> = entry.path.split('/').collect();
        let orders = entry.method == "POST" && entry.path.ends_with("/servers");
        if orders || narrowed.is_some() || parts.iter().any(|part| is_id(part)) {
            let about: Vec<&str> = parts.into_iter().rev().filter(|part| !is_id(part)).take(2).collect();
            let what = format!("{} {about:?} {}", entry.method, narrowed.unwrap_or_default());
            *counts.entry(what).or_default() += 1;
        }
    }
    counts
}

fn since(before: &BTreeMap<String, usize>, after: &BTreeMap<String, usize>) -> BTreeMap<String, usize> {
    let left = after.iter().map(|(what, count)| {
        let before = before.get(what).copied().unwrap_or_default();
        (what.clone(), count - before)
    });
    left.filter(|(_, count)| *count > 0).collect()
}

/// Somebody writes on the Machines ten times a second, and each write is an event for us.
struct Busybody(JoinHandle<()>);

impl Drop for Busybody {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Busybody {
    fn of(machines: Api<DynamicObject>) -> Self {
        Self(tokio::spawn(async move {
            for round in 0_u64.. {
                let all = machines.list(&ListParams::default()).await.map(|list| list.items);
                for machine in all.unwrap_or_default() {
                    let patch = json!({"metadata": {"annotations": {"busy": round.to_string()}}});
                    let patch = Patch::Merge(&patch);
                    // It may be gone by now.
                    let _ = machines
                        .patch(&machine.name_any(), &PatchParams::default(), &patch)
                        .await;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }))
    }
}

/// Each event cost a look at the server and at what it was attached to: core writes forty times about a machine, and 51 calls were
/// made for an Instance where 12 will do.
async fn costs_few<K: LinuxKind>(name: &str) -> Result<()> {
    let sim = sim().await?;
    takes_a_while(sim.handle());
    let spec = json!({"fleetName": name, "privateNetworkName": "cache", "privateNetworkCIDR": "172.16.0.0/22"});
    let trial: Trial<K> = Trial::of(sim, name, spec, &FLAGS).await?;
    let _busybody = Busybody::of(trial.fleet.api("cluster.x-k8s.io", "v1beta2", "Machine"));
    let handle = trial.sim.handle().clone();
    trial.serves().await?;
    let up = own(&handle);
    let total: usize = up.values().sum();
    assert!(total <= MOST, "{total} calls on the way up: {up:#?}");

    trial.leaves().await?;
    let down = since(&up, &own(&handle));
    let total: usize = down.values().sum();
    assert!(total <= MOST, "{total} calls on the way down: {down:#?}");
    Ok(())
}

#[tokio::test]
async fn an_instance_costs_few_calls_however_often_somebody_writes_about_it() -> Result<()> {
    costs_few::<Instance>("i-calls").await
}

#[tokio::test]
async fn an_elastic_metal_server_costs_few_calls_however_often_somebody_writes_about_it() -> Result<()> {
    costs_few::<Metal>("m-calls").await
}

/// The last one of an offer was ours, and so the catalogue said that there was none. Whoever led next took that for a server that
/// takes no script, set it up over SSH, and read the whole catalogue again at each event.
#[tokio::test]
async fn the_last_server_of_an_offer_is_set_up_by_its_script_and_the_catalogue_is_not_read_again() -> Result<()> {
    let sandbox = cluster().await?.sandbox("m-last").await?;
    let who = identity(&sandbox).await?;
    let sim = sim().await?;
    let handle = sim.handle();
    handle.perform(Deed::SetStock {
        zone: Zone::new("fr-par-1"),
        server_type: "EM-B220E-NVME".to_owned(),
        count: 1,
    })?;
    handle.perform(Deed::DecideBox(BoxFate {
        stage: Stage::Delivery,
        server: None,
        outcome: BoxOutcome::Stuck,
        times: 1,
    }))?;
    let client = sandbox.client().await?;
    let _boots = Boots::of(handle, client.clone());
    let first = provider(&sandbox, &who, &sim, None, &FLAGS).await?;
    let spec = json!({"fleetName": "last", "privateNetworkName": "cache"});
    let fleet = Fleet::of("ScalewayElasticMetalMachine", &sandbox, 1, spec).await?;
    let has_server = |machine: &Metal| machine.status().server_id.is_some();
    let found = fleet.until_of("the server to be ordered", 1, has_server).await?;
    first.stop().await?;

    let second = provider(&sandbox, &who, &sim, None, &FLAGS).await?;
    let _busybody = Busybody::of(fleet.api("cluster.x-k8s.io", "v1beta2", "Machine"));
    let read_before = handle.calls("GET", "/baremetal/v1/zones/*/offers");
    let server = found[0].name_any();
    let is_ready_in_the_end = |machine: &Metal| {
        // It is an error as long as the delivery has not begun, and when it is over.
        let _ = handle.perform(Deed::Unstick {
            server: server.as_str().into(),
        });
        is_ready(machine)
    };
    let what = "the machine to be ready";
    fleet.until_of(what, 1, is_ready_in_the_end).await?;
    let scripts = handle.calls("PATCH", "/baremetal/v1/zones/*/servers/*");
    assert_eq!(scripts, 2, "the script was given, and taken away again");
    let read = handle.calls("GET", "/baremetal/v1/zones/*/offers") - read_before;
    assert!(
        read <= 5,
        "the catalogue was read {read} times, and events came ten times a second"
    );
    second.stop().await?;
    sim.stop().await?;
    Ok(())
}
