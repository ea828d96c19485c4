//! kube-apiserver dies and comes back: controllers notice, say so, and go on where they were.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, ObjectMeta, PostParams};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use russet_cluster::control_plane::{self, ControlPlane};
use russet_cluster::process::{Restart, State, Supervisor};
use russet_controller::health::Health;
use russet_controller::metrics::ControllerMetrics;
use russet_controller::runner::Environment;
use russet_controller::{Outcome, Runner, Scope};
use russet_telemetry::Metrics;
use russet_testkit::wait::{self, Look, PATIENCE};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

const APISERVER: &str = "kube-apiserver";

async fn create(client: &Client, name: &str) -> Result<()> {
    let object = ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    };
    Api::<ConfigMap>::namespaced(client.clone(), "default")
        .create(&PostParams::default(), &object)
        .await?;
    Ok(())
}

#[tokio::test]
async fn a_restarted_api_server_is_found_again_and_readiness_follows() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let tools = russet_testkit::cluster::tools(&["etcd", APISERVER]).await?;
    let supervisor = Supervisor::new(dir.path());
    let mut options = control_plane::Options::new(dir.path().join("cluster"));
    options.restart = Restart::Backoff {
        initial: Duration::from_millis(500),
        max: Duration::from_secs(2),
    };
    let control_plane = ControlPlane::start(&tools, &supervisor, options).await?;
    let client = control_plane.client().await?;

    let health = Health::new();
    let environment = Environment {
        client: client.clone(),
        scope: Scope::parse(&["default"])?,
        health: health.clone(),
        metrics: ControllerMetrics::new(&Metrics::new()),
        concurrency: 2,
    };
    let mut runner = Runner::<ConfigMap>::new("reconnect", environment, &watcher::Config::default());
    // A second kind in which nothing ever happens: its watch must become healthy again without an event.
    let _quiet = runner.watches::<Secret>(&watcher::Config::default(), |_| Vec::new());
    let (seen, mut events) = mpsc::unbounded_channel();
    let reconcile = |object: Arc<ConfigMap>, seen: Arc<mpsc::UnboundedSender<String>>| async move {
        let _ = seen.send(object.name_any());
        Ok::<_, kube::Error>(Outcome::Done)
    };
    let stop = CancellationToken::new();
    let running = tokio::spawn(runner.run(Arc::new(seen), reconcile, stop.clone()));
    let mut reconciled = async |wanted: &str| -> Result<()> {
        loop {
            let name = tokio::time::timeout(PATIENCE, events.recv())
                .await
                .with_context(|| format!("waiting for {wanted}"))?;
            if name.as_deref() == Some(wanted) {
                return Ok(());
            }
        }
    };
    create(&client, "before").await?;
    reconciled("before").await?;
    ensure!(health.failing().is_empty(), "{:?}", health.failing());

    let snapshot = || {
        supervisor
            .snapshot()
            .into_iter()
            .find(|part| part.name == APISERVER)
            .context("no apiserver")
    };
    let pid = snapshot()?
        .pid
        .and_then(|pid| i32::try_from(pid).ok())
        .and_then(Pid::from_raw)
        .context("no pid")?;
    kill_process(pid, Signal::KILL)?;
    wait::until("readiness to notice", PATIENCE, || async {
        let failing = health.failing();
        Ok(if failing.is_empty() {
            Look::not_yet(failing)
        } else {
            Look::Done(())
        })
    })
    .await?;
    wait::until("kube-apiserver to be restarted", PATIENCE, || async {
        let part = snapshot()?;
        Ok(Look::done_if(part.restarts > 0 && part.state == State::Running, part))
    })
    .await?;

    wait::until_true("a write to succeed", PATIENCE, || async {
        Ok(create(&client, "after").await.is_ok())
    })
    .await?;
    reconciled("after").await?;
    wait::until("readiness to recover", PATIENCE, || async {
        let failing = health.failing();
        Ok(Look::done_if(failing.is_empty(), failing))
    })
    .await?;
    stop.cancel();
    running.await??;
    supervisor.shutdown().await;
    Ok(())
}
