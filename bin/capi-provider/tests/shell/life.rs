//! The life of a host: taken from the pool, set up, handed over, given back.

use anyhow::{Context as _, Result};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use russet_api::machine::Phase;
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::json;

use crate::fleet::{Fleet, is_ready, reason};
use crate::harness::{Provider, WIPE, cluster, identity, names, sim, until_names};
use crate::joiner::Joiner;

#[tokio::test]
async fn a_host_is_adopted_set_up_handed_over_and_comes_back_wiped() -> Result<()> {
    let sandbox = cluster().await?.sandbox("life").await?;
    let who = identity(&sandbox).await?;
    let sim = sim(2).await?;
    let before = names(sim.handle());
    let joiner = Joiner::new(sandbox.client().await?);
    let provider = Provider::start(&sandbox, &who, &sim, joiner.clone(), &[]).await?;
    let fleet = Fleet::create(&sandbox, 1, json!({"fleetName": "runners"})).await?;

    // Adopted and handed over.
    let macs = fleet.until("the machine to be ready", 1, is_ready).await?;
    let mac = &macs[0];
    let status = mac.status.clone().unwrap_or_default();
    assert_eq!(status.phase, Some(Phase::Ready));
    assert_eq!(status.intent, None, "nothing is under way");
    assert_eq!(status.failure_domain.as_deref(), Some("fr-par-1"));
    assert_eq!(status.addresses.len(), 1);
    let server = status.server_id.context("no serverID")?;
    let provider_id = format!("scw-applesilicon://fr-par-1/{server}");
    assert_eq!(mac.spec.provider_id.as_deref(), Some(provider_id.as_str()));
    assert!(
        names(sim.handle()).contains(&mac.name_any()),
        "the host bears the name of its machine"
    );
    let jobs = joiner.jobs();
    assert_eq!(jobs.len(), 1, "set up once: {jobs:?}");
    assert_eq!(
        (jobs[0].provider_id.as_str(), jobs[0].user.as_str()),
        (provider_id.as_str(), "m1")
    );
    assert_eq!(
        jobs[0].labels.get("tuist.dev/fleet").map(String::as_str),
        Some("runners")
    );
    let host = sim.handle().host(mac.name_any().as_str()).context("no host")?;
    assert_eq!(jobs[0].password, host.password);
    assert!(!mac.annotations().contains_key("clusterctl.cluster.x-k8s.io/block-move"));
    let secrets: Api<Secret> = Api::namespaced(fleet.client.clone(), &fleet.namespace);
    let secret = secrets.get(&format!("{}-bootstrap", mac.name_any())).await?;
    let data = secret.data.unwrap_or_default();
    assert_eq!(data["host-fingerprint"].0, b"SHA256:first");
    assert_eq!(data["ssh-username"].0, b"m1");

    // Core sees it.
    wait::until("core's Machine to run", PATIENCE, || async {
        let phases = fleet.machine_phases().await?;
        Ok(Look::done_if(phases == ["Running"], phases))
    })
    .await?;
    let calls = calls_about(&sim, &server);
    assert!(
        calls <= 12,
        "{calls} calls about one host: {:?}",
        sim.handle().journal()
    );

    // Given back: wiped, then pooled.
    fleet.scale(0).await?;
    let during = until_names(&sim, "the host to be marked", |names| {
        names.iter().any(|name| name.starts_with("tuist-releasing-"))
    })
    .await?;
    assert_eq!(during.iter().filter(|name| name.starts_with("tuist-pool-")).count(), 1);
    let generation = |name: &str| sim.handle().host(name).map(|host| host.generation);
    wait::until_true("the wipe to be asked for", PATIENCE, || async {
        Ok(sim
            .handle()
            .calls("POST", "/apple-silicon/v1alpha1/zones/*/servers/*/reinstall")
            == 1)
    })
    .await?;
    fleet
        .until("the machine to say so", 1, |mac| reason(mac, "Deleting") == "Wiping")
        .await?;
    sim.handle().advance(WIPE);
    let after = until_names(&sim, "the host to be pooled", |names| {
        names.iter().all(|name| name.starts_with("tuist-pool-"))
    })
    .await?;
    // The end of its new name is random, and may look like that of another.
    let back = after
        .iter()
        .find(|name| !before.contains(name))
        .context("no pooled host")?;
    assert_eq!(generation(back), Some(2), "it was wiped once");
    fleet.until("the machine to be gone", 0, |_| true).await?;

    // Nothing is left behind.
    let gone = fleet.nodes().get_opt(&mac.name_any()).await?;
    assert!(gone.is_none(), "the Node is gone");
    assert!(
        secrets
            .get_opt(&format!("{}-bootstrap", mac.name_any()))
            .await?
            .is_none()
    );
    let leases: Api<Lease> = Api::namespaced(fleet.client.clone(), &fleet.namespace);
    let left = leases.list(&ListParams::default()).await?.items;
    assert!(left.is_empty(), "{left:?}");
    let refused = cluster().await?.audit()?.denials(&who.username)?;
    assert!(refused.is_empty(), "the chart's rights suffice: {refused:?}");
    provider.stop().await?;
    sim.stop().await?;
    Ok(())
}

/// Calls whose path names this host.
fn calls_about(sim: &russet_sim_scaleway::Sim, server: &str) -> usize {
    sim.handle()
        .journal()
        .iter()
        .filter(|entry| entry.path.contains(server))
        .count()
}
