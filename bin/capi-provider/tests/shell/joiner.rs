//! A bootstrapper that makes a Node, as a host that joins would.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use russet_api::machine::StepState;
use russet_capi_provider::bootstrap::{Bootstrapper, Done, Failed, HostConfigHash, HostFacts, Job, Progress};
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// As often as a kubelet does.
const BEAT: Duration = Duration::from_secs(10);

#[derive(Clone, Default)]
pub(crate) struct Joiner {
    client: Option<Client>,
    jobs: Arc<Mutex<Vec<Seen>>>,
}

/// What a job brought along.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) provider_id: String,
    pub(crate) user: String,
    pub(crate) password: String,
    pub(crate) labels: BTreeMap<String, String>,
}

impl Joiner {
    pub(crate) fn new(client: Client) -> Arc<Self> {
        Arc::new(Self {
            client: Some(client),
            jobs: Arc::default(),
        })
    }

    pub(crate) fn jobs(&self) -> Vec<Seen> {
        self.jobs.lock().unwrap().clone()
    }
}

/// A Node as a kubelet registers and reports it.
pub(crate) async fn join(
    client: Client,
    name: &str,
    provider_id: &str,
    labels: &BTreeMap<String, String>,
) -> Result<(), kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "providerID": provider_id,
            "taints": [{"key": "node.cluster.x-k8s.io/uninitialized", "effect": "NoSchedule"}],
        },
    }));
    match nodes.create(&PostParams::default(), &node.unwrap()).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        other => drop(other?),
    }
    let condition = |type_: &str, status: &str| {
        json!({"type": type_, "status": status, "reason": "Kubelet", "message": "",
            "lastHeartbeatTime": "2026-10-01T00:00:00Z", "lastTransitionTime": "2026-10-01T00:00:00Z"})
    };
    let status = json!({"status": {"conditions": [
        condition("Ready", "True"),
        condition("MemoryPressure", "False"),
        condition("DiskPressure", "False"),
        condition("PIDPressure", "False"),
    ]}});
    nodes
        .patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    tokio::spawn(beat(client, name.to_owned()));
    Ok(())
}

/// Renews the Lease of a Node for as long as the Node is there: one whose kubelet is silent for long is not Ready any more, and on
/// a busy machine a story may last longer than that.
async fn beat(client: Client, name: String) {
    let nodes: Api<Node> = Api::all(client.clone());
    let leases: Api<Lease> = Api::namespaced(client, "kube-node-lease");
    let mut turns = tokio::time::interval(BEAT);
    while !matches!(nodes.get_opt(&name).await, Ok(None)) {
        turns.tick().await;
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now},
        });
        let apply = PatchParams::apply("joiner").force();
        // What fails once is done again at the next turn.
        drop(leases.patch(&name, &apply, &Patch::Apply(&lease)).await);
    }
}

impl Bootstrapper for Joiner {
    fn desired(&self, host: &HostFacts) -> HostConfigHash {
        HostConfigHash::new(format!("joiner-{:?}", host.fleet))
    }

    fn run(&self, job: Job, progress: Progress, _: CancellationToken) -> BoxFuture<'static, Result<Done, Failed>> {
        let this = self.clone();
        Box::pin(async move {
            this.jobs.lock().unwrap().push(Seen {
                provider_id: job.provider_id.clone(),
                user: job.ssh_user.clone(),
                password: job
                    .sudo_password
                    .as_ref()
                    .map(|p| p.expose().clone())
                    .unwrap_or_default(),
                labels: job.labels.clone(),
            });
            progress.step("join", StepState::Running, None);
            let failed = |message: String| Failed {
                step: "join".to_owned(),
                message,
                fingerprint: Some("SHA256:first".to_owned()),
            };
            let client = this.client.clone().unwrap();
            join(client, &job.node_name, &job.provider_id, &job.labels)
                .await
                .map_err(|error| failed(error.to_string()))?;
            progress.step("join", StepState::Succeeded, None);
            Ok(Done {
                fingerprint: Some("SHA256:first".to_owned()),
                kubelet_sha: Some("0a1b".to_owned()),
                ..Done::default()
            })
        })
    }
}
