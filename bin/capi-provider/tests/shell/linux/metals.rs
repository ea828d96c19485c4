//! `ScalewayElasticMetalMachine`: ordered and deleted, or taken, wiped and freed.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use russet_api::ScalewayElasticMetalMachine as Metal;
use russet_capi_provider::bootstrap::Failed;
use russet_capi_provider::linux::hosts::{Hosts, Login, Told};
use russet_sim_scaleway::{Deed, Handle, NewMetals, Power, Sim};
use russet_telemetry::Secret;
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::support::{Trial, With, provider_id, sim};
use crate::fleet::{is_ready, message, reason};
use crate::harness::cluster;
use crate::joiner::join;

/// Emulated servers that let the provider in, as far as the emulator's rows say: the SSH client itself is proven where it lives.
struct Doors {
    handle: Handle,
    client: Client,
    failures: AtomicUsize,
}

impl Doors {
    fn new(handle: &Handle, client: Client, failures: usize) -> Arc<Self> {
        Arc::new(Self {
            handle: handle.clone(),
            client,
            failures: AtomicUsize::new(failures),
        })
    }
}

fn failed(step: &str, message: &str) -> Failed {
    Failed {
        step: step.to_owned(),
        message: message.to_owned(),
        fingerprint: Some("SHA256:abc".to_owned()),
    }
}

impl Hosts for Doors {
    fn run(&self, login: Login, script: Secret<String>) -> BoxFuture<'static, Result<String, Failed>> {
        let rows = self.handle.boxes();
        let client = self.client.clone();
        let fails = self
            .failures
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
            .is_ok();
        async move {
            let row = rows.into_iter().find(|row| row.public_ip == Some(login.address));
            let row = row.ok_or_else(|| failed("connect", "nobody is there"))?;
            let knows = row.power == Power::On && row.ssh_user == login.user;
            if !knows || !script.expose().contains("tuist-join") {
                return Err(failed("connect", "it lets nobody in"));
            }
            if fails {
                return Err(failed(
                    "containerd",
                    "the script failed; the end of its output:\nE: no space left",
                ));
            }
            // A server that was there before has a name of its own; the Node gets the machine's.
            let name = script.expose().split("--hostname-override=").nth(1).unwrap_or_default();
            let name = name
                .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
                .next()
                .unwrap_or_default();
            let joined = join(client, name, &provider_id(&row), &BTreeMap::new()).await;
            joined.map_err(|error| failed("joined", &error.to_string()))?;
            Ok("SHA256:abc".to_owned())
        }
        .boxed()
    }

    fn ask(&self, _: Login) -> BoxFuture<'static, Result<Told, Failed>> {
        async {
            Ok(Told {
                report: None,
                pin: "SHA256:abc".to_owned(),
            })
        }
        .boxed()
    }
}

fn spec() -> serde_json::Value {
    json!({"fleetName": "kura", "privateNetworkName": "tuist-runner-cache", "privateNetworkCIDR": "172.16.0.0/22"})
}

/// A machine that takes a server; so many scripts on servers fail.
async fn adopting(sim: Sim, name: &str, failures: usize) -> Result<Trial<Metal>> {
    let doors = Doors::new(sim.handle(), cluster().await?.client().await?, failures);
    let mut spec = spec();
    spec["adoptNamePrefix"] = json!("tuist-kura-em-");
    let with = With {
        spec,
        hosts: Some(doors),
        ..With::default()
    };
    Trial::with(sim, name, with).await
}

#[tokio::test]
async fn a_server_is_ordered_joins_by_its_own_script_and_is_deleted() -> Result<()> {
    let trial: Trial<Metal> = Trial::begin("ordered", spec(), &[], |_| {}).await?;
    let machine = trial.serves().await?;
    let (sim, fleet) = (&trial.sim, &trial.fleet);
    let row = sim.handle().boxes().pop().unwrap();
    assert_eq!(machine.spec.provider_id, Some(provider_id(&row)));
    let leg = row.private.clone().unwrap();
    let status = machine.status.clone().unwrap();
    assert_eq!(
        status.private_network_vlan,
        leg.vlan.and_then(|vlan| i32::try_from(vlan).ok())
    );
    let node = fleet.nodes().get(&machine.name_any()).await?;
    let address = leg.address.split('/').next().unwrap();
    assert_eq!(
        node.labels().get("tuist.dev/pn-ipv4").map(String::as_str),
        Some(address)
    );
    assert!(row.user_data.is_none(), "the script with the token is gone");
    assert_eq!(sim.handle().calls("POST", "/baremetal/v1/zones/*/servers"), 1);
    assert_eq!(sim.handle().calls("POST", "/baremetal/v1/zones/*/servers/*/install"), 1);

    trial.goes().await?;
    assert!(fleet.nodes().get_opt(&machine.name_any()).await?.is_none());
    trial.leaves().await
}

#[tokio::test]
async fn a_server_is_taken_set_up_over_ssh_wiped_and_freed() -> Result<()> {
    let sim = sim().await?;
    sim.handle().perform(Deed::AddMetals(NewMetals {
        name: "tuist-kura-em-1".into(),
        tags: vec!["rack-7".into()],
        ..NewMetals::default()
    }))?;
    // One that fits in everything but its name is not looked at.
    sim.handle().perform(Deed::AddMetals(NewMetals {
        name: "database".into(),
        ..NewMetals::default()
    }))?;
    let trial = adopting(sim, "adopted", 1).await?;
    let (sim, fleet) = (&trial.sim, &trial.fleet);

    // The script fails once; what people see names the step and the end of its output.
    trial
        .until("the machine to say what failed", |machine| {
            let attempts = machine.status.as_ref().and_then(|status| status.bootstrap_attempts);
            attempts == Some(1) || is_ready(machine)
        })
        .await?;
    let machine = trial.serves().await?;
    let leases: Api<Lease> = Api::namespaced(trial.client.clone(), &fleet.namespace);
    let held = leases.list(&ListParams::default()).await?.items;
    assert_eq!(held.len(), 1, "one claim: {held:?}");
    assert_eq!(
        sim.handle().calls("POST", "/baremetal/v1/zones/*/servers"),
        0,
        "nothing was ordered"
    );

    trial.goes().await?;
    let metals = sim.handle().metals();
    let freed = metals.iter().find(|it| it["name"] == "tuist-kura-em-1").unwrap();
    assert_eq!(freed["tags"], json!(["rack-7"]), "it is free, with the tags it had");
    assert_eq!(freed["install"]["status"], "completed");
    let generation = |name: &str| sim.handle().linux_box(name).map(|row| row.generation);
    assert_eq!(generation("tuist-kura-em-1"), Some(2), "it was wiped once");
    assert_eq!(generation("database"), Some(1), "and nothing else was");
    let left = leases.list(&ListParams::default()).await?.items;
    assert!(left.is_empty(), "{left:?}");
    assert!(fleet.nodes().get_opt(&machine.name_any()).await?.is_none());
    trial.ends().await
}

#[tokio::test]
async fn no_server_is_taken_that_does_not_fit_and_why_is_said() -> Result<()> {
    let sim = sim().await?;
    sim.handle().perform(Deed::AddMetals(NewMetals {
        name: "tuist-kura-em-1".into(),
        os: "debian_bookworm".into(),
        ..NewMetals::default()
    }))?;
    let trial = adopting(sim, "unfit", 0).await?;
    let said = |machine: &Metal| reason(machine, "Ready") == "NoAdoptableServer";
    let machine = trial.until("the machine to say so", said).await?;
    let said = message(&machine, "Provisioned");
    assert!(said.contains("1 with another operating system"), "{said}");
    // It heals as soon as there is one.
    trial.sim.handle().perform(Deed::AddMetals(NewMetals {
        name: "tuist-kura-em-2".into(),
        ..NewMetals::default()
    }))?;
    trial.serves().await?;
    trial.ends().await
}
