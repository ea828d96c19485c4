//! Worlds in which something that ends by itself does not end, or ends badly.

use anyhow::Result;
use kube::ResourceExt as _;
use russet_api::{ScalewayElasticMetalMachine as Metal, ScalewayInstanceMachine as Instance};
use russet_capi_provider::linux::kind::LinuxKind;
use russet_sim_scaleway::{BoxFate, BoxOutcome, Deed, Handle, Stage};
use serde_json::{Value, json};

use super::support::Trial;

/// Nothing takes this long here, and a test need not wait for long.
const SOON: [&str; 2] = ["--linux-boot-deadline=3s", "--linux-install-deadline=6s"];

fn fate(stage: Stage, outcome: BoxOutcome) -> Deed {
    Deed::DecideBox(BoxFate {
        stage,
        server: None,
        outcome,
        times: 1,
    })
}

fn network() -> Value {
    json!({"privateNetworkName": "cache"})
}

/// It is told since when and what to do, and that it gets on when Scaleway does.
async fn stuck<K: LinuxKind>(name: &str, stage: Stage, spec: Value, word: &str) -> Result<()> {
    let hangs = |handle: &Handle| drop(handle.perform(fate(stage, BoxOutcome::Stuck)).unwrap());
    let trial: Trial<K> = Trial::begin(name, spec, &SOON, hangs).await?;
    let machine = trial
        .says("TakesTooLong", &[word, "longer than that should take"])
        .await?;
    assert_eq!(machine.status().failure_reason, None, "it may yet end");
    let server = machine.name_any();
    trial.sim.handle().perform(Deed::Unstick {
        server: server.as_str().into(),
    })?;
    trial.heals().await
}

#[tokio::test]
async fn an_instance_that_never_starts_is_reported_and_serves_when_it_does() -> Result<()> {
    stuck::<Instance>("i-boot", Stage::Boot, network(), "is starting since").await
}

#[tokio::test]
async fn a_server_that_is_never_delivered_is_reported_and_serves_when_it_is() -> Result<()> {
    stuck::<Metal>("m-delivery", Stage::Delivery, network(), "not delivered since").await
}

#[tokio::test]
async fn an_installation_that_never_ends_is_reported_and_serves_when_it_does() -> Result<()> {
    stuck::<Metal>("m-install", Stage::Install, network(), "being installed since").await
}

#[tokio::test]
async fn a_network_that_never_comes_is_reported_and_the_server_serves_when_it_does() -> Result<()> {
    stuck::<Metal>("m-network", Stage::Option, network(), "Private Network since").await
}

/// What is being given up is as much worth a word: it is paid for until it is gone.
#[tokio::test]
async fn a_server_that_cannot_be_stopped_is_reported_and_goes_when_it_can() -> Result<()> {
    let trial: Trial<Instance> = Trial::begin("i-stop", json!({}), &SOON, |_| {}).await?;
    trial.serves().await?;
    trial.sim.handle().perform(fate(Stage::Stop, BoxOutcome::Stuck))?;
    trial.fleet.scale(0).await?;
    let machine = trial
        .says_while_leaving("TakesTooLong", &["being stopped since", "switch it off"])
        .await?;
    let server = machine.name_any();
    trial.sim.handle().perform(Deed::Unstick {
        server: server.as_str().into(),
    })?;
    trial.leaves().await
}

/// Scaleway does not try again by itself, so that somebody has to; the machine sees that it was done.
#[tokio::test]
async fn an_installation_that_fails_is_a_failure_until_somebody_installs_again() -> Result<()> {
    let fails = |handle: &Handle| drop(handle.perform(fate(Stage::Install, BoxOutcome::Error)).unwrap());
    let trial: Trial<Metal> = Trial::begin("m-failed", json!({}), &[], fails).await?;
    let machine = trial
        .says("InstallFailed", &["install it again in the console"])
        .await?;
    assert_eq!(machine.status().failure_reason.as_deref(), Some("InstallFailed"));
    trial.install_again().await?;
    trial.heals().await
}

/// A machine whose server is beyond repair leaves as any other does.
#[tokio::test]
async fn a_server_whose_installation_failed_can_be_given_up() -> Result<()> {
    let fails = |handle: &Handle| drop(handle.perform(fate(Stage::Install, BoxOutcome::Error)).unwrap());
    let trial: Trial<Metal> = Trial::begin("m-given-up", network(), &[], fails).await?;
    trial.says("InstallFailed", &["delete the Machine"]).await?;
    trial.leaves().await
}
