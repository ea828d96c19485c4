//! The CRD chart through the real Helm: install, upgrade, uninstall.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::Api;
use russet_testkit::{Extras, TestCluster, cluster, crds};

struct Helm {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Helm {
    fn run(&self, args: &[&str]) -> Result<String> {
        let output = Command::new(&self.program)
            .args(args)
            .args(["--kubeconfig", self.kubeconfig.to_str().context("a UTF-8 path")?])
            .output()
            .context("failed to start helm")?;
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        ensure!(output.status.success(), "helm {} failed: {text}", args.join(" "));
        Ok(text)
    }
}

fn chart() -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../charts/russet-crds")
        .canonicalize()?;
    Ok(path.to_str().context("a UTF-8 path")?.to_owned())
}

/// Helm never upgrades a `crds/` folder; ours are templates, so an upgrade brings new fields, and an uninstall keeps the objects.
#[tokio::test]
async fn an_upgrade_reaches_the_crds_and_an_uninstall_leaves_them() -> Result<()> {
    let cluster = TestCluster::start(Extras::default()).await?;
    let tools = cluster::tools(&["helm"]).await?;
    let helm = Helm {
        program: tools.path("helm")?.to_owned(),
        kubeconfig: cluster.control_plane().admin_kubeconfig().to_owned(),
    };
    let chart = chart()?;
    helm.run(&["lint", "--strict", &chart])?;
    helm.run(&["upgrade", "--install", "russet-crds", &chart, "--wait"])?;

    let client = cluster.client().await?;
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for ours in russet_api::all_crds() {
        let live = api
            .get(&ours.name_any())
            .await
            .with_context(|| format!("{} is not installed", ours.name_any()))?;
        let live_schema = serde_json::to_value(&live.spec.versions)?;
        let our_schema = serde_json::to_value(&ours.spec.versions)?;
        let pruned = russet_controller::compare::missing(
            &our_schema,
            &live_schema,
            russet_controller::compare::Flavour::Builtin,
        );
        ensure!(
            pruned.is_empty(),
            "{} differs from the API crate at {pruned:?}",
            ours.name_any()
        );
        for label in ours.labels().keys() {
            ensure!(
                live.labels().contains_key(label),
                "{} lost label {label}",
                ours.name_any()
            );
        }
    }

    // An operator's cluster still has the CRD of an older release: the upgrade must bring the field back.
    let old = crds::without_property(crds::of_kind("KuraInstance")?, &["spec"], "exposeNodePort")?;
    let mut live = api.get("kurainstances.kura.tuist.dev").await?;
    live.spec.versions = old.spec.versions;
    api.replace("kurainstances.kura.tuist.dev", &kube::api::PostParams::default(), &live)
        .await?;
    helm.run(&[
        "upgrade",
        "--install",
        "russet-crds",
        &chart,
        "--wait",
        "--force-conflicts",
    ])?;
    let live = serde_json::to_value(api.get("kurainstances.kura.tuist.dev").await?)?;
    let field = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/exposeNodePort";
    ensure!(live.pointer(field).is_some(), "the upgrade did not reach the CRD");

    helm.run(&["uninstall", "russet-crds"])?;
    for ours in russet_api::all_crds() {
        api.get(&ours.name_any())
            .await
            .context("an uninstall must never delete CRDs and with them every object")?;
    }
    Ok(())
}
