//! A new required field turned every rollback into a wedge: the older revision no longer passed validation.

use anyhow::{Context, Result, bail, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::api::{Api, DynamicObject, Patch, PatchParams, ValidationDirective};
use russet_controller::compare::{self, Flavour};

use super::{Play, Scenario, Stage};
use crate::TestCluster;
use crate::crds::{self, FIXTURES};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "rollback-trap",
    from: "S2",
    what_happened: "old revisions were rejected by CRD validation, so a failed deploy could not roll back",
    must_hold: "every fixture of every older schema still applies, and no field of it is dropped",
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
        match apply(&client, OLD_MACHINE).await {
            Ok(_) => bail!("the staged fault did not bite: a required field was not missed"),
            Err(error) => stage.bites(format!("the naive schema refuses it: {error:#}")),
        }

        stage.step("install our CRDs over it, as the chart would");
        crds::install(&client, &russet_api::all_crds()).await?;
        apply(&client, OLD_MACHINE)
            .await
            .context("our schema refuses an object of an older revision")?;
        stage.holds("the same object applies");

        ensure!(!FIXTURES.is_empty(), "there are no fixtures to roll back to");
        for (name, yaml) in FIXTURES {
            apply(&client, yaml).await.with_context(|| format!("fixture {name}"))?;
        }
        stage.holds(format!(
            "all {} objects of older eras apply under strict validation, status included, unpruned",
            FIXTURES.len()
        ));
        Ok(())
    }
    .boxed()
}

/// Creates the object and then writes its status, as a restore does; fails when any field that was sent is not stored.
pub async fn apply(client: &kube::Client, yaml: &str) -> Result<DynamicObject> {
    let (object, resource) = crds::parse(yaml)?;
    let namespace = object
        .metadata
        .namespace
        .clone()
        .unwrap_or_else(|| "default".to_owned());
    let name = object.metadata.name.clone().context("the object has no name")?;
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
    let sent = serde_json::to_value(&object)?;

    let strict = PatchParams {
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::default()
    };
    let mut fresh = object.clone();
    fresh.metadata.namespace = Some(namespace);
    let mut stored = match crds::create_strictly(client, &fresh, &resource).await {
        Err(kube::Error::Api(status)) if status.code == 409 => api.patch(&name, &strict, &Patch::Merge(&sent)).await?,
        other => other?,
    };
    if let Some(status) = sent.get("status") {
        stored = api
            .patch_status(&name, &strict, &Patch::Merge(&serde_json::json!({ "status": status })))
            .await?;
    }
    let differences = compare::differences(
        &sent,
        &serde_json::to_value(&stored)?,
        Flavour::of_group(&resource.group),
    );
    let differences: Vec<_> = differences
        .into_iter()
        .filter(|difference| !matches!(difference, compare::Difference::Missing(path) | compare::Difference::Changed(path) if path.starts_with("metadata.")))
        .collect();
    ensure!(
        differences.is_empty(),
        "fields were dropped or changed: {differences:?}"
    );
    Ok(stored)
}
