//! Measures what so many Macs that run Pods cost one API server, and how long a Pod waits for its agent.
//!
//! The Macs are the agent itself, many times in this process: the Node, its Lease, the watch, the task per Pod, the ledger. Only the
//! virtual machines are synthetic: they take as long as they are told, so that what is left of a Pod's way to Running is the agent's
//! and the API server's. The state of the Macs is in memory, since they do not share one disk in earnest. Requests are counted by
//! the API server, in its audit log.

mod churn;
mod mac;
mod report;
pub(crate) mod requests;

use crate::fleet::table::Head;
use crate::fleet::{command_with, load, say};
use anyhow::{Context, Result, ensure};
use churn::Churn;
use clap::Args;
use k8s_openapi::api::core::v1::{Namespace, Node, ServiceAccount};
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use mac::Macs;
use report::{Report, Span};
use requests::Requests;
use russet::process;
use russet_testkit::cluster::{Extras, TestCluster};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Memory that looks like a disk.
const MEMORY: &str = "/dev/shm";

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How many Macs
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=5000))]
    macs: u32,

    /// How many Pods are made a second, and as many go
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=200))]
    rate: u32,

    /// Seconds over which Macs are measured, first at rest and then with Pods that come and go
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(10..=3600))]
    window: u64,

    /// How long nothing may move before it is given up, in seconds
    #[arg(long, default_value_t = 600)]
    patience: u64,
}

impl Options {
    /// The command that makes the same figures.
    fn command(&self) -> String {
        let Self { macs, rate, window, .. } = self;
        command_with(&[], &format!("pods --macs {macs} --rate {rate} --window {window}"))
    }
}

pub(crate) async fn measure(options: &Options) -> Result<String> {
    let load_before = load();
    // The first of a process wins.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    say("starting the API server");
    let cluster = TestCluster::start(Extras::CONTROLLERS).await?;
    let client = cluster.client().await?;
    let patience = Duration::from_secs(options.patience);
    let log = cluster.control_plane().audit_log().context("there is no audit log")?;
    let mut requests = Requests::follow(log)?;
    let dir = scratch()?;
    namespace(&client, churn::NAMESPACE, patience).await?;

    say(&format!("{} Macs", options.macs));
    let began = Instant::now();
    let macs = Macs::join(&cluster, dir.path(), options.macs).await?;
    ready(&client, options.macs, patience).await?;
    let joined = began.elapsed();

    let window = Duration::from_secs(options.window);
    say(&format!("at rest for {} s", options.window));
    let meter = Meter::begin(&cluster, &mut requests)?;
    tokio::time::sleep(window).await;
    let rest = meter.end(&cluster, &mut requests)?;

    say(&format!("{} Pods a second for {} s", options.rate, options.window));
    let churn = Churn::start(client, options.macs);
    // First one for each Mac: what goes on is measured apart from what begins.
    let once = Duration::from_secs(options.macs.div_ceil(options.rate).into());
    churn.make(options.rate, once).await;
    let meter = Meter::begin(&cluster, &mut requests)?;
    let first = churn.made();
    churn.make(options.rate, window).await;
    let busy = meter.end(&cluster, &mut requests)?;
    let made = churn.made() - first;
    say("waiting for the last Pods to go");
    let waits = churn.finish(patience).await?;
    drop(macs);
    let report = Report {
        head: Head::new(
            options.command(),
            load_before,
            "tart-kubelet",
            &["kube-apiserver", "etcd"],
        ),
        macs: options.macs,
        joined,
        rest,
        busy,
        made,
        waits,
    };
    Ok(report.markdown())
}

/// A folder in memory, if there is such a thing.
pub(crate) fn scratch() -> Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("russet-bench-");
    let dir = if Path::new(MEMORY).is_dir() {
        builder.tempdir_in(MEMORY)
    } else {
        builder.tempdir()
    };
    dir.context("failed to make a folder")
}

/// A namespace in which Pods can be.
pub(crate) async fn namespace(client: &Client, name: &str, patience: Duration) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let object = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    namespaces.create(&PostParams::default(), &object).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), name);
    let began = Instant::now();
    while accounts.get_opt("default").await?.is_none() {
        ensure!(began.elapsed() < patience, "the namespace got no ServiceAccount");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// Waits until all Nodes are Ready and nothing keeps Pods off them.
async fn ready(client: &Client, wanted: u32, patience: Duration) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let (mut moved, mut best) = (Instant::now(), 0);
    loop {
        let all = nodes.list(&ListParams::default()).await?.items;
        let count = all.iter().filter(|node| is_ready(node)).count();
        if count >= usize::try_from(wanted)? {
            return Ok(());
        }
        if count > best {
            (moved, best) = (Instant::now(), count);
            say(&format!("{count} are Ready"));
        }
        ensure!(moved.elapsed() < patience, "only {best} of {wanted} Nodes are Ready");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    let mut taints = taints.into_iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
        && !taints.any(|taint| taint.key == "node.kubernetes.io/not-ready")
}

/// What is read at both ends of a window.
struct Meter {
    at: Instant,
    counts: requests::Counts,
    agents: Duration,
    server: Duration,
}

impl Meter {
    fn begin(cluster: &TestCluster, requests: &mut Requests) -> Result<Self> {
        Ok(Self {
            at: Instant::now(),
            counts: requests.read()?.clone(),
            agents: cpu(std::process::id())?,
            server: server(cluster)?,
        })
    }

    fn end(self, cluster: &TestCluster, requests: &mut Requests) -> Result<Span> {
        let after = Self::begin(cluster, requests)?;
        Ok(Span {
            wall: after.at - self.at,
            requests: requests::between(&self.counts, &after.counts),
            agents: after.agents.saturating_sub(self.agents),
            server: after.server.saturating_sub(self.server),
            memory: process::usage(std::process::id()).map_or(0, |usage| usage.memory),
        })
    }
}

fn cpu(pid: u32) -> Result<Duration> {
    let usage = process::usage(pid).with_context(|| format!("process {pid} has ended"))?;
    Ok(usage.cpu)
}

fn server(cluster: &TestCluster) -> Result<Duration> {
    let parts = cluster.supervisor().snapshot();
    let part = parts.into_iter().find(|part| part.name == "kube-apiserver");
    let pid = part.and_then(|part| part.pid).context("there is no API server")?;
    cpu(pid)
}
