//! A controller whose Role is namespaced started a cluster-wide informer: 403 for ever, and nothing reconciled.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher;
use russet_controller::health::Health;
use russet_controller::metrics::ControllerMetrics;
use russet_controller::runner::Environment;
use russet_controller::{Outcome, Runner, Scope};
use russet_telemetry::Metrics;
use russet_testkit::TestCluster;
use russet_testkit::identity::{Granted, rule};
use russet_testkit::wait::PATIENCE;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Play, Scenario, Stage};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "namespaced-informer",
    from: "S0",
    what_happened: "a cluster-wide Services informer needed rights that the namespaced Role did not give",
    must_hold: "a controller with a namespaced scope works under exactly its Role, and the audit log shows no denial",
    without: None,
    play: Play::Cluster(run),
};

fn run<'a>(stage: &'a mut Stage<'_, TestCluster>) -> BoxFuture<'a, Result<()>> {
    async move {
        stage.step("two ServiceAccounts that may read Services in one namespace, by a Role, and nothing else");
        let (ours, naive, namespace) = {
            let sandbox = stage.world.sandbox("tailscale-operator").await?;
            let rules = || vec![rule("", &["services"], &["get", "list", "watch"])];
            let ours = sandbox.identity("ours").here(rules()).grant().await?;
            let naive = sandbox.identity("naive").here(rules()).grant().await?;
            let services: Api<Service> = Api::namespaced(sandbox.client().await?, sandbox.namespace());
            let service: Service = serde_json::from_value(json!({
                "metadata": {"name": "mini-1", "labels": {"tuist.dev/macmini-egress": "true"}},
                "spec": {"type": "ExternalName", "externalName": "mini-1.example.invalid"},
            }))?;
            services.create(&PostParams::default(), &service).await?;
            (ours, naive, sandbox.namespace().to_owned())
        };

        stage.step("a naive controller lists Services across the cluster, as an unscoped informer does");
        let everywhere: Api<Service> = Api::all(client_of(&naive).await?);
        match everywhere.list(&ListParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 403 => stage.bites(format!("refused: {}", status.message)),
            other => anyhow::bail!("the staged fault did not bite: {other:?}"),
        }

        stage.step("our controller runs with --namespace, under the same kind of Role");
        let (seen, mut events) = mpsc::unbounded_channel();
        let environment = Environment {
            client: client_of(&ours).await?,
            scope: Scope::parse(&[&namespace])?,
            health: Health::default(),
            metrics: ControllerMetrics::new(&Metrics::new()),
            concurrency: 2,
        };
        let runner = Runner::<Service>::new("egress", environment, &watcher::Config::default());
        let stop = CancellationToken::new();
        let reconcile = |service: Arc<Service>, seen: Arc<mpsc::UnboundedSender<String>>| async move {
            let _ = seen.send(service.name_any());
            Ok::<_, kube::Error>(Outcome::Done)
        };
        let task = tokio::spawn(runner.run(Arc::new(seen), reconcile, stop.clone()));
        let name = tokio::time::timeout(PATIENCE, events.recv())
            .await
            .context("the controller saw nothing")?;
        ensure!(
            name.as_deref() == Some("mini-1"),
            "reconciled {name:?} instead of mini-1"
        );
        stop.cancel();
        task.await??;
        stage.holds("it reconciles the Service of its namespace");

        let audit = stage.world.audit()?;
        let denials = audit.denials(&ours.username)?;
        ensure!(denials.is_empty(), "denied requests: {denials:?}");
        let strayed: Vec<_> = audit
            .of_user(&ours.username)?
            .into_iter()
            .filter(|entry| entry.object().resource == "services" && entry.object().namespace != namespace)
            .collect();
        ensure!(strayed.is_empty(), "requests outside its namespace: {strayed:?}");
        ensure!(
            !audit.of_user(&ours.username)?.is_empty(),
            "the audit log saw nothing of the controller"
        );
        ensure!(
            !audit.denials(&naive.username)?.is_empty(),
            "the audit log did not see the naive denial"
        );
        stage.holds("not one 403 and not one request outside its namespace in the audit log");
        Ok(())
    }
    .boxed()
}

async fn client_of(granted: &Granted) -> Result<kube::Client> {
    let file = Kubeconfig::read_from(&granted.kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}
