//! The cache beside nginx and others, on one machine: the server on one core, the loader on another, the systems taking turns.
//!
//! ```text
//! for each row:    store what is read ──► round 1: kura, nginx, peers ──► round 2 ... ──► medians ──► ratio to nginx
//! then:            memory at rest, start-up with 1,000,000 entries, 1,000 readers in 512 MiB, uploads over a long link
//! ```
//! Processor time per request is the figure that others' work on the machine disturbs least; rates and latencies stand beside it.

mod core;
mod ending;
mod group;
mod http;
mod key;
mod kura;
mod link;
mod loader;
mod meter;
mod nginx;
mod pages;
mod reapi;
mod report;
mod row;
mod standing;
mod stats;
mod system;
mod zipf;

use crate::fleet::table::Head;
use crate::machine::{Machine, load, say};
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use core::Cores;
use key::Bodies;
use kura::{Kura, Launch, Limits};
use loader::Load;
use nginx::Nginx;
use report::{Report, RowResult, Series, Slot};
use row::Row;
use standing::Stand;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use system::{Peer, System};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only these rows: get-4k, get-64k, get-1m, get-16m, miss, put-4k, put-64k, put-1m, put-16m, mix; over gRPC find-present,
    /// find-absent, batch-read, batch-update, read-16m, read-16m-zstd, read-16m-deflate, read-16m-inflate, write-16m, action; then idle,
    /// million, pressure, link
    #[arg(long, value_name = "ROW", value_delimiter = ',')]
    only: Vec<String>,

    /// Shorter rounds and smaller sets, to see whether everything works
    #[arg(long)]
    quick: bool,

    /// How often each system takes its turn
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,

    /// The node to measure (the one beside this program if not given)
    #[arg(long, value_name = "FILE")]
    kura: Option<PathBuf>,

    /// The nginx to compare with (Debian's if not given)
    #[arg(long, value_name = "FILE")]
    nginx: Option<PathBuf>,

    /// Another running server: keys are appended to the URL's path, or replace `{key}` in it; may be repeated
    #[arg(long, value_name = "NAME=URL")]
    peer: Vec<Peer>,

    /// The process of a peer, if it cannot be found by its port
    #[arg(long, value_name = "NAME=PID", value_parser = system::peer_pid)]
    peer_pid: Vec<(String, u32)>,

    /// Folder for all data, on the disk to measure (beside this program if not given)
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,

    /// Core of the servers
    #[arg(long, default_value_t = 0)]
    server_core: usize,

    /// Core of the loader
    #[arg(long, default_value_t = 1)]
    loader_core: usize,
}

impl Options {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    fn check(&self, rows: &[Box<dyn Row>]) -> Result<()> {
        let known: Vec<&str> = rows.iter().map(|row| row.name()).chain(standing::NAMES).collect();
        for only in &self.only {
            let there = known.contains(&only.as_str());
            ensure!(there, "there is no row {only:?}; there are {}", known.join(", "));
        }
        Ok(())
    }
}

pub(crate) use ending::follow;

/// The tables. If a signal asks us to end, this never returns: whoever took the signal ends the program.
pub(crate) fn measure(options: &Options) -> Result<String> {
    ending::watch()?;
    let measured = tables(options);
    ending::leave_to_signal();
    measured
}

fn tables(options: &Options) -> Result<String> {
    let mut rows = row::all(options.quick);
    options.check(&rows)?;
    rows.retain(|row| options.wants(row.name()));
    // Before this thread is bound to one core.
    let (machine, load_before) = (Machine::this(), load());
    let parent = match &options.dir {
        Some(dir) => std::path::absolute(dir)?,
        None => std::env::current_exe()?
            .parent()
            .context("this program has no folder")?
            .to_owned(),
    };
    let folder = tempfile::Builder::new()
        .prefix("russet-bench-")
        .tempdir_in(&parent)
        .with_context(|| format!("failed to make a folder in {}", parent.display()))?;
    ending::add_folder(folder.path());
    let disk = pages::file_system(folder.path()).unwrap_or_else(|| "an unknown file system".to_owned());
    raise_descriptor_limit();
    let cores = Cores::new(options.server_core, options.loader_core)?;
    let launch = Launch::new(options.kura.as_deref(), cores)?;
    let bodies = Bodies::new(http::LARGEST);
    let mut versions = vec![launch.version()];
    let mut results = Vec::new();
    if !rows.is_empty() {
        let mut field = Field::start(options, &launch, folder.path(), cores)?;
        versions = field.systems().map(System::version).collect();
        for row in &rows {
            results.push(field.measure(&**row, options.rounds, &bodies)?);
        }
        field.stop()?;
    }
    let mut stand = Stand {
        launch: &launch,
        dir: folder.path(),
        bodies: &bodies,
        runs: options.rounds,
        quick: options.quick,
        facts: Vec::new(),
        notes: Vec::new(),
    };
    for name in standing::NAMES.into_iter().filter(|name| options.wants(name)) {
        say(name);
        let measured = stand.measure(name);
        measured.with_context(|| format!("failed to measure {name}"))?;
    }
    let mut notes = stand.notes;
    if disk == "tmpfs" {
        notes.push("The data was on a file system in memory, where syncing costs nothing: use --dir.".to_owned());
    }
    let report = Report {
        head: Head {
            machine,
            disk: Some(format!("data on {disk}")),
            versions,
            ..Head::new(command_line(), load_before, "kura", &[])
        },
        rounds: options.rounds,
        rows: results,
        facts: stand.facts,
        notes,
    };
    Ok(report.markdown())
}

/// All systems, running.
struct Field {
    /// Of the machine.
    cores: u32,
    kura: Kura,
    nginx: Nginx,
    peers: Vec<System>,
}

impl Field {
    fn start(options: &Options, launch: &Launch, dir: &Path, cores: Cores) -> Result<Self> {
        for (name, _) in &options.peer_pid {
            let named = options.peer.iter().any(|peer| peer.name == *name);
            ensure!(named, "--peer-pid names {name}, --peer does not");
        }
        let nginx = Nginx::start(options.nginx.as_deref(), dir, cores)?;
        let mut kura = launch.start(&dir.join("kura"), &Limits::default())?;
        kura.up(Duration::from_secs(30))?;
        let mut peers = Vec::new();
        for peer in &options.peer {
            if ["kura", "nginx"].contains(&peer.name.as_str()) {
                bail!("a peer needs a name of its own, not {:?}", peer.name);
            }
            let pid = options.peer_pid.iter().find(|(name, _)| *name == peer.name);
            peers.push(peer.system(pid.map(|(_, pid)| *pid))?);
        }
        Ok(Self {
            cores: meter::cores(),
            kura,
            nginx,
            peers,
        })
    }

    fn systems(&self) -> impl Iterator<Item = &System> {
        [&self.kura.system, &self.nginx.system].into_iter().chain(&self.peers)
    }

    fn measure(&mut self, row: &dyn Row, rounds: u32, bodies: &Bodies) -> Result<RowResult> {
        let systems: Vec<&System> = self.systems().filter(|system| row.suits(system)).collect();
        for system in &systems {
            say(&format!("{}: preparing {}", row.name(), system.name));
            row.prepare(system, bodies)?;
        }
        let empty = |system: &&System| Series {
            system: system.name.clone(),
            slots: Vec::new(),
        };
        let mut series: Vec<Series> = systems.iter().map(empty).collect();
        for round in 0..rounds {
            for (system, series) in systems.iter().zip(&mut series) {
                let (row_name, number) = (row.name(), round + 1);
                say(&format!("{row_name}: round {number} of {rounds}, {}", system.name));
                series.slots.push(slot(row, system, round, bodies, self.cores)?);
            }
        }
        for space in row.spaces(rounds) {
            self.nginx.clear(&space)?;
            self.kura.clear(&space)?;
        }
        Ok(RowResult {
            title: row.title(),
            target: row.target(),
            unit: row.unit(),
            series,
        })
    }

    fn stop(&mut self) -> Result<()> {
        self.nginx.stop()?;
        self.kura.process.stop(Duration::from_mins(1))
    }
}

fn slot(row: &dyn Row, system: &System, round: u32, bodies: &Bodies, cores: u32) -> Result<Slot> {
    // What the one before left to be written back is not to be this one's burden.
    rustix::fs::sync();
    let own = std::process::id();
    let (server, loader, machine) = (meter::cpu(system.pid)?, meter::alone(own)?, meter::machine_busy());
    let began = Instant::now();
    let mut load = row.drive(system, round, bodies)?;
    // Longer than the calls themselves: a row may have to make what it sends first.
    let all = began.elapsed();
    let cpu = meter::cpu(system.pid)?.since(server);
    let ours = cpu.total() + meter::alone(own)?.since(loader).total();
    let foreign = meter::machine_busy().saturating_sub(machine).saturating_sub(ours);
    ensure!(load.requests > 0, "{} got no answer", system.name);
    let seconds = load.wall.as_secs_f64();
    let (p50, p99, write_p99) = latencies(&mut load);
    Ok(Slot {
        requests: load.requests,
        bytes: load.bytes,
        seconds,
        cpu,
        p50,
        p99,
        write_p99,
        others: 100.0 * foreign.as_secs_f64() / (all.as_secs_f64() * f64::from(cores)),
    })
}

/// Median and 99th percentile of the reads, or of the writes where nothing was read; beside reads, those of the writes.
fn latencies(load: &mut Load) -> (f64, f64, Option<f64>) {
    let millis =
        |values: &mut Vec<u32>, share| stats::percentile(values, share).map(|micros| f64::from(micros) / 1000.0);
    let both = |values: &mut Vec<u32>| (millis(values, 0.5).unwrap_or(0.0), millis(values, 0.99).unwrap_or(0.0));
    if load.reads.is_empty() {
        let (p50, p99) = both(&mut load.writes);
        return (p50, p99, None);
    }
    let (p50, p99) = both(&mut load.reads);
    (p50, p99, millis(&mut load.writes, 0.99))
}

/// A thousand connections need more descriptors than a shell gives.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // If it fails, connecting says so.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
}

/// What to type to get these figures again, from the root of a checkout.
fn command_line() -> String {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args = args.join(" ");
    format!("cargo build --release -p kura -p russet-bench\ntarget/release/russet-bench {args}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_of_reads_and_writes_apart() {
        let mut load = Load {
            reads: vec![1000, 2000, 3000],
            writes: vec![9000],
            ..Load::default()
        };
        assert_eq!(latencies(&mut load), (2.0, 3.0, Some(9.0)));
        load.reads.clear();
        assert_eq!(latencies(&mut load), (9.0, 9.0, None));
    }

    #[test]
    fn a_row_that_does_not_exist_is_named_with_those_that_do() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            options: Options,
        }
        let parse = |only: &str| <Line as clap::Parser>::parse_from(["x", "--only", only]).options;
        let rows = row::all(true);
        assert!(parse("get-4k,million").check(&rows).is_ok());
        let error = parse("get-5k").check(&rows).unwrap_err().to_string();
        assert!(error.contains("get-5k") && error.contains("get-4k"), "{error}");
    }
}
