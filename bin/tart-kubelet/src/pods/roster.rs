//! The Pods that this Node has taken on, which is what the next one has to fit beside.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Pod;
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

    /// Whether a Pod is taken on. It is asked against the Node as it is now: others label and taint it.
    pub(crate) async fn admit(
        &self,
        host: &Host,
        uid: &str,
        pod: &Arc<Pod>,
    ) -> Result<Result<(), Refusal>, ServerError> {
        let _turn = self.turn.lock().await;
        let node = host.server.node().await?;
        let (spec, status) = (node.spec.unwrap_or_default(), node.status.unwrap_or_default());
        let place = admit::Host {
            name: host.options.node.clone(),
            labels: node.metadata.labels.unwrap_or_default(),
            taints: spec.taints.unwrap_or_default(),
            allocatable: russet_pod::quantity::amounts(status.allocatable.as_ref()),
            vms: LIMIT,
            pressures: status
                .conditions
                .unwrap_or_default()
                .into_iter()
                .filter(|condition| condition.type_.ends_with("Pressure") && condition.status == "True")
                .map(|condition| condition.type_)
                .collect(),
            shutting_down: false,
        };
        let others: Vec<Arc<Pod>> = self
            .pods()
            .iter()
            .filter(|(other, _)| *other != uid)
            .map(|(_, pod)| Arc::clone(pod))
            .collect();
        let others: Vec<&Pod> = others.iter().map(Arc::as_ref).collect();
        let verdict = admit::admit(pod, &place, &others);
        if verdict.is_ok() {
            self.add(uid, pod);
        }
        Ok(verdict)
    }
}
