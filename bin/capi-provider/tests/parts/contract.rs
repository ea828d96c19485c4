//! Cluster API core, as a real process, accepts our kinds: it finds their contract by label, mirrors their status, and clones templates.

use anyhow::{Context, Result};
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use russet_testkit::wait::{self, Look, PATIENCE};
use russet_testkit::{Extras, TestCluster, crds};
use serde_json::{Value, json};

const INFRA: &str = "infrastructure.cluster.x-k8s.io";

fn api(client: &kube::Client, namespace: &str, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

async fn create(api: &Api<DynamicObject>, object: Value) -> Result<DynamicObject> {
    let object: DynamicObject = serde_json::from_value(object)?;
    Ok(api.create(&PostParams::default(), &object).await?)
}

fn condition<'a>(object: &'a DynamicObject, kind: &str) -> Option<&'a Value> {
    object
        .data
        .pointer("/status/conditions")?
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == kind)
}

/// Contract v1beta2, rules C3, C4 and T1: the provisioned flag of our cluster kind reaches the Cluster, and a MachineDeployment clones our template into our
/// machine kind with the metadata the template asked for.
#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
async fn core_mirrors_our_cluster_status_and_clones_our_machine_template() -> Result<()> {
    let cluster = TestCluster::start(Extras {
        controller_manager: true,
        cluster_api: true,
        ..Extras::default()
    })
    .await?;
    let sandbox = cluster.sandbox("capi").await?;
    let client = sandbox.client().await?;
    let namespace = sandbox.namespace();
    crds::install(&client, &russet_api::all_crds()).await?;

    let infra_clusters = api(&client, namespace, INFRA, "v1alpha1", "ScalewayAppleSiliconCluster");
    let templates = api(
        &client,
        namespace,
        INFRA,
        "v1alpha1",
        "ScalewayAppleSiliconMachineTemplate",
    );
    let machines = api(&client, namespace, INFRA, "v1alpha1", "ScalewayAppleSiliconMachine");
    let clusters = api(&client, namespace, "cluster.x-k8s.io", "v1beta2", "Cluster");
    let deployments = api(&client, namespace, "cluster.x-k8s.io", "v1beta2", "MachineDeployment");

    create(
        &infra_clusters,
        json!({
            "apiVersion": format!("{INFRA}/v1alpha1"), "kind": "ScalewayAppleSiliconCluster",
            "metadata": {"name": "fleet"},
            "spec": {"controlPlaneEndpoint": {"host": "127.0.0.1", "port": 6443}},
        }),
    )
    .await?;
    let reference = json!({"apiGroup": INFRA, "kind": "ScalewayAppleSiliconCluster", "name": "fleet"});
    create(
        &clusters,
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": "fleet"},
            "spec": {"infrastructureRef": reference, "controlPlaneRef": reference},
        }),
    )
    .await?;

    let owned = wait::until("core to own our cluster object", PATIENCE, || async {
        let object = infra_clusters.get("fleet").await?;
        let owned = object
            .metadata
            .owner_references
            .iter()
            .flatten()
            .any(|owner| owner.kind == "Cluster");
        Ok(if owned {
            Look::Done(object)
        } else {
            Look::not_yet(object.metadata.owner_references)
        })
    })
    .await?;
    assert_eq!(
        owned.data.pointer("/status/initialization/provisioned"),
        None,
        "nobody has provisioned anything yet"
    );

    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    let ready = |kind: &str| json!({"type": kind, "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": now});
    let status = json!({"status": {
        "ready": true,
        "initialization": {"provisioned": true, "controlPlaneInitialized": true},
        "externalManagedControlPlane": true,
        "conditions": [ready("Ready"), ready("Available")],
    }});
    infra_clusters
        .patch_status("fleet", &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    wait::until("the Cluster to see our status", PATIENCE, || async {
        let object = clusters.get("fleet").await?;
        let provisioned = object.data.pointer("/status/initialization/infrastructureProvisioned") == Some(&json!(true));
        let mirrored = condition(&object, "InfrastructureReady").is_some_and(|found| found["status"] == "True");
        let control_plane =
            condition(&object, "ControlPlaneInitialized").is_some_and(|found| found["status"] == "True");
        Ok(if provisioned && mirrored && control_plane {
            Look::Done(())
        } else {
            Look::not_yet(object.data.get("status"))
        })
    })
    .await?;

    create(
        &templates,
        json!({
            "apiVersion": format!("{INFRA}/v1alpha1"), "kind": "ScalewayAppleSiliconMachineTemplate",
            "metadata": {"name": "minis"},
            "spec": {"template": {
                "metadata": {"labels": {"tuist.dev/from-template": "yes"}},
                "spec": {"type": "M2-L", "zone": "fr-par-1", "fleetName": "runners"},
            }},
        }),
    )
    .await?;
    create(
        &deployments,
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
            "metadata": {"name": "minis"},
            "spec": {
                "clusterName": "fleet", "replicas": 1,
                "selector": {"matchLabels": {"fleet": "minis"}},
                "template": {
                    "metadata": {"labels": {"fleet": "minis"}},
                    "spec": {
                        "clusterName": "fleet",
                        "bootstrap": {"dataSecretName": "noop-bootstrap"},
                        "infrastructureRef": {"apiGroup": INFRA, "kind": "ScalewayAppleSiliconMachineTemplate", "name": "minis"},
                    },
                },
            },
        }),
    )
    .await?;
    let machine = wait::until("core to clone the template", PATIENCE, || async {
        let list = machines.list(&kube::api::ListParams::default()).await?;
        let owned = list.items.into_iter().find(|machine| {
            machine
                .metadata
                .owner_references
                .iter()
                .flatten()
                .any(|owner| owner.kind == "Machine")
        });
        Ok(owned.map_or_else(|| Look::not_yet("no machine owned by a Machine"), Look::Done))
    })
    .await?;
    assert_eq!(machine.data.pointer("/spec/fleetName"), Some(&json!("runners")));
    let labels = machine.metadata.labels.as_ref().context("the clone has no labels")?;
    assert_eq!(labels.get("tuist.dev/from-template").map(String::as_str), Some("yes"));
    assert_eq!(
        labels.get("cluster.x-k8s.io/cluster-name").map(String::as_str),
        Some("fleet")
    );
    Ok(())
}
