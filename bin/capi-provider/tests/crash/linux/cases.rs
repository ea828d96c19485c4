//! A Linux machine, with one thing going wrong; and two providers at once.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use russet_draw::Draw;
use russet_testkit::TestCluster;

use super::world::{Kind, World};
use crate::clock::Pace;
use crate::life::{Fate, How, Life, Place};
use crate::replica::{FLIGHT, Scene as _};
use crate::stage::cluster;
use crate::suite::{ALWAYS, DIES, FAILS, Played as _, any_fate, every_call, hold, play_once};

/// What can happen to a call. A provider that dies at a read dies as it does after the write before it, so that a read only
/// fails: a provider that takes that for an answer orders a second server.
fn hows(place: Place, index: usize, label: &str) -> Vec<How> {
    match place {
        Place::Kube => vec![How::DieBefore, How::DieAfter, How::FailBefore, How::FailAfter],
        Place::Cloud if label.starts_with("GET") && index > 0 => Vec::new(),
        Place::Cloud if label.starts_with("GET") => vec![How::FailBefore],
        Place::Cloud => [DIES.as_slice(), &FAILS].concat(),
    }
}

async fn every_call_about(kind: Kind) -> Result<()> {
    let cluster = cluster().await?;
    let world = async |name: String| World::new(cluster, &name, kind, Pace::Steps).await;
    let name = format!("{kind:?}").to_lowercase();
    every_call(&name, world, hows, |place, how| {
        place == Place::Cloud && matches!(how, How::DieAfter | How::DieWhile)
    })
    .await
    .map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_killed_at_any_call_about_an_instance_leaks_and_doubles_nothing() -> Result<()> {
    every_call_about(Kind::Instance).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_killed_at_any_call_about_an_ordered_server_leaks_and_doubles_nothing() -> Result<()> {
    every_call_about(Kind::Ordered).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_killed_at_any_call_about_a_server_that_was_taken_frees_it_wiped() -> Result<()> {
    every_call_about(Kind::Adopted).await
}

/// Here an installation takes longer than a lost call can be on its way, as it does in earnest: whoever follows sees the wipe that
/// was asked for, and asks for no other. Where it is over by then, as in the cases above, nobody can tell, and to wipe twice is
/// right: what another machine left must not be found by the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wipe_is_asked_for_once_however_its_answer_was_lost() -> Result<()> {
    let cluster = cluster().await?;
    let all = [DIES.as_slice(), &FAILS].concat().into_iter().map(async |how| {
        let world = World::new(cluster, "wiped-once", Kind::Adopted, Pace::Steps).await?;
        let handle = world.sim().handle();
        handle.set(|settings| settings.delays.metal_install = FLIGHT + Duration::from_secs(2));
        let fate = Fate {
            place: Place::Cloud,
            label: Some("POST baremetal/zones/servers/install".to_owned()),
            index: 0,
            how,
        };
        play_once(&world, fate).await.with_context(|| format!("{how:?}"))?;
        let rows = handle.boxes();
        ensure!(
            rows[0].generation == 2,
            "{how:?}: wiped {} times",
            rows[0].generation - 1
        );
        world.close().await
    });
    futures::future::try_join_all(all).await?;
    Ok(())
}

async fn pair(cluster: &TestCluster, kind: Kind, seed: u64) -> Result<()> {
    let mut dice = StdRng::seed_from_u64(seed);
    let world = World::new(
        cluster,
        &format!("pair-{kind:?}-{seed}").to_lowercase(),
        kind,
        Pace::Real,
    )
    .await?;
    let lives: Vec<Arc<Life>> = (0..2)
        .map(|_| Life::uneven(Some(any_fate(&mut dice)), dice.random()))
        .collect();
    let script = async {
        let name = world.add().await?;
        world.until_serving(&name).await?;
        world.check_serving(&name).await?;
        world.delete_machine(&name).await?;
        world.until_gone(&name).await?;
        world.check_at_rest().await
    };
    tokio::select! {
        done = script => done?,
        ended = hold(&world, Arc::clone(&lives[0]), seed ^ 1) => panic!("a provider ended: {ended:?}"),
        ended = hold(&world, Arc::clone(&lives[1]), seed ^ 2) => panic!("a provider ended: {ended:?}"),
    }
    world.close().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_providers_that_both_believe_they_lead_leak_and_double_no_linux_server() -> Result<()> {
    let cluster = cluster().await?;
    let all = Kind::ALL
        .into_iter()
        .flat_map(|kind| (1..=4_u64).map(move |seed| (kind, seed)));
    let seeds = Draw::cases("interleavings of Linux servers", ALWAYS, all);
    futures::stream::iter(seeds)
        .map(async |(kind, seed)| {
            let played = pair(cluster, kind, seed).await;
            played.with_context(|| format!("{kind:?} {seed}"))
        })
        .buffer_unordered(12)
        .try_collect()
        .await
}
