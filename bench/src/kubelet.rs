//! Measures one agent beside a stock kubelet with containerd, on the same machine and the same API server.
//!
//! Both are real processes. Ours runs virtual machines with the emulated `tart`, whose guests are processes of this machine, so what
//! is compared is the way of a command and of a file from `kubectl` through the API server and the kubelet to a program, and not how
//! fast a virtual machine is. Whatever is compared takes turns, so that both meet the same machine. Needs root, for the stock one.

mod ours;
mod report;
mod turns;

use crate::fleet::table::Head;
use crate::fleet::{command_with, load, say};
use crate::machine::program;
use crate::pods::namespace;
use crate::pods::requests::{self, Requests};
use anyhow::{Context, Result, ensure};
use clap::Args;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};
use ours::Ours;
use report::{Idle, Report, Side};
use russet::process;
use russet_testkit::cluster::{Extras, TestCluster};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use turns::Turns;

const NAMESPACE: &str = "bench";
const PATIENCE: Duration = Duration::from_mins(3);
const LOOK: Duration = Duration::from_millis(250);
const SIDES: [(Side, &str); 2] = [(Side::Ours, "ours"), (Side::Stock, "stock")];
/// What the first moments of a process take is not its rest.
const SETTLE: Duration = Duration::from_secs(15);

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Seconds over which both are measured at rest, without Pods and with two
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=3600))]
    window: u64,

    /// How often a command is run, on each side
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=1000))]
    execs: u32,

    /// How often a file is copied, on each side and in each direction
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=100))]
    copies: u32,

    /// The size of that file, in MiB
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    mib: u32,

    /// How many Pods are run to their end on each side, for the requests that each takes
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    pods: u32,
}

impl Options {
    /// The command that makes the same figures.
    fn command(&self) -> String {
        let words = format!(
            "kubelet --window {} --execs {} --copies {} --mib {} --pods {}",
            self.window, self.execs, self.copies, self.mib, self.pods
        );
        command_with(&["russet-tart-kubelet", "russet-sim-tart"], &words)
    }
}

pub(crate) async fn measure(options: &Options) -> Result<String> {
    let load_before = load();
    let hint =
        "build it with `cargo build -p russet-tart-kubelet -p russet-sim-tart`, with the profile of this program";
    let [agent, tart] = ["tart-kubelet", "sim-tart"].map(|name| program(name, None, hint));
    let (agent, tart) = (agent?, tart?);
    let binary = stripped(&agent)?;
    say("starting the API server and a node with containerd");
    let extras = Extras {
        linux_node: true,
        ..Extras::default()
    };
    let cluster = TestCluster::start(extras).await?;
    let log = cluster.control_plane().audit_log().context("there is no audit log")?;
    let mut requests = Requests::follow(log)?;
    namespace(&cluster.client().await?, NAMESPACE, PATIENCE).await?;
    say("starting the agent");
    let ours = Ours::start(&cluster, &agent, &tart).await?;
    let stock = cluster.node().context("there is no node")?.name().to_owned();
    let bench = Bench {
        cluster: &cluster,
        stock: &stock,
        ours: &ours,
        window: Duration::from_secs(options.window),
    };
    let empty = bench.idle(&mut requests).await?;
    say("two Pods on each side");
    for (side, name) in SIDES {
        for number in 0..2 {
            let pod = format!("{name}-{number}");
            bench.run(&pod, side, "sleep 1000000", "Running").await?;
        }
    }
    let busy = bench.idle(&mut requests).await?;
    let mut per_pod = BTreeMap::new();
    say("short Pods on each side");
    // Without the two that stay: a Mac has two places.
    for (_, name) in SIDES {
        bench.delete(&format!("{name}-1")).await?;
    }
    for (side, name) in SIDES {
        let before = requests.read()?.clone();
        let began = Instant::now();
        for number in 0..options.pods {
            let pod = format!("short-{name}-{number}");
            bench.run(&pod, side, "exit 0", "Succeeded").await?;
            bench.delete(&pod).await?;
        }
        let after = requests.read()?;
        let mut counted = of(&before, after, bench.node(side));
        // The heartbeat goes on meanwhile, and is no Pod's.
        counted.retain(|what, _| !matches!(what.split_once(' '), Some((_, "leases" | "nodes/status"))));
        per_pod.insert(name, (counted, began.elapsed()));
    }
    let turns = Turns::take(&bench, options).await?;
    let report = Report {
        head: Head::new(
            options.command(),
            load_before,
            "tart-kubelet",
            &["kubelet", "containerd", "runc"],
        ),
        binary,
        empty,
        busy,
        pods: options.pods,
        per_pod,
        mib: options.mib,
        turns,
    };
    Ok(report.markdown())
}

/// What is left of a program's size without its symbols.
fn stripped(program: &Path) -> Result<u64> {
    let dir = tempfile::tempdir()?;
    let slim = dir.path().join("slim");
    let mut strip = std::process::Command::new("strip");
    let stripped = strip.arg("-o").arg(&slim).arg(program).status();
    ensure!(stripped.context("failed to run strip")?.success(), "strip failed");
    Ok(std::fs::metadata(slim)?.len())
}

/// What one node asked for between the two.
fn of(before: &requests::Counts, after: &requests::Counts, node: &str) -> BTreeMap<String, usize> {
    let only = |counts: &requests::Counts| {
        let found = counts.get(node).cloned().unwrap_or_default();
        requests::Counts::from([(node.to_owned(), found)])
    };
    requests::between(&only(before), &only(after))
}

/// Both sides.
struct Bench<'a> {
    cluster: &'a TestCluster,
    stock: &'a str,
    ours: &'a Ours,
    window: Duration,
}

impl Bench<'_> {
    fn node(&self, side: Side) -> &str {
        match side {
            Side::Ours => ours::NODE,
            Side::Stock => self.stock,
        }
    }

    async fn api(&self) -> Result<Api<Pod>> {
        Ok(Api::namespaced(self.cluster.client().await?, NAMESPACE))
    }

    /// Runs a Pod until it is as it shall be.
    async fn run(&self, name: &str, side: Side, script: &str, phase: &str) -> Result<()> {
        let image = match side {
            Side::Ours => ours::IMAGE,
            Side::Stock => "localhost/busybox:1",
        };
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "nodeName": self.node(side),
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "tolerations": [{"operator": "Exists"}],
                "containers": [{
                    "name": "main", "image": image, "imagePullPolicy": "IfNotPresent",
                    "command": ["sh", "-c", script],
                    "volumeMounts": [{"name": "work", "mountPath": "/opt/work"}],
                }],
                "volumes": [{"name": "work", "emptyDir": {}}],
            },
        }))?;
        let api = self.api().await?;
        api.create(&PostParams::default(), &pod).await?;
        let began = Instant::now();
        loop {
            let status = api.get(name).await?.status.unwrap_or_default();
            if status.phase.as_deref() == Some(phase) {
                return Ok(());
            }
            ensure!(
                began.elapsed() < PATIENCE && status.phase.as_deref() != Some("Failed"),
                "{name} did not come to be {phase}: {status:?}\n{}",
                self.ours.log()
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn delete(&self, name: &str) -> Result<()> {
        let api = self.api().await?;
        api.delete(name, &DeleteParams::default()).await?;
        let began = Instant::now();
        while api.get_opt(name).await?.is_some() {
            ensure!(began.elapsed() < PATIENCE, "{name} does not go away");
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Both left alone.
    async fn idle(&self, requests: &mut Requests) -> Result<Idle> {
        say(&format!("at rest for {} s", self.window.as_secs()));
        tokio::time::sleep(SETTLE).await;
        let (ours, stock) = (Watched::begin(self.ours.pid()?)?, Watched::begin(self.stock_pid()?)?);
        let counts = requests.read()?.clone();
        let began = Instant::now();
        tokio::time::sleep(self.window).await;
        let wall = began.elapsed();
        let counted = requests.read()?;
        Ok(Idle {
            wall,
            ours: ours.end(wall, of(&counts, counted, ours::NODE))?,
            stock: stock.end(wall, of(&counts, counted, self.stock))?,
        })
    }

    /// The stock kubelet itself: what is supervised is the program that brings it into its namespaces.
    fn stock_pid(&self) -> Result<u32> {
        let parts = self.cluster.supervisor().snapshot();
        let part = parts.into_iter().find(|part| part.name.ends_with("-kubelet"));
        let entered = part.and_then(|part| part.pid).context("the stock kubelet has ended")?;
        let processes = std::fs::read_dir("/proc")?.flatten();
        let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.find(|pid| status(*pid, "Name").as_deref() == Some("kubelet") && descends(*pid, entered))
            .context("the stock kubelet is not found")
    }
}

/// A line of what the kernel says of a process.
fn status(pid: u32, line: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let value = text
        .lines()
        .find_map(|found| found.strip_prefix(line)?.strip_prefix(':'))?;
    Some(value.trim().to_owned())
}

fn descends(mut pid: u32, from: u32) -> bool {
    while pid > 1 {
        if pid == from {
            return true;
        }
        pid = status(pid, "PPid").and_then(|parent| parent.parse().ok()).unwrap_or(0);
    }
    false
}

/// A process that is left alone.
struct Watched {
    pid: u32,
    cpu: Duration,
}

impl Watched {
    fn begin(pid: u32) -> Result<Self> {
        let usage = usage(pid)?;
        Ok(Self { pid, cpu: usage.cpu })
    }

    fn end(&self, wall: Duration, requests: BTreeMap<String, usize>) -> Result<report::Rest> {
        let usage = usage(self.pid)?;
        Ok(report::Rest {
            memory: usage.memory,
            cpu_percent: process::cpu_percent(self.cpu, usage.cpu, wall),
            requests,
        })
    }
}

fn usage(pid: u32) -> Result<process::Usage> {
    process::usage(pid).with_context(|| format!("process {pid} has ended"))
}
