//! What is around the Pods of this Node: the Node as others see it, and the Services that containers are told of.
//!
//! Both are watched for as long as the agent runs, as with any kubelet, so that a Pod that starts waits for neither: a Mac of a busy
//! fleet starts Pods all the time, and each question is an answer that a Pod waits for.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::known::{All, Known, follow_all, interrupted, known};
use super::lasting::Lasting;
use super::server::ServerError;
use crate::host::Board;

type Services = All<Arc<Service>>;

/// What is around. Cheap to copy.
#[derive(Clone)]
pub(crate) struct Around(Arc<Shared>);

struct Shared {
    node: watch::Receiver<Known<Arc<Node>>>,
    services: watch::Receiver<Known<Services>>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Shared {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl std::fmt::Debug for Around {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Around").finish_non_exhaustive()
    }
}

impl Around {
    /// Whoever is the Node hears on the board when it is deleted.
    pub(crate) fn watch(client: &watch::Receiver<Option<Client>>, node: &str, board: Board) -> Self {
        let (tell_node, node_known) = watch::channel(Err(None));
        let (tell_services, services_known) = watch::channel::<Known<Services>>(Err(None));
        let this = watcher::Config::default().fields(&format!("metadata.name={node}"));
        let nodes = Lasting::new(client.clone(), Api::all, this);
        let services = Lasting::new(client.clone(), Api::all, watcher::Config::default());
        Self(Arc::new(Shared {
            node: node_known,
            services: services_known,
            tasks: [
                tokio::spawn(follow_node(nodes, tell_node, board)),
                tokio::spawn(follow_all(services, tell_services, "Services", needed, || {})),
            ],
        }))
    }

    /// The Node as it was a moment ago.
    pub(crate) async fn node(&self) -> Result<Arc<Node>, ServerError> {
        known(&self.0.node, "read the Node", Arc::clone).await
    }

    /// The Node, whenever it changes.
    pub(crate) fn nodes(&self) -> watch::Receiver<Known<Arc<Node>>> {
        self.0.node.clone()
    }

    /// The Services that a container of this namespace is told of: its neighbours, if it wants to know them, and the API server.
    pub(crate) async fn services(&self, namespace: &str, links: bool) -> Result<Vec<Service>, ServerError> {
        known(&self.0.services, "list Services", |all| {
            let near = all.iter().filter(|((of, _), _)| links && of == namespace);
            let entrance = all.get_key_value(&("default".to_owned(), "kubernetes".to_owned()));
            let entrance = entrance.filter(|_| namespace != "default" || !links);
            let told = near.chain(entrance).map(|(_, service)| Service::clone(service));
            told.collect()
        })
        .await
    }
}

async fn follow_node(mut events: Lasting<Node>, tell: watch::Sender<Known<Arc<Node>>>, board: Board) {
    while let Some(state) = events.next_state().await {
        match state {
            // A Node that is not there takes nobody on; it registers again at once.
            Ok(node) => {
                if node.is_none() {
                    board.set_deleted();
                }
                drop(tell.send_replace(node.map(Arc::new).ok_or(None)));
            }
            Err(error) => interrupted(&tell, "the Node", &error),
        }
    }
}

/// What a container can be told: all Services of a cluster are kept on each of its Macs.
fn needed(service: Service) -> Arc<Service> {
    let spec = service.spec.unwrap_or_default();
    Arc::new(Service {
        metadata: ObjectMeta {
            name: service.metadata.name,
            namespace: service.metadata.namespace,
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            cluster_ip: spec.cluster_ip,
            ports: spec.ports,
            ..ServiceSpec::default()
        }),
        status: None,
    })
}
