//! Measures the provider: so many Mac Machines on a real API server and Cluster API core, against the emulated Scaleway.
//!
//! The emulated minis live in this process and join as real Nodes, so the API server carries their heartbeats too; what is measured is
//! the provider's own process, its calls to Scaleway, and its writes as the audit log saw them.

use crate::machine::Machine;
use anyhow::{Context, Result, ensure};
use clap::Args;
use russet::process::{self, Usage};
use russet_e2e::fleet::{Fleet, Yard};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

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

    /// How long the fleet may take to become available, in seconds
    #[arg(long, default_value_t = 3600)]
    patience: u64,

    /// Also scale to zero and measure that
    #[arg(long)]
    down: bool,
}

pub(crate) async fn measure(options: &Options) -> Result<String> {
    say("starting the API server, Cluster API core, the provider and the emulators");
    let fleet = Fleet::start(&[]).await?;
    let yard = fleet.yard("bench", options.machines + options.spare).await?;
    yard.cluster().await?;
    yard.template("macos", json!({})).await?;
    say(&format!("{} Machines", options.machines));
    let before = Count::take(&fleet)?;
    let began = Instant::now();
    yard.deployment("macos", "macos", options.machines).await?;
    available(&yard, options.machines, options.patience).await?;
    let up = Stage::between(
        "adopt and join",
        options.machines,
        began.elapsed(),
        &before,
        &Count::take(&fleet)?,
    );

    say(&format!("at rest for {} s", options.window));
    settle(&fleet).await?;
    let before = Count::take(&fleet)?;
    let began = Instant::now();
    tokio::time::sleep(Duration::from_secs(options.window)).await;
    let rest = Stage::between(
        "at rest",
        options.machines,
        began.elapsed(),
        &before,
        &Count::take(&fleet)?,
    );

    let mut stages = vec![up, rest];
    if options.down {
        say("scaling to zero");
        let before = Count::take(&fleet)?;
        let began = Instant::now();
        yard.scale("macos", 0).await?;
        available(&yard, 0, options.patience).await?;
        let after = Count::take(&fleet)?;
        stages.push(Stage::between(
            "drain, wipe, pool",
            options.machines,
            began.elapsed(),
            &before,
            &after,
        ));
    }
    Ok(render(options, &stages, &peak(&fleet)?))
}

async fn available(yard: &Yard<'_>, wanted: u32, patience: u64) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(patience);
    let api = yard.deployments();
    let mut told = Instant::now();
    loop {
        let object = api.get("macos").await?;
        let number = |pointer: &str| object.data.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
        let (all, available) = (number("/status/replicas"), number("/status/availableReplicas"));
        if all == u64::from(wanted) && available == u64::from(wanted) {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "{available} of {wanted} available after {patience} s"
        );
        if told.elapsed() > Duration::from_secs(10) {
            told = Instant::now();
            say(&format!("{all} Machines, {available} available"));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Waits until the provider has written nothing for a while.
async fn settle(fleet: &Fleet) -> Result<()> {
    let mut last = writes(fleet)?;
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let now = writes(fleet)?;
        if now == last {
            return Ok(());
        }
        last = now;
    }
    say("the provider still writes after five minutes; measuring all the same");
    Ok(())
}

fn usage(fleet: &Fleet) -> Result<Usage> {
    let pid = fleet.provider_pid().context("the provider does not run")?;
    process::usage(pid).context("the provider's use could not be read")
}

/// The most memory the provider ever had.
fn peak(fleet: &Fleet) -> Result<String> {
    let pid = fleet.provider_pid().context("the provider does not run")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: Option<u64> = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
    Ok(kib.map_or_else(|| "?".to_owned(), |kib| format!("{} MiB", kib.div_ceil(1024))))
}

/// Writes of the provider by kind and verb, Leases of its election apart.
fn writes(fleet: &Fleet) -> Result<BTreeMap<String, usize>> {
    let mut all = BTreeMap::new();
    for entry in fleet.cluster.audit()?.of_user(&fleet.provider_user)? {
        if entry.is_write() {
            let object = entry.object();
            *all.entry(format!("{} {}", entry.verb, object.resource)).or_insert(0) += 1;
        }
    }
    Ok(all)
}

/// Calls to Scaleway by kind.
fn calls(fleet: &Fleet) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for entry in fleet.sim.handle().journal() {
        let last = entry.path.rsplit('/').next().unwrap_or_default();
        let what = if last.len() == 36 { "{id}" } else { last };
        *all.entry(format!("{} {what}", entry.method)).or_insert(0) += 1;
    }
    all
}

/// Counters at one moment.
struct Count {
    cpu: Duration,
    memory: u64,
    writes: BTreeMap<String, usize>,
    calls: BTreeMap<String, usize>,
}

impl Count {
    fn take(fleet: &Fleet) -> Result<Self> {
        let usage = usage(fleet)?;
        Ok(Self {
            cpu: usage.cpu,
            memory: usage.memory,
            writes: writes(fleet)?,
            calls: calls(fleet),
        })
    }
}

struct Stage {
    name: &'static str,
    machines: u32,
    wall: Duration,
    cpu: Duration,
    memory: u64,
    writes: BTreeMap<String, usize>,
    calls: BTreeMap<String, usize>,
}

impl Stage {
    fn between(name: &'static str, machines: u32, wall: Duration, before: &Count, after: &Count) -> Self {
        Self {
            name,
            machines,
            wall,
            cpu: after.cpu.saturating_sub(before.cpu),
            memory: after.memory,
            writes: difference(&before.writes, &after.writes),
            calls: difference(&before.calls, &after.calls),
        }
    }

    fn per_machine(&self, counts: &BTreeMap<String, usize>) -> String {
        let total: usize = counts.values().sum();
        format!("{total} ({:.2})", ratio(total, self.machines))
    }
}

fn difference(before: &BTreeMap<String, usize>, after: &BTreeMap<String, usize>) -> BTreeMap<String, usize> {
    let since = |(name, count): (&String, &usize)| {
        let more = count - before.get(name).copied().unwrap_or(0).min(*count);
        (more > 0).then(|| (name.clone(), more))
    };
    after.iter().filter_map(since).collect()
}

#[expect(clippy::cast_precision_loss, reason = "counts of calls are far below 2^52")]
fn ratio(total: usize, machines: u32) -> f64 {
    total as f64 / f64::from(machines.max(1))
}

fn render(options: &Options, stages: &[Stage], peak: &str) -> String {
    let mut out = String::new();
    let spare = if options.spare > 0 {
        format!(" --spare {}", options.spare)
    } else {
        String::new()
    };
    let down = if options.down { " --down" } else { "" };
    let _ = writeln!(
        out,
        "`russet-bench fleet --machines {}{spare} --window {}{down}` on {}, {}\n",
        options.machines,
        options.window,
        jiff::Timestamp::now().strftime("%Y-%m-%d"),
        Machine::this().sentence(),
    );
    out.push_str(
        "| Stage | Wall | Provider CPU | Provider memory | Scaleway calls (per Machine) | API writes (per Machine) |\n",
    );
    out.push_str("| --- | --- | --- | --- | --- | --- |\n");
    for stage in stages {
        let _ = writeln!(
            out,
            "| {} | {:.1} s | {:.2} s | {} MiB | {} | {} |",
            stage.name,
            stage.wall.as_secs_f64(),
            stage.cpu.as_secs_f64(),
            stage.memory.div_ceil(1 << 20),
            stage.per_machine(&stage.calls),
            stage.per_machine(&stage.writes),
        );
    }
    let _ = writeln!(out, "\nPeak memory of the provider: {peak}.\n");
    for stage in stages {
        let list = |counts: &BTreeMap<String, usize>| {
            let all: Vec<String> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
            if all.is_empty() {
                "none".to_owned()
            } else {
                all.join(", ")
            }
        };
        let _ = writeln!(
            out,
            "- {}: calls {}; writes {}",
            stage.name,
            list(&stage.calls),
            list(&stage.writes)
        );
    }
    out
}

fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_came_since_is_counted() {
        let counts = |pairs: &[(&str, usize)]| -> BTreeMap<String, usize> {
            pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
        };
        let since = difference(
            &counts(&[("GET a", 2), ("GET b", 1)]),
            &counts(&[("GET a", 5), ("GET b", 1), ("PUT c", 1)]),
        );
        assert_eq!(since, counts(&[("GET a", 3), ("PUT c", 1)]));
    }
}
