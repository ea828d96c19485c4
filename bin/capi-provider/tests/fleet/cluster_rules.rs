//! The contract of `ScalewayAppleSiliconCluster`, which stands for the infrastructure and for the control plane.

use kube::api::{Patch, PatchParams};
use russet_stages::macs::{CORE, Fleet, INFRA, Yard, condition, is_true};
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::{Value, json};

async fn yard(name: &str) -> Yard<'static> {
    Fleet::shared().await.unwrap().yard(name, 0).await.unwrap()
}

async fn cluster_until(yard: &Yard<'_>, what: &str, holds: impl Fn(&kube::api::DynamicObject) -> bool) -> Value {
    let api = yard.clusters();
    wait::until(what, PATIENCE, || async {
        let cluster = api.get("fleet").await?;
        Ok(if holds(&cluster) {
            Look::Done(cluster.data)
        } else {
            Look::not_yet(&cluster.data["status"])
        })
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn rule_c1_the_endpoint_of_our_cluster_reaches_the_cluster_of_core() {
    let yard = yard("c1").await;
    yard.cluster().await.unwrap();
    let cluster = cluster_until(&yard, "the endpoint", |cluster| {
        cluster.data["spec"]["controlPlaneEndpoint"]["host"] == "192.0.2.1"
    })
    .await;
    assert_eq!(cluster["spec"]["controlPlaneEndpoint"]["port"], 6443);
}

#[tokio::test]
async fn rule_c2_zones_with_minis_are_failure_domains_for_machines_and_not_for_control_planes() {
    let yard = yard("c2").await;
    yard.cluster().await.unwrap();
    let cluster = cluster_until(&yard, "the failure domains", |cluster| {
        cluster.data["status"]["failureDomains"].is_array()
    })
    .await;
    let wanted = json!([{"name": "fr-par-1", "controlPlane": false}]);
    assert_eq!(cluster["status"]["failureDomains"], wanted);
}

#[tokio::test]
async fn rule_c3_a_provisioned_cluster_is_told_to_core_which_then_lets_machines_be_made() {
    let yard = yard("c3").await;
    yard.cluster().await.unwrap();
    cluster_until(&yard, "infrastructureProvisioned", |cluster| {
        cluster.data["status"]["initialization"]["infrastructureProvisioned"] == true
    })
    .await;
    let ours = yard.infra_clusters().get("fleet").await.unwrap();
    assert_eq!(ours.data["status"]["ready"], true, "core before 1.11 reads this one");
}

#[tokio::test]
async fn rule_c4_our_ready_condition_is_mirrored_and_the_cluster_becomes_available() {
    let yard = yard("c4").await;
    yard.cluster().await.unwrap();
    cluster_until(&yard, "InfrastructureReady and Available", |cluster| {
        is_true(cluster, "InfrastructureReady")
            && is_true(cluster, "ControlPlaneInitialized")
            && is_true(cluster, "Available")
    })
    .await;
}

/// A template of clusters is for ClusterClass, which we do not offer: a cluster stands for one that exists already. Whoever adds one has
/// to keep the rule, and to replace this test.
#[tokio::test]
async fn rule_c6_there_is_no_template_of_clusters_and_core_makes_no_cluster_from_a_class() {
    let kinds: Vec<String> = russet_api::all_crds()
        .into_iter()
        .map(|crd| crd.spec.names.kind)
        .collect();
    assert!(!kinds.iter().any(|kind| kind.ends_with("ClusterTemplate")), "{kinds:?}");
    let yard = yard("c6").await;
    let mut cluster = yard.core_cluster();
    cluster["spec"] = json!({"topology": {"classRef": {"name": "macs"}, "version": "v1.35.4"}});
    let refused = yard.apply(cluster).await.unwrap_err();
    assert!(
        format!("{refused:#}").contains("ClusterTopology feature flag"),
        "{refused:#}"
    );
}

#[tokio::test]
async fn rule_c7_a_cluster_that_somebody_else_manages_is_left_alone() {
    let yard = yard("c7").await;
    let mut ours = yard.infra_cluster();
    ours["metadata"]["annotations"] = json!({format!("{CORE}/managed-by"): "terraform"});
    yard.apply(ours).await.unwrap();
    yard.apply(yard.core_cluster()).await.unwrap();
    // A neighbour created later is served, so the first one was looked at.
    let neighbour = Fleet::shared().await.unwrap().yard("c7-neighbour", 0).await.unwrap();
    neighbour.cluster().await.unwrap();
    cluster_until(&neighbour, "the neighbour", |cluster| {
        is_true(cluster, "InfrastructureReady")
    })
    .await;
    let ours = yard.infra_clusters().get("fleet").await.unwrap();
    assert_eq!(ours.data.get("status"), None, "{}", ours.data);
    assert_eq!(yard.secret_named("fleet-kubeconfig").await.unwrap(), None);
}

#[tokio::test]
async fn rule_c8_a_paused_cluster_says_so_and_goes_on_when_it_is_not_paused_any_more() {
    let yard = yard("c8").await;
    let mut cluster = yard.core_cluster();
    cluster["spec"]["paused"] = json!(true);
    yard.apply(yard.infra_cluster()).await.unwrap();
    yard.apply(cluster).await.unwrap();
    // Core sets no owner on it while paused, so the owner is ours to give: only then is it this Cluster's.
    let api = yard.infra_clusters();
    let core = yard.clusters().get("fleet").await.unwrap();
    let owner = json!({"metadata": {"ownerReferences": [{
        "apiVersion": format!("{CORE}/v1beta2"), "kind": "Cluster", "name": "fleet", "uid": core.metadata.uid,
    }]}});
    api.patch("fleet", &PatchParams::default(), &Patch::Merge(owner))
        .await
        .unwrap();
    wait::until("condition Paused", PATIENCE, || async {
        let ours = api.get("fleet").await?;
        Ok(if is_true(&ours, "Paused") {
            Look::Done(())
        } else {
            Look::not_yet(&ours.data)
        })
    })
    .await
    .unwrap();
    let ours = api.get("fleet").await.unwrap();
    assert_eq!(ours.data["status"]["initialization"]["provisioned"], Value::Null);
    let go_on = Patch::Merge(json!({"spec": {"paused": false}}));
    yard.clusters()
        .patch("fleet", &PatchParams::default(), &go_on)
        .await
        .unwrap();
    cluster_until(&yard, "InfrastructureReady", |cluster| {
        is_true(cluster, "InfrastructureReady")
    })
    .await;
    let ours = api.get("fleet").await.unwrap();
    assert_eq!(
        condition(&ours, "Paused").map(|c| c["status"].clone()),
        Some(json!("False"))
    );
}

#[test]
fn rule_c9_the_flags_of_clusterctl_are_known() {
    let program = russet_testkit::program::provider_program().unwrap();
    let help = std::process::Command::new(program).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for flag in ["--namespace", "--watch-filter"] {
        assert!(help.contains(flag), "{flag} is not in the help");
    }
}

#[test]
fn rule_c10_the_release_files_of_clusterctl_name_the_contract_of_the_crds() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../clusterctl/infrastructure-scaleway-applesilicon/v0.1.0");
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    let metadata: Value = serde_yaml_ng::from_str(&read("metadata.yaml")).unwrap();
    assert_eq!(metadata["apiVersion"], "clusterctl.cluster.x-k8s.io/v1alpha3");
    let series = metadata["releaseSeries"].as_array().unwrap();
    assert!(
        series.iter().all(|series| series["contract"] == "v1beta2"),
        "{metadata}"
    );
    let components = read("infrastructure-components.yaml");
    assert!(components.contains(INFRA));
}

#[tokio::test]
async fn the_workload_kubeconfig_is_written_for_core_and_belongs_to_the_cluster() {
    let yard = yard("kubeconfig").await;
    yard.cluster().await.unwrap();
    cluster_until(&yard, "the connection", |cluster| {
        is_true(cluster, "RemoteConnectionProbe")
    })
    .await;
    let secret = yard.secret_named("fleet-kubeconfig").await.unwrap().unwrap();
    assert_eq!(secret.type_.as_deref(), Some("cluster.x-k8s.io/secret"));
    let labels = secret.metadata.labels.unwrap_or_default();
    assert_eq!(
        labels.get("cluster.x-k8s.io/cluster-name").map(String::as_str),
        Some("fleet")
    );
    assert!(
        secret
            .metadata
            .owner_references
            .unwrap_or_default()
            .iter()
            .any(|owner| owner.kind == "Cluster")
    );
    assert!(secret.data.unwrap_or_default().contains_key("value"));
}
