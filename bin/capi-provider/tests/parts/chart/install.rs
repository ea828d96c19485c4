//! Install, upgrade, uninstall.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use russet_testkit::{Extras, TestCluster};
use serde_json::{Value, json};

use super::{CORE, FULL, Helm, INFRA, chart, make_namespaces, objects, text};

/// `crs-before-crds`, `secret-dies-with-hook`: every object is taken by the real API server and by the webhooks of the real core,
/// an upgrade keeps what others depend on, and an uninstall keeps templates.
#[tokio::test]
async fn every_object_applies_beside_cluster_api_and_an_upgrade_keeps_what_others_depend_on() -> Result<()> {
    let extras = Extras {
        controller_manager: true,
        cluster_api: true,
        ..Extras::default()
    };
    let cluster = TestCluster::start(extras).await?;
    let client = cluster.client().await?;
    make_namespaces(
        &client,
        &["russet", "russet-claims", "russet-builders", "tailscale-operator"],
    )
    .await?;
    let helm = Helm::new().await?;
    let kubeconfig = cluster
        .control_plane()
        .admin_kubeconfig()
        .to_str()
        .context("a UTF-8 path")?
        .to_owned();
    let helm_in = |args: &[&str]| helm.run(&[args, &["--namespace", "russet", "--kubeconfig", &kubeconfig]].concat());
    helm_in(&["upgrade", "--install", "russet-crds", &chart("russet-crds")?, "--wait"])?;

    // No --wait: the image of this release cannot be pulled here, and no node would run it.
    let provider = chart("capi-provider")?;
    let install = |values: &str| -> Result<String> {
        let values = helm.values(values)?;
        helm_in(&["upgrade", "--install", "macs", &provider, "--values", &values])
    };
    install(FULL)?;
    every_kind_is_there(&helm_in(&["get", "manifest", "macs"])?)?;

    let get = |kind: &'static str, plural: &'static str, group: &'static str, version: &'static str| {
        let kind = kube::core::GroupVersionKind::gvk(group, version, kind);
        let resource = kube::core::ApiResource::from_gvk_with_plural(&kind, plural);
        Api::<DynamicObject>::namespaced_with(client.clone(), "russet", &resource)
    };
    let deployments = get("MachineDeployment", "machinedeployments", CORE, "v1beta2");
    let templates = get(
        "ScalewayAppleSiliconMachineTemplate",
        "scalewayapplesiliconmachinetemplates",
        INFRA,
        "v1alpha1",
    );
    let template_of = |fleet: DynamicObject| {
        let name = fleet
            .data
            .pointer("/spec/template/spec/infrastructureRef/name")
            .and_then(Value::as_str);
        name.map(str::to_owned).context("a template")
    };
    let old = template_of(deployments.get("macs-macos-fleet").await?)?;
    templates.get(&old).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "russet");
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "russet");
    let before = (
        accounts.get("capi-remote").await?.uid(),
        secrets.get("macs-capi-provider-noop-bootstrap").await?.uid(),
    );
    // A number that the chart leaves to people is theirs.
    let scale = Patch::Merge(json!({"spec": {"replicas": 4}}));
    deployments
        .patch_scale("macs-runners-fleet", &PatchParams::default(), &scale)
        .await?;
    // What the provider writes is nobody else's to remove.
    let written: Secret = serde_json::from_value(json!({"metadata": {"name": "macs-capi-provider-kubeconfig"}}))?;
    secrets.create(&PostParams::default(), &written).await?;

    install(&FULL.replace(
        "macos: {enabled: true, replicas: 2}",
        "macos: {enabled: true, machine: {type: M4-M}}",
    ))?;
    let new = template_of(deployments.get("macs-macos-fleet").await?)?;
    ensure!(
        old != new,
        "a changed machine must have another template, or nothing is rolled out"
    );
    templates.get(&new).await?;
    templates
        .get(&old)
        .await
        .context("the old template is what a rollback refers to")?;
    let after = (
        accounts.get("capi-remote").await?.uid(),
        secrets.get("macs-capi-provider-noop-bootstrap").await?.uid(),
    );
    ensure!(
        before == after,
        "an upgrade made objects anew whose tokens and readers depend on them"
    );

    let runners = deployments.get("macs-runners-fleet").await?;
    ensure!(
        runners.data.pointer("/spec/replicas") == Some(&json!(4)),
        "an upgrade took back a scale"
    );

    install(FULL)?;
    ensure!(
        template_of(deployments.get("macs-macos-fleet").await?)? == old,
        "the same values, the same name"
    );
    helm_in(&["uninstall", "macs"])?;
    templates
        .get(&old)
        .await
        .context("templates go with the last Machine, not with the release")?;
    secrets.get("macs-capi-provider-kubeconfig").await?;
    Ok(())
}

/// `crs-before-crds`: on a cluster that has nothing of ours nor of Cluster API, one command suffices.
#[tokio::test]
async fn the_defaults_install_on_an_empty_cluster() -> Result<()> {
    let cluster = TestCluster::start(Extras::default()).await?;
    let helm = Helm::new().await?;
    let kubeconfig = cluster
        .control_plane()
        .admin_kubeconfig()
        .to_str()
        .context("a UTF-8 path")?
        .to_owned();
    let provider = chart("capi-provider")?;
    let said = helm.run(&[
        "upgrade",
        "--install",
        "macs",
        &provider,
        "--namespace",
        "russet",
        "--create-namespace",
        "--kubeconfig",
        &kubeconfig,
    ])?;
    ensure!(
        said.contains("create secret generic macs-capi-provider-scaleway"),
        "{said}"
    );
    Ok(())
}

fn every_kind_is_there(manifest: &str) -> Result<()> {
    let rendered = objects(manifest)?;
    let mut kinds = BTreeMap::<&str, usize>::new();
    for object in &rendered {
        *kinds.entry(text(object, "/kind")).or_default() += 1;
    }
    for (kind, count) in [
        ("Cluster", 1),
        ("ScalewayAppleSiliconCluster", 1),
        ("ScalewayAppleSiliconMachineTemplate", 3),
        ("ScalewayElasticMetalMachineTemplate", 1),
        ("ScalewayInstanceMachineTemplate", 1),
        ("MachineDeployment", 5),
        ("MachineHealthCheck", 5),
        ("MachineDrainRule", 2),
        ("Deployment", 2),
        ("StorageClass", 1),
    ] {
        ensure!(kinds.get(kind) == Some(&count), "{kind}: {kinds:?}");
    }
    Ok(())
}
