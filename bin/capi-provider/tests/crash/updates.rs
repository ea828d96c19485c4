//! Hosts that serve: a new configuration reaches them in turn, or stops; a Node that is gone comes back. Nobody is wiped for it.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use russet_api::ScalewayAppleSiliconMachine as Mac;
use russet_api::conditions;
use russet_api::machine::Phase;
use russet_testkit::wait::{self, Look};
use serde_json::json;

use crate::life::Life;
use crate::replica::Replica;
use crate::stage::{PATIENCE, cluster};
use crate::world::{BROKEN, World};

const FLAGS: [&str; 4] = [
    "--rollout-soak=0s",
    "--rollout-max-unavailable=1",
    "--rollout-retry-delay=100ms",
    "--tartkubelet-max-update-attempts=2",
];

/// A fleet that serves, and whose provider has ended.
async fn fleet(name: &str, count: usize) -> Result<(World, Vec<String>)> {
    let minis = u32::try_from(count)?;
    let mut world = World::new(cluster().await?, name, minis).await?;
    world.flags = FLAGS.iter().map(|&flag| flag.to_owned()).collect();
    let replica = Replica::start(&world, Life::new(None)).await?;
    let mut machines = Vec::new();
    for _ in 0..count {
        machines.push(world.add_machine().await?);
    }
    for machine in &machines {
        world.until("up to date", machine, |mac| has(mac, "one")).await?;
    }
    ensure!(world.ledger.updated().is_empty(), "set up once, and nothing more");
    replica.kill().await?;
    Ok((world, machines))
}

/// Whether a host has a configuration and says so.
fn has(mac: Option<&Mac>, hash: &str) -> bool {
    let status = mac.and_then(|mac| mac.status.as_ref());
    status.is_some_and(|status| {
        status.host_config_hash.as_deref() == Some(hash) && conditions::is_true(&status.conditions, "UpToDate")
    })
}

fn want(world: &World, hash: &str) {
    hash.clone_into(&mut world.wanted.lock().unwrap());
}

fn check_unharmed(world: &World) -> Result<()> {
    let wipes = world
        .sim
        .handle()
        .calls("POST", "/apple-silicon/v1alpha1/zones/*/servers/*/reinstall");
    ensure!(wipes == 0, "a host was wiped");
    ensure!(world.ledger.wrongs().is_empty(), "{:?}", world.ledger.wrongs());
    Ok(())
}

#[tokio::test]
async fn a_new_configuration_reaches_every_host_once() -> Result<()> {
    let (world, machines) = fleet("rollout", 3).await?;
    want(&world, "two");
    let replica = Replica::start(&world, Life::new(None)).await?;
    for machine in &machines {
        world.until("up to date", machine, |mac| has(mac, "two")).await?;
    }
    let updates = world.ledger.updated();
    let hosts: BTreeSet<&str> = updates.iter().map(|(machine, _)| machine.as_str()).collect();
    ensure!(updates.len() == 3 && hosts.len() == 3, "{updates:?}");
    check_unharmed(&world)?;
    replica.kill().await
}

/// A Pod that runs on a host, and the other kinds that run there without being work.
async fn occupy(world: &World, host: &str) -> Result<Api<Pod>> {
    // No controller manager runs here to make it.
    let accounts: Api<ServiceAccount> = Api::namespaced(world.stage.client.clone(), &world.stage.namespace);
    let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": "default"}}))?;
    accounts.create(&PostParams::default(), &account).await?;
    let pods: Api<Pod> = Api::namespaced(world.stage.client.clone(), &world.stage.namespace);
    let daemon =
        json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "0", "controller": true}]);
    for (name, owners) in [("job", json!([])), ("agent", daemon)] {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "ownerReferences": owners},
            "spec": {
                "nodeName": host, "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
                "containers": [{"name": name, "image": name}],
            },
        }))?;
        wait::until("the Pod to be admitted", PATIENCE, || async {
            pods.create(&PostParams::default(), &pod).await?;
            Ok(Look::Done(()))
        })
        .await?;
    }
    Ok(pods)
}

fn waits_for_job(world: &World, mac: Option<&Mac>) -> bool {
    let conditions = mac.and_then(|mac| mac.status.clone()).unwrap_or_default().conditions;
    let job = format!("on it: {}/job; ", world.stage.namespace);
    conditions::find(&conditions, "UpToDate").is_some_and(|condition| {
        let message = condition.message.as_deref().unwrap_or_default();
        condition.reason.as_deref() == Some("UpdatePending") && message.contains(&job)
    })
}

/// A job that runs is not cut off by an update; the others do not wait for it, and it has its turn when the job is done.
#[tokio::test]
async fn a_host_that_works_is_updated_when_its_work_is_done() -> Result<()> {
    let (world, machines) = fleet("busy", 2).await?;
    // The first by name would be the canary, were it idle.
    let (busy, idle) = (machines.first().context("none")?, machines.last().context("none")?);
    let pods = occupy(&world, busy).await?;
    want(&world, "two");
    let replica = Replica::start(&world, Life::new(None)).await?;
    world.until("up to date", idle, |mac| has(mac, "two")).await?;
    world
        .until("waiting for its work", busy, |mac| waits_for_job(&world, mac))
        .await?;
    let updated: Vec<String> = world.ledger.updated().into_iter().map(|(machine, _)| machine).collect();
    ensure!(updated == [idle.clone()], "{updated:?}");
    pods.delete("job", &DeleteParams::default()).await?;
    world.touch(busy).await?;
    world.until("up to date", busy, |mac| has(mac, "two")).await?;
    check_unharmed(&world)?;
    replica.kill().await
}

/// A Pod that never ends does not keep a host from being updated for ever: how long it may is a flag.
#[tokio::test]
async fn a_host_whose_work_never_ends_is_updated_when_it_was_waited_for_long_enough() -> Result<()> {
    let (mut world, machines) = fleet("endless", 1).await?;
    let pods = occupy(&world, &machines[0]).await?;
    want(&world, "two");
    let replica = Replica::start(&world, Life::new(None)).await?;
    world
        .until("waiting for its work", &machines[0], |mac| waits_for_job(&world, mac))
        .await?;
    replica.kill().await?;
    world.flags.push("--rollout-busy-patience=1s".to_owned());
    let replica = Replica::start(&world, Life::new(None)).await?;
    world.until("up to date", &machines[0], |mac| has(mac, "two")).await?;
    ensure!(pods.get_opt("job").await?.is_some(), "its Pod is not touched");
    check_unharmed(&world)?;
    replica.kill().await
}

#[tokio::test]
async fn a_configuration_that_works_nowhere_stops_early_and_a_better_one_heals() -> Result<()> {
    let (world, machines) = fleet("broken", 3).await?;
    want(&world, BROKEN);
    let replica = Replica::start(&world, Life::new(None)).await?;
    let gave_up = |mac: &Mac| {
        let status = mac.status.clone().unwrap_or_default();
        status.failure_reason.as_deref() == Some("TartKubeletUpdateExceededRetries")
            && status.phase == Some(Phase::Failed)
            && status.failed_host_config_hash.as_deref() == Some(BROKEN)
    };
    let all = wait::until("two hosts to give up and one to be spared", PATIENCE, || async {
        let macs = world.macs().list(&ListParams::default()).await?.items;
        let failed = macs.iter().filter(|mac| gave_up(mac)).count();
        let spared = macs.iter().any(|mac| {
            let conditions = mac.status.clone().unwrap_or_default().conditions;
            conditions::find(&conditions, "UpToDate").is_some_and(|c| c.reason.as_deref() == Some("RolloutPaused"))
        });
        Ok(if failed == 2 && spared {
            Look::Done(macs)
        } else {
            Look::not_yet((failed, spared))
        })
    })
    .await?;
    let tried: BTreeSet<String> = world.ledger.updated().into_iter().map(|(machine, _)| machine).collect();
    ensure!(tried.len() == 2, "the third was tried as well: {tried:?}");
    for mac in &all {
        let status = mac.status.clone().unwrap_or_default();
        ensure!(status.host_config_hash.as_deref() == Some("one"), "it has what it had");
        let initialization = status.initialization.context("never provisioned")?;
        ensure!(initialization.provisioned == Some(true), "it still serves");
    }
    replica.kill().await?;
    want(&world, "three");
    let replica = Replica::start(&world, Life::new(None)).await?;
    for machine in &machines {
        let healed = |mac: Option<&Mac>| {
            let status = mac.and_then(|mac| mac.status.clone()).unwrap_or_default();
            has(mac, "three") && status.failure_reason.is_none() && status.phase == Some(Phase::Ready)
        };
        world.until("healed", machine, healed).await?;
    }
    check_unharmed(&world)?;
    replica.kill().await
}

#[tokio::test]
async fn a_host_whose_node_was_deleted_joins_again_without_being_set_up_anew() -> Result<()> {
    let (mut world, machines) = fleet("rejoin", 1).await?;
    world.rejoin_after = Duration::from_millis(500);
    let replica = Replica::start(&world, Life::new(None)).await?;
    let nodes: Api<Node> = Api::all(world.stage.client.clone());
    let old = nodes.get(&machines[0]).await?;
    nodes.delete(&machines[0], &DeleteParams::default()).await?;
    wait::until_true("the Node to come back", PATIENCE, || async {
        let node = nodes.get_opt(&machines[0]).await?;
        Ok(node.is_some_and(|node| node.metadata.uid != old.metadata.uid))
    })
    .await?;
    world.until("up to date", &machines[0], |mac| has(mac, "one")).await?;
    ensure!(world.ledger.updated().len() == 1, "{:?}", world.ledger.updated());
    ensure!(world.ledger.knocks() == 2, "once for each time it joined");
    check_unharmed(&world)?;
    replica.kill().await
}
