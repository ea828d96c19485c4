//! A controller with `--namespace` works under a Role in that namespace and nothing else.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::Role;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use russet_testkit::TestCluster;
use russet_testkit::wait::{self, PATIENCE};
use serde_json::json;

use crate::sample;

#[tokio::test]
async fn a_role_in_one_namespace_suffices() -> Result<()> {
    let cluster = TestCluster::shared().await?;
    let sandbox = cluster.sandbox("rbac-role").await?;
    let elsewhere = cluster.sandbox("rbac-elsewhere").await?;
    let client = sandbox.client().await?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), sandbox.namespace());
    let others: Api<ConfigMap> = Api::namespaced(client, elsewhere.namespace());
    let who = sandbox.identity("controller").here(sample::rules()).grant().await?;
    sample::create(&maps, &sample::parent("here", &[("a", "1"), ("b", "2")])).await?;
    sample::create(&others, &sample::parent("there", &[("a", "1")])).await?;

    let program = sample::start(&sandbox, "controller", &who, &[]).await?;
    sample::child_says(&maps, "here-a", "value", |value| value == "1").await?;
    sample::child_says(&maps, "here-b", "value", |value| value == "2").await?;

    // The whole life of an object: change, prune, and repair of what somebody deleted or changed.
    let patch = Patch::Merge(json!({"data": {"a": "3", "b": null}}));
    maps.patch("here", &PatchParams::default(), &patch).await?;
    sample::child_says(&maps, "here-a", "value", |value| value == "3").await?;
    wait::until_true("here-b to be pruned", PATIENCE, || async {
        Ok(maps.get_opt("here-b").await?.is_none())
    })
    .await?;
    let uid = maps.get("here-a").await?.metadata.uid;
    maps.delete("here-a", &DeleteParams::default()).await?;
    wait::until_true("here-a to be made again", PATIENCE, || async {
        Ok(maps
            .get_opt("here-a")
            .await?
            .is_some_and(|child| child.metadata.uid != uid))
    })
    .await?;
    maps.patch(
        "here-a",
        &PatchParams::default(),
        &Patch::Merge(json!({"data": {"value": "vandal"}})),
    )
    .await?;
    sample::child_says(&maps, "here-a", "value", |value| value == "3").await?;

    let (code, body) = sample::ask(&program, "probes", "/readyz").await?;
    ensure!(code == 200, "{body}");
    let (_, metrics) = sample::ask(&program, "metrics", "/metrics").await?;
    for line in [
        "russet_leader 1",
        "russet_reconcile_total{controller=\"sample\",result=\"ok\"}",
        "russet_build_info",
    ] {
        ensure!(metrics.contains(line), "no {line} in {metrics}");
    }

    let audit = cluster.audit()?;
    let denials = audit.denials(&who.username)?;
    ensure!(denials.is_empty(), "refused requests: {denials:#?}");
    let requests = audit.of_user(&who.username)?;
    let strayed: Vec<_> = requests
        .iter()
        .filter(|entry| entry.object_ref.is_some() && entry.object().namespace != sandbox.namespace())
        .collect();
    ensure!(strayed.is_empty(), "requests outside the namespace: {strayed:#?}");
    ensure!(
        others.get_opt("there-a").await?.is_none(),
        "it worked outside its scope"
    );
    Ok(())
}

/// Without the right to watch, the controller says so in `/readyz` and in its log, stays alive, and works once it gets the right.
#[tokio::test]
async fn a_missing_right_is_named_and_not_fatal() -> Result<()> {
    let cluster = TestCluster::shared().await?;
    let sandbox = cluster.sandbox("rbac-missing").await?;
    let maps: Api<ConfigMap> = Api::namespaced(sandbox.client().await?, sandbox.namespace());
    let blind = sample::rules()
        .into_iter()
        .filter(|rule| rule.resources != Some(vec!["configmaps".to_owned()]))
        .collect();
    let who = sandbox.identity("controller").here(blind).grant().await?;
    sample::create(&maps, &sample::parent("here", &[("a", "1")])).await?;

    let program = sample::start(&sandbox, "controller", &who, &[]).await?;
    wait::until_true("readiness to name the missing right", PATIENCE, || async {
        let (code, body) = sample::ask(&program, "probes", "/readyz").await?;
        Ok(code == 503 && body.contains("forbidden"))
    })
    .await?;
    ensure!(
        sample::ask(&program, "probes", "/healthz").await?.0 == 200,
        "a missing right is not cured by a restart"
    );

    let roles: Api<Role> = Api::namespaced(sandbox.client().await?, sandbox.namespace());
    let role = roles
        .list(&ListParams::default())
        .await?
        .items
        .pop()
        .context("the Role of the identity")?;
    roles
        .patch(
            &role.name_any(),
            &PatchParams::default(),
            &Patch::Merge(json!({"rules": sample::rules()})),
        )
        .await?;
    sample::child_says(&maps, "here-a", "value", |value| value == "1").await?;
    wait::until_true("readiness", PATIENCE, || async {
        Ok(sample::ask(&program, "probes", "/readyz").await?.0 == 200)
    })
    .await
}
