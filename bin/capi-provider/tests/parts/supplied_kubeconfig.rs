//! A kubeconfig Secret that somebody else supplies: respected, tried, and what it lacks is said.

use anyhow::{Result, ensure};
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use russet_stages::macs::rights;
use russet_testkit::object;
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::json;

use crate::fleet::{settings, world};
use crate::support::{self, merge};

/// The list of rights in the seeds lacks what a drain needs, and the label was missing too.
#[tokio::test]
async fn a_supplied_secret_is_tried_but_never_written() -> Result<()> {
    let cluster = support::cluster().await?;
    let sandbox = cluster.sandbox("supplied").await?;
    let admin = sandbox.client().await?;
    rights::core(&admin, sandbox.namespace()).await?;
    let path = cluster
        .dir()
        .join(format!("{}-supplied.kubeconfig", sandbox.namespace()));
    russet_cluster::kubeconfig::for_service_account(
        admin.clone(),
        cluster.control_plane(),
        sandbox.namespace(),
        "capi-remote",
        &path,
    )
    .await?;
    let supplied = tokio::fs::read_to_string(&path).await?;
    support::create(
        &admin,
        Some(sandbox.namespace()),
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "fleet-kubeconfig"},
            "stringData": {"value": supplied},
        }),
    )
    .await?;
    let world = world(&sandbox, settings(&sandbox)).await?;
    world.fleet(&sandbox, json!({})).await?;

    let condition = world.condition("Ready", "False", "KubeconfigIncomplete").await?;
    let message = condition.message.unwrap_or_default();
    ensure!(
        message.contains("label cluster.x-k8s.io/cluster-name=fleet"),
        "{message}"
    );
    let label = json!({"metadata": {"labels": {"cluster.x-k8s.io/cluster-name": "fleet"}}});
    let labelled = merge(&world.secrets, "fleet-kubeconfig", label).await?;
    world.condition("Ready", "True", "Ready").await?;
    world.core_says("RemoteConnectionProbe", "True").await?;

    // Rights that are taken away are named, and the connection itself still counts as there.
    let roles = object::api(&admin, None, "rbac.authorization.k8s.io/v1", "ClusterRole");
    let name = format!("{}-capi-remote", sandbox.namespace());
    let full = roles.get(&name).await?.data["rules"].clone();
    let seeds = json!({"rules": [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch", "delete"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
        {"nonResourceURLs": ["/"], "verbs": ["get"]},
    ]});
    merge(&roles, &name, seeds).await?;
    let gone = [
        "list namespaces",
        "get daemonsets.apps",
        "list volumeattachments.storage.k8s.io",
        "list persistentvolumes",
    ];
    // A look that was under way while they were taken away has seen some of them still.
    let message = wait::until("every right that is gone to be named", PATIENCE, || async {
        let condition = world.condition("Ready", "False", "RightsMissing").await?;
        let message = condition.message.unwrap_or_default();
        Ok(Look::value_if(
            gone.iter().all(|right| message.contains(right)),
            message,
        ))
    })
    .await?;
    ensure!(!message.contains("patch nodes"), "{message}");
    world.condition("Available", "True", "Ready").await?;
    merge(&roles, &name, json!({"rules": full})).await?;
    world.condition("Ready", "True", "Ready").await?;

    // A credential that no longer works is said to be refused; whose it is has to renew it.
    let spoiled = supplied.replace("token: ", "token: spoiled");
    merge(
        &world.secrets,
        "fleet-kubeconfig",
        json!({"stringData": {"value": spoiled}}),
    )
    .await?;
    world.condition("Available", "False", "CredentialRefused").await?;
    let kept = merge(
        &world.secrets,
        "fleet-kubeconfig",
        json!({"stringData": {"value": supplied}}),
    )
    .await?;
    world.condition("Available", "True", "Ready").await?;
    let last = world.secret().await?;
    ensure!(
        last.resource_version() == kept.resource_version(),
        "somebody wrote to it"
    );
    ensure!(last.data == labelled.data && last.owner_references().is_empty());
    Ok(())
}

/// A program in a kubeconfig is never run, and the Secret's text never repeated.
#[tokio::test]
async fn a_supplied_secret_that_core_could_not_use_is_refused_with_what_it_lacks() -> Result<()> {
    let sandbox = support::cluster().await?.sandbox("supplied-bad").await?;
    let admin = sandbox.client().await?;
    let dir = tempfile::tempdir()?;
    let witness = dir.path().join("ran");
    let exec = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": [witness], "interactiveMode": "Never",
        }}}],
    });
    support::create(
        &admin,
        Some(sandbox.namespace()),
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "fleet-kubeconfig", "labels": {"cluster.x-k8s.io/cluster-name": "fleet"}},
            "stringData": {"value": exec.to_string()},
        }),
    )
    .await?;
    let world = world(&sandbox, settings(&sandbox)).await?;
    world.fleet(&sandbox, json!({})).await?;
    let condition = world.condition("Ready", "False", "KubeconfigIncomplete").await?;
    ensure!(condition.message.unwrap_or_default().contains("core refuses exec"));
    ensure!(!witness.exists(), "the program of a supplied kubeconfig was run");

    merge(
        &world.secrets,
        "fleet-kubeconfig",
        json!({"stringData": {"value": "canary: ["}}),
    )
    .await?;
    let message = wait::until("the new text to be judged", PATIENCE, || async {
        let condition = world.condition("Ready", "False", "KubeconfigIncomplete").await?;
        let message = condition.message.unwrap_or_default();
        Ok(Look::value_if(message.contains("can be read"), message))
    })
    .await?;
    ensure!(!message.contains("canary"), "{message}");
    // Deleted, it is replaced by one of ours, once there is a ServiceAccount to make it for.
    world
        .secrets
        .delete("fleet-kubeconfig", &DeleteParams::default())
        .await?;
    world.condition("Ready", "False", "CredentialUnavailable").await?;
    Ok(())
}
