//! Measures the provider: so many Mac Machines on a real API server and Cluster API core, against the emulated Scaleway.
//!
//! The emulated minis live in this process and join as real Nodes, so the API server carries their heartbeats too; what is measured is
//! the provider's own process, its calls to Scaleway, and its writes as the audit log saw them. Cluster API core runs at the pace of
//! production, and the provider polls as seldom as it does there; only its own limit of calls is raised, since no Scaleway is at the
//! other end, with the workers that go with it, and its wait for other clusters is left out, since there are none.

mod count;
mod report;
mod writes;

use crate::machine::Machine;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use count::{Count, Stage};
use report::Report;
use russet_e2e::fleet::{FACTOR, Fleet, Manner, Yard};
use russet_parts::Manifest;
use russet_sim_scaleway::Factor;
use serde_json::{Value, json};
use std::io::Write as _;
use std::time::{Duration, Instant};
use writes::Writes;

const NAME: &str = "macos";
/// Hosts on a page of Scaleway's.
const PAGE: usize = 100;
const LOOK_EVERY: Duration = Duration::from_secs(1);
const TELL_EVERY: Duration = Duration::from_secs(10);

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
        let mut words = vec![format!(
            "target/release/russet-bench fleet --machines {}",
            self.machines
        )];
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
        format!(
            "cargo build --release -p russet-bench -p russet-capi-provider\n{}",
            words.join(" ")
        )
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
    let log = fleet.cluster.control_plane().audit_log();
    let mut writes = Writes::follow(log.context("there is no audit log")?, &fleet.provider_user)?;
    let yard = fleet.yard("bench", options.machines + options.spare).await?;
    yard.cluster().await?;
    yard.template(NAME, json!({})).await?;
    let patience = Duration::from_secs(options.patience);
    say("waiting for the provider's poll to find the minis");
    polled(&fleet, patience).await?;

    say(&format!("{} Machines", options.machines));
    let start = Count::take(&fleet, &mut writes)?;
    yard.deployment(NAME, NAME, options.machines).await?;
    let wait = Wait::new(&yard, &mut writes, patience);
    wait.until(u64::from(options.machines), "available", available).await?;
    let up = Stage::between(&start, &Count::take(&fleet, &mut writes)?);

    say("waiting for the provider to come to rest");
    settle(&fleet, &mut writes).await?;
    say(&format!("at rest for {} s", options.window));
    let before = Count::take(&fleet, &mut writes)?;
    tokio::time::sleep(Duration::from_secs(options.window)).await;
    let rest = Stage::between(&before, &Count::take(&fleet, &mut writes)?);

    let mut down = None;
    if options.down {
        say("scaling to zero");
        fleet.sim.handle().set_clock_factor(Factor::try_from(FACTOR)?);
        let before = Count::take(&fleet, &mut writes)?;
        yard.scale(NAME, 0).await?;
        let minis = u64::from(options.machines + options.spare);
        let wait = Wait::new(&yard, &mut writes, patience);
        wait.until(minis, "minis in the pool", pooled).await?;
        let wait = Wait::new(&yard, &mut writes, patience);
        wait.until(0, "machines left", left).await?;
        down = Some(Stage::between(&before, &Count::take(&fleet, &mut writes)?));
    }
    let report = Report {
        date: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
        command: options.command(),
        machine: Machine::this(),
        load: (load, self::load()),
        versions: versions(),
        machines: options.machines,
        spare: options.spare,
        up,
        rest,
        down,
        peak_kib: peak(&fleet),
    };
    Ok(report.markdown())
}

fn versions() -> Vec<(String, String)> {
    let manifest = Manifest::embedded();
    let parts = ["kube-apiserver", "etcd", "capi-core"].into_iter().filter_map(|tool| {
        let (part, _) = manifest.tool(tool).ok()?;
        Some((part.name.clone(), part.version.clone()))
    });
    let ours = ("capi-provider".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    std::iter::once(ours).chain(parts).collect()
}

/// Waits for a number to be reached, and goes on waiting as long as it moves.
struct Wait<'a, 'f> {
    yard: &'a Yard<'f>,
    writes: &'a mut Writes,
    patience: Duration,
}

impl<'a, 'f> Wait<'a, 'f> {
    fn new(yard: &'a Yard<'f>, writes: &'a mut Writes, patience: Duration) -> Self {
        Self { yard, writes, patience }
    }

    async fn until(self, wanted: u64, what: &str, look: impl AsyncFn(&Yard<'_>) -> Result<u64>) -> Result<()> {
        let began = Instant::now();
        let (mut last, mut moved) = ((0, 0), Instant::now());
        let mut told = Instant::now();
        loop {
            // An API server under load may be late with an answer; that alone is no reason to give up. Core counts what is
            // available only when it has made all Machines, which takes minutes, so the minis are looked at too.
            let seen = look(self.yard).await;
            if seen.as_ref().is_ok_and(|now| *now == wanted) {
                return Ok(());
            }
            let free = free(self.yard);
            let now = (seen.as_ref().map_or(last.0, |now| *now), free);
            if last != now {
                (last, moved) = (now, Instant::now());
            }
            let shown = now.0;
            if moved.elapsed() > self.patience {
                let seconds = self.patience.as_secs();
                let cause = seen.err().map(|error| format!(": {error:#}")).unwrap_or_default();
                bail!("{shown} of {wanted} {what}, {free} minis free, and nothing moved for {seconds} s{cause}");
            }
            if told.elapsed() >= TELL_EVERY {
                told = Instant::now();
                let count = Count::take(self.yard.fleet, self.writes)?;
                say(&format!(
                    "{:5.0} s: {shown} of {wanted} {what}, {free} minis free; provider: {}",
                    began.elapsed().as_secs_f64(),
                    count.sentence()
                ));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
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

/// Replicas that are available.
async fn available(yard: &Yard<'_>) -> Result<u64> {
    let object = yard.deployments().get(NAME).await?;
    let number = |pointer: &str| object.data.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    Ok(number("/status/availableReplicas"))
}

/// Minis that are free and ready.
fn free(yard: &Yard<'_>) -> u64 {
    let free = |(name, status): &&(String, String)| name.starts_with(&yard.pool) && status == "ready";
    let count = yard.servers().iter().filter(free).count();
    count.try_into().unwrap_or(u64::MAX)
}

async fn pooled(yard: &Yard<'_>) -> Result<u64> {
    Ok(free(yard))
}

async fn left(yard: &Yard<'_>) -> Result<u64> {
    Ok(u64::try_from(yard.all_macs().await?.len())?)
}

/// Waits until the provider has written nothing for a while.
async fn settle(fleet: &Fleet, writes: &mut Writes) -> Result<()> {
    let mut last = Count::take(fleet, writes)?.provider_writes();
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_secs(20)).await;
        let now = Count::take(fleet, writes)?.provider_writes();
        if now == last {
            return Ok(());
        }
        say(&format!("{} writes in 20 s", now - last));
        last = now;
    }
    say("the provider still writes after ten minutes; measuring all the same");
    Ok(())
}

/// The most memory the provider ever had, in KiB.
fn peak(fleet: &Fleet) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", fleet.provider_pid()?)).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_whitespace().next().and_then(|word| word.parse().ok());
    first.unwrap_or(0.0)
}

fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
