//! The agent as a whole: find out who the host is, be its Node, answer those who ask how that goes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use russet_node::{Agent, Rhythm};
use russet_telemetry::Secret;
use russet_vm::supervise::Supervisor;
use russet_vm::{Runtime, Synthetic, Tart, synthetic, tart};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::api::{self, Kubelet};
use crate::config::{Config, Listen, RuntimeKind};
use crate::host::pressure::Tools;
use crate::host::{Examiner, Host};
use crate::housekeeping::{self, Keeping};
use crate::keep::Folder;
use crate::meters::Meters;
use crate::parting;
use crate::pods::{Options, Pods};
use crate::serve::{self, Page, Pulse};

/// The word that makes this program the supervisor of one process.
pub const SUPERVISE: &str = "supervise";
/// How long those who are connected to a container have to hear that the agent ends: they would take silence for success. launchd
/// waits for longer.
const FAREWELL: Duration = Duration::from_secs(5);

/// Is a Node until told to stop. The Node stays when the agent ends: a restart for a new binary is no news to anybody, and a host
/// that does not come back is noticed by its Lease.
pub async fn run(config: Config, stop: CancellationToken) -> anyhow::Result<()> {
    let Some(host) = stop.run_until_cancelled(Host::find(&config)).await else {
        return Ok(());
    };
    let host = Arc::new(host?);
    let pulse = Arc::new(Pulse::new());
    let _pages = pages(&config, &host, &pulse);
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
        version = crate::VERSION,
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
        machine: host.as_ref(),
        store: &store,
        rhythm: Rhythm::default(),
        news: &news,
    };
    let runtime = runtime(&config)?;
    let meters = Meters::new(&pulse.metrics);
    let pods = Pods::open(options(&config, &host, Arc::clone(&runtime), meters))?;
    let examiner = Examiner::new(
        runtime,
        config.launchctl.clone().filter(|_| config.runtime == RuntimeKind::Tart),
        host.on_tailnet().map(|address| (config.tailscale.clone(), address)),
    );
    let tools = Tools::new(&config);
    let examination = Box::pin(housekeeping::examine(
        examiner,
        tools,
        host.board(),
        config.housekeeping,
    ));
    let leave = stop.child_token();
    let mut callers = JoinSet::new();
    if let Some(listen) = config.kubelet {
        let told = serde_json::json!({
            "nodeName": config.spec.name,
            "providerID": config.spec.provider_id,
            "maxPods": config.spec.capacity.pods,
        });
        let kubelet = Kubelet::new(pods.handle(), Arc::clone(&pulse), host.disk(), told);
        callers.spawn(api::serve(api::Options {
            listen: listen.open(host.fixed()),
            node: config.spec.name.clone(),
            state: config.state.clone(),
            client_ca: client_ca(&config, &agent.connection).await?,
            client: host.client(),
            address: {
                let host = Arc::clone(&host);
                Arc::new(move || host.address())
            },
            kubelet: Arc::new(kubelet),
            stop: leave.clone(),
        }));
    }
    let handle = pods.handle();
    let both = async {
        tokio::select! {
            ended = Box::pin(agent.run()) => ended.map_err(anyhow::Error::from),
            never = Box::pin(pods.run()) => match never {},
            // launchd starts the next one, which finds the new address; virtual machines do not notice.
            moved = examination => Err(moved.into()),
        }
    };
    match stop.run_until_cancelled(both).await {
        None => {
            let client = host.client().borrow().clone();
            tokio::join!(parting::say(client, &config.spec.name, handle.running()), part(callers));
            Ok(())
        }
        Some(Ok(never)) => match never {},
        Some(Err(error)) => {
            leave.cancel();
            part(callers).await;
            Err(error)
        }
    }
}

/// Answers those who ask how the agent is, until it is dropped.
fn pages(config: &Config, host: &Host, pulse: &Arc<Pulse>) -> JoinSet<()> {
    let mut pages = JoinSet::new();
    if let Some(listen) = config.metrics {
        let address = listen.open(host.fixed());
        pages.spawn(serve::serve(address, Page::Metrics, Arc::clone(pulse)));
    }
    if let Some(listen) = config.probes {
        let address = listen.private(host.fixed());
        pages.spawn(serve::serve(address, Page::Probes, Arc::clone(pulse)));
    }
    pages
}

/// Lets the kubelet API, which was told to stop, tell its callers.
async fn part(mut callers: JoinSet<()>) {
    let told = async { while callers.join_next().await.is_some() {} };
    if tokio::time::timeout(FAREWELL, told).await.is_err() {
        tracing::info!("some callers of the kubelet API were not told that the agent ends");
    }
}

/// What the Pods of this host are run with.
fn options(config: &Config, host: &Arc<Host>, runtime: Arc<dyn Runtime>, meters: Meters) -> Options {
    Options {
        node: config.spec.name.clone(),
        state: config.state.clone(),
        kept: vec![config.kubeconfig.clone(), config.tart_home.clone()],
        runtime,
        client: host.client(),
        watching: host.watching(),
        address: {
            let host = Arc::clone(host);
            Arc::new(move || host.address())
        },
        capacity: config.spec.capacity,
        scrapers: config.scrape_allowed.clone(),
        tailnet_only: host.on_tailnet().is_some(),
        own_ports: [config.kubelet, config.metrics, config.probes]
            .into_iter()
            .flatten()
            .map(Listen::port)
            .collect(),
        meters: Arc::new(meters),
        keeping: Keeping {
            disk: host.disk(),
            board: host.board(),
            keep_unused: config.vms.keep_unused,
            logs: config.logs,
            interval: config.housekeeping,
        },
    }
}

/// Whose client certificates are believed: those of a file, else of the authority that the kubeconfig trusts. A node may not read
/// it from the cluster.
async fn client_ca(config: &Config, connection: &kube::Config) -> anyhow::Result<String> {
    if let Some(path) = &config.client_ca {
        return read(path, "it says who may call the kubelet API, see --client-ca-file").await;
    }
    let authorities = connection.root_cert.clone().unwrap_or_default();
    Ok(authorities.iter().map(|der| pem(der)).collect())
}

fn pem(der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = (0..text.len())
        .step_by(64)
        .filter_map(|start| text.get(start..text.len().min(start + 64)))
        .collect();
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        lines.join("\n")
    )
}

/// What runs virtual machines.
fn runtime(config: &Config) -> anyhow::Result<Arc<dyn Runtime>> {
    if config.runtime == RuntimeKind::Synthetic {
        return Ok(Arc::new(Synthetic::new(synthetic::Host::new(
            synthetic::Settings::default(),
        ))));
    }
    let program = std::env::current_exe().context("the agent does not find its own program")?;
    Ok(Arc::new(Tart::new(tart::Options {
        program: config.tart.clone(),
        home: config.tart_home.clone(),
        state: config.state.join("run"),
        supervisor: Supervisor {
            program,
            words: vec![SUPERVISE.into()],
        },
    })))
}

async fn read(path: &Path, why: &str) -> anyhow::Result<String> {
    tokio::fs::read_to_string(path)
        .await
        .with_context(|| format!("failed to read {}; {why}", path.display()))
}
