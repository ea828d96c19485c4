//! Measures the provider: so many Mac Machines on a real API server and Cluster API core, against the emulated Scaleway.
//!
//! The emulated minis live in this process and join as real Nodes, so the API server carries their heartbeats too; what is measured is
//! the provider's own process, its calls to Scaleway, and its writes as the audit log saw them. Cluster API core runs at the pace of
//! production, and the provider polls as seldom as it does there; only its own limit of calls is raised, since no Scaleway is at the
//! other end, with the workers that go with it, and its wait for other clusters is left out, since there are none.

pub(crate) mod audit;
pub(crate) mod count;
mod report;
pub(crate) mod table;
pub(crate) mod tail;
pub(crate) mod wait;
pub(crate) mod writes;

pub(crate) use crate::machine::{load, say};
use anyhow::{Result, ensure};
use clap::Args;
use count::Stage;
use report::Report;
use russet_sim_scaleway::Factor;
use russet_stages::macs::{FACTOR, Fleet, Manner, Yard};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use table::Head;
use wait::Watch;

const NAME: &str = "macos";
/// Hosts on a page of Scaleway's.
const PAGE: usize = 100;
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How many Machines
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=5000))]
    machines: u32,

    /// Minis in the pool besides, to see that they cost nothing
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=5000))]
    spare: u32,

    /// Seconds over which the fleet at rest is measured
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    window: u64,

    /// How long nothing may move before it is given up, in seconds
    #[arg(long, default_value_t = 600)]
    patience: u64,

    /// The provider's --scaleway-calls-per-second; its own default is 10
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=1000))]
    calls_per_second: u16,

    /// The provider's --machine-max-concurrent-reconciles; its own default, which goes with 10 calls a second, is 4
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: u16,

    /// Another flag for the provider, such as --max-concurrent-bootstraps=64
    #[arg(long = "provider-arg", value_name = "FLAG", allow_hyphen_values = true)]
    provider_args: Vec<String>,

    /// Also scale to zero and measure that
    #[arg(long)]
    down: bool,
}

impl Options {
    /// The command that makes the same figures.
    fn command(&self) -> String {
        let mut words = vec![format!("fleet --machines {}", self.machines)];
        if self.spare > 0 {
            words.push(format!("--spare {}", self.spare));
        }
        words.push(format!("--window {}", self.window));
        if self.calls_per_second != 200 {
            words.push(format!("--calls-per-second {}", self.calls_per_second));
        }
        if self.workers != 16 {
            words.push(format!("--workers {}", self.workers));
        }
        words.extend(self.provider_args.iter().map(|arg| format!("--provider-arg={arg}")));
        if self.down {
            words.push("--down".to_owned());
        }
        command(&words)
    }
}

pub(crate) async fn measure(options: &Options) -> Result<String> {
    let load = load();
    say("starting the API server, Cluster API core, the provider and the emulators");
    let rate = format!("--scaleway-calls-per-second={}", options.calls_per_second);
    let workers = format!("--machine-max-concurrent-reconciles={}", options.workers);
    let mut args = vec![rate.as_str(), workers.as_str()];
    args.extend(options.provider_args.iter().map(String::as_str));
    let fleet = Fleet::start_in(Manner::Earnest, &args).await?;
    // Wipes are what a fast clock is for. While Macs join, days would pass in minutes, and Scaleway seals passwords after some.
    fleet.sim.handle().set_clock_factor(Factor::try_from(1.0)?);
    let yard = fleet.yard("bench", options.machines + options.spare).await?;
    yard.cluster().await?;
    yard.template(NAME, json!({})).await?;
    let patience = Duration::from_secs(options.patience);
    let mut watch = Watch::begin(&fleet, patience)?;
    say("waiting for the provider's poll to find the minis");
    polled(&fleet, patience).await?;

    say(&format!("{} Machines", options.machines));
    let free = ("minis free", || free(&yard));
    let start = watch.count()?;
    yard.deployment(NAME, NAME, options.machines).await?;
    let wanted = (u64::from(options.machines), "available");
    watch.until(wanted, || available(&yard, NAME), free).await?;
    let up = Stage::between(&start, &watch.count()?);
    let rest = watch.rest(options.window).await?;

    let mut down = None;
    if options.down {
        say("scaling to zero");
        fleet.sim.handle().set_clock_factor(Factor::try_from(FACTOR)?);
        let before = watch.count()?;
        yard.scale(NAME, 0).await?;
        let minis = u64::from(options.machines + options.spare);
        let pooled = async || Ok(self::free(&yard));
        watch.until((minis, "minis in the pool"), pooled, free).await?;
        watch.until((0, "machines left"), || left(&yard), free).await?;
        down = Some(Stage::between(&before, &watch.count()?));
    }
    let report = Report {
        head: head(options.command(), load),
        machines: options.machines,
        spare: options.spare,
        up,
        rest,
        down,
        peak_kib: peak(&fleet),
    };
    Ok(report.markdown())
}

/// The command that makes the same figures with a provider of the same make.
pub(crate) fn command(words: &[String]) -> String {
    command_with(&["russet-capi-provider"], &words.join(" "))
}

/// The command that makes the same figures with programs of the same make, which lie beside this one.
pub(crate) fn command_with(packages: &[&str], words: &str) -> String {
    let (flag, folder) = if cfg!(debug_assertions) {
        ("", "debug")
    } else {
        ("--release ", "release")
    };
    let packages: String = packages.iter().flat_map(|package| [" -p ", package]).collect();
    format!("cargo build {flag}-p russet-bench{packages}\ntarget/{folder}/russet-bench {words}")
}

/// What stands above figures of the provider that were made until now.
pub(crate) fn head(command: String, load_before: f64) -> Head {
    Head::new(
        command,
        load_before,
        "capi-provider",
        &["kube-apiserver", "etcd", "capi-core"],
    )
}

/// Waits for a list that was asked for after now: minis that were made since the last one are strange to the provider, and in earnest
/// they are there long before anybody wants them.
async fn polled(fleet: &Fleet, patience: Duration) -> Result<()> {
    let lists = || {
        let journal = fleet.sim.handle().journal();
        journal.iter().filter(|entry| entry.path.ends_with("/servers")).count()
    };
    let (before, began) = (lists(), Instant::now());
    let pages = fleet.sim.handle().servers().len().div_ceil(PAGE).max(1);
    while lists() < before + pages {
        ensure!(began.elapsed() < patience, "the provider does not list its hosts");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// Replicas of a MachineDeployment that are available.
pub(crate) async fn available(yard: &Yard<'_>, deployment: &str) -> Result<u64> {
    let object = yard.deployments().get(deployment).await?;
    let number = |pointer: &str| object.data.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    Ok(number("/status/availableReplicas"))
}

/// Minis that are free and ready.
fn free(yard: &Yard<'_>) -> u64 {
    let free = |(name, status): &&(String, String)| name.starts_with(&yard.pool) && status == "ready";
    let count = yard.servers().iter().filter(free).count();
    count.try_into().unwrap_or(u64::MAX)
}

async fn left(yard: &Yard<'_>) -> Result<u64> {
    Ok(u64::try_from(yard.all_macs().await?.len())?)
}

/// The most memory the provider ever had, in KiB.
pub(crate) fn peak(fleet: &Fleet) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", fleet.provider_pid()?)).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}
