//! What the tests share: one cluster, the provider's rights, and a provider process in miniature.

use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use russet_capi_provider::machine_ref::MachineRef;
use russet_controller::metrics::ControllerMetrics;
use russet_controller::{About, Applier, CommonArgs, Component, Config, Leadership, Manager};
use russet_telemetry::Metrics;
use russet_testkit::identity::Granted;
pub(crate) use russet_testkit::object::create;
use russet_testkit::{Extras, Sandbox, TestCluster, crds};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

static CLUSTER: OnceCell<TestCluster> = OnceCell::const_new();

/// The cluster of this binary, with core and our kinds in it, and its address published as kubeadm does.
pub(crate) async fn cluster() -> Result<&'static TestCluster> {
    CLUSTER
        .get_or_try_init(|| async {
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
            let cluster = TestCluster::start(Extras {
                controller_manager: true,
                cluster_api: true,
                ..Extras::default()
            })
            .await?;
            let client = cluster.client().await?;
            crds::install(&client, &russet_api::all_crds()).await?;
            publish(&cluster, &client).await?;
            bind_bootstrappers(&client).await?;
            Ok(cluster)
        })
        .await
}

async fn publish(cluster: &TestCluster, client: &kube::Client) -> Result<()> {
    use base64::Engine as _;
    let plane = cluster.control_plane();
    let ca = base64::engine::general_purpose::STANDARD.encode(plane.ca_pem());
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config",
        "clusters": [{"name": "", "cluster": {"server": plane.server(), "certificate-authority-data": ca}}],
    });
    let map: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "cluster-info"},
        "data": {"kubeconfig": serde_yaml_ng::to_string(&kubeconfig)?},
    }))?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-public");
    maps.create(&PostParams::default(), &map).await?;
    Ok(())
}

/// What the chart gives to every bootstrap token of ours.
async fn bind_bootstrappers(client: &kube::Client) -> Result<()> {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "tuist-applesilicon-bootstrappers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-bootstrapper"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": russet_capi_provider::identity::BOOTSTRAP_GROUP}],
    });
    create(client, None, binding).await?;
    Ok(())
}

/// The requests of the provider that were refused.
pub(crate) fn no_denials(cluster: &TestCluster, who: &Granted) -> Result<()> {
    let denials = cluster.audit()?.denials(&who.username)?;
    anyhow::ensure!(denials.is_empty(), "the chart's rights do not suffice: {denials:#?}");
    Ok(())
}

/// A writer, as the provider makes them.
pub(crate) fn applier(client: kube::Client) -> Applier {
    Applier::new(
        client,
        "capi-provider",
        Leadership::always("test"),
        ControllerMetrics::new(&Metrics::new()),
    )
}

/// Components that run until dropped.
#[derive(Debug)]
pub(crate) struct Running(CancellationToken);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Runs components as the provider's process does, in the sandbox's namespace.
pub(crate) async fn run(
    sandbox: &Sandbox<'_>,
    who: &Granted,
    build: impl FnOnce(&Manager) -> Vec<Component>,
) -> Result<Running> {
    #[derive(Parser)]
    struct Args {
        #[command(flatten)]
        common: CommonArgs,
    }
    let about = About {
        name: "capi-provider",
        version: "0",
        lease: "test",
    };
    let args = Args::parse_from([
        "capi-provider".to_owned(),
        format!("--kubeconfig={}", who.kubeconfig.display()),
        format!("--namespace={}", sandbox.namespace()),
        "--leader-elect=false".to_owned(),
        "--metrics-bind-address=0".to_owned(),
        "--health-probe-bind-address=0".to_owned(),
    ]);
    let config = Config::from_args(args.common, || "test".to_owned())?;
    let manager = Manager::new(about, config).await?;
    let components = build(&manager);
    let stop = CancellationToken::new();
    tokio::spawn(manager.run(components, stop.clone()));
    Ok(Running(stop))
}

/// Creates a machine of ours.
pub(crate) async fn machine(client: &kube::Client, namespace: &str, name: &str) -> Result<MachineRef> {
    let object = create(
        client,
        Some(namespace),
        json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "ScalewayAppleSiliconMachine",
            "metadata": {"name": name}, "spec": {"providerID": format!("scw-applesilicon://fr-par-1/{name}")},
        }),
    )
    .await?;
    Ok(MachineRef {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: object.metadata.uid.context("a uid")?,
    })
}

/// Only the ServiceAccount for core.
pub(crate) async fn service_account(client: &kube::Client, namespace: &str) -> Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let account = ServiceAccount {
        metadata: ObjectMeta {
            name: Some("capi-remote".to_owned()),
            ..ObjectMeta::default()
        },
        ..ServiceAccount::default()
    };
    accounts.create(&PostParams::default(), &account).await?;
    Ok(())
}

/// Merges a patch into an object.
pub(crate) async fn merge<K>(api: &Api<K>, name: &str, patch: Value) -> Result<K>
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    Ok(api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?)
}

/// Short, so that a test sees the next look soon.
pub(crate) const POLL: Duration = Duration::from_millis(200);
