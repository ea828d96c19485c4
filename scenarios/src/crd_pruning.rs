//! Helm does not upgrade a `crds/` folder: new fields were pruned by the old CRD, and a matching revision annotation hid it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use russet_controller::apply::{Applied, Change};
use russet_controller::conditions::{self, ConditionStatus, reasons};
use russet_controller::metrics::ControllerMetrics;
use russet_controller::{Applier, Desired, Leadership};
use russet_telemetry::Metrics;
use russet_testkit::TestCluster;
use russet_testkit::crds;
use serde_json::json;

use super::{Play, Scenario, Stage};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "crd-pruning",
    from: "S4",
    what_happened: "fields unknown to an old CRD vanished, and a matching revision annotation meant they were never re-applied",
    must_hold: "the controller reads back what it wrote, reports FieldsPruned, and applies the rest again once the CRD is upgraded",
    without: None,
    play: Play::Cluster(run),
};

const INSTANCE: &str = "
apiVersion: kura.tuist.dev/v1alpha1
kind: KuraInstance
metadata: { name: acme-fr-par, namespace: default }
spec:
  accountHandle: acme
  tenantID: acme
  region: scw-fr-par-runners
  image: ghcr.io/tuist/kura:0.7.0
  replicas: 1
  private: true
  exposeNodePort: true
";

const FIELD: &str = "spec.exposeNodePort";

fn run<'a>(stage: &'a mut Stage<'_, TestCluster>) -> BoxFuture<'a, Result<()>> {
    async move {
        let client = stage.world.client().await?;
        let (object, resource) = crds::parse(INSTANCE)?;
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);

        stage.step("a cluster still has the KuraInstance CRD from before exposeNodePort existed");
        let current = crds::of_kind("KuraInstance")?;
        crds::install(
            &client,
            &[crds::without_property(current.clone(), &["spec"], "exposeNodePort")?],
        )
        .await?;

        stage.step("a naive controller writes an instance with exposeNodePort and records the revision it wrote");
        let mut naive = object.clone();
        naive.metadata.name = Some("naive".to_owned());
        naive.metadata.annotations = Some([("tuist.dev/manifest-revision".to_owned(), "7".to_owned())].into());
        let stored = api.create(&kube::api::PostParams::default(), &naive).await?;
        ensure!(
            stored.data.pointer("/spec/exposeNodePort").is_none(),
            "the staged fault did not bite: nothing was pruned"
        );
        stage
            .bites("the write succeeds, the revision matches, and exposeNodePort is gone: nobody will ever look again");

        stage.step("our controller writes the same object");
        let ours = writer(&client);
        let desired = Desired::dynamic(&resource, &object)?;
        let first = ours.apply(&desired, None).await?;
        ensure!(
            first.pruned == [FIELD],
            "expected {FIELD} to be reported, got {:?}",
            first.pruned
        );
        ensure!(
            first.object.data.pointer("/spec/private") == Some(&json!(true)),
            "what the old CRD knows must be applied"
        );
        let condition = conditions::fields_stored(&first.pruned);
        ensure!(
            condition.status == ConditionStatus::False && condition.reason.as_deref() == Some(reasons::FIELDS_PRUNED),
            "the condition does not say so: {condition:?}"
        );
        stage.holds(format!(
            "condition {}: {}",
            reasons::FIELDS_PRUNED,
            condition.message.as_deref().unwrap_or_default()
        ));

        stage.step("it reconciles again, from a fresh process, with the object as it is");
        // A real controller tries again after a minute; the story need not last that long.
        let restarted = writer(&client).with_pruned_retry(Duration::from_secs(1));
        let second = restarted.apply(&desired, None).await?;
        ensure!(
            second.pruned == [FIELD],
            "a restart must not forget that a field is missing"
        );
        stage.holds("still reported after a restart: a matching hash does not hide a missing field");

        stage.step("the CRD chart is upgraded");
        crds::install(&client, &[current]).await?;
        let healed = russet_testkit::wait::until("the field to be stored", russet_testkit::wait::PATIENCE, || async {
            let live = api.get("acme-fr-par").await?;
            let applied = restarted.apply(&desired, Some(&live)).await?;
            Ok(if applied.pruned.is_empty() {
                russet_testkit::wait::Look::Done(applied)
            } else {
                russet_testkit::wait::Look::not_yet(applied.pruned)
            })
        })
        .await?;
        check_healed(&healed).context("after the upgrade")?;
        let live = api.get("acme-fr-par").await?;
        let settled = restarted.apply(&desired, Some(&live)).await?;
        ensure!(
            settled.change == Change::Skipped,
            "a settled object must cost no write, got {:?}",
            settled.change
        );
        stage.holds("the field is there, the condition clears, and further reconciles write nothing");

        // What the naive controller left behind is healed by nobody: its revision still matches.
        let naive = api
            .patch("naive", &PatchParams::default(), &Patch::Merge(&json!({})))
            .await?;
        ensure!(
            naive.data.pointer("/spec/exposeNodePort").is_none(),
            "the naive object healed by itself?"
        );
        Ok(())
    }
    .boxed()
}

/// The writer of a controller that has just started.
fn writer(client: &kube::Client) -> Applier {
    Applier::new(
        client.clone(),
        "kura-controller",
        Leadership::always("replay"),
        ControllerMetrics::new(&Metrics::new()),
    )
}

fn check_healed(applied: &Applied) -> Result<()> {
    ensure!(
        applied.object.data.pointer("/spec/exposeNodePort") == Some(&json!(true)),
        "the field is still missing"
    );
    ensure!(
        conditions::fields_stored(&applied.pruned).status == ConditionStatus::True,
        "the condition did not clear"
    );
    Ok(())
}
