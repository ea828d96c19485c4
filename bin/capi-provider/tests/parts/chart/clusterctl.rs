//! The files for clusterctl, which `xtask generate` renders from the chart. clusterctl itself moves every namespaced object into
//! one namespace, so anything that works only in another one would break without a word.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::{Client, ResourceExt};
use russet_testkit::wait::{self, Look, PATIENCE};
use russet_testkit::{Extras, TestCluster};

use super::{api_of, make_namespaces, objects, of_kind, text};

const NAMESPACE: &str = "capi-scaleway-applesilicon-system";
const PROVIDER: &str = "infrastructure-scaleway-applesilicon";

/// The newest version in the repository.
fn folder() -> Result<PathBuf> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../clusterctl")
        .join(PROVIDER);
    let versions: Vec<_> = std::fs::read_dir(&repository)?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    versions.into_iter().max().context("no version in the repository")
}

fn read(name: &str) -> Result<String> {
    Ok(std::fs::read_to_string(folder()?.join(name))?)
}

/// What clusterctl does to `${NAME}` and `${NAME:=default}`.
fn fill(text: &str, variables: &[(&str, &str)]) -> Result<String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (variable, after) = after.split_once('}').context("an open variable")?;
        let (name, default) = match variable.split_once(":=") {
            Some((name, default)) => (name, Some(default)),
            None => (variable, None),
        };
        let given = variables
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| *value);
        let Some(value) = given.or(default) else {
            bail!("{name} has no value");
        };
        filled.push_str(before);
        filled.push_str(value);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

const CREDENTIALS: [(&str, &str); 3] = [
    ("SCW_ACCESS_KEY", "SCW00000000000000000"),
    ("SCW_SECRET_KEY", "11111111"),
    ("SCW_DEFAULT_PROJECT_ID", "22222222"),
];

#[test]
fn the_components_keep_the_rules_of_clusterctl() -> Result<()> {
    let components = objects(&fill(&read("infrastructure-components.yaml")?, &CREDENTIALS)?)?;
    let namespaces = of_kind(&components, "Namespace");
    ensure!(namespaces.len() == 1, "exactly one Namespace");
    ensure!(text(namespaces[0], "/metadata/name") == NAMESPACE);
    for object in &components {
        let namespace = text(object, "/metadata/namespace");
        ensure!(namespace.is_empty() || namespace == NAMESPACE, "outside: {object}");
        ensure!(
            text(object, "/kind") != "Role",
            "clusterctl would move this Role: {object}"
        );
        let label = text(object, "/metadata/labels/cluster.x-k8s.io~1provider");
        ensure!(label == PROVIDER, "no provider label: {object}");
    }
    let deployments = of_kind(&components, "Deployment");
    ensure!(deployments.len() == 1 && text(deployments[0], "/spec/template/spec/containers/0/name") == "manager");
    for crd in of_kind(&components, "CustomResourceDefinition") {
        ensure!(
            !text(crd, "/metadata/labels/cluster.x-k8s.io~1v1beta2").is_empty(),
            "{}",
            crd["metadata"]
        );
    }

    let metadata = objects(&read("metadata.yaml")?)?;
    let series = metadata[0].pointer("/releaseSeries/0").context("a series")?;
    let version = format!("v{}.{}.", series["major"], series["minor"]);
    let folder = folder()?;
    let name = folder.file_name().and_then(|name| name.to_str()).context("a name")?;
    ensure!(
        name.starts_with(&version),
        "the folder {name} is not of the series {version}"
    );
    ensure!(series["contract"] == "v1beta2");
    Ok(())
}

#[tokio::test]
async fn the_components_and_a_cluster_from_the_template_apply_beside_cluster_api() -> Result<()> {
    let extras = Extras {
        controller_manager: true,
        cluster_api: true,
        ..Extras::default()
    };
    let cluster = TestCluster::start(extras).await?;
    let client = cluster.client().await?;
    apply(&client, &fill(&read("infrastructure-components.yaml")?, &CREDENTIALS)?).await?;
    make_namespaces(&client, &["fleet"]).await?;
    let variables = [
        ("CLUSTER_NAME", "macs"),
        ("NAMESPACE", "fleet"),
        ("KUBERNETES_VERSION", "v1.35.4"),
        ("WORKER_MACHINE_COUNT", "2"),
    ];
    apply(&client, &fill(&read("cluster-template.yaml")?, &variables)?).await?;

    // Core takes it from here: it clones the template for both Machines, provider or not.
    let kind = kube::core::GroupVersionKind::gvk(super::INFRA, "v1alpha1", "ScalewayAppleSiliconMachine");
    let resource = kube::core::ApiResource::from_gvk_with_plural(&kind, "scalewayapplesiliconmachines");
    let machines: Api<DynamicObject> = Api::namespaced_with(client, "fleet", &resource);
    let found = wait::until("two machines", PATIENCE, || async {
        let found = machines.list(&kube::api::ListParams::default()).await?.items;
        Ok(if found.len() == 2 {
            Look::Done(found)
        } else {
            Look::not_yet(found.len())
        })
    })
    .await?;
    for machine in found {
        let spec = machine.data.get("spec").cloned().unwrap_or_default();
        ensure!(
            spec["adoptPoolPrefix"] == "tuist-pool-" && spec["fleetName"] == "macs-macs",
            "{spec}"
        );
    }
    Ok(())
}

/// `kubectl apply --server-side`, object by object; a kind may be served only a moment after its definition.
async fn apply(client: &Client, manifest: &str) -> Result<()> {
    for object in objects(manifest)? {
        let what = format!("{} {}", text(&object, "/kind"), text(&object, "/metadata/name"));
        wait::until(&what, PATIENCE, || async {
            let (api, object) = api_of(client, &object).await?;
            let params = PatchParams::apply("clusterctl");
            api.patch(&object.name_any(), &params, &Patch::Apply(&object)).await?;
            Ok(Look::Done(()))
        })
        .await?;
    }
    Ok(())
}
