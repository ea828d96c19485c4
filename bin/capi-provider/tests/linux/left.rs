//! Everything that a node leaves somewhere while it lives: in the account, which is paid for, and in the cluster.

use anyhow::{Context, Result};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Secret};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use russet_sim_scaleway::DEFAULT_SECRET_KEY;
use russet_stages::linux::{PRIVATE_NETWORK, Site};
use russet_stages::macs::{INFRA, Yard};
use serde_json::Value;

/// What there is, each with its kind in front: `server …`, `token …`.
pub(crate) async fn traces(site: &Site, yard: &Yard<'_>, machines: &[String]) -> Result<Vec<String>> {
    let mut all = account(site).await?;
    all.extend(cluster(yard, machines).await?);
    all.sort();
    Ok(all)
}

/// The kinds of what there is.
pub(crate) fn kinds(traces: &[String]) -> Vec<&str> {
    let mut kinds: Vec<&str> = traces.iter().filter_map(|trace| trace.split(' ').next()).collect();
    kinds.dedup();
    kinds
}

async fn account(site: &Site) -> Result<Vec<String>> {
    let handle = site.fleet.sim.handle();
    let mut all = Vec::new();
    let mut note = |kind: &str, rows: Vec<Value>| all.extend(rows.iter().map(|row| format!("{kind} {row}")));
    note("instance", handle.instances());
    note("metal", handle.metals());
    note("volume", handle.volumes());
    note("address", handle.addresses());
    let boxes = handle.boxes().into_iter().map(|row| Value::from(row.name));
    note("machine", boxes.collect());
    let bill = handle.bill();
    note(
        "bill",
        bill.running().map(|line| Value::from(format!("{line:?}"))).collect(),
    );

    let networks = get(site, "/vpc/v2/regions/fr-par/private-networks", "private_networks").await?;
    let network = networks.iter().find(|network| network["name"] == PRIVATE_NETWORK);
    if let Some(network) = network {
        let id = network["id"].as_str().context("a network without an id")?;
        let rows = format!("/ipam/v1/regions/fr-par/ips?private_network_id={id}");
        note("ipam", get(site, &rows, "ips").await?);
    }
    let attached = "/baremetal/v3/zones/fr-par-1/server-private-networks";
    note("attachment", get(site, attached, "server_private_networks").await?);
    Ok(all)
}

/// The rows of a list of the emulated Scaleway.
async fn get(site: &Site, path: &str, rows: &str) -> Result<Vec<Value>> {
    let request = reqwest::Client::new()
        .get(format!("{}{path}", site.fleet.sim.url()))
        .header("X-Auth-Token", DEFAULT_SECRET_KEY);
    let answer: Value = request.send().await?.error_for_status()?.json().await?;
    let listed = answer.get(rows).and_then(Value::as_array).cloned();
    listed.with_context(|| format!("no {rows} in {answer}"))
}

async fn cluster(yard: &Yard<'_>, machines: &[String]) -> Result<Vec<String>> {
    let everything = ListParams::default();
    let mut all = Vec::new();
    for machine in yard.machines().list(&everything).await?.items {
        all.push(format!("Machine {}", machine.name_any()));
    }
    for kind in ["ScalewayElasticMetalMachine", "ScalewayInstanceMachine"] {
        for machine in yard.api(INFRA, "v1alpha1", kind).list(&everything).await?.items {
            all.push(format!("{kind} {}", machine.name_any()));
        }
    }
    for node in Api::<Node>::all(yard.client.clone()).list(&everything).await?.items {
        all.push(format!("Node {}", node.name_any()));
    }
    let volumes: Api<PersistentVolume> = Api::all(yard.client.clone());
    for volume in volumes.list(&everything).await?.items {
        all.push(format!("PersistentVolume {}", volume.name_any()));
    }
    let claims: Api<PersistentVolumeClaim> = Api::all(yard.client.clone());
    for claim in claims.list(&everything).await?.items {
        all.push(format!("PersistentVolumeClaim {}", claim.name_any()));
    }
    let secrets: Api<Secret> = Api::namespaced(yard.client.clone(), &yard.namespace);
    for secret in secrets.list(&everything).await?.items {
        let name = secret.name_any();
        if machines.iter().any(|machine| name.starts_with(machine.as_str())) {
            all.push(format!("secret {name}"));
        }
    }
    let system: Api<Secret> = Api::namespaced(yard.client.clone(), "kube-system");
    let tokens = ListParams::default().fields("type=bootstrap.kubernetes.io/token");
    for token in system.list(&tokens).await?.items {
        all.push(format!("token {}", token.name_any()));
    }
    let leases: Api<Lease> = Api::namespaced(yard.client.clone(), &yard.namespace);
    let claims = ListParams::default().labels("app.kubernetes.io/component=linux-claim");
    for claim in leases.list(&claims).await?.items {
        all.push(format!("claim {}", claim.name_any()));
    }
    Ok(all)
}
