//! Wipe, reboot, removal.

use crate::harness::{World, client, idle, orders, until};
use russet_sim_mac::{Fleet, Options, Phase};
use std::time::Duration;

/// Longer than anything the emulated Scaleway does.
const AN_HOUR: Duration = Duration::from_hours(1);

#[tokio::test]
async fn a_wiped_machine_is_silent_and_then_knows_nothing_but_another_password() {
    let world = World::with(1).await;
    let before = world.host(1);
    world.post(&before, &orders(&before)).await;
    world.act(&before, "reinstall").await;
    until("it is silent", || async { is_silent(&world, &before).await }).await;
    assert!(world.fleet.state(&before.server_id).await.is_none());
    world.pass(AN_HOUR);
    let after = world.host(1);
    until("it is back", || async { world.state(&after).await.is_some() }).await;
    let state = world.state(&after).await.unwrap();
    assert!(idle(&state) && state.generation == 2, "{state:?}");
    assert!(world.state(&before).await.is_none(), "the old password still opens it");
}

#[tokio::test]
async fn a_rebooted_machine_goes_on_where_it_was() {
    let world = World::with(1).await;
    let host = world.host(1);
    world.post(&host, &orders(&host)).await;
    world.act(&host, "reboot").await;
    until("it is silent", || async { is_silent(&world, &host).await }).await;
    world.pass(AN_HOUR);
    until("it is back", || async { world.state(&host).await.is_some() }).await;
    let state = world.state(&host).await.unwrap();
    assert_eq!(
        (state.generation, state.phase, state.hash.as_str()),
        (1, Phase::Joining, "0123abcd")
    );
}

#[tokio::test]
async fn power_can_be_cut_behind_the_back_of_scaleway() {
    let world = World::with(2).await;
    let (host, other) = (world.host(1), world.host(2));
    assert!(world.fleet.cut_power(&host.server_id).await);
    assert!(is_silent(&world, &host).await);
    assert!(world.state(&other).await.is_some());
    assert!(world.fleet.restore_power(&host.server_id).await);
    assert!(idle(&world.state(&host).await.unwrap()));
}

/// One emulated fleet holds its port; a second one would answer for the machines of the first.
#[tokio::test]
async fn two_fleets_cannot_share_a_port() {
    let fleet = Fleet::new(Options::default()).await.unwrap();
    let second = Fleet::new(Options {
        port: fleet.port(),
        ..Options::default()
    })
    .await;
    let error = second.unwrap_err().to_string();
    assert!(error.contains("does another emulated fleet use port"), "{error}");
}

/// A thousand machines are a thousand sockets and as many sleeping tasks.
#[tokio::test]
async fn a_thousand_machines_fit_into_one_process() {
    let world = World::with(1000).await;
    let last = world.host(1000);
    assert!(idle(&world.state(&last).await.unwrap()));
    world.act(&last, "reinstall").await;
    until("it is silent", || async { is_silent(&world, &last).await }).await;
}

async fn is_silent(world: &World, host: &russet_sim_scaleway::Host) -> bool {
    let answer = client().get(world.url(host, "/state")).send().await;
    answer.is_err_and(|error| error.is_connect())
}
