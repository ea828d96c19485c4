//! What is around the Pods of this Node: the Node as others see it, and the Services that containers are told of.
//!
//! Both are watched for as long as the agent runs, as with any kubelet, so that a Pod that starts waits for neither: a Mac of a busy
//! fleet starts Pods all the time, and each question is an answer that a Pod waits for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Service, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::lasting::Lasting;
use super::server::ServerError;

/// What is not known after this is not waited for any longer; it is asked for again.
const PATIENCE: Duration = Duration::from_secs(20);

/// By namespace and name.
type Services = BTreeMap<(String, String), Arc<Service>>;

/// What is known, or why nothing is yet.
pub(crate) type Known<T> = Result<T, Option<String>>;

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
    pub(crate) fn watch(client: &watch::Receiver<Option<Client>>, node: &str) -> Self {
        let (tell_node, node_known) = watch::channel(Err(None));
        let (tell_services, services_known) = watch::channel(Err(None));
        let this = watcher::Config::default().fields(&format!("metadata.name={node}"));
        let nodes = Lasting::new(client.clone(), Api::all, this);
        let services = Lasting::new(client.clone(), Api::all, watcher::Config::default());
        Self(Arc::new(Shared {
            node: node_known,
            services: services_known,
            tasks: [
                tokio::spawn(follow_node(nodes, tell_node)),
                tokio::spawn(follow_services(services, tell_services)),
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

/// What is known, once something is.
async fn known<T, R>(
    from: &watch::Receiver<Known<T>>,
    what: &str,
    read: impl FnOnce(&T) -> R,
) -> Result<R, ServerError> {
    let mut from = from.clone();
    let told = tokio::time::timeout(PATIENCE, from.wait_for(|known| !matches!(known, Err(None)))).await;
    match told.as_ref().map(|told| told.as_deref()) {
        Ok(Ok(Ok(known))) => Ok(read(known)),
        Ok(Ok(Err(Some(why)))) => Err(ServerError::Refused {
            what: what.to_owned(),
            why: why.clone(),
        }),
        _ => Err(ServerError::Late { what: what.to_owned() }),
    }
}

/// What was known stays; if nothing was, those who wait are told why.
fn interrupted<T>(tell: &watch::Sender<Known<T>>, what: &str, error: &watcher::Error) {
    tracing::debug!(what, %error, "a watch was interrupted; it goes on");
    tell.send_if_modified(|known| {
        let waits = known.is_err();
        if waits {
            *known = Err(Some(error.to_string()));
        }
        waits
    });
}

async fn follow_node(mut events: Lasting<Node>, tell: watch::Sender<Known<Arc<Node>>>) {
    while let Some(state) = events.next_state().await {
        match state {
            // A Node that is not there takes nobody on; it registers again soon.
            Ok(node) => drop(tell.send_replace(node.map(Arc::new).ok_or(None))),
            Err(error) => interrupted(&tell, "the Node", &error),
        }
    }
}

async fn follow_services(mut events: Lasting<Service>, tell: watch::Sender<Known<Services>>) {
    let mut listed = Services::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(service)) => drop(listed.insert(key(&service), needed(service))),
            Ok(Event::InitDone) => drop(tell.send_replace(Ok(std::mem::take(&mut listed)))),
            Ok(Event::Apply(service)) => change(&tell, |all| drop(all.insert(key(&service), needed(service)))),
            Ok(Event::Delete(service)) => change(&tell, |all| drop(all.remove(&key(&service)))),
            Err(error) => interrupted(&tell, "Services", &error),
        }
    }
}

fn change(tell: &watch::Sender<Known<Services>>, how: impl FnOnce(&mut Services)) {
    tell.send_modify(|known| {
        if let Ok(all) = known {
            how(all);
        }
    });
}

fn key(service: &Service) -> (String, String) {
    (service.namespace().unwrap_or_default(), service.name_any())
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
