//! A controller whose CRD is missing waits for it, says so, and works when it comes; and survives its deletion.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use russet_api::RunnerPool;
use russet_testkit::identity::rule;
use russet_testkit::wait::{self, Look, PATIENCE};
use russet_testkit::{Extras, TestCluster, crds};
use serde_json::json;

use crate::sample;

fn pool(name: &str, image: &str) -> RunnerPool {
    serde_json::from_value(json!({
        "apiVersion": "tuist.dev/v1alpha1",
        "kind": "RunnerPool",
        "metadata": {"name": name},
        "spec": {"image": image, "replicas": 1, "fleetSelector": "macos", "dispatchLabel": "shape-macos"},
    }))
    .expect("a valid RunnerPool")
}

#[tokio::test]
async fn a_missing_crd_is_waited_for_and_a_deleted_one_survived() -> Result<()> {
    // A cluster of its own: other tests of the shared one install this CRD.
    let cluster = TestCluster::start(Extras::default()).await?;
    let sandbox = cluster.sandbox("crds").await?;
    let client = sandbox.client().await?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), sandbox.namespace());
    let pools: Api<RunnerPool> = Api::namespaced(client.clone(), sandbox.namespace());
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut rules = sample::rules();
    rules.push(rule("tuist.dev", &["runnerpools"], &["get", "list", "watch"]));
    rules.push(rule("tuist.dev", &["runnerpools/status"], &["patch"]));
    let who = sandbox.identity("controller").here(rules).grant().await?;

    let program = sample::start(&sandbox, "controller", &who, &["--kind=runner-pool"]).await?;
    let readiness_names_the_crd = async || {
        wait::until("readiness to name the CRD", PATIENCE, || async {
            let (code, body) = sample::ask(&program, "probes", "/readyz").await?;
            Ok(Look::done_if(
                code == 503 && body.contains("runnerpools.tuist.dev"),
                body,
            ))
        })
        .await
    };
    readiness_names_the_crd().await?;
    ensure!(
        sample::ask(&program, "probes", "/healthz").await?.0 == 200,
        "waiting is not dying"
    );
    let pid = program.pid()?;

    let crd = crds::of_kind("RunnerPool")?;
    crds::install(&client, std::slice::from_ref(&crd)).await?;
    pools.create(&PostParams::default(), &pool("pool", "one")).await?;
    sample::child_says(&maps, "pool-image", "value", |value| value == "one").await?;
    let status = wait::until("the status", PATIENCE, || async {
        let pool = pools.get("pool").await?;
        Ok(match pool.status.clone() {
            Some(status) if status.observed_generation == pool.metadata.generation => Look::Done(status),
            other => Look::not_yet(other),
        })
    })
    .await?;
    ensure!(status.observed_image.as_deref() == Some("one"), "{status:?}");
    ensure!(
        russet_api::conditions::is_true(&status.conditions, "FieldsStored"),
        "{status:?}"
    );
    wait::until_true("readiness", PATIENCE, || async {
        Ok(sample::ask(&program, "probes", "/readyz").await?.0 == 200)
    })
    .await?;

    // A status that is right is not written again.
    let audit = cluster.audit()?;
    let settled = pools.get("pool").await?.resource_version();
    pools
        .patch(
            "pool",
            &PatchParams::default(),
            &Patch::Merge(json!({"metadata": {"labels": {"touched": "yes"}}})),
        )
        .await?;
    maps.patch(
        "pool-image",
        &PatchParams::default(),
        &Patch::Merge(json!({"data": {"value": "vandal"}})),
    )
    .await?;
    sample::child_says(&maps, "pool-image", "value", |value| value == "one").await?;
    let status_writes = audit
        .of_user(&who.username)?
        .iter()
        .filter(|entry| entry.object().subresource == "status")
        .count();
    ensure!(
        status_writes == 1,
        "{status_writes} status writes for one status, settled at {settled:?}"
    );

    definitions.delete(&crd.name_any(), &DeleteParams::default()).await?;
    readiness_names_the_crd().await?;
    ensure!(program.pid()? == pid, "the controller died with its CRD");

    wait::until_true("the CRD to be gone", PATIENCE, || async {
        Ok(definitions.get_opt(&crd.name_any()).await?.is_none())
    })
    .await?;
    crds::install(&client, &[crd]).await?;
    wait::until_true("the kind to be served again", PATIENCE, || async {
        Ok(pools
            .create(&PostParams::default(), &pool("again", "two"))
            .await
            .is_ok())
    })
    .await?;
    sample::child_says(&maps, "again-image", "value", |value| value == "two").await?;
    ensure!(program.pid()? == pid, "the controller was restarted");
    Ok(())
}
