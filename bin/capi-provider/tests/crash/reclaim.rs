//! Hosts that belong to nobody: only reported, or wiped and put back, whatever happens on the way.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use russet_draw::Draw;
use russet_testkit::TestCluster;
use russet_testkit::wait::{self, Look};

use crate::ledger::POOL;
use crate::life::{Fate, How, Life, Place};
use crate::replica::Replica;
use crate::stage::{PATIENCE, cluster};
use crate::suite::{ALWAYS, Played as _};
use crate::world::World;

const PREFIX: &str = "--orphan-reclaim-claim-name-prefix=lost-";

/// A host in the pool, and one that a machine used whose object somebody removed by force.
async fn world(cluster: &TestCluster, name: &str, flags: &[&str]) -> Result<(World, String)> {
    let mut world = World::new(cluster, name, 2).await?;
    world.report_every = Duration::from_secs(2);
    world.flags = flags.iter().map(|&flag| flag.to_owned()).collect();
    let servers = world.sim.handle().servers();
    let text = |key: &str| servers[0][key].as_str().unwrap_or_default().to_owned();
    let (id, old) = (text("id"), text("name"));
    world.sim.handle().rename(old.as_str(), "lost-1")?;
    let password = world.sim.handle().host("lost-1").context("no host")?.password;
    ensure!(world.ledger.log_in("lost-1", &id, &password), "the host let nobody in");
    world.ledger.deletes("lost-1");
    Ok((world, id))
}

fn name_of(world: &World, id: &str) -> String {
    let server = world.ledger.server(id).unwrap_or_default();
    server["name"].as_str().unwrap_or_default().to_owned()
}

async fn until_pooled(world: &World, id: &str) -> Result<()> {
    world.until_orphans_count().await?;
    wait::until("the orphan to be pooled", PATIENCE, || async {
        let name = name_of(world, id);
        Ok(Look::done_if(name.starts_with(POOL), name))
    })
    .await?;
    world.check_at_rest().await
}

#[tokio::test]
async fn an_orphan_is_only_reported_unless_its_name_begins_as_the_flag_says() -> Result<()> {
    let cluster = cluster().await?;
    for (name, flags) in [
        ("report", vec![]),
        ("other-prefix", vec!["--orphan-reclaim-claim-name-prefix=macs-"]),
    ] {
        let (world, id) = world(cluster, name, &flags).await?;
        let replica = Replica::start(&world, Life::new(None)).await?;
        world.until_orphans_count().await?;
        wait::until_true("the orphan to be reported", PATIENCE, || async {
            Ok(replica.metric(&["scaleway_orphan_servers{", "unknown"]) == Some(1.0))
        })
        .await?;
        let log = replica.life.log();
        ensure!(log.is_empty(), "something was done: {log:?}");
        ensure!(name_of(&world, &id) == "lost-1", "it was renamed");
        replica.kill().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_machine_that_comes_after_the_claim_for_its_namesake_keeps_it_from_being_wiped() -> Result<()> {
    let (mut world, id) = world(cluster().await?, "namesake", &[]).await?;
    let machine = format!("{}-m0", world.stage.namespace);
    world.sim.handle().rename("lost-1", &machine)?;
    world.flags = vec![format!("--orphan-reclaim-claim-name-prefix={machine}")];
    // The provider dies right after it took the claim.
    let life = Life::new(Some(Fate {
        place: Place::Kube,
        label: None,
        index: 0,
        how: How::DieAfter,
    }));
    let first = Replica::start(&world, std::sync::Arc::clone(&life)).await?;
    world.until_orphans_count().await?;
    tokio::time::timeout(PATIENCE, life.ended()).await?;
    ensure!(life.struck().as_deref() == Some("POST leases"), "{:?}", life.log());
    first.kill().await?;
    world.add_machine().await?;
    let second = Replica::start(&world, Life::new(None)).await?;
    world.until_ready(&machine).await?;
    wait::until("the claim to be dropped", PATIENCE, || async {
        let claims = world.claims().await?;
        let held = claims.contains(&format!("mac-{id}"));
        Ok(if held { Look::not_yet(claims) } else { Look::Done(()) })
    })
    .await?;
    let wipes = world
        .sim
        .handle()
        .calls("POST", "/apple-silicon/v1alpha1/zones/*/servers/*/reinstall");
    ensure!(wipes == 0 && name_of(&world, &id) == machine, "it was touched");
    second.kill().await
}

async fn play(cluster: &TestCluster, number: usize, fate: Fate) -> Result<Option<String>> {
    let (world, id) = world(cluster, &format!("reclaim-{number}"), &[PREFIX]).await?;
    let life = Life::new(Some(fate));
    let first = Replica::start(&world, std::sync::Arc::clone(&life)).await?;
    let second = tokio::select! {
        () = life.ended() => {
            first.kill().await?;
            Some(Replica::start(&world, Life::new(None)).await?)
        }
        pooled = until_pooled(&world, &id) => {
            pooled?;
            None
        }
    };
    until_pooled(&world, &id).await?;
    drop(second);
    Ok(life.struck())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_orphan_goes_back_to_the_pool_wiped_wherever_the_provider_dies() -> Result<()> {
    let cluster = cluster().await?;
    let (world, id) = world(cluster, "reclaim", &[PREFIX]).await?;
    let replica = Replica::start(&world, Life::new(None)).await?;
    until_pooled(&world, &id).await?;
    wait::until_true("it to be counted", PATIENCE, || async {
        Ok(replica.metric(&["scaleway_orphan_servers_reclaimed_total"]) == Some(1.0))
    })
    .await?;
    let log = replica.life.log();
    replica.kill().await?;
    let mut fates = Vec::new();
    for (position, (place, label)) in log.iter().enumerate() {
        let index = log[..position].iter().filter(|(_, before)| before == label).count();
        for how in [How::DieBefore, How::DieAfter, How::DieWhile] {
            // A read that was never made, or never heard of, leaves what the write before it left.
            let late = how == How::DieWhile && *place == Place::Kube;
            if !late && !label.starts_with("GET") {
                fates.push(Fate {
                    place: *place,
                    label: Some(label.clone()),
                    index,
                    how,
                });
            }
        }
    }
    let fates = Draw::cases("crash points of reclaim", ALWAYS, fates);
    for label in [
        "POST leases",
        "PUT leases",
        "DELETE leases",
        "PATCH release",
        "POST reinstall",
        "PATCH pool",
    ] {
        ensure!(
            log.iter().any(|(_, done)| done == label),
            "{label} is never done: {log:?}"
        );
    }
    futures::stream::iter(fates.into_iter().enumerate())
        .map(async |(number, fate)| {
            let struck = play(cluster, number, fate.clone()).await;
            let struck = struck.with_context(|| format!("{fate:?}"))?;
            ensure!(struck.is_some(), "{fate:?} was not met");
            Ok(())
        })
        .buffer_unordered(8)
        .try_collect()
        .await
}
