//! The objects around one of ours: its Machine, its Cluster, its Node. The same for every kind of machine.

use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use russet_api::annotations::cluster_api::{DELETE_FOR_MOVE, PAUSED};
use russet_api::groups::CLUSTER_API;
use russet_api::labels::cluster_api::CLUSTER_NAME;
use russet_controller::Cache;
use russet_controller::runner::Runner;
use russet_controller::scope::Namespaced;
use serde::Serialize;

use crate::capi;
use crate::claims::Holder;
use crate::decide::Standing;
use crate::registry::{Key, Registry};

/// Namespace and name.
pub fn key<K: ResourceExt>(object: &K) -> Key {
    Key {
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
    }
}

/// Who holds claims for this object.
pub(crate) fn holder<K: ResourceExt>(object: &K) -> Holder {
    Holder {
        uid: object.uid().unwrap_or_default(),
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
    }
}

/// The group whose SSH key a machine uses: its fleet, or one of its own.
pub(crate) fn key_group<K: ResourceExt>(object: &K, fleet: Option<&str>) -> String {
    match fleet.filter(|fleet| !fleet.is_empty()) {
        Some(fleet) => fleet.to_owned(),
        None => format!("{}-{}", object.namespace().unwrap_or_default(), object.name_any()),
    }
}

/// Name of the Machine that owns this object.
fn owner<K: ResourceExt>(object: &K) -> Option<&str> {
    let owners = object.owner_references().iter();
    owners
        .filter(|owner| owner.kind == "Machine" && owner.api_version.split('/').next() == Some(CLUSTER_API))
        .map(|owner| owner.name.as_str())
        .next()
}

/// What is watched besides our own objects.
pub(crate) struct Surroundings {
    machines: Cache<capi::Machine>,
    clusters: Cache<capi::Cluster>,
    pub(crate) nodes: Cache<capi::Node>,
}

impl Surroundings {
    /// Whatever changes wakes those of ours that it concerns.
    pub(crate) fn watch<K: Namespaced + Serialize>(runner: &mut Runner<K>, registry: &Registry) -> Self {
        let machines = runner.watches(&watcher::Config::default(), ours::<K>);
        let of = registry.clone();
        let clusters = runner.watches(&watcher::Config::default(), move |cluster: &capi::Cluster| {
            let meta = &cluster.metadata;
            let found = of.of_cluster(
                meta.namespace.as_deref().unwrap_or_default(),
                meta.name.as_deref().unwrap_or_default(),
            );
            found.iter().map(reference).collect()
        });
        let of = registry.clone();
        let nodes = runner.watches_cluster(&watcher::Config::default(), move |node: &capi::Node| {
            let found = of.named(node.metadata.name.as_deref().unwrap_or_default());
            found.iter().map(reference).collect()
        });
        registry.connect(runner.handle());
        Self {
            machines,
            clusters,
            nodes,
        }
    }

    /// What surrounds an object, from the caches.
    pub(crate) fn of<K: ResourceExt>(&self, object: &K) -> Around {
        let namespace = object.namespace();
        let machine = owner(object).and_then(|name| self.machines.get(namespace.as_deref(), name));
        let cluster_name = match &machine {
            Some(machine) => Some(machine.spec.cluster_name.clone()),
            // While it is deleted the Machine may be gone already.
            None => object.labels().get(CLUSTER_NAME).cloned(),
        };
        let cluster = cluster_name
            .as_ref()
            .and_then(|name| self.clusters.get(namespace.as_deref(), name));
        let node = self.nodes.get(None, &object.name_any());
        Around {
            machine,
            cluster_name,
            cluster,
            node,
        }
    }
}

/// The object of ours behind a Machine.
fn ours<K: Namespaced>(machine: &capi::Machine) -> Vec<ObjectRef<K>> {
    let infrastructure = &machine.spec.infrastructure_ref;
    if infrastructure.kind != K::kind(&()) {
        return Vec::new();
    }
    vec![reference(&Key {
        namespace: machine.metadata.namespace.clone().unwrap_or_default(),
        name: infrastructure.name.clone(),
    })]
}

fn reference<K: Namespaced>(key: &Key) -> ObjectRef<K> {
    ObjectRef::new(&key.name).within(&key.namespace)
}

/// The objects around one of ours.
#[derive(Clone, Debug, Default)]
pub(crate) struct Around {
    pub(crate) machine: Option<capi::Machine>,
    pub(crate) cluster_name: Option<String>,
    pub(crate) cluster: Option<capi::Cluster>,
    pub(crate) node: Option<capi::Node>,
}

impl Around {
    /// Where core wants the machine, if it says so.
    pub(crate) fn failure_domain(&self) -> Option<&str> {
        let domain = self.machine.as_ref()?.spec.failure_domain.as_deref();
        domain.filter(|domain| !domain.is_empty())
    }

    /// What Kubernetes and core have written on an object.
    pub(crate) fn standing<K: ResourceExt>(&self, object: &K, finalizer: &str, cleaned_up: bool) -> Standing {
        let annotated = |key: &str| object.annotations().contains_key(key);
        let data = self
            .machine
            .as_ref()
            .and_then(|machine| machine.spec.bootstrap.data_secret_name.as_ref());
        Standing {
            paused: annotated(PAUSED) || self.cluster.as_ref().is_some_and(capi::Cluster::is_paused),
            deleting: object.meta().deletion_timestamp.is_some(),
            moved_away: annotated(DELETE_FOR_MOVE),
            finalizer: object.finalizers().iter().any(|name| name == finalizer),
            owned: owner(object).is_some(),
            cluster_ready: self.cluster.as_ref().is_some_and(capi::Cluster::is_ready),
            bootstrap_data: data.is_some_and(|name| !name.is_empty()),
            cleaned_up,
        }
    }
}
