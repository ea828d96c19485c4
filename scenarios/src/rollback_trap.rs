//! A new required field turned every rollback into a wedge: the older revision no longer passed validation.

use anyhow::{Context, Result, bail, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use russet_testkit::TestCluster;
use russet_testkit::crds::{self, FIXTURES};

use super::{Play, Scenario, Stage};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "rollback-trap",
    from: "S2",
    what_happened: "old revisions were rejected by CRD validation, so a failed deploy could not roll back",
    must_hold: "every fixture of every older schema still applies, and no field of it is dropped",
    without: None,
    play: Play::Cluster(run),
};

/// The object that a revision from before pool adoption would re-apply.
const OLD_MACHINE: &str = "
apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1
kind: ScalewayAppleSiliconMachine
metadata: { name: from-an-older-revision }
spec: { type: M2-L, zone: fr-par-1, os: Tahoe, fleetName: runners }
";

fn run<'a>(stage: &'a mut Stage<'_, TestCluster>) -> BoxFuture<'a, Result<()>> {
    async move {
        let client = stage.world.client().await?;

        stage.step("install a CRD whose spec has grown a required field: adoptPoolPrefix");
        let ours = crds::of_kind("ScalewayAppleSiliconMachine")?;
        crds::install(&client, &[crds::requiring(ours, &["spec"], "adoptPoolPrefix")?]).await?;
        stage.step("roll back: re-apply an object of a revision that did not have it");
        match crds::restore(&client, OLD_MACHINE).await {
            Ok(_) => bail!("the staged fault did not bite: a required field was not missed"),
            Err(error) => stage.bites(format!("the naive schema refuses it: {error:#}")),
        }

        stage.step("install our CRDs over it, as the chart would");
        crds::install(&client, &russet_api::all_crds()).await?;
        crds::restore(&client, OLD_MACHINE)
            .await
            .context("our schema refuses an object of an older revision")?;
        stage.holds("the same object applies");

        ensure!(!FIXTURES.is_empty(), "there are no fixtures to roll back to");
        for (name, yaml) in FIXTURES {
            crds::restore(&client, yaml)
                .await
                .with_context(|| format!("fixture {name}"))?;
        }
        stage.holds(format!(
            "all {} objects of older eras apply under strict validation, status included, unpruned",
            FIXTURES.len()
        ));
        Ok(())
    }
    .boxed()
}
