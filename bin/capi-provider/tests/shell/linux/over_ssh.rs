//! The real SSH client and the very script: every step fails once, and people read which and why.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use russet_api::ScalewayElasticMetalMachine as Metal;
use russet_api::machine::StepState;
use russet_capi_provider::linux::kind::LinuxKind as _;
use russet_linux_box::LinuxBox;
use russet_sim_scaleway::{Deed, NewMetals};
use serde_json::json;

use super::ssh_host::SshHost;
use super::support::{provider, provider_id, sim};
use crate::fleet::{Fleet, is_ready, message, reason};
use crate::harness::{cloud, cluster, identity};
use crate::joiner::join;

/// A step of the script, and a command that is run in it.
const STEPS: [(&str, &str); 7] = [
    ("swap", "swapoff"),
    ("kernel", "modprobe"),
    ("data", "umount /data"),
    ("private-network", "ip link add"),
    ("containerd", "systemctl restart containerd"),
    ("kubelet-package", "kubelet=1."),
    ("kubelet", "systemctl restart kubelet"),
];

/// The number of the first command that has all these words.
fn position(calls: &[String], words: &str) -> Result<usize> {
    let found = calls
        .iter()
        .position(|call| words.split(' ').all(|word| call.contains(word)));
    Ok(found.with_context(|| format!("no {words} in {calls:#?}"))? + 1)
}

#[tokio::test]
async fn a_script_that_fails_at_any_step_is_told_with_the_end_of_its_output_and_run_again() -> Result<()> {
    let sandbox = cluster().await?.sandbox("over-ssh").await?;
    let who = identity(&sandbox).await?;
    let sim = sim().await?;
    let client = sandbox.client().await?;
    sim.handle().perform(Deed::AddMetals(NewMetals {
        name: "tuist-kura-em-1".into(),
        ..NewMetals::default()
    }))?;
    let row = sim.handle().linux_box("tuist-kura-em-1").context("no server")?;
    let host = SshHost::start(row.public_ip.context("no address")?).await?;
    let port = format!("--linux-ssh-port={}", host.port);
    let first = provider(&sandbox, &who, &sim, None, &[&port]).await?;
    let spec = json!({"fleetName": "kura", "privateNetworkName": "cache", "adoptNamePrefix": "tuist-kura-em-"});
    let fleet = Fleet::of("ScalewayElasticMetalMachine", &sandbox, 1, spec).await?;
    let says = async |type_: &str, words: &[&str]| -> Result<Metal> {
        let what = format!("{type_} to say {words:?}");
        let said = |machine: &Metal| {
            let text = message(machine, type_);
            // The longer it goes on the worse it is called.
            ["BootstrapFailed", "JoinTimedOut"].contains(&reason(machine, type_).as_str())
                && words.iter().all(|word| text.contains(word))
        };
        let mut found = fleet.until_of(&what, 1, said).await?;
        Ok(found.remove(0))
    };

    says("Bootstrapped", &["breaks down"]).await?;
    let (script, token) = host.script();
    assert!(token.len() > 20, "a token: {}", token.len());
    let calls = tokio::task::spawn_blocking(move || {
        let whole = LinuxBox::new("none");
        whole.run(&script);
        whole.take_calls()
    })
    .await?;
    for (step, command) in STEPS {
        host.fails_at(Some(position(&calls, command)?));
        let failed = format!("step {step} failed");
        let machine = says("Ready", &[&failed, "breaks down", "it is tried again"]).await?;
        let text = serde_json::to_string(&machine)?;
        assert!(!text.contains(&token), "the token is in the status");
        assert_eq!(machine.status().failure_reason, None, "it is tried again");
    }
    let events: Api<Event> = Api::namespaced(client.clone(), &fleet.namespace);
    let told = serde_json::to_string(&events.list(&ListParams::default()).await?.items)?;
    assert!(told.contains("step swap failed"), "{told}");
    assert!(!told.contains(&token), "the token is in an event");

    // It is whole again, and the kubelet starts.
    host.fails_at(None);
    let ended_well = |machine: &Metal| {
        let join = machine.status().steps.into_iter().find(|step| step.name == "join");
        join.is_some_and(|step| step.state == StepState::Succeeded)
    };
    let what = "the script to end well";
    let found = fleet.until_of(what, 1, ended_well).await?;
    let name = found[0].name_any();
    join(client.clone(), &name, &provider_id(&row), &BTreeMap::new()).await?;
    fleet.until_of::<Metal>("the machine to be ready", 1, is_ready).await?;
    let registered = cloud(&sim)?.list_ssh_keys().await?;
    for key in host.keys() {
        let key = key.to_openssh()?;
        assert!(registered.iter().all(|known| known.is_key(&key)), "another key: {key}");
    }
    first.stop().await?;

    // Another configuration: a node that serves goes on serving, whatever becomes of the script.
    host.fails_at(Some(1));
    let node = fleet.nodes().get(&name).await?;
    let before = node.annotations().get("tuist.dev/kubelet-config-hash").cloned();
    let flags = [port.as_str(), "--linux-cluster-domain=other.local"];
    let second = provider(&sandbox, &who, &sim, None, &flags).await?;
    let machine = says("UpToDate", &["failed", "breaks down"]).await?;
    assert!(is_ready(&machine), "{:?}", machine.status());
    host.fails_at(None);
    fleet
        .until_of::<Metal>("the node to be up to date", 1, |machine| {
            reason(machine, "UpToDate") == "Ready" && is_ready(machine)
        })
        .await?;
    let config = host.node().read("var/lib/kubelet/config.yaml");
    assert!(config.contains("other.local"), "{config}");
    russet_testkit::wait::until_true("the Node to say so", russet_testkit::wait::PATIENCE, || async {
        let node = fleet.nodes().get(&name).await?;
        let now = node.annotations().get("tuist.dev/kubelet-config-hash").cloned();
        Ok(now.is_some() && now != before)
    })
    .await?;
    second.stop().await?;
    sim.stop().await?;
    Ok(())
}
