//! What cannot be had, or was asked for wrongly: said in words that help, never paid for, and right again by itself.

use anyhow::Result;
use kube::Resource as _;
use russet_api::values::Zone;
use russet_api::{ScalewayElasticMetalMachine as Metal, ScalewayInstanceMachine as Instance};
use russet_capi_provider::linux::kind::LinuxKind;
use russet_sim_scaleway::{
    Act, BoxFate, BoxOutcome, DEFAULT_ACCESS_KEY, DEFAULT_SECRET_KEY, Deed, Fault, Handle, NewInstances, NewMetals,
    PermissionSet, Stage, Zone as SimZone,
};
use serde_json::json;

use super::support::{Trial, sim};
use crate::harness::cloud;

fn stock(type_: &str, count: u32) -> Deed {
    Deed::SetStock {
        zone: SimZone::new("fr-par-1"),
        server_type: type_.to_owned(),
        count,
    }
}

/// An Instance can be made and not be started; what is made is kept, and started when there is room.
#[tokio::test]
async fn an_instance_that_is_sold_out_is_started_when_there_is_room() -> Result<()> {
    let empty = |handle: &Handle| drop(handle.perform(stock("PRO2-S", 0)).unwrap());
    let trial: Trial<Instance> = Trial::begin("i-sold-out", json!({}), &[], empty).await?;
    trial.says("OutOfStock", &["PRO2-S", "another type or zone"]).await?;
    trial.sim.handle().perform(stock("PRO2-S", 3))?;
    trial.heals().await
}

#[tokio::test]
async fn a_server_that_is_sold_out_is_ordered_when_there_is_one() -> Result<()> {
    let offer = "EM-B220E-NVME";
    let empty = |handle: &Handle| drop(handle.perform(stock(offer, 0)).unwrap());
    let trial: Trial<Metal> = Trial::begin("m-sold-out", json!({}), &[], empty).await?;
    trial.says("OutOfStock", &[offer, "another type or zone"]).await?;
    trial.owns_nothing();
    trial.sim.handle().perform(stock(offer, 3))?;
    trial.heals().await
}

/// The list said there was one, and whoever packs the servers finds none.
#[tokio::test]
async fn an_order_that_cannot_be_delivered_says_so_and_leaves_nothing() -> Result<()> {
    let none_left = |handle: &Handle| {
        let fate = BoxFate {
            stage: Stage::Delivery,
            server: None,
            outcome: BoxOutcome::OutOfStock,
            times: 1,
        };
        handle.perform(Deed::DecideBox(fate)).unwrap();
    };
    let trial: Trial<Metal> = Trial::begin("undelivered", json!({}), &[], none_left).await?;
    let machine = trial.says("OutOfStock", &["delete the Machine"]).await?;
    assert_eq!(machine.status().failure_reason.as_deref(), Some("OutOfStock"));
    let posts = trial.sim.handle().calls("POST", "/baremetal/v1/zones/*/servers");
    assert_eq!(posts, 1, "nothing else was ordered");
    trial.leaves().await
}

async fn over_quota<K: LinuxKind>(name: &str, path: &str) -> Result<()> {
    let full = |handle: &Handle| {
        let act = Act::QuotaExceeded {
            resource: "servers".to_owned(),
            quota: 2,
        };
        handle.inject(Fault::new("POST", path, act).for_ever());
    };
    let trial: Trial<K> = Trial::begin(name, json!({}), &[], full).await?;
    trial.says("QuotaExceeded", &["2", "ask Scaleway support"]).await?;
    trial.owns_nothing();
    trial.sim.handle().clear_faults();
    trial.heals().await
}

#[tokio::test]
async fn an_instance_beyond_the_quota_is_made_when_there_is_room() -> Result<()> {
    over_quota::<Instance>("i-quota", "/instance/v1/zones/*/servers").await
}

#[tokio::test]
async fn a_server_beyond_the_quota_is_ordered_when_there_is_room() -> Result<()> {
    over_quota::<Metal>("m-quota", "/baremetal/v1/zones/*/servers").await
}

async fn image_gone<K: LinuxKind>(name: &str) -> Result<()> {
    let label = || "ubuntu_noble".to_owned();
    let gone = |handle: &Handle| drop(handle.perform(Deed::RetireImage { label: label() }).unwrap());
    let trial: Trial<K> = Trial::begin(name, json!({}), &[], gone).await?;
    trial
        .says("ImageUnavailable", &["ubuntu_noble", "name another"])
        .await?;
    trial.owns_nothing();
    trial.sim.handle().perform(Deed::RestoreImage { label: label() })?;
    trial.heals().await
}

#[tokio::test]
async fn an_image_that_is_gone_is_waited_for_and_named() -> Result<()> {
    image_gone::<Instance>("i-image").await
}

#[tokio::test]
async fn an_image_that_never_was_is_a_condition_that_names_it_and_others_do() -> Result<()> {
    let spec = json!({"image": "ubuntu_warty"});
    let trial: Trial<Instance> = Trial::begin("no-image", spec, &[], |_| {}).await?;
    trial.says("ImageUnavailable", &["ubuntu_warty"]).await?;
    trial.owns_nothing();
    trial.fleet.correct(&Instance::kind(&()), json!({})).await?;
    trial.heals().await
}

#[tokio::test]
async fn an_operating_system_that_is_gone_is_waited_for_and_named() -> Result<()> {
    image_gone::<Metal>("m-image").await
}

#[tokio::test]
async fn a_private_network_of_another_region_is_refused_before_money_is_spent() -> Result<()> {
    let sim = sim().await?;
    let client = cloud(&sim)?;
    let amsterdam = Zone::try_from("nl-ams-1")?.region();
    let made = client.create_private_network(&amsterdam, "cache", None, &[]).await?;
    let spec = json!({"privateNetworkID": made.id.to_string()});
    let trial: Trial<Instance> = Trial::of(sim, "no-network", spec, &[]).await?;
    let words = [made.id.as_str(), "fr-par", "privateNetworkName"];
    trial.says("PrivateNetworkElsewhere", &words).await?;
    trial.owns_nothing();
    // One of that name is made where it is needed; the machine that is replaced goes without a trace.
    let spec = json!({"privateNetworkName": "cache"});
    trial.fleet.correct(&Instance::kind(&()), spec).await?;
    trial.heals().await
}

#[tokio::test]
async fn an_unknown_zone_is_said_and_the_machine_can_be_replaced() -> Result<()> {
    let spec = json!({"zone": "fr-par-9"});
    let trial: Trial<Instance> = Trial::begin("no-zone", spec, &[], |_| {}).await?;
    let machine = trial.says("InvalidZone", &["fr-par-9", "new name"]).await?;
    assert_eq!(machine.status().failure_reason.as_deref(), Some("InvalidZone"));
    trial.owns_nothing();
    trial.fleet.correct(&Instance::kind(&()), json!({})).await?;
    trial.heals().await
}

fn key(sets: impl IntoIterator<Item = PermissionSet>) -> Deed {
    Deed::AddKey {
        access_key: DEFAULT_ACCESS_KEY.to_owned(),
        secret_key: DEFAULT_SECRET_KEY.to_owned(),
        organization_id: None,
        projects: None,
        permission_sets: sets.into_iter().collect(),
        expires_at: None,
    }
}

async fn not_permitted<K: LinuxKind>(name: &str, missing: PermissionSet, word: &str) -> Result<()> {
    let without = PermissionSet::PROVIDER.into_iter().filter(|set| *set != missing);
    let poor = |handle: &Handle| drop(handle.perform(key(without)).unwrap());
    let trial: Trial<K> = Trial::begin(name, json!({}), &[], poor).await?;
    trial.says("PermissionDenied", &[word, "IAM"]).await?;
    trial.owns_nothing();
    trial.sim.handle().perform(key(PermissionSet::PROVIDER))?;
    trial.heals().await
}

#[tokio::test]
async fn a_key_without_rights_to_instances_is_told_which_it_lacks() -> Result<()> {
    not_permitted::<Instance>("i-rights", PermissionSet::InstancesFullAccess, "InstancesFullAccess").await
}

#[tokio::test]
async fn a_key_without_rights_to_elastic_metal_is_told_which_it_lacks() -> Result<()> {
    not_permitted::<Metal>(
        "m-rights",
        PermissionSet::ElasticMetalFullAccess,
        "ElasticMetalFullAccess",
    )
    .await
}

/// One cap for everything that is paid for by the hour, whichever product it is.
#[tokio::test]
async fn a_server_waits_while_what_is_in_use_of_other_products_reaches_the_spend_cap() -> Result<()> {
    let ours = || vec!["capi".to_owned()];
    let used = |handle: &Handle| {
        let metal = NewMetals {
            name: "other".into(),
            tags: ours(),
            ..NewMetals::default()
        };
        handle.perform(Deed::AddMetals(metal)).unwrap();
    };
    let trial: Trial<Instance> = Trial::begin("i-cap", json!({}), &["--max-hourly-spend=0.4"], used).await?;
    trial
        .says("SpendCapReached", &["--max-hourly-spend=0.40", "raise the cap"])
        .await?;
    assert!(trial.sim.handle().instances().is_empty(), "nothing was ordered");
    trial.sim.handle().vanish("other")?;
    trial.heals().await
}

#[tokio::test]
async fn elastic_metal_waits_while_instances_reach_the_spend_cap() -> Result<()> {
    let used = |handle: &Handle| {
        let instances = NewInstances {
            name: "other".into(),
            tags: vec!["capi".to_owned()],
            ..NewInstances::default()
        };
        handle.perform(Deed::AddInstances(instances)).unwrap();
    };
    let trial: Trial<Metal> = Trial::begin("m-cap", json!({}), &["--max-hourly-spend=0.4"], used).await?;
    trial.says("SpendCapReached", &["another EM-B220E-NVME"]).await?;
    assert!(trial.sim.handle().metals().is_empty(), "nothing was ordered");
    trial.sim.handle().vanish("other")?;
    trial.heals().await
}
