//! `russet status`: what runs, whether it is healthy, what it uses.
//!
//! Three sources, in this order: the process table (is `up` alive at all), `status.json` of that `up` (what it last saw
//! of its parts), and the API server itself (does it answer, are our CRDs served). [`judge`](document::judge) turns
//! them into one document; the table and the JSON are two views of it.

pub mod cluster;
pub mod document;
pub(crate) mod fleet;
pub mod hosts;
mod servers;
pub mod view;

use crate::cli;
use crate::config::Surroundings;
use crate::exit::Exit;
use crate::process::{self, Usage};
use crate::state::{Layout, lock, record, run};
use anyhow::{Context, Result};
use document::{Document, Facts, Health, Sample};
use jiff::Timestamp;
use std::collections::HashMap;
use std::io::Write;
use std::time::{Duration, Instant};

/// Between two looks at processor time when there is no earlier one to compare with.
const WINDOW: Duration = Duration::from_millis(300);

/// Between two pictures of `--watch`.
const REFRESH: Duration = Duration::from_secs(2);

pub async fn status(args: &cli::Status, surroundings: &Surroundings) -> Result<Exit> {
    let layout = Layout::new(&surroundings.working_dir, &args.dir.dir);
    if args.watch {
        return watch(args, &layout, surroundings).await;
    }
    let document = look(&layout, None).await.0;
    print(&document, args.json, surroundings, &mut std::io::stdout().lock())?;
    Ok(exit(&document))
}

fn exit(document: &Document) -> Exit {
    if document.state == Health::Ready {
        Exit::Success
    } else {
        Exit::NotHealthy
    }
}

async fn watch(args: &cli::Status, layout: &Layout, surroundings: &Surroundings) -> Result<Exit> {
    let mut before = None;
    loop {
        let looked = tokio::select! {
            looked = look(layout, before.take()) => looked,
            _ = tokio::signal::ctrl_c() => return Ok(Exit::Success),
        };
        let (document, samples) = looked;
        before = Some(samples);
        let mut out = std::io::stdout().lock();
        if surroundings.stdout.terminal && !args.json {
            // Home, draw over, clear the rest: no flicker.
            write!(out, "\u{1b}[H\u{1b}[J").context("failed to write to standard output")?;
        }
        print(&document, args.json, surroundings, &mut out)?;
        drop(out);
        tokio::select! {
            () = tokio::time::sleep(REFRESH) => {}
            _ = tokio::signal::ctrl_c() => return Ok(Exit::Success),
        }
    }
}

fn print(document: &Document, json: bool, surroundings: &Surroundings, out: &mut dyn Write) -> Result<()> {
    let text = if json {
        // One document per line under --watch would be cut by indentation; scripts read both.
        serde_json::to_string_pretty(document)? + "\n"
    } else {
        view::render(document, surroundings.stdout.colour)
    };
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("failed to write to standard output")
}

/// Processor time of each process at one moment.
#[derive(Debug)]
pub struct Samples {
    at: Instant,
    usage: HashMap<u32, Usage>,
}

impl Samples {
    fn take(run: Option<&run::Run>) -> Self {
        let pids = run
            .into_iter()
            .flat_map(|run| run.parts.iter().filter_map(|part| part.pid).chain([run.pid]));
        Self {
            at: Instant::now(),
            usage: pids.filter_map(|pid| Some((pid, process::usage(pid)?))).collect(),
        }
    }
}

/// One picture of everything. `before` gives the processor shares a longer window.
pub async fn look(layout: &Layout, before: Option<Samples>) -> (Document, Samples) {
    let holder = lock::holder(&layout.lock()).filter(|holder| holder.command == "up");
    let run = run::read(layout);
    let existing = match record::read(layout) {
        Ok(record::Found::Record(record)) => record.existing,
        _ => None,
    };
    let live = run
        .as_ref()
        .filter(|run| holder.as_ref().is_some_and(|holder| holder.pid == run.pid));
    let before = if let Some(before) = before {
        before
    } else {
        let first = Samples::take(live);
        if live.is_some() {
            tokio::time::sleep(WINDOW).await;
        }
        first
    };
    let mut cluster = match (&existing, live) {
        (Some(existing), _) => Some(cluster::facts(&existing.kubeconfig, existing.context.as_deref()).await),
        (None, Some(run)) => match &run.kubeconfig {
            Some(kubeconfig) => Some(cluster::facts(kubeconfig, None).await),
            None => None,
        },
        (None, None) => None,
    };
    let emulator = live.and_then(|run| run.parts.iter().find(|part| part.name == crate::up::fleet::SCALEWAY));
    let account = match emulator.and_then(|part| part.address.as_deref()) {
        Some(url) => fleet::account(url).await,
        None => None,
    };
    let account = account.map(|(account, prices)| {
        let fleet = cluster.as_mut().and_then(|cluster| cluster.fleet.as_mut());
        for server in fleet.into_iter().flat_map(|fleet| &mut fleet.servers) {
            server.per_hour_micro_eur = server.server_id.as_ref().and_then(|id| prices.get(id).copied());
        }
        account
    });
    let after = Samples::take(live);
    let window = after.at.duration_since(before.at);
    let samples = after
        .usage
        .iter()
        .map(|(pid, usage)| {
            let percent = before
                .usage
                .get(pid)
                .map(|earlier| process::cpu_percent(earlier.cpu, usage.cpu, window));
            (
                *pid,
                Sample {
                    memory: usage.memory,
                    cpu_seconds: usage.cpu.as_secs_f64(),
                    cpu_percent: percent,
                },
            )
        })
        .collect();
    let facts = Facts {
        now: Timestamp::now(),
        layout,
        holder,
        run,
        existing,
        samples,
        cluster,
        account,
    };
    (document::judge(facts), after)
}
