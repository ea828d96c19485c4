//! Bad input: each a condition with a reason and a sentence that says what to do, healed when the cause goes.

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use russet_api::ScalewayAppleSiliconMachine;
use russet_sim_scaleway::{Act, DEFAULT_ACCESS_KEY, DEFAULT_SECRET_KEY, Deed, Fault, Id, Minis, PermissionSet};
use russet_stages::macs::{Fleet, Yard};
use serde_json::{Value, json};

/// Reason and message of the condition that says what a machine waits for.
fn trouble(mac: &ScalewayAppleSiliconMachine) -> Option<(String, String)> {
    let conditions = &mac.status.as_ref()?.conditions;
    let failing = conditions
        .iter()
        .find(|c| c.type_ != "Ready" && c.status == russet_api::conditions::ConditionStatus::False)?;
    Some((failing.reason.clone()?, failing.message.clone().unwrap_or_default()))
}

async fn told(yard: &Yard<'_>, spec: Value, reason: &str, sentence: &str) {
    yard.cluster().await.unwrap();
    yard.template("macos", spec).await.unwrap();
    yard.deployment("macos", "macos", 1).await.unwrap();
    wait_for(yard, reason, sentence).await;
}

/// Waits for the reason and the sentence together: what a machine is told first may rest on a list of the zone that is
/// older than the minis a test stocked a moment ago, and is told better with the next one.
async fn wait_for(yard: &Yard<'_>, reason: &str, sentence: &str) {
    yard.mac_until(&format!("reason {reason} with \"{sentence}\""), |mac| {
        trouble(mac).is_some_and(|(seen, message)| seen == reason && message.contains(sentence))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn an_empty_pool_says_what_to_order_and_heals_when_a_mini_comes() {
    let yard = Fleet::shared().await.unwrap().yard("empty", 0).await.unwrap();
    told(&yard, json!({}), "NoAvailableHost", "order one and name it").await;
    yard.stock(1).unwrap();
    yard.available("macos", 1).await.unwrap();
}

#[tokio::test]
async fn minis_of_another_type_do_not_count_and_are_counted() {
    let yard = Fleet::shared().await.unwrap().yard("type", 2).await.unwrap();
    told(&yard, json!({"type": "M4-M"}), "NoAvailableHost", "2 of another type").await;
}

#[tokio::test]
async fn an_unknown_zone_is_named() {
    let yard = Fleet::shared().await.unwrap().yard("zone", 1).await.unwrap();
    yard.cluster().await.unwrap();
    let refused = yard.template("macos", json!({"zone": "mars-1"})).await;
    // The schema may refuse it at once, which is better still.
    if let Err(error) = refused {
        assert!(format!("{error:#}").contains("zone"), "{error:#}");
        return;
    }
    yard.deployment("macos", "macos", 1).await.unwrap();
    wait_for(&yard, "InvalidSpec", "zone").await;
}

#[tokio::test]
async fn a_zone_without_macs_is_told_as_scaleway_told_it() {
    let yard = Fleet::shared().await.unwrap().yard("elsewhere", 1).await.unwrap();
    yard.cluster().await.unwrap();
    yard.template("macos", json!({"zone": "pl-waw-1"})).await.unwrap();
    yard.deployment("macos", "macos", 1).await.unwrap();
    let mac = yard.mac_until("trouble", |mac| trouble(mac).is_some()).await.unwrap();
    let (reason, message) = trouble(&mac).unwrap();
    assert!(message.len() > 40, "{reason}: {message}");
}

#[tokio::test]
async fn minis_of_another_project_are_never_taken() {
    let yard = Fleet::shared().await.unwrap().yard("project", 0).await.unwrap();
    let handle = yard.fleet.sim.handle();
    let project: Id = "0b5c0a3e-0000-4000-a000-00000000beef".parse().unwrap();
    let theirs = Deed::AddProject {
        id: project.clone(),
        name: "theirs".to_owned(),
        organization_id: None,
    };
    handle.perform(theirs).unwrap();
    let minis = Minis {
        name: format!("{}mini", yard.pool),
        project_id: Some(project),
        ..Minis::default()
    };
    handle.add_minis(minis).unwrap();
    told(&yard, json!({}), "NoAvailableHost", "order one and name it").await;
    yard.stock(1).unwrap();
    yard.available("macos", 1).await.unwrap();
}

#[tokio::test]
async fn a_malformed_fleet_key_is_named_and_heals_when_it_goes() {
    let yard = Fleet::shared().await.unwrap().yard("secret", 1).await.unwrap();
    // Fleet keys are in the secrets namespace, which is that of the release.
    let secrets: Api<Secret> = Api::namespaced(yard.client.clone(), &yard.fleet.namespace);
    let name = format!("{}-ssh", yard.namespace);
    let broken: Secret = serde_json::from_value(json!({
        "metadata": {"name": name}, "stringData": {"id_ed25519": "not a key", "id_ed25519.pub": "neither"},
    }))
    .unwrap();
    secrets.create(&PostParams::default(), &broken).await.unwrap();
    let spec = json!({"fleetName": yard.namespace});
    told(&yard, spec, "SSHKeyUnavailable", "ssh-keygen -t ed25519").await;
    yard.all_pooled(1).await.unwrap();
    secrets.delete(&name, &DeleteParams::default()).await.unwrap();
    touch(&yard).await;
    yard.available("macos", 1).await.unwrap();
}

/// What is tried seldom is tried at once when the object is touched.
async fn touch(yard: &Yard<'_>) {
    let name = yard.only_mac().await.unwrap().name_any();
    let touched = Patch::Merge(json!({"metadata": {"annotations": {"test": "touched"}}}));
    yard.macs()
        .patch(&name, &PatchParams::default(), &touched)
        .await
        .unwrap();
}

#[tokio::test]
async fn an_expired_key_and_a_missing_right_are_told_and_heal() {
    // A fleet of its own: these would hit the neighbours.
    let fleet = Fleet::start(&[]).await.unwrap();
    let handle = fleet.sim.handle();
    let key = |sets: &[PermissionSet]| Deed::AddKey {
        access_key: DEFAULT_ACCESS_KEY.to_owned(),
        secret_key: DEFAULT_SECRET_KEY.to_owned(),
        organization_id: None,
        projects: None,
        permission_sets: sets.iter().copied().collect(),
        expires_at: None,
    };
    let enough = [
        PermissionSet::AppleSiliconFullAccess,
        PermissionSet::SshKeysFullAccess,
        PermissionSet::ProjectReadOnly,
    ];
    let expire = Deed::ExpireKey {
        access_key: DEFAULT_ACCESS_KEY.to_owned(),
    };
    handle.perform(expire).unwrap();
    let yard = fleet.yard("key", 2).await.unwrap();
    told(&yard, json!({}), "Unauthenticated", "key").await;
    handle.perform(key(&[PermissionSet::ProjectReadOnly])).unwrap();
    touch(&yard).await;
    wait_for(&yard, "PermissionDenied", "AppleSilicon").await;
    handle.perform(key(&enough)).unwrap();
    touch(&yard).await;
    yard.available("macos", 1).await.unwrap();
}

#[tokio::test]
async fn a_quota_that_is_used_up_is_named_and_heals_when_it_is_raised() {
    // A fleet of its own: this would hit the neighbours.
    let fleet = Fleet::start(&[]).await.unwrap();
    let handle = fleet.sim.handle();
    let used_up = Act::QuotaExceeded {
        resource: "iam_ssh_keys".to_owned(),
        quota: 20,
    };
    handle.inject(Fault::new("POST", "/iam/v1alpha1/ssh-keys", used_up).for_ever());
    let yard = fleet.yard("quota", 1).await.unwrap();
    told(&yard, json!({}), "SSHKeyUnavailable", "iam_ssh_keys (20 of 20)").await;
    wait_for(&yard, "SSHKeyUnavailable", "ask Scaleway support for a higher quota").await;
    // Without a key the host would let nobody in, so none is taken.
    yard.all_pooled(1).await.unwrap();
    handle.clear_faults();
    touch(&yard).await;
    yard.available("macos", 1).await.unwrap();
}
