//! Where cases happen in Kubernetes: one API server for all, a namespace each.

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Secret};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Client, ResourceExt as _};
use russet_api::labels;
use russet_capi_provider::identity::BOOTSTRAP_GROUP;
use russet_testkit::wait::{self, Look};
use russet_testkit::{Extras, TestCluster, crds, object};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

const CORE: &str = "cluster.x-k8s.io";
const INFRA: &str = "infrastructure.cluster.x-k8s.io";
/// A lost call has to be waited for, and all cases run at once.
pub(crate) const PATIENCE: Duration = Duration::from_mins(8);

/// Core itself does not run here: its objects are stored, and that is all that is needed of them.
fn core_crd(kind: &str, plural: &str) -> Result<CustomResourceDefinition> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{CORE}"),
            "annotations": {"api-approved.kubernetes.io": "unapproved, test only"}},
        "spec": {
            "group": CORE,
            "scope": "Namespaced",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": "v1beta2", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    }))?)
}

pub(crate) fn core_crds() -> Result<Vec<CustomResourceDefinition>> {
    Ok(vec![core_crd("Cluster", "clusters")?, core_crd("Machine", "machines")?])
}

/// Whoever has a token of ours may ask for a certificate, as the chart says.
pub(crate) fn bootstrappers() -> Result<ClusterRoleBinding> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": "mac-bootstrappers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-bootstrapper"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": BOOTSTRAP_GROUP}],
    }))?)
}

static CLUSTER: OnceCell<TestCluster> = OnceCell::const_new();

/// The cluster of all cases.
pub(crate) async fn cluster() -> Result<&'static TestCluster> {
    CLUSTER
        .get_or_try_init(async || {
            let cluster = TestCluster::start(Extras::default()).await?;
            let client = cluster.client().await?;
            crds::install(&client, &russet_api::all_crds()).await?;
            crds::install(&client, &core_crds()?).await?;
            let bindings: Api<ClusterRoleBinding> = Api::all(client);
            bindings.create(&PostParams::default(), &bootstrappers()?).await?;
            anyhow::Ok(cluster)
        })
        .await
}

/// The namespace of one case, with a Cluster in it.
pub(crate) struct Stage {
    pub(crate) namespace: String,
    pub(crate) kubeconfig: PathBuf,
    /// Address of the API server.
    pub(crate) server: String,
    pub(crate) client: Client,
    added: AtomicUsize,
}

impl Stage {
    pub(crate) async fn new(cluster: &TestCluster, name: &str) -> Result<Self> {
        let sandbox = cluster.sandbox(name).await?;
        let stage = Self {
            namespace: sandbox.namespace().to_owned(),
            kubeconfig: cluster.control_plane().admin_kubeconfig().to_path_buf(),
            server: cluster.control_plane().server().to_owned(),
            client: cluster.client().await?,
            added: AtomicUsize::new(0),
        };
        stage
            .make(CORE, "v1beta2", "Cluster", json!({"metadata": {"name": "c"}}))
            .await?;
        let status = json!({"status": {"initialization": {"infrastructureProvisioned": true}}});
        stage
            .api(CORE, "v1beta2", "Cluster")
            .patch_status("c", &PatchParams::default(), &Patch::Merge(&status))
            .await?;
        Ok(stage)
    }

    fn api(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        object::api(&self.client, Some(&self.namespace), &format!("{group}/{version}"), kind)
    }

    /// Machines of one of our kinds.
    pub(crate) fn machines(&self, kind: &str) -> Api<DynamicObject> {
        self.api(INFRA, "v1alpha1", kind)
    }

    async fn make(&self, group: &str, version: &str, kind: &str, mut object: Value) -> Result<DynamicObject> {
        object["apiVersion"] = json!(format!("{group}/{version}"));
        object["kind"] = json!(kind);
        object::create(&self.client, Some(&self.namespace), object).await
    }

    /// A machine as core would make it. Nodes have no namespace, so the name must not repeat.
    pub(crate) async fn add_machine(&self, kind: &str, spec: Value) -> Result<String> {
        let number = self.added.fetch_add(1, Ordering::SeqCst);
        let name = format!("{}-m{number}", self.namespace);
        let machine = json!({
            "metadata": {"name": name},
            "spec": {
                "clusterName": "c",
                "bootstrap": {"dataSecretName": "data"},
                "infrastructureRef": {"kind": kind, "name": name},
            },
        });
        let machine = self.make(CORE, "v1beta2", "Machine", machine).await?;
        let owner =
            json!({"apiVersion": format!("{CORE}/v1beta2"), "kind": "Machine", "name": name, "uid": machine.uid()});
        let object = json!({"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec});
        self.make(INFRA, "v1alpha1", kind, object).await?;
        Ok(name)
    }

    pub(crate) async fn delete_machine(&self, kind: &str, name: &str) -> Result<()> {
        match self.machines(kind).delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            other => {
                other?;
                Ok(())
            }
        }
    }

    /// By a watch: a hundred cases that look again and again would keep the API server busy with nothing else.
    pub(crate) async fn until<K>(api: Api<K>, what: &str, name: &str, holds: impl Fn(Option<&K>) -> bool) -> Result<()>
    where
        K: kube::Resource + Clone + Debug + Send + Serialize + DeserializeOwned + 'static,
    {
        let reached = await_condition(api.clone(), name, |object: Option<&K>| holds(object));
        if let Ok(reached) = tokio::time::timeout(PATIENCE, reached).await {
            reached?;
            return Ok(());
        }
        let object = api.get_opt(name).await?;
        let seen = object.map(|object| {
            let status = serde_json::to_value(&object).unwrap_or_default()["status"].take();
            (object.meta().finalizers.clone(), status)
        });
        bail!("waited {PATIENCE:?} for {name} to be {what}; last seen: {seen:?}")
    }

    /// The claims of a family of servers.
    pub(crate) async fn claims(&self, family: &str) -> Result<Vec<String>> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let all = leases.list(&ListParams::default()).await?;
        let claims = names(&all.items).into_iter();
        Ok(claims.filter(|name| name.starts_with(family)).collect())
    }

    pub(crate) async fn until_unclaimed(&self, family: &str) -> Result<()> {
        wait::until("all claims to be dropped", PATIENCE, || async {
            let claims = self.claims(family).await?;
            Ok(Look::done_if(claims.is_empty(), claims))
        })
        .await
    }

    /// What machines that are gone must not leave in the cluster: Secrets but for these, tokens, requests, Nodes.
    pub(crate) async fn check_empty(&self, may_stay: &[String]) -> Result<()> {
        let ours = |names: Vec<String>| -> Vec<String> {
            let start = format!("{}-m", self.namespace);
            names.into_iter().filter(|name| name.starts_with(&start)).collect()
        };
        let all = ListParams::default();
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut secrets = names(&secrets.list(&all).await?.items);
        secrets.retain(|name| !may_stay.contains(name));
        ensure!(secrets.is_empty(), "Secrets are left: {secrets:?}");
        let tokens: Api<Secret> = Api::namespaced(self.client.clone(), "kube-system");
        let tokens = tokens.list(&all.clone().labels(labels::MACHINE)).await?.items;
        let machines = tokens
            .iter()
            .filter_map(|token| token.labels().get(labels::MACHINE).cloned());
        let tokens = ours(machines.collect());
        ensure!(tokens.is_empty(), "tokens are left: {tokens:?}");
        let requests: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        let requests = ours(names(&requests.list(&all).await?.items));
        ensure!(requests.is_empty(), "signing requests are left: {requests:?}");
        let nodes: Api<Node> = Api::all(self.client.clone());
        let nodes = ours(names(&nodes.list(&all).await?.items));
        ensure!(nodes.is_empty(), "Nodes are left: {nodes:?}");
        Ok(())
    }
}

pub(crate) fn names<K: kube::Resource>(objects: &[K]) -> Vec<String> {
    objects.iter().map(kube::ResourceExt::name_any).collect()
}

/// A Node as a kubelet registers and reports it.
pub(crate) async fn join(client: &Client, name: &str, provider_id: &str) -> Result<(), kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({"metadata": {"name": name}, "spec": {"providerID": provider_id}});
    let node: Node = serde_json::from_value(node).expect("a Node");
    match nodes.create(&PostParams::default(), &node).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        other => drop(other?),
    }
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    nodes
        .patch_status(name, &PatchParams::default(), &Patch::Merge(&ready))
        .await
        .map(drop)
}
