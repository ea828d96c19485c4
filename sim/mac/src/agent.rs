//! The agent on a machine: registers the Node and keeps it alive.
//!
//! ```text
//!   certificate ──▶ Node ──▶ Lease every 10 s ──404──▶ Node again (somebody deleted it)
//!                              └── status every 5 min
//! ```

use crate::error::AgentError;
use crate::identity;
use crate::join::Join;
use crate::machine::{Machine, Phase};
use crate::node::{self, Facts};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior};

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A token or a binding may be newer than what the API server has read; one that is refused this often is worthless.
const REFUSALS: u32 = 6;

/// Carries out the orders on the disk until the power is cut or other orders come.
pub(crate) async fn run(machine: &Machine, booted: Timestamp) {
    let Some(join) = machine.disk().join.clone() else {
        return;
    };
    if machine.is_spoiled() {
        machine.tell(Phase::Failed, "the machine was told to fail this join");
        return;
    }
    let (mut pause, mut refusals) = (FIRST_PAUSE, 0);
    loop {
        let error = match attempt(machine, &join, booted).await {
            Ok(never) => match never {},
            Err(error) => error,
        };
        refusals = if error.is_refusal() { refusals + 1 } else { 0 };
        if error.is_final() || refusals >= REFUSALS {
            tracing::warn!(node = join.node_name, %error, "gave up");
            machine.tell(Phase::Failed, error.to_string());
            return;
        }
        tracing::debug!(node = join.node_name, %error, "will try again");
        machine.tell(Phase::Joining, format!("{error}; trying again"));
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn attempt(machine: &Machine, join: &Join, booted: Timestamp) -> Result<Infallible, AgentError> {
    let client = identity::obtain(machine, join).await?;
    let agent = Agent {
        machine,
        facts: Facts {
            host: &machine.host,
            join,
            kubelet_version: &machine.settings.kubelet_version,
            capacity: machine.settings.capacity,
            booted,
        },
        nodes: Api::all(client.clone()),
        leases: Api::namespaced(client, node::LEASES),
    };
    agent.register().await?;
    tracing::info!(node = join.node_name, "joined");
    machine.tell(Phase::Joined, format!("joined as {}", join.node_name));
    agent.stay().await
}

struct Agent<'a> {
    machine: &'a Machine,
    facts: Facts<'a>,
    nodes: Api<Node>,
    leases: Api<Lease>,
}

impl Agent<'_> {
    /// Makes the Node what it should be, and a Lease for it.
    async fn register(&self) -> Result<(), AgentError> {
        let node = match self.nodes.create(&PostParams::default(), &self.wanted()?).await {
            Ok(node) => node,
            Err(kube::Error::Api(status)) if status.is_already_exists() => self.correct().await?,
            Err(error) => return Err(AgentError::api("create the Node")(error)),
        };
        self.machine.disk().labels = self.labels();
        self.machine.save();
        let lease = node::lease(&node, Timestamp::now()).map_err(|error| unfit(&error))?;
        match self.leases.create(&PostParams::default(), &lease).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let owner = json!({"metadata": {"ownerReferences": lease.metadata.owner_references}});
                let mut patch = node::renewal(Timestamp::now());
                merge(&mut patch, owner);
                self.leases
                    .patch(
                        &self.facts.join.node_name,
                        &PatchParams::default(),
                        &Patch::Merge(patch),
                    )
                    .await
                    .map_err(AgentError::api("renew the Lease"))?;
                Ok(())
            }
            Err(error) => Err(AgentError::api("create the Lease")(error)),
        }
    }

    fn wanted(&self) -> Result<Node, AgentError> {
        serde_json::from_value(node::node(self.facts, Timestamp::now())).map_err(|error| unfit(&error))
    }

    fn labels(&self) -> BTreeSet<String> {
        node::labels(self.facts.join).into_keys().collect()
    }

    /// Brings a Node up to date that was there already. Its taints are left alone: NodeRestriction forbids them now, and
    /// Cluster API may have taken one away.
    async fn correct(&self) -> Result<Node, AgentError> {
        let name = &self.facts.join.node_name;
        let found = self.nodes.get(name).await.map_err(AgentError::api("read the Node"))?;
        let found_id = found.spec.and_then(|spec| spec.provider_id).unwrap_or_default();
        let ours = &self.facts.join.provider_id;
        if !found_id.is_empty() && found_id != *ours {
            return Err(AgentError::ForeignNode {
                name: name.clone(),
                found: found_id,
                ours: ours.clone(),
            });
        }
        let mut labels: Map<String, Value> = node::labels(self.facts.join)
            .into_iter()
            .map(|(key, value)| (key, value.into()))
            .collect();
        // Only what this agent put there is its own to take away; core and administrators label Nodes, too.
        for stale in self.machine.disk().labels.difference(&self.labels()) {
            labels.insert(stale.clone(), Value::Null);
        }
        let mut patch = json!({"metadata": {"labels": labels}});
        if found_id.is_empty() {
            merge(&mut patch, json!({"spec": {"providerID": ours}}));
        }
        self.nodes
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map_err(AgentError::api("correct the Node"))?;
        self.report().await
    }

    async fn report(&self) -> Result<Node, AgentError> {
        let status = json!({"status": node::status(self.facts, Timestamp::now())});
        let (name, params) = (&self.facts.join.node_name, PatchParams::default());
        self.nodes
            .patch_status(name, &params, &Patch::Strategic(status))
            .await
            .map_err(AgentError::api("report the status of the Node"))
    }

    /// Keeps the Node alive. Ends only when the API server no longer knows the node.
    async fn stay(&self) -> Result<Infallible, AgentError> {
        let settings = &self.machine.settings;
        let mut beat = tokio::time::interval_at(Instant::now() + settings.lease_every, settings.lease_every);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut report_at = Instant::now() + settings.status_every;
        loop {
            beat.tick().await;
            let due = Instant::now() >= report_at;
            match self.beat(due).await {
                Ok(()) if due => report_at = Instant::now() + settings.status_every,
                Ok(()) => {}
                Err(error) if error.is_refusal() || error.is_final() => return Err(error),
                // The API server may be away for a while: the next beat tries again.
                Err(error) => tracing::debug!(node = self.facts.join.node_name, %error, "a heartbeat failed"),
            }
        }
    }

    async fn beat(&self, report: bool) -> Result<(), AgentError> {
        let patch = Patch::Merge(node::renewal(Timestamp::now()));
        let renewed = self
            .leases
            .patch(&self.facts.join.node_name, &PatchParams::default(), &patch)
            .await;
        match renewed {
            Ok(_) => {}
            Err(error) if is_not_found(&error) => {
                tracing::info!(node = self.facts.join.node_name, "the Lease is gone, registering again");
                return self.register().await;
            }
            Err(error) => return Err(AgentError::api("renew the Lease")(error)),
        }
        if report {
            match self.report().await {
                Ok(_) => {}
                Err(AgentError::Api { source, .. }) if is_not_found(&source) => self.register().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}

fn unfit(error: &serde_json::Error) -> AgentError {
    AgentError::Kubeconfig(format!("the orders make no Node: {error}"))
}

/// Adds the top-level fields of `more`.
fn merge(patch: &mut Value, more: Value) {
    if let (Value::Object(patch), Value::Object(more)) = (patch, more) {
        patch.extend(more);
    }
}
