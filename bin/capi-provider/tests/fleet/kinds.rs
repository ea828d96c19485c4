//! What Cluster API wants of every kind, and of templates.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use russet_stages::macs::{CORE, Fleet, INFRA};
use serde_json::{Value, json};

fn infra() -> Vec<CustomResourceDefinition> {
    let all = russet_api::all_crds();
    all.into_iter().filter(|crd| crd.spec.group == INFRA).collect()
}

#[test]
fn rule_a1_every_kind_is_namespaced() {
    assert!(infra().len() >= 7);
    for crd in infra() {
        assert_eq!(crd.spec.scope, "Namespaced", "{}", crd.name_any());
    }
}

#[test]
fn rule_a2_every_kind_has_a_list_kind() {
    for crd in infra() {
        let names = &crd.spec.names;
        let list = names.list_kind.clone().unwrap_or_else(|| format!("{}List", names.kind));
        assert_eq!(list, format!("{}List", names.kind));
    }
}

#[test]
fn rule_a3_every_crd_is_named_after_the_plural_that_core_computes() {
    for crd in infra() {
        let plural = format!("{}s", crd.spec.names.kind.to_lowercase());
        assert_eq!(crd.name_any(), format!("{plural}.{INFRA}"));
    }
}

#[test]
fn rule_a4_every_crd_says_which_contract_it_keeps() {
    for crd in infra() {
        let label = crd.labels().get(&format!("{CORE}/v1beta2")).cloned();
        assert_eq!(label.as_deref(), Some("v1alpha1"), "{}", crd.name_any());
    }
}

#[tokio::test]
async fn rule_a5_core_may_do_all_it_needs_with_our_kinds() {
    let fleet = Fleet::shared().await.unwrap();
    let yard = fleet.yard("a5", 1).await.unwrap();
    yard.running(1).await.unwrap();
    yard.scale("macos", 0).await.unwrap();
    yard.available("macos", 0).await.unwrap();
    let denials = fleet
        .cluster
        .audit()
        .unwrap()
        .denials("system:serviceaccount:capi-system:capi-manager")
        .unwrap();
    let ours: Vec<_> = denials
        .iter()
        .filter(|entry| entry.request_uri.contains(INFRA))
        .collect();
    assert!(ours.is_empty(), "{ours:?}");
}

#[tokio::test]
async fn rule_t1_a_machine_is_the_copy_of_its_template_with_the_metadata_asked_for() {
    let yard = Fleet::shared().await.unwrap().yard("t1", 0).await.unwrap();
    yard.cluster().await.unwrap();
    yard.template("macos", json!({"type": "M2-L", "hostCPU": 6}))
        .await
        .unwrap();
    let labels = json!({"tuist.dev/from-template": "yes"});
    let labelled = Patch::Merge(json!({"spec": {"template": {"metadata": {"labels": labels}}}}));
    let templates = yard.api(INFRA, "v1alpha1", "ScalewayAppleSiliconMachineTemplate");
    let patched = templates.patch("macos", &PatchParams::default(), &labelled).await;
    patched.unwrap();
    yard.deployment("macos", "macos", 1).await.unwrap();
    let mac = yard.mac_until("a clone", |_| true).await.unwrap();
    assert_eq!(mac.spec.host_cpu, Some(6));
    assert_eq!(mac.spec.adopt_pool_prefix.as_deref(), Some(yard.pool.as_str()));
    let label = |name: &str| mac.labels().get(name).map(String::as_str);
    assert_eq!(label("fleet"), Some("macos"));
    assert_eq!(label("tuist.dev/from-template"), Some("yes"));
    assert_eq!(label(&format!("{CORE}/cluster-name")), Some("fleet"));
    assert_eq!(mac.annotations()[&format!("{CORE}/cloned-from-name")], "macos");
}

/// A template that refuses changes must let a dry run of a change through; ours refuses nothing, in a dry run or without.
#[tokio::test]
async fn rule_t2_a_change_of_a_template_can_be_tried_without_being_made() {
    let yard = Fleet::shared().await.unwrap().yard("t2", 0).await.unwrap();
    yard.template("macos", json!({"hostCPU": 6})).await.unwrap();
    let templates = yard.api(INFRA, "v1alpha1", "ScalewayAppleSiliconMachineTemplate");
    let change = Patch::Apply(json!({
        "apiVersion": format!("{INFRA}/v1alpha1"), "kind": "ScalewayAppleSiliconMachineTemplate",
        "metadata": {"name": "macos"}, "spec": {"template": {"spec": {"hostCPU": 8}}},
    }));
    let cpu = |template: &kube::api::DynamicObject| template.data["spec"]["template"]["spec"]["hostCPU"].clone();
    let topology = PatchParams::apply("capi-topology").force();
    let tried = templates
        .patch("macos", &topology.clone().dry_run(), &change)
        .await
        .unwrap();
    assert_eq!(cpu(&tried), 8);
    assert_eq!(cpu(&templates.get("macos").await.unwrap()), 6);
    templates.patch("macos", &topology, &change).await.unwrap();
    assert_eq!(cpu(&templates.get("macos").await.unwrap()), 8);
}

/// What an autoscaler has to know to start from zero is an operator's to write: what of a host is left for Pods is theirs to say.
#[tokio::test]
async fn rule_t3_a_template_keeps_the_capacity_that_an_autoscaler_reads_and_refuses_another_shape() {
    let yard = Fleet::shared().await.unwrap().yard("t3", 0).await.unwrap();
    yard.template("macos", json!({})).await.unwrap();
    let templates = yard.api(INFRA, "v1alpha1", "ScalewayAppleSiliconMachineTemplate");
    let told = json!({
        "capacity": {"cpu": "8", "memory": "16Gi", "pods": "4"},
        "nodeInfo": {"architecture": "arm64", "operatingSystem": "darwin"},
    });
    let write = async |status: &Value| {
        let patch = Patch::Merge(json!({"status": status}));
        templates.patch_status("macos", &PatchParams::default(), &patch).await
    };
    write(&told).await.unwrap();
    assert_eq!(templates.get("macos").await.unwrap().data["status"], told);
    let refused = write(&json!({"capacity": {"cpu": {"cores": 8}}})).await.unwrap_err();
    assert!(refused.to_string().contains("status.capacity.cpu"), "{refused}");
}
