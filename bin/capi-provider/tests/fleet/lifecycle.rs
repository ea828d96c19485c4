//! Machines from adoption to the pool, as an operator sees them.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use russet_stages::macs::{CORE, Fleet, Yard, condition, is_true};
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::{Value, json};
use std::collections::BTreeSet;

async fn yard(name: &str, minis: u32) -> Yard<'static> {
    Fleet::shared().await.unwrap().yard(name, minis).await.unwrap()
}

async fn hosts(yard: &Yard<'_>) -> BTreeSet<String> {
    let macs = yard.all_macs().await.unwrap();
    macs.iter()
        .filter_map(|mac| mac.status.as_ref()?.server_id.clone())
        .collect()
}

#[tokio::test]
async fn a_fleet_grows_and_shrinks_and_every_mini_returns_to_the_pool() {
    let yard = yard("scale", 3).await;
    yard.running(1).await.unwrap();
    yard.scale("macos", 3).await.unwrap();
    yard.available("macos", 3).await.unwrap();
    assert_eq!(hosts(&yard).await.len(), 3, "no two machines share a host");
    let nodes: BTreeSet<String> = yard
        .machines_of("macos")
        .await
        .unwrap()
        .iter()
        .filter_map(|machine| machine.data["status"]["nodeRef"]["name"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(nodes.len(), 3);

    yard.scale("macos", 0).await.unwrap();
    yard.available("macos", 0).await.unwrap();
    yard.all_pooled(3).await.unwrap();
    for node in nodes {
        assert!(
            yard.nodes().get_opt(&node).await.unwrap().is_none(),
            "Node {node} is still there"
        );
    }
}

#[tokio::test]
async fn a_host_is_wiped_before_it_is_pooled_again() {
    let yard = yard("wipe", 1).await;
    yard.running(1).await.unwrap();
    let server = hosts(&yard).await.into_iter().next().unwrap();
    yard.scale("macos", 0).await.unwrap();
    yard.available("macos", 0).await.unwrap();
    yard.all_pooled(1).await.unwrap();
    let entries = yard.fleet.sim.handle().journal();
    let of_host: Vec<String> = entries
        .iter()
        .filter(|entry| entry.path.contains(&server) && entry.method != "GET")
        .map(|entry| format!("{} {}", entry.method, entry.path.rsplit('/').next().unwrap_or_default()))
        .collect();
    let wipe = of_host.iter().position(|call| call == "POST reinstall").unwrap();
    let last_rename = of_host.iter().rposition(|call| call.starts_with("PATCH")).unwrap();
    assert!(wipe < last_rename, "{of_host:?}");
    assert_eq!(
        of_host.iter().filter(|call| *call == "POST reinstall").count(),
        1,
        "{of_host:?}"
    );
}

#[tokio::test]
async fn a_deleted_machine_is_drained_first_and_its_node_goes_with_it() {
    let yard = yard("drain", 2).await;
    yard.running(1).await.unwrap();
    let machine = yard.machines_of("macos").await.unwrap().remove(0);
    let node = machine.data["status"]["nodeRef"]["name"].as_str().unwrap().to_owned();
    let pods: Api<Pod> = Api::namespaced(yard.client.clone(), &yard.namespace);
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "job"},
        "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "containers": [{"name": "job", "image": "job"}],
        },
    }))
    .unwrap();
    wait::until("the Pod to be admitted", PATIENCE, || async {
        pods.create(&PostParams::default(), &pod).await?;
        Ok(Look::Done(()))
    })
    .await
    .unwrap();
    yard.machines()
        .delete(&machine.name_any(), &DeleteParams::default())
        .await
        .unwrap();
    wait::until("the Pod to be evicted", PATIENCE, || async {
        Ok(if pods.get_opt("job").await?.is_none() {
            Look::Done(())
        } else {
            Look::not_yet("it is there")
        })
    })
    .await
    .unwrap();
    wait::until("the old Machine to be gone", PATIENCE, || async {
        let old = yard.machines().get_opt(&machine.name_any()).await?;
        Ok(match old {
            None => Look::Done(()),
            Some(old) => Look::not_yet(condition(&old, "Deleting").cloned()),
        })
    })
    .await
    .unwrap();
    assert!(yard.nodes().get_opt(&node).await.unwrap().is_none());
    yard.available("macos", 1).await.unwrap();
}

#[tokio::test]
async fn a_new_template_takes_effect_machine_by_machine_as_they_are_deleted() {
    let yard = yard("rollout", 2).await;
    yard.running(1).await.unwrap();
    let old = yard.only_mac().await.unwrap();
    yard.template("macos-2", json!({"hostCPU": 4})).await.unwrap();
    yard.deployment("macos", "macos-2", 1).await.unwrap();
    wait::until("the old Machine to be outdated", PATIENCE, || async {
        let machine = yard.machines().get(&old.name_any()).await?;
        let up_to_date = condition(&machine, "UpToDate").map(|c| c["status"].clone());
        Ok(if up_to_date == Some(json!("False")) {
            Look::Done(())
        } else {
            Look::not_yet(up_to_date)
        })
    })
    .await
    .unwrap();
    assert_eq!(
        yard.only_mac().await.unwrap().name_any(),
        old.name_any(),
        "nothing is replaced by itself"
    );
    yard.machines()
        .delete(&old.name_any(), &DeleteParams::default())
        .await
        .unwrap();
    let new = yard
        .mac_until("a machine of the new template", |mac| mac.spec.host_cpu == Some(4))
        .await
        .unwrap();
    assert_ne!(new.name_any(), old.name_any());
    yard.available("macos", 1).await.unwrap();
}

#[tokio::test]
async fn a_sick_node_is_replaced_by_the_health_check() {
    let yard = yard("remediate", 2).await;
    yard.running(1).await.unwrap();
    let old = yard.only_mac().await.unwrap();
    yard.apply(json!({
        "apiVersion": format!("{CORE}/v1beta2"), "kind": "MachineHealthCheck", "metadata": {"name": "macos"},
        "spec": {
            "clusterName": "fleet", "selector": {"matchLabels": {"fleet": "macos"}},
            "checks": {"unhealthyNodeConditions": [
                {"type": "Ready", "status": "Unknown", "timeoutSeconds": 1},
                {"type": "DiskPressure", "status": "True", "timeoutSeconds": 1},
            ]},
        },
    }))
    .await
    .unwrap();
    let server = old.status.as_ref().unwrap().server_id.clone().unwrap();
    assert!(yard.fleet.macs.cut_power(&server.parse().unwrap()).await);
    // Faster than waiting for the Lease to run out: what the node controller would write.
    let sick = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    yard.nodes()
        .patch_status(&old.name_any(), &PatchParams::default(), &Patch::Strategic(sick))
        .await
        .unwrap();
    yard.mac_until("another machine", |mac| mac.name_any() != old.name_any())
        .await
        .unwrap();
    yard.available("macos", 1).await.unwrap();
    yard.all_pooled(1).await.unwrap();
}

#[tokio::test]
async fn a_paused_cluster_stops_deletion_too_and_goes_on_afterwards() {
    let yard = yard("pause", 1).await;
    yard.running(1).await.unwrap();
    let pause = |paused: bool| Patch::Merge(json!({"spec": {"paused": paused}}));
    yard.clusters()
        .patch("fleet", &PatchParams::default(), &pause(true))
        .await
        .unwrap();
    yard.mac_until("condition Paused", |mac| {
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
    let name = yard.only_mac().await.unwrap().name_any();
    yard.macs().delete(&name, &DeleteParams::default()).await.unwrap();
    let before = hosts(&yard).await;
    assert_eq!(before.len(), 1, "it keeps its host while paused");
    yard.clusters()
        .patch("fleet", &PatchParams::default(), &pause(false))
        .await
        .unwrap();
    wait::until("the machine to be gone", PATIENCE, || async {
        let left = yard.macs().get_opt(&name).await?;
        Ok(if left.is_none() {
            Look::Done(())
        } else {
            Look::not_yet(json!(left))
        })
    })
    .await
    .unwrap();
    yard.all_pooled(1).await.unwrap();
}

#[tokio::test]
async fn deleting_the_cluster_gives_every_host_back() {
    let yard = yard("teardown", 2).await;
    yard.running(2).await.unwrap();
    yard.clusters().delete("fleet", &DeleteParams::default()).await.unwrap();
    wait::until("the Cluster to be gone", PATIENCE, || async {
        let left = yard.clusters().get_opt("fleet").await?;
        Ok(if left.is_none() {
            Look::Done(())
        } else {
            Look::not_yet(left.map(|c| c.data["status"].clone()))
        })
    })
    .await
    .unwrap();
    assert_eq!(yard.all_macs().await.unwrap().len(), 0);
    yard.all_pooled(2).await.unwrap();
}

#[tokio::test]
async fn labels_of_the_machine_reach_its_node_and_the_fleet_label_is_there() {
    let yard = yard("labels", 1).await;
    yard.running(1).await.unwrap();
    let name = yard.only_mac().await.unwrap().name_any();
    let node = wait::until("the labels", PATIENCE, || async {
        let node = yard.nodes().get(&name).await?;
        let synced = node.labels().contains_key("node.cluster.x-k8s.io/pool");
        Ok(if synced {
            Look::Done(node)
        } else {
            Look::not_yet(node.labels())
        })
    })
    .await
    .unwrap();
    assert_eq!(node.labels().get("tuist.dev/fleet").map(String::as_str), Some("macos"));
    assert_eq!(node.labels().get("tuist.dev/runtime").map(String::as_str), Some("tart"));
    let taints = node.spec.unwrap().taints.unwrap_or_default();
    assert!(taints.iter().any(|taint| taint.key == "tuist.dev/macos"));
    assert!(
        !taints
            .iter()
            .any(|taint| taint.key == "node.cluster.x-k8s.io/uninitialized")
    );
}

#[tokio::test]
async fn a_fleet_at_rest_writes_nothing_and_asks_scaleway_only_for_the_shared_list() {
    // A fleet of its own: the neighbours in the shared one never rest.
    let fleet = Fleet::start(&[]).await.unwrap();
    let yard = fleet.yard("rest", 3).await.unwrap();
    yard.running(3).await.unwrap();
    let settled = wait::until("all conditions to have settled", PATIENCE, || async {
        let before = versions(&yard).await;
        let polls = lists(&fleet);
        wait::until_true("two more polls", PATIENCE, || async { Ok(lists(&fleet) >= polls + 2) }).await?;
        let after = versions(&yard).await;
        Ok(if before == after {
            Look::Done(after)
        } else {
            Look::not_yet((before, after))
        })
    })
    .await
    .unwrap();
    let journal = fleet.sim.handle().journal().len();
    let polls = lists(&fleet);
    wait::until_true("two more polls", PATIENCE, || async { Ok(lists(&fleet) >= polls + 2) })
        .await
        .unwrap();
    assert_eq!(versions(&yard).await, settled);
    let since = fleet.sim.handle().journal().split_off(journal);
    let others: Vec<_> = since
        .iter()
        .filter(|entry| {
            !(entry.method == "GET" && (entry.path.ends_with("/servers") || entry.path.ends_with("/server-types")))
        })
        .map(|entry| format!("{} {}", entry.method, entry.path))
        .collect();
    assert!(others.is_empty(), "{others:?}");
}

async fn versions(yard: &Yard<'_>) -> Vec<Option<String>> {
    let macs = yard.all_macs().await.unwrap();
    macs.into_iter().map(|mac| mac.metadata.resource_version).collect()
}

fn lists(fleet: &Fleet) -> usize {
    let journal = fleet.sim.handle().journal();
    journal
        .iter()
        .filter(|entry| entry.method == "GET" && entry.path.ends_with("/servers"))
        .count()
}

#[tokio::test]
async fn the_bill_is_what_is_owned() {
    let yard = yard("bill", 2).await;
    yard.running(1).await.unwrap();
    let before: Value = json!(yard.fleet.sim.handle().bill().running().count());
    yard.scale("macos", 0).await.unwrap();
    yard.available("macos", 0).await.unwrap();
    yard.all_pooled(2).await.unwrap();
    let orders = yard.fleet.sim.handle().journal();
    let paid: Vec<_> = orders
        .iter()
        .filter(|entry| entry.method == "POST" && entry.path.ends_with("/servers"))
        .collect();
    assert!(paid.is_empty(), "the provider never orders: {paid:?}");
    assert!(before.as_u64().unwrap() >= 2);
    let list = yard.machines().list(&ListParams::default()).await.unwrap();
    assert!(list.items.iter().all(|machine| !is_true(machine, "Deleting")));
}
