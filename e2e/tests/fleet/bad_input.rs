//! Bad input: each a condition with a reason and a sentence that says what to do, healed when the cause goes.

use kube::api::{Patch, PatchParams};
use russet_api::ScalewayAppleSiliconMachine;
use russet_e2e::fleet::{Fleet, Yard};
use russet_sim_scaleway::{Act, Fault};
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

async fn wait_for(yard: &Yard<'_>, reason: &str, sentence: &str) {
    let mac = yard
        .mac_until(&format!("reason {reason}"), |mac| {
            trouble(mac).is_some_and(|(seen, _)| seen == reason)
        })
        .await
        .unwrap();
    let (_, message) = trouble(&mac).unwrap();
    assert!(message.contains(sentence), "{message}");
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
    match refused {
        // The schema may refuse it at once, which is better still.
        Err(error) => assert!(format!("{error:#}").contains("zone"), "{error:#}"),
        Ok(()) => {
            yard.deployment("macos", "macos", 1).await.unwrap();
            wait_for(&yard, "InvalidSpec", "zone").await;
        }
    }
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
async fn an_expired_key_and_a_quota_are_told_and_heal() {
    // A fleet of its own: the faults would hit the neighbours.
    let fleet = Fleet::start(&[]).await.unwrap();
    let yard = fleet.yard("key", 1).await.unwrap();
    let handle = fleet.sim.handle();
    handle.inject(Fault::new("GET", "/apple-silicon/**", Act::Status(401)).for_ever());
    yard.cluster().await.unwrap();
    yard.template("macos", json!({})).await.unwrap();
    yard.deployment("macos", "macos", 1).await.unwrap();
    let mac = yard.mac_until("trouble", |mac| trouble(mac).is_some()).await.unwrap();
    let (reason, message) = trouble(&mac).unwrap();
    assert!(
        message.contains("key") || message.contains("credential"),
        "{reason}: {message}"
    );
    handle.clear_faults();
    // What is tried seldom is tried at once when the object is touched.
    let touch = Patch::Merge(json!({"metadata": {"annotations": {"test": "touched"}}}));
    let name = kube::ResourceExt::name_any(&yard.only_mac().await.unwrap());
    yard.macs().patch(&name, &PatchParams::default(), &touch).await.unwrap();
    yard.available("macos", 1).await.unwrap();
}
