//! What a machine waits for, what it says meanwhile, and that it goes on by itself.

use anyhow::Result;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use russet_sim_scaleway::Minis;
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::json;

use crate::fleet::{Fleet, is_ready, message, reason};
use crate::harness::{Provider, add_minis, cluster, identity, names, sim};
use crate::joiner::Joiner;

#[tokio::test]
async fn a_machine_waits_for_a_host_and_takes_it_when_somebody_orders_one() -> Result<()> {
    let sandbox = cluster().await?.sandbox("empty-pool").await?;
    let who = identity(&sandbox).await?;
    let sim = sim(0).await?;
    let joiner = Joiner::new(sandbox.client().await?);
    let provider = Provider::start(&sandbox, &who, &sim, joiner, &[]).await?;
    let fleet = Fleet::create(&sandbox, 1, json!({})).await?;
    let macs = fleet
        .until("the machine to say that the pool is empty", 1, |mac| {
            reason(mac, "Ready") == "NoAvailableHost"
        })
        .await?;
    let said = message(&macs[0], "Provisioned");
    assert!(
        said.contains("the pool is empty") && said.contains("tuist-pool-"),
        "{said}"
    );
    let held = macs[0]
        .annotations()
        .contains_key("clusterctl.cluster.x-k8s.io/block-move");
    assert!(!held, "it may be moved");
    // One of another type does not help.
    sim.handle().add_minis(Minis {
        name: "tuist-pool-x".into(),
        server_type: "M4-S".into(),
        ..Minis::default()
    })?;
    fleet
        .until("the machine to say what is wrong with it", 1, |mac| {
            message(mac, "Provisioned").contains("1 of another type")
        })
        .await?;
    add_minis(sim.handle(), 1);
    fleet.until("the machine to be ready", 1, is_ready).await?;
    provider.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_paused_machine_is_left_alone_also_while_it_is_deleted() -> Result<()> {
    let sandbox = cluster().await?.sandbox("paused").await?;
    let who = identity(&sandbox).await?;
    let sim = sim(1).await?;
    let joiner = Joiner::new(sandbox.client().await?);
    let provider = Provider::start(&sandbox, &who, &sim, joiner, &[]).await?;
    let fleet = Fleet::create(&sandbox, 1, json!({})).await?;
    let macs = fleet.until("the machine to be ready", 1, is_ready).await?;
    let name = macs[0].name_any();
    fleet.pause(true).await?;
    fleet
        .until("the machine to say that it is paused", 1, |mac| {
            reason(mac, "Paused") == "Paused"
        })
        .await?;
    // Deleted by hand: core deletes nothing while it is paused.
    fleet.macs().delete(&name, &DeleteParams::default()).await?;
    fleet
        .until("the deletion to be seen", 1, |mac| {
            mac.metadata.deletion_timestamp.is_some()
        })
        .await?;
    let provider = restart(provider, &sandbox, &who, &sim).await?;
    wait::until_true("the provider to have looked at it", PATIENCE, || async {
        Ok(provider
            .metric(&["russet_reconcile_total", "apple-silicon-machine"])
            .is_some_and(|count| count >= 1.0))
    })
    .await?;
    assert_eq!(names(sim.handle()), [name], "nothing was done to the host");
    fleet.pause(false).await?;
    wait::until_true("the wipe", PATIENCE, || async {
        Ok(sim
            .handle()
            .calls("POST", "/apple-silicon/v1alpha1/zones/*/servers/*/reinstall")
            == 1)
    })
    .await?;
    provider.stop().await?;
    Ok(())
}

async fn restart(
    provider: Provider,
    sandbox: &russet_testkit::Sandbox<'_>,
    who: &russet_testkit::identity::Granted,
    sim: &russet_sim_scaleway::Sim,
) -> Result<Provider> {
    provider.stop().await?;
    Provider::start(sandbox, who, sim, Joiner::new(sandbox.client().await?), &[]).await
}

#[tokio::test]
async fn no_more_hosts_are_taken_than_the_spend_cap_allows() -> Result<()> {
    let sandbox = cluster().await?.sandbox("cap").await?;
    let who = identity(&sandbox).await?;
    let sim = sim(3).await?;
    let joiner = Joiner::new(sandbox.client().await?);
    // An M2-L is 0.21 an hour.
    let provider = Provider::start(&sandbox, &who, &sim, joiner, &["--max-hourly-spend=0.5"]).await?;
    let fleet = Fleet::create(&sandbox, 3, json!({})).await?;
    let macs = fleet
        .until("two to serve and one to wait", 3, |mac| {
            is_ready(mac) || reason(mac, "Provisioned") == "SpendCapReached"
        })
        .await?;
    assert_eq!(macs.iter().filter(|mac| is_ready(*mac)).count(), 2);
    let waiting = macs.iter().find(|mac| !is_ready(*mac)).unwrap();
    let message = message(waiting, "Provisioned");
    assert!(
        message.contains("0.42 EUR") && message.contains("--max-hourly-spend"),
        "{message}"
    );
    wait::until("the metrics to show it", PATIENCE, || async {
        let metric = |words: &[&str]| provider.metric(words).unwrap_or_default();
        let spend = metric(&["russet_mac_spend_euros_per_hour"]);
        let used = metric(&["russet_macs", "role=\"used\""]);
        let pooled = metric(&["russet_macs", "role=\"pool\""]);
        let right = (spend - 0.63).abs() < 0.001 && (used - 2.0).abs() < 0.1 && (pooled - 1.0).abs() < 0.1;
        Ok(Look::done_if(right, (spend, used, pooled)))
    })
    .await?;
    provider.stop().await?;
    Ok(())
}
