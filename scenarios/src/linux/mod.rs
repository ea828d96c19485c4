//! The incidents of Linux cache nodes, and what their stories share: Instances by the provider, Nodes on paper.

pub(super) mod csi_toleration;
pub(super) mod dash_is_not_bash;
pub(super) mod delete_stopped;
pub(super) mod half_made;
pub(super) mod hostname_address;
pub(super) mod kubelet_rbac;
pub(super) mod no_public_ip;
pub(super) mod pn_ipv4;
pub(super) mod provisioner_rbac;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use russet_api::ScalewayInstanceMachine;
use russet_sim_scaleway::DEFAULT_PROJECT;
use russet_stages::macs::{Fleet, INFRA, Yard};
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::{Value, json};
use std::time::Duration;

use super::raw::Raw;

/// What these stories order.
const TYPE: &str = "PRO2-S";
const ZONE: &str = "fr-par-1";
const INSTANCES: &str = "/instance/v1/zones/fr-par-1/servers";
const IPAM: &str = "/ipam/v1/regions/fr-par/ips";
/// The network between caches and runners.
const NETWORK: &str = "tuist-runner-cache";
/// The MachineDeployment of these stories.
const CACHE: &str = "cache";

/// An answer that was lost is waited for until it can no longer arrive.
const LONG: Duration = PATIENCE.saturating_mul(4);

/// Calls by hand, for what is in the account besides the provider's.
struct Hand {
    raw: Raw,
    url: String,
}

impl Hand {
    fn of(fleet: &Fleet) -> Self {
        Self {
            raw: Raw::default(),
            url: fleet.sim.url().to_owned(),
        }
    }

    async fn call(&self, method: &str, path: &str, body: Value) -> Result<Value> {
        self.raw.call(method, &format!("{}{path}", self.url), body).await
    }

    async fn get(&self, path: &str) -> Result<Value> {
        self.call("GET", path, Value::Null).await
    }

    /// An Instance; its id.
    async fn order(&self, name: &str) -> Result<String> {
        let label = format!("/marketplace/v2/local-images?image_label=ubuntu_noble&zone={ZONE}&type=instance_sbs");
        let images = self.get(&label).await?;
        let listed = images.get("local_images").and_then(Value::as_array);
        // There is one for each processor.
        let fits = |image: &&Value| {
            let types = image.get("compatible_commercial_types").and_then(Value::as_array);
            types.is_some_and(|types| types.contains(&json!(TYPE)))
        };
        let image = listed.and_then(|images| images.iter().find(fits));
        let order = json!({
            "name": name, "project": DEFAULT_PROJECT, "commercial_type": TYPE,
            "image": at(image.context("no image fits")?, "/id")?,
            "volumes": {"0": {"volume_type": "sbs_volume", "size": 50_000_000_000_u64}},
        });
        let made = self.call("POST", INSTANCES, order).await?;
        Ok(at(&made, "/server/id")?.to_owned())
    }

    /// A Private Network; its id.
    async fn network(&self, name: &str) -> Result<String> {
        let body = json!({"name": name, "project_id": DEFAULT_PROJECT});
        let made = self
            .call("POST", "/vpc/v2/regions/fr-par/private-networks", body)
            .await?;
        Ok(at(&made, "/id")?.to_owned())
    }
}

/// A text in an answer.
fn at<'v>(value: &'v Value, pointer: &str) -> Result<&'v str> {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.with_context(|| format!("no {pointer} in {value}"))
}

/// A fleet of Instances by our provider; nobody waits for it here.
async fn instances(yard: &Yard<'_>) -> Result<()> {
    const KIND: &str = "ScalewayInstanceMachineTemplate";
    yard.cluster().await?;
    yard.apply(json!({
        "apiVersion": format!("{INFRA}/v1alpha1"), "kind": KIND, "metadata": {"name": CACHE},
        "spec": {"template": {"spec": {
            "zone": ZONE, "fleetName": CACHE, "commercialType": TYPE, "image": "ubuntu_noble",
            "privateNetworkName": NETWORK, "privateNetworkCIDR": "172.16.0.0/22",
        }}},
    }))
    .await?;
    let mut deployment = yard.deployment_of(CACHE, CACHE, 1);
    let kind = deployment.pointer_mut("/spec/template/spec/infrastructureRef/kind");
    *kind.context("a MachineDeployment without a reference")? = json!(KIND);
    yard.apply(deployment).await?;
    Ok(())
}

fn machines(yard: &Yard<'_>) -> Api<ScalewayInstanceMachine> {
    Api::namespaced(yard.client.clone(), &yard.namespace)
}

/// Waits until the only machine of a yard is as wanted.
async fn until(
    yard: &Yard<'_>,
    what: &str,
    holds: impl Fn(&ScalewayInstanceMachine) -> bool,
) -> Result<ScalewayInstanceMachine> {
    wait::until(what, LONG, || async {
        let all = machines(yard).list(&ListParams::default()).await?.items;
        let found = all.into_iter().next().context("there is no machine yet")?;
        Ok(if holds(&found) {
            Look::Done(found)
        } else {
            Look::NotYet(json!(found.status).to_string())
        })
    })
    .await
}

/// Whether a machine's server is set up as far as its API goes.
fn is_linked(machine: &ScalewayInstanceMachine) -> bool {
    machine.spec.provider_id.as_deref().is_some_and(|id| !id.is_empty())
}

/// Servers that are tagged for a machine.
fn servers_of(fleet: &Fleet, machine: &ScalewayInstanceMachine) -> Vec<Value> {
    let tag = format!("machine-uid={}", machine.uid().unwrap_or_default());
    let all = fleet.sim.handle().instances();
    let tagged = |server: &Value| {
        let tags = server.get("tags").and_then(Value::as_array);
        tags.is_some_and(|tags| tags.iter().any(|known| known == &json!(tag)))
    };
    all.into_iter().filter(tagged).collect()
}

/// Deletes what a yard has, and sees to it that only what was there before is left in the account.
async fn gone(yard: &Yard<'_>, volumes_before: usize) -> Result<()> {
    yard.scale(CACHE, 0).await?;
    wait::until("the machine to be gone", LONG, || async {
        let left = machines(yard).list(&ListParams::default()).await?.items;
        Ok(match left.first() {
            None => Look::Done(()),
            Some(left) => Look::NotYet(json!(left.status).to_string()),
        })
    })
    .await?;
    let handle = yard.fleet.sim.handle();
    wait::until("its volumes to be gone", PATIENCE, || async {
        let volumes = handle.volumes();
        Ok(if volumes.len() == volumes_before {
            Look::Done(())
        } else {
            Look::not_yet(volumes)
        })
    })
    .await
}

/// A Node as a kubelet registers and reports it, for servers that exist on paper only.
async fn paper_node(client: &Client, name: &str, spec: Value, addresses: Value, port: u16) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node: Node = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
    nodes.create(&PostParams::default(), &node).await?;
    let now = jiff::Timestamp::now().to_string();
    let status = json!({"status": {
        "addresses": addresses,
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "Paper", "message": "",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        }],
    }});
    nodes
        .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
        .await?;
    Ok(())
}

/// A request that must be refused for want of rights; why.
fn refused<T: std::fmt::Debug>(answer: Result<T, kube::Error>) -> Result<String> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(status.message),
        other => {
            ensure!(other.is_err(), "it was allowed: {other:?}");
            anyhow::bail!("refused for another reason: {other:?}")
        }
    }
}
