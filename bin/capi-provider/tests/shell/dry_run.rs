//! A dry run reads everything and writes nothing.

use anyhow::Result;
use russet_testkit::wait::{self, PATIENCE};
use serde_json::json;

use crate::fleet::Fleet;
use crate::harness::{Provider, cluster, identity, sim};
use crate::joiner::Joiner;

#[tokio::test]
async fn a_dry_run_writes_nothing_anywhere() -> Result<()> {
    let sandbox = cluster().await?.sandbox("dry").await?;
    let who = identity(&sandbox).await?;
    let sim = sim(1).await?;
    let joiner = Joiner::new(sandbox.client().await?);
    let fleet = Fleet::create(&sandbox, 1, json!({})).await?;
    fleet
        .until("core to own the machine", 1, |mac| {
            mac.metadata
                .owner_references
                .iter()
                .flatten()
                .any(|owner| owner.kind == "Machine")
        })
        .await?;
    let provider = Provider::start(&sandbox, &who, &sim, joiner, &["--dry-run"]).await?;
    wait::until_true("the provider to have decided and polled", PATIENCE, || async {
        let decided = provider.metric(&["russet_reconcile_total", "apple-silicon-machine"]);
        let polled = provider.metric(&["russet_macs", "role=\"pool\""]);
        Ok(decided.is_some_and(|count| count >= 1.0) && polled == Some(1.0))
    })
    .await?;
    provider.stop().await?;
    let writes: Vec<_> = cluster()
        .await?
        .audit()?
        .of_user(&who.username)?
        .into_iter()
        .filter(russet_testkit::audit::Entry::is_write)
        .collect();
    assert!(writes.is_empty(), "{writes:?}");
    let changes: Vec<_> = sim
        .handle()
        .journal()
        .into_iter()
        .filter(|entry| entry.method != "GET")
        .collect();
    assert!(changes.is_empty(), "{changes:?}");
    Ok(())
}
