//! A Role named Nodes, which are in no namespace: it granted nothing, and the controller was refused.

use anyhow::{Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use russet_stages::macs::Fleet;
use russet_testkit::wait::{Look, PATIENCE};
use serde_json::json;

use super::{Play, Scenario, Stage, promise, until};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "nodes-in-a-role",
    from: "S4",
    what_happened: "Nodes are cluster-scoped, a Role cannot grant them, and the controller was refused",
    must_hold: "the provider adopts a Mac and gives it back under exactly the rights of its chart, without one 403",
    without: Some(include_str!("nodes_in_a_role.without.patch")),
    play: Play::Fleet(run),
};

fn run<'a>(stage: &'a mut Stage<'_, Fleet>) -> BoxFuture<'a, Result<()>> {
    async move {
        let Stage { world: fleet, narrator } = stage;
        narrator.step("adopt a Mac, and give it back");
        let yard = fleet.yard("rights", 1).await?;
        yard.cluster().await?;
        yard.template("macos", json!({})).await?;
        yard.deployment("macos", "macos", 1).await?;
        until("a Mac that serves", PATIENCE, || async {
            nothing_refused(fleet)?;
            let macs = yard.all_macs().await?;
            let serves = macs
                .iter()
                .any(|mac| mac.status.as_ref().is_some_and(|status| status.ready == Some(true)));
            Ok(if serves {
                Look::Done(())
            } else {
                Look::not_yet(json!(macs))
            })
        })
        .await?;
        yard.available("macos", 1).await?;
        narrator.holds("a Mac is adopted, set up, and its Machine runs");
        yard.scale("macos", 0).await?;
        yard.all_pooled(1).await?;
        yard.available("macos", 0).await?;
        narrator.holds("it is wiped and back in the pool");

        nothing_refused(fleet)?;
        let asked = fleet.cluster.audit()?.of_user(&fleet.provider_user)?;
        let nodes = asked
            .iter()
            .any(|entry| entry.object().resource == "nodes" && entry.code() < 300);
        ensure!(nodes, "the provider never asked for Nodes");
        narrator.holds(&format!(
            "{} requests in the audit log, some about Nodes, and not one 403",
            asked.len()
        ));
        Ok(())
    }
    .boxed()
}

fn nothing_refused(fleet: &Fleet) -> Result<()> {
    let denials = fleet.cluster.audit()?.denials(&fleet.provider_user)?;
    promise!("no-403", denials.is_empty(), "denied requests: {denials:?}");
    Ok(())
}
