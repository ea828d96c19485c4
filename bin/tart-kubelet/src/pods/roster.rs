//! The Pods that this Node has taken on, which is what the next one has to fit beside.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::{Node, Pod};
use russet_pod::admit::{self, Refusal};

use super::Host;
use super::server::ServerError;
use crate::places::LIMIT;

/// The Pods that were taken on and are not over. Cheap to copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roster {
    pods: Arc<Mutex<BTreeMap<String, Arc<Pod>>>>,
    /// One at a time, in the order of asking.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Roster {
    fn pods(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Pod>>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, uid: &str, pod: &Arc<Pod>) {
        self.pods().insert(uid.to_owned(), Arc::clone(pod));
    }

    pub(crate) fn remove(&self, uid: &str) {
        self.pods().remove(uid);
    }

    /// Whether a Pod is taken on. Others label and taint the Node, and what is known of it may be a moment old: nobody is sent away
    /// without another look at it.
    pub(crate) async fn admit(
        &self,
        host: &Host,
        uid: &str,
        pod: &Arc<Pod>,
    ) -> Result<Result<(), Refusal>, ServerError> {
        let _turn = self.turn.lock().await;
        let own_ports = &host.options.own_ports;
        let mut verdict = self.verdict(&*host.around.node().await?, own_ports, uid, pod);
        if verdict.is_err() {
            verdict = self.verdict(&host.server.node().await?, own_ports, uid, pod);
        }
        if verdict.is_ok() {
            self.add(uid, pod);
        }
        Ok(verdict)
    }

    fn verdict(&self, node: &Node, own_ports: &[u16], uid: &str, pod: &Pod) -> Result<(), Refusal> {
        let (spec, status) = (node.spec.as_ref(), node.status.as_ref());
        let conditions = status.and_then(|status| status.conditions.as_deref());
        let place = admit::Host {
            name: node.metadata.name.clone().unwrap_or_default(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints: spec.and_then(|spec| spec.taints.clone()).unwrap_or_default(),
            allocatable: russet_pod::quantity::amounts(status.and_then(|status| status.allocatable.as_ref())),
            vms: LIMIT,
            pressures: conditions
                .unwrap_or_default()
                .iter()
                .filter(|condition| condition.type_.ends_with("Pressure") && condition.status == "True")
                .map(|condition| condition.type_.clone())
                .collect(),
            own_ports: own_ports.iter().map(|port| i32::from(*port)).collect(),
        };
        let pods = self.pods();
        let others = pods.iter().filter(|(other, _)| *other != uid);
        let others: Vec<&Pod> = others.map(|(_, pod)| pod.as_ref()).collect();
        admit::admit(pod, &place, &others)
    }
}
