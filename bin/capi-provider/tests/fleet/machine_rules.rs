//! The contract of `ScalewayAppleSiliconMachine`.

use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use russet_api::ScalewayAppleSiliconMachine;
use russet_stages::macs::{CORE, Fleet, INFRA, Yard, condition, is_true};
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::{Value, json};

async fn yard(name: &str, minis: u32) -> Yard<'static> {
    Fleet::shared().await.unwrap().yard(name, minis).await.unwrap()
}

fn provisioned(mac: &ScalewayAppleSiliconMachine) -> bool {
    let status = mac.status.as_ref();
    status
        .and_then(|status| status.initialization.as_ref())
        .and_then(|initialization| initialization.provisioned)
        == Some(true)
}

fn reason(mac: &ScalewayAppleSiliconMachine, kind: &str) -> Option<String> {
    let conditions = &mac.status.as_ref()?.conditions;
    conditions
        .iter()
        .find(|condition| condition.type_ == kind)?
        .reason
        .clone()
}

#[tokio::test]
async fn rule_m1_machine_host_and_node_have_one_provider_id() {
    let yard = yard("m1", 1).await;
    yard.running(1).await.unwrap();
    let mac = yard.only_mac().await.unwrap();
    let id = mac.spec.provider_id.clone().unwrap();
    let server = mac.status.unwrap().server_id.unwrap();
    assert_eq!(id, format!("scw-applesilicon://fr-par-1/{server}"));
    let machine = yard.machines_of("macos").await.unwrap().remove(0);
    assert_eq!(machine.data["spec"]["providerID"], json!(id));
    let node = machine.data["status"]["nodeRef"]["name"].as_str().unwrap().to_owned();
    let node = yard.nodes().get(&node).await.unwrap();
    assert_eq!(node.spec.unwrap().provider_id, Some(id));
}

#[tokio::test]
async fn rule_m2_a_host_that_is_set_up_is_told_to_core() {
    let yard = yard("m2", 1).await;
    yard.running(1).await.unwrap();
    let mac = yard.only_mac().await.unwrap();
    assert!(provisioned(&mac));
    assert_eq!(mac.status.unwrap().ready, Some(true), "core before 1.11 reads this one");
    let machine = yard.machines_of("macos").await.unwrap().remove(0);
    assert_eq!(
        machine.data["status"]["initialization"]["infrastructureProvisioned"],
        true
    );
    assert_eq!(machine.data["status"]["phase"], "Running");
}

#[tokio::test]
async fn rule_m3_the_address_of_the_host_reaches_the_machine() {
    let yard = yard("m3", 1).await;
    yard.running(1).await.unwrap();
    let mac = yard.only_mac().await.unwrap();
    let address = mac.status.unwrap().addresses[0].address.clone();
    let machine = yard.machines_of("macos").await.unwrap().remove(0);
    assert_eq!(machine.data["status"]["addresses"][0]["address"], json!(address));
}

#[tokio::test]
async fn rule_m4_the_zone_is_the_failure_domain() {
    let yard = yard("m4", 1).await;
    yard.running(1).await.unwrap();
    let mac = yard.only_mac().await.unwrap();
    assert_eq!(mac.status.unwrap().failure_domain.as_deref(), Some("fr-par-1"));
}

#[tokio::test]
async fn rule_m5_a_mac_is_not_interruptible_and_core_finds_the_field_where_it_looks_for_it() {
    const LABEL: &str = "cluster.x-k8s.io/interruptible";
    let yard = yard("m5", 1).await;
    yard.running(1).await.unwrap();
    let mac = yard.only_mac().await.unwrap();
    assert_eq!(mac.status.clone().unwrap().interruptible, None);
    let node = yard.nodes().get(&mac.name_any()).await.unwrap();
    assert!(!node.labels().contains_key(LABEL));
    let interruptible = Patch::Merge(json!({"status": {"interruptible": true}}));
    yard.macs()
        .patch_status(&mac.name_any(), &PatchParams::default(), &interruptible)
        .await
        .unwrap();
    wait::until("core to label the Node", PATIENCE, || async {
        let node = yard.nodes().get(&mac.name_any()).await?;
        Ok(if node.labels().contains_key(LABEL) {
            Look::Done(())
        } else {
            Look::not_yet(node.labels())
        })
    })
    .await
    .unwrap();
    let mac = yard.only_mac().await.unwrap();
    assert_eq!(mac.status.unwrap().interruptible, Some(true), "we do not take it back");
}

#[tokio::test]
async fn rule_m6_our_ready_condition_and_its_message_reach_the_machine() {
    let yard = yard("m6", 0).await;
    yard.cluster().await.unwrap();
    yard.template("macos", json!({})).await.unwrap();
    yard.deployment("macos", "macos", 1).await.unwrap();
    let machines = yard.machines();
    wait::until("the shortage to be told by core", PATIENCE, || async {
        let all = machines.list(&ListParams::default()).await?.items;
        let told = all
            .first()
            .and_then(|machine| condition(machine, "InfrastructureReady"));
        let message = told
            .and_then(|told| told["message"].as_str())
            .unwrap_or_default()
            .to_owned();
        Ok(if message.contains("order one and name it") {
            Look::Done(())
        } else {
            Look::not_yet(told)
        })
    })
    .await
    .unwrap();
    yard.stock(1).unwrap();
    yard.available("macos", 1).await.unwrap();
    let machine = yard.machines_of("macos").await.unwrap().remove(0);
    assert!(
        is_true(&machine, "InfrastructureReady"),
        "healed when the cause was gone"
    );
}

#[tokio::test]
async fn rule_m7_a_problem_that_does_not_go_away_by_itself_is_a_condition_and_no_failure_field() {
    let yard = yard("m7", 1).await;
    yard.cluster().await.unwrap();
    yard.template("macos", json!({"os": "macos-tahoe-26.3"})).await.unwrap();
    yard.deployment("macos", "macos", 1).await.unwrap();
    let mac = yard
        .mac_until("the refusal", |mac| {
            reason(mac, "Provisioned").as_deref() == Some("InvalidOSPin")
        })
        .await
        .unwrap();
    let status = mac.status.unwrap();
    assert_eq!((status.failure_reason, status.failure_message), (None, None));
}

#[tokio::test]
async fn rule_m8_labels_and_timeouts_change_in_place_and_the_host_is_left_alone() {
    let yard = yard("m8", 1).await;
    yard.running(1).await.unwrap();
    let before = yard.only_mac().await.unwrap();
    let node = before.name_any();
    let changed = Patch::Merge(json!({"spec": {"template": {
        "metadata": {"labels": {"node.cluster.x-k8s.io/pool": "other"}, "annotations": {"example.com/note": "new"}},
        "spec": {"deletion": {"nodeDrainTimeoutSeconds": 33}},
    }}}));
    yard.deployments()
        .patch("macos", &PatchParams::default(), &changed)
        .await
        .unwrap();
    wait::until("the changes to arrive", PATIENCE, || async {
        let (mac, node) = (yard.only_mac().await?, yard.nodes().get(&node).await?);
        let machine = yard.machines().get(&mac.name_any()).await?;
        let seen = (
            mac.annotations().get("example.com/note").cloned(),
            node.labels().get("node.cluster.x-k8s.io/pool").cloned(),
            machine.data["spec"]["deletion"]["nodeDrainTimeoutSeconds"].clone(),
        );
        let all = seen == (Some("new".to_owned()), Some("other".to_owned()), json!(33));
        Ok(if all { Look::Done(()) } else { Look::not_yet(seen) })
    })
    .await
    .unwrap();
    yard.available("macos", 1).await.unwrap();
    let after = yard.only_mac().await.unwrap();
    assert_eq!(after.metadata.uid, before.metadata.uid, "the machine was replaced");
    let host = |mac: &ScalewayAppleSiliconMachine| mac.status.clone().unwrap().server_id;
    assert_eq!(host(&after), host(&before));
    let wipes = format!(
        "/apple-silicon/v1alpha1/zones/*/servers/{}/reinstall",
        host(&after).unwrap()
    );
    assert_eq!(yard.fleet.sim.handle().calls("POST", &wipes), 0);
}

#[tokio::test]
async fn rule_m9_a_paused_machine_says_so_takes_no_host_and_goes_on_afterwards() {
    let yard = yard("m9", 1).await;
    yard.cluster().await.unwrap();
    yard.template("macos", json!({})).await.unwrap();
    let mut deployment = yard.deployment_of("macos", "macos", 1);
    deployment["spec"]["template"]["metadata"]["annotations"] = json!({format!("{CORE}/paused"): ""});
    yard.apply(deployment).await.unwrap();
    let mac = yard
        .mac_until("condition Paused", |mac| {
            let conditions = mac
                .status
                .as_ref()
                .map(|status| status.conditions.as_slice())
                .unwrap_or_default();
            conditions
                .iter()
                .any(|c| c.type_ == "Paused" && c.status == russet_api::conditions::ConditionStatus::True)
        })
        .await
        .unwrap();
    assert_eq!(mac.status.unwrap().server_id, None);
    yard.all_pooled(1).await.unwrap();
    let name = yard.only_mac().await.unwrap().name_any();
    // Core makes the Mac first and its Machine then; ours may have said that it is paused in between.
    wait::until_true("the Machine of the Mac", PATIENCE, || async {
        Ok(yard.machines().get_opt(&name).await?.is_some())
    })
    .await
    .unwrap();
    let go_on = Patch::Merge(json!({"metadata": {"annotations": {format!("{CORE}/paused"): null}}}));
    yard.deployments()
        .patch(
            "macos",
            &PatchParams::default(),
            &Patch::Merge(
                json!({"spec": {"template": {"metadata": {"annotations": {format!("{CORE}/paused"): null}}}}}),
            ),
        )
        .await
        .unwrap();
    yard.macs().patch(&name, &PatchParams::default(), &go_on).await.unwrap();
    yard.machines()
        .patch(&name, &PatchParams::default(), &go_on)
        .await
        .unwrap();
    yard.available("macos", 1).await.unwrap();
}

#[tokio::test]
async fn rule_m10_without_an_owner_nothing_is_done() {
    let yard = yard("m10-owner", 1).await;
    yard.cluster().await.unwrap();
    let lonely: ScalewayAppleSiliconMachine = serde_json::from_value(json!({
        "apiVersion": format!("{INFRA}/v1alpha1"), "kind": "ScalewayAppleSiliconMachine",
        "metadata": {"name": "lonely", "labels": {format!("{CORE}/cluster-name"): "fleet"}},
        "spec": {"adoptPoolPrefix": yard.pool},
    }))
    .unwrap();
    yard.macs().create(&PostParams::default(), &lonely).await.unwrap();
    let mac = yard
        .mac_until("the reason", |mac| reason(mac, "Provisioned").is_some())
        .await
        .unwrap();
    assert_eq!(reason(&mac, "Provisioned").as_deref(), Some("WaitingForOwner"));
    assert_eq!(mac.finalizers(), [""; 0]);
    yard.all_pooled(1).await.unwrap();
}

#[tokio::test]
async fn rule_m10_no_host_is_taken_before_the_cluster_is_provisioned() {
    let yard = yard("m10-cluster", 1).await;
    // An infrastructure that somebody else looks after, who is in no hurry.
    let mut ours = yard.infra_cluster();
    ours["metadata"]["annotations"] = json!({format!("{CORE}/managed-by"): "terraform"});
    yard.apply(ours).await.unwrap();
    yard.apply(yard.core_cluster()).await.unwrap();
    yard.template("macos", json!({})).await.unwrap();
    yard.deployment("macos", "macos", 1).await.unwrap();
    yard.mac_until("the reason", |mac| {
        reason(mac, "Provisioned").as_deref() == Some("WaitingForCluster")
    })
    .await
    .unwrap();
    yard.all_pooled(1).await.unwrap();
    let ours_again = Patch::Merge(json!({"metadata": {"annotations": {format!("{CORE}/managed-by"): null}}}));
    yard.infra_clusters()
        .patch("fleet", &PatchParams::default(), &ours_again)
        .await
        .unwrap();
    yard.available("macos", 1).await.unwrap();
}

#[tokio::test]
async fn rule_m10_a_machine_is_deleted_although_its_cluster_is_not_ready_any_more() {
    let yard = yard("m10-delete", 1).await;
    yard.running(1).await.unwrap();
    let nothing = json!({"status": {"initialization": {"provisioned": false}, "ready": false}});
    let mac = yard.only_mac().await.unwrap();
    assert!(
        mac.finalizers()
            .iter()
            .any(|name| name.contains("scalewayapplesilicon"))
    );
    yard.infra_clusters()
        .patch_status("fleet", &PatchParams::default(), &Patch::Merge(nothing))
        .await
        .unwrap();
    yard.scale("macos", 0).await.unwrap();
    yard.available("macos", 0).await.unwrap();
    yard.all_pooled(1).await.unwrap();
    let left: Vec<Value> = yard.all_macs().await.unwrap().iter().map(|mac| json!(mac)).collect();
    assert!(left.is_empty(), "{left:?}");
}
