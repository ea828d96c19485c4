//! The agent as a whole: find out who the host is, be its Node, answer those who ask how that goes.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use russet_node::{Agent, Rhythm};
use russet_telemetry::Secret;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::host::Host;
use crate::keep::Folder;
use crate::serve::{self, Page, Pulse};

/// Is a Node until told to stop. The Node stays when the agent ends: a restart for a new binary is no news to anybody, and a host
/// that does not come back is noticed by its Lease.
pub async fn run(config: Config, stop: CancellationToken) -> anyhow::Result<()> {
    let Some(host) = stop.run_until_cancelled(Host::find(&config)).await else {
        return Ok(());
    };
    let host = host?;
    let pulse = Arc::new(Pulse::new());
    let mut pages = JoinSet::new();
    if let Some(listen) = config.metrics {
        pages.spawn(serve::serve(
            listen.open(host.fixed()),
            Page::Metrics,
            Arc::clone(&pulse),
        ));
    }
    if let Some(listen) = config.probes {
        pages.spawn(serve::serve(
            listen.private(host.fixed()),
            Page::Probes,
            Arc::clone(&pulse),
        ));
    }
    let kubeconfig = read(&config.kubeconfig, "it is what the Node joins with, see --kubeconfig").await?;
    let kubeconfig = Secret::new(kubeconfig);
    let (connection, moved) = match &config.cluster_info {
        Some(path) => {
            let info = read(path, "it says where the API server is, see --cluster-info").await?;
            let (connection, place) = russet_node::connection_to(&kubeconfig, &info).await?;
            (connection, Some(place))
        }
        None => (russet_node::connection(&kubeconfig).await?, None),
    };
    tracing::info!(
        node = config.spec.name,
        provider_id = config.spec.provider_id,
        address = ?host.fixed(),
        server = %moved.as_ref().unwrap_or(&connection.cluster_url),
        version = env!("CARGO_PKG_VERSION"),
        "starting"
    );
    let news = {
        let pulse = Arc::clone(&pulse);
        move |news| pulse.hear(news)
    };
    let store = Folder::new(&config.state);
    let agent = Agent {
        spec: &config.spec,
        connection,
        moved,
        machine: &host,
        store: &store,
        rhythm: Rhythm::default(),
        news: &news,
    };
    match stop.run_until_cancelled(Box::pin(agent.run())).await {
        None => Ok(()),
        Some(Ok(never)) => match never {},
        Some(Err(error)) => Err(error.into()),
    }
}

async fn read(path: &Path, why: &str) -> anyhow::Result<String> {
    tokio::fs::read_to_string(path)
        .await
        .with_context(|| format!("failed to read {}; {why}", path.display()))
}
