//! The agent on a machine: `russet-node` on a mini that has nothing but an address.

use crate::machine::{Machine, Phase};
use crate::refuse;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use russet_node::{Agent, Condition, News, Resident, Rhythm, Sight, Spec, System};
use russet_sim_scaleway::Host;
use std::sync::{Mutex, PoisonError};
use tokio::task::JoinSet;

/// What an emulated mini says of its disk.
const STORAGE: u64 = 200 << 30;

/// Carries out the orders on the disk until the power is cut or other orders come.
pub(crate) async fn run(machine: &Machine, booted: Timestamp) {
    let Some(join) = machine.disk().join.clone() else {
        return;
    };
    if machine.is_spoiled() {
        machine.tell(Phase::Failed, "the machine was told to fail this join");
        return;
    }
    let mut taints: Vec<Taint> = join.taints.iter().map(Taint::from).collect();
    // Cluster API takes it away once it knows the Node.
    let uninitialized = "node.cluster.x-k8s.io/uninitialized";
    if !taints.iter().any(|taint| taint.key == uninitialized) {
        taints.push(Taint {
            key: uninitialized.to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        });
    }
    let settings = &machine.settings;
    let spec = Spec {
        name: join.node_name.clone(),
        provider_id: join.provider_id.clone(),
        labels: join.labels.clone(),
        taints,
        capacity: settings.capacity,
        kubelet_version: settings.kubelet_version.clone(),
    };
    let news = |news: News| match news {
        News::Joined => machine.tell(Phase::Joined, format!("joined as {}", join.node_name)),
        News::Trying(why) => machine.tell(Phase::Joining, format!("{why}; trying again")),
        News::Renewed | News::Missed(_) | News::Certificate(_) => {}
    };
    let ended = match russet_node::connection(&join.kubeconfig).await {
        Ok(connection) => {
            let agent = Agent {
                spec: &spec,
                connection,
                moved: settings.api_server.clone(),
                machine: &Body {
                    host: &machine.host,
                    booted,
                    node: &join.node_name,
                    refuses: settings.refuse_pods,
                    refusing: Mutex::default(),
                },
                store: machine,
                rhythm: Rhythm {
                    lease: settings.lease_every,
                    status: settings.status_every,
                },
                news: &news,
            };
            agent.run().await
        }
        Err(error) => Err(error),
    };
    let error = match ended {
        Ok(never) => match never {},
        Err(error) => error,
    };
    tracing::warn!(node = join.node_name, %error, "gave up");
    machine.tell(Phase::Failed, error.to_string());
}

/// What an emulated mini sees of itself.
struct Body<'a> {
    host: &'a Host,
    /// When it was switched on.
    booted: Timestamp,
    node: &'a str,
    /// Whether Pods are told that they will not run.
    refuses: bool,
    /// Who tells them; ends with the agent.
    refusing: Mutex<JoinSet<()>>,
}

impl russet_node::Machine for Body<'_> {
    fn joined(&self, client: &kube::Client, watching: &kube::Client) {
        if self.refuses {
            let mut refusing = self.refusing.lock().unwrap_or_else(PoisonError::into_inner);
            refusing.abort_all();
            refusing.spawn(refuse::every_pod(
                client.clone(),
                watching.clone(),
                self.node.to_owned(),
            ));
        }
    }

    async fn look(&self) -> Sight {
        let id = self.host.server_id.to_string();
        Sight {
            address: Some(self.host.address),
            port: None,
            storage_bytes: STORAGE,
            system: System {
                machine_id: id.clone(),
                system_uuid: id,
                boot_id: format!("{}-{}", self.host.generation, self.booted.as_millisecond()),
                kernel_version: "Darwin".to_owned(),
                os_image: self.host.os.clone(),
                runtime: "tart://stand-in".to_owned(),
            },
            conditions: vec![
                Condition::memory_pressure(false, "an emulated Mac has memory"),
                Condition::disk_pressure(false, "an emulated Mac has room"),
                Condition::pid_pressure(false, "an emulated Mac runs nothing"),
                Condition::ready(true, "the stand-in agent is running"),
            ],
            resident: Some(Resident::default()),
        }
    }
}
