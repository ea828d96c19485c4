//! The machines of the cluster: MachineDeployments, Macs, and what the account of this machine's emulated Scaleway costs.

use super::document::{Account, Fleet, Group, Mac};
use super::{hosts, servers};
use crate::host;
use jiff::Timestamp;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Client, ResourceExt};
use russet_api::ScalewayAppleSiliconMachine;
use russet_api::conditions::{Condition, ConditionStatus};
use russet_api::machine::Phase;
use serde::Deserialize;
use std::collections::HashMap;
use std::time::Duration;

/// The emulator is on this machine; a sick one must not hold up the rest of the picture.
const PATIENCE: Duration = Duration::from_secs(2);

/// As the bill counts them.
const HOURS_OF_A_MONTH: u64 = 730;

/// How names of free hosts begin in an account that `up` made.
pub(crate) const POOL: &str = "tuist-pool-";

/// The fleet; none where its kinds are not served or may not be read.
pub(crate) async fn ask(client: &Client) -> Option<Fleet> {
    let machines: Api<ScalewayAppleSiliconMachine> = Api::all(client.clone());
    let kind = GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "MachineDeployment");
    let deployments: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let everything = ListParams::default();
    let (machines, deployments, servers, mut hosted) = tokio::join!(
        machines.list(&everything),
        deployments.list(&everything),
        Box::pin(servers::ask(client)),
        hosts::ask(client)
    );
    let mut macs: Vec<Mac> = machines
        .ok()?
        .items
        .iter()
        .map(|machine| Mac {
            hosting: hosted.remove(&machine.name_any()),
            ..mac(machine)
        })
        .collect();
    macs.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    let mut groups: Vec<Group> = deployments
        .map(|list| list.items.iter().map(group).collect())
        .unwrap_or_default();
    groups.sort_by(|a, b| a.name.cmp(&b.name));
    Some(Fleet { groups, macs, servers })
}

fn group(deployment: &DynamicObject) -> Group {
    let number = |pointer: &str| {
        let value = deployment.data.pointer(pointer).and_then(serde_json::Value::as_u64);
        value.and_then(|value| u32::try_from(value).ok()).unwrap_or(0)
    };
    let template = deployment.data.pointer("/spec/template/spec/infrastructureRef/kind");
    Group {
        name: deployment.name_any(),
        namespace: deployment.namespace().unwrap_or_default(),
        kind: servers::kind_of(template.and_then(serde_json::Value::as_str).unwrap_or_default()),
        wanted: number("/spec/replicas"),
        ready: number("/status/readyReplicas"),
        available: number("/status/availableReplicas"),
    }
}

fn mac(machine: &ScalewayAppleSiliconMachine) -> Mac {
    let status = machine.status.as_ref();
    let conditions = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
    Mac {
        name: machine.name_any(),
        namespace: machine.namespace().unwrap_or_default(),
        fleet: machine.spec.fleet_name.clone(),
        phase: status
            .and_then(|status| status.phase.as_ref())
            .map_or_else(|| "Pending".to_owned(), ToString::to_string),
        server_id: status.and_then(|status| status.server_id.clone()),
        address: status
            .and_then(|status| status.addresses.first())
            .map(|address| address.address.clone()),
        ready: status.and_then(|status| status.ready).unwrap_or(false),
        message: status
            .filter(|status| status.phase == Some(Phase::Bootstrapping))
            .and_then(|status| host::progress(&status.steps))
            .or_else(|| trouble(conditions)),
        created_at: machine
            .creation_timestamp()
            .and_then(|time| Timestamp::from_second(time.0.as_second()).ok()),
        hosting: None,
    }
}

/// What keeps a machine from being ready, in its own words: the summary repeats the others, so it comes last.
pub(super) fn trouble(conditions: &[Condition]) -> Option<String> {
    let failing = |condition: &&Condition| condition.status == ConditionStatus::False;
    let own = conditions
        .iter()
        .filter(failing)
        .find(|condition| condition.type_ != "Ready");
    own.or_else(|| conditions.iter().find(failing))
        .and_then(|condition| condition.message.clone())
}

/// The parts of the emulator's answers that are shown.
#[derive(Debug, Deserialize)]
struct Bill {
    per_hour_micro_eur: u64,
    total_micro_eur: u64,
    lines: Vec<Line>,
}

/// Something that was paid for, perhaps still is.
#[derive(Debug, Deserialize)]
struct Line {
    resource_id: String,
    running: bool,
    stretches: Vec<Stretch>,
}

#[derive(Debug, Deserialize)]
struct Stretch {
    plan: Plan,
    price: u64,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Plan {
    Hourly,
    Monthly,
}

impl Line {
    fn per_hour(&self) -> Option<u64> {
        let stretch = self.stretches.last().filter(|_| self.running)?;
        Some(match stretch.plan {
            Plan::Hourly => stretch.price,
            Plan::Monthly => stretch.price / HOURS_OF_A_MONTH,
        })
    }
}

#[derive(Debug, Deserialize)]
struct Server {
    name: String,
    status: String,
}

/// The emulated account at this address and what an hour of each thing costs; none if it does not answer.
pub(super) async fn account(url: &str) -> Option<(Account, HashMap<String, u64>)> {
    let client = reqwest::Client::builder().timeout(PATIENCE).no_proxy().build().ok()?;
    let bill = async { read::<Bill>(&client, &format!("{url}/_sim/bill")).await };
    let servers = async { read::<Vec<Server>>(&client, &format!("{url}/_sim/servers")).await };
    let (bill, servers) = tokio::join!(bill, servers);
    let (bill, servers) = (bill?, servers?);
    let free = |server: &&Server| server.name.starts_with(POOL);
    let lines = bill.lines.iter();
    let prices = lines.filter_map(|line| Some((line.resource_id.clone(), line.per_hour()?)));
    let account = Account {
        url: url.to_owned(),
        emulated: true,
        servers: servers.len(),
        pooled: servers.iter().filter(free).count(),
        pooled_ready: servers
            .iter()
            .filter(free)
            .filter(|server| server.status == "ready")
            .count(),
        per_hour_micro_eur: bill.per_hour_micro_eur,
        total_micro_eur: bill.total_micro_eur,
    };
    Some((account, prices.collect()))
}

async fn read<T: serde::de::DeserializeOwned>(client: &reqwest::Client, url: &str) -> Option<T> {
    client
        .get(url)
        .send()
        .await
        .ok()?
        .error_for_status()
        .ok()?
        .json()
        .await
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_machine_says_in_its_own_words_what_it_waits_for() {
        let machine: ScalewayAppleSiliconMachine = serde_json::from_value(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "ScalewayAppleSiliconMachine",
            "metadata": {"name": "mac-1", "namespace": "fleet"},
            "spec": {"fleetName": "runners"},
            "status": {"phase": "Pending", "conditions": [
                {"type": "Ready", "status": "False", "reason": "NotProvisioned", "message": "see Provisioned", "lastTransitionTime": "2026-03-01T10:00:00Z"},
                {"type": "Provisioned", "status": "False", "reason": "NoAvailableHost", "message": "no M2-L is free", "lastTransitionTime": "2026-03-01T10:00:00Z"},
            ]},
        }))
        .unwrap();
        let mac = mac(&machine);
        assert_eq!(mac.message.as_deref(), Some("no M2-L is free"));
        let shown = (mac.phase.as_str(), mac.fleet.as_deref(), mac.ready);
        assert_eq!(shown, ("Pending", Some("runners"), false));
    }

    #[test]
    fn only_what_still_costs_has_a_price() {
        let bill: Bill = serde_json::from_value(json!({
            "per_hour_micro_eur": 1, "total_micro_eur": 2, "lines": [
                {"resource_id": "a", "running": true, "stretches": [
                    {"plan": "monthly", "price": 73_000, "from": "…", "until": "…"}, {"plan": "hourly", "price": 5, "minimum_hours": 1},
                ]},
                {"resource_id": "b", "running": true, "stretches": [{"plan": "monthly", "price": 73_000}]},
                {"resource_id": "c", "running": false, "stretches": [{"plan": "hourly", "price": 5}]},
            ],
        }))
        .unwrap();
        let prices: Vec<Option<u64>> = bill.lines.iter().map(Line::per_hour).collect();
        assert_eq!(prices, [Some(5), Some(100), None]);
    }

    #[test]
    fn a_deployment_is_counted_by_what_core_says() {
        let deployment: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
            "metadata": {"name": "runners", "namespace": "fleet"},
            "spec": {"replicas": 3}, "status": {"readyReplicas": 2, "availableReplicas": 1},
        }))
        .unwrap();
        let group = group(&deployment);
        assert_eq!((group.wanted, group.ready, group.available), (3, 2, 1));
    }
}
