//! A thousand objects: one write each, and none after a restart.

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, Patch, PatchParams};
use russet_testkit::TestCluster;
use russet_testkit::wait::{self, Look, PATIENCE};
use rustix::process::Signal;
use serde_json::json;

use crate::sample;

const PARENTS: usize = 1000;

#[tokio::test]
async fn a_thousand_objects_cost_one_write_each_and_a_restart_none() -> Result<()> {
    let cluster = TestCluster::shared().await?;
    let sandbox = cluster.sandbox("scale").await?;
    let maps: Api<ConfigMap> = Api::namespaced(sandbox.client().await?, sandbox.namespace());
    let first = sandbox.identity("first").here(sample::rules()).grant().await?;
    let second = sandbox.identity("second").here(sample::rules()).grant().await?;

    // Half of them are there when the controller starts, half arrive while it works.
    let create = async |from: usize, to: usize| -> Result<()> {
        futures::stream::iter(from..to)
            .map(|number| {
                let maps = maps.clone();
                async move { sample::create(&maps, &sample::parent(&format!("p{number}"), &[("key", "1")])).await }
            })
            .buffer_unordered(16)
            .try_collect::<Vec<_>>()
            .await?;
        Ok(())
    };
    create(0, PARENTS / 2).await?;
    let program = sample::start(&sandbox, "first", &first, &["--concurrency=16"]).await?;
    create(PARENTS / 2, PARENTS).await?;
    let children = ListParams::default().labels("app.kubernetes.io/managed-by=sample-controller");
    wait::until("a child for every parent", PATIENCE * 2, || async {
        let found = maps.list_metadata(&children).await?.items.len();
        Ok(Look::done_if(found == PARENTS, found))
    })
    .await?;
    settle(&maps, "p0", "2").await?;

    let audit = cluster.audit()?;
    let writes = audit.writes_per_object(&first.username, "configmaps")?;
    let repeated: Vec<_> = writes
        .iter()
        .filter(|(name, count)| **count != if name.ends_with("/p0-key") { 2 } else { 1 })
        .collect();
    ensure!(
        writes.len() == PARENTS && repeated.is_empty(),
        "{} children; not written once: {repeated:?}",
        writes.len()
    );

    program.signal(Signal::TERM)?;
    program.ended(PATIENCE).await?;
    let _again = sample::start(&sandbox, "second", &second, &["--concurrency=16"]).await?;
    settle(&maps, "p1", "2").await?;
    let writes = audit.writes_per_object(&second.username, "configmaps")?;
    let expected = [(format!("{}/p1-key", sandbox.namespace()), 1)].into();
    ensure!(writes == expected, "a restart wrote {writes:?}");
    Ok(())
}

/// Changes the value of one parent and waits until the change, which queues behind everything else, has reached its child.
async fn settle(maps: &Api<ConfigMap>, parent: &str, value: &str) -> Result<()> {
    maps.patch(
        parent,
        &PatchParams::default(),
        &Patch::Merge(json!({"data": {"key": value}})),
    )
    .await?;
    sample::child_says(maps, &format!("{parent}-key"), "value", |now| now == value).await?;
    Ok(())
}
