//! Two processes, one Lease: at most one writes, whatever happens to the other.

use anyhow::{Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use russet_testkit::TestCluster;
use russet_testkit::audit::Entry;
use russet_testkit::wait::{self, Look, PATIENCE};
use rustix::process::Signal;

use crate::sample;

/// Short enough for a test, long enough for a busy machine to renew in time.
const FAST: [&str; 5] = [
    "--leader-election-lease-duration=6s",
    "--leader-election-renew-deadline=4s",
    "--leader-election-retry-period=500ms",
    "--stamp",
    "--tick=200ms",
];

const LEASE: &str = "sample-controller.russet.dev";
const CHILD: &str = "parent-key";

async fn holder(leases: &Api<Lease>) -> Result<String> {
    let lease = leases.get_opt(LEASE).await?;
    Ok(lease
        .and_then(|lease| lease.spec)
        .and_then(|spec| spec.holder_identity)
        .unwrap_or_default())
}

async fn wait_for_holder(leases: &Api<Lease>, name: &str) -> Result<()> {
    wait::until(&format!("{name} to hold the Lease"), PATIENCE, || async {
        let holder = holder(leases).await?;
        Ok(Look::done_if(holder == name, holder))
    })
    .await
}

fn writes_a_configmap(entry: &Entry) -> bool {
    entry.is_write() && entry.object().resource == "configmaps" && entry.code() < 300
}

#[tokio::test]
async fn a_killed_leader_is_replaced() -> Result<()> {
    let cluster = TestCluster::shared().await?;
    let sandbox = cluster.sandbox("leader-killed").await?;
    let client = sandbox.client().await?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), sandbox.namespace());
    let leases: Api<Lease> = Api::namespaced(client, sandbox.namespace());
    let first = sandbox.identity("first").here(sample::rules()).grant().await?;
    let second = sandbox.identity("second").here(sample::rules()).grant().await?;
    sample::create(&maps, &sample::parent("parent", &[("key", "1")])).await?;

    let a = sample::start(&sandbox, "a", &first, &FAST).await?;
    wait_for_holder(&leases, "a").await?;
    sample::child_says(&maps, CHILD, "writer", |writer| writer == "a").await?;
    let b = sample::start(&sandbox, "b", &second, &FAST).await?;
    wait::until_true("b to stand by", PATIENCE, || async {
        Ok(b.log().contains("StandingBy"))
    })
    .await?;
    let (code, body) = sample::ask(&b, "probes", "/readyz").await?;
    ensure!(
        code == 200,
        "a standby must be ready, or no rollout ever finishes: {body}"
    );

    a.signal(Signal::KILL)?;
    wait_for_holder(&leases, "b").await?;
    sample::child_says(&maps, CHILD, "writer", |writer| writer == "b").await?;
    let lease = leases.get(LEASE).await?;
    ensure!(
        lease.spec.and_then(|spec| spec.lease_transitions) == Some(1),
        "the Lease changed hands once"
    );
    Ok(())
}

#[tokio::test]
async fn a_leader_that_is_asked_to_stop_hands_over_and_ends_well() -> Result<()> {
    let cluster = TestCluster::shared().await?;
    let sandbox = cluster.sandbox("leader-stopped").await?;
    let client = sandbox.client().await?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), sandbox.namespace());
    let leases: Api<Lease> = Api::namespaced(client, sandbox.namespace());
    let first = sandbox.identity("first").here(sample::rules()).grant().await?;
    let second = sandbox.identity("second").here(sample::rules()).grant().await?;
    sample::create(&maps, &sample::parent("parent", &[("key", "1")])).await?;

    // With a Lease this long, only a released one can change hands within the patience of this test.
    let slow = [
        "--leader-election-lease-duration=600s",
        "--leader-election-renew-deadline=300s",
        "--leader-election-retry-period=500ms",
        "--stamp",
        "--tick=200ms",
    ];
    let a = sample::start(&sandbox, "a", &first, &slow).await?;
    sample::child_says(&maps, CHILD, "writer", |writer| writer == "a").await?;
    let b = sample::start(&sandbox, "b", &second, &slow).await?;
    wait::until_true("b to stand by", PATIENCE, || async {
        Ok(b.log().contains("StandingBy"))
    })
    .await?;

    a.signal(Signal::TERM)?;
    let end = a.ended(PATIENCE).await?;
    ensure!(
        end == "exit code 0" || end.starts_with("exit code 0:"),
        "a graceful stop is a success, got {end:?}"
    );
    ensure!(a.log().contains("released the Lease"), "the Lease was not released");
    wait_for_holder(&leases, "b").await?;
    sample::child_says(&maps, CHILD, "writer", |writer| writer == "b").await?;
    Ok(())
}

/// A renewal that was on its way when its sender was paused. The Lease has another version by then, and that it is refused is how the
/// sender finds out.
fn is_lost_renewal(entry: &Entry) -> bool {
    let object = entry.object_ref.as_ref();
    entry.code() == 409 && object.is_some_and(|object| object.resource == "leases")
}

/// The story this guards against: a leader that was paused (a frozen VM, a long stop in a debugger) comes back, still believes that it
/// leads, and writes over what the new leader did.
#[tokio::test]
async fn a_paused_leader_never_writes_again_and_ends() -> Result<()> {
    let cluster = TestCluster::shared().await?;
    let sandbox = cluster.sandbox("leader-paused").await?;
    let client = sandbox.client().await?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), sandbox.namespace());
    let leases: Api<Lease> = Api::namespaced(client, sandbox.namespace());
    let first = sandbox.identity("first").here(sample::rules()).grant().await?;
    let second = sandbox.identity("second").here(sample::rules()).grant().await?;
    for number in 0..20 {
        sample::create(&maps, &sample::parent(&format!("parent-{number}"), &[("key", "1")])).await?;
    }

    // A busy leader: it has something to write at any moment it could be paused at.
    let a = sample::start(&sandbox, "a", &first, &FAST).await?;
    for number in 0..20 {
        sample::child_says(&maps, &format!("parent-{number}-key"), "writer", |writer| writer == "a").await?;
    }
    let _b = sample::start(&sandbox, "b", &second, &FAST).await?;
    a.signal(Signal::STOP)?;
    wait_for_holder(&leases, "b").await?;
    for number in 0..20 {
        sample::child_says(&maps, &format!("parent-{number}-key"), "writer", |writer| writer == "b").await?;
    }

    a.signal(Signal::CONT)?;
    let end = a.ended(PATIENCE).await?;
    ensure!(
        end.starts_with("exit code 1"),
        "losing the Lease is a failure, so that the process is started again clean; got {end:?}"
    );

    // b writes on after a's end, so whatever a still had to say would have been seen by now.
    let tick = |map: &ConfigMap| {
        map.data
            .as_ref()
            .and_then(|data| data.get("tick"))
            .and_then(|tick| tick.parse::<u64>().ok())
    };
    let seen = tick(&maps.get("parent-0-key").await?);
    sample::child_says(&maps, "parent-0-key", "tick", |now| now.parse::<u64>().ok() > seen).await?;

    let everything = sample::requests_in(cluster, sandbox.namespace())?;
    let takeover = everything
        .iter()
        .position(|entry| entry.user.username == second.username && writes_a_configmap(entry))
        .expect("b wrote");
    let late: Vec<&Entry> = everything
        .iter()
        .skip(takeover)
        .filter(|entry| entry.user.username == first.username && entry.is_write())
        .filter(|entry| !is_lost_renewal(entry))
        .collect();
    ensure!(
        late.is_empty(),
        "the paused leader wrote after it was replaced: {late:?}"
    );
    Ok(())
}
