//! `russet cache try`: does the cache work with this build tool? A tiny real project is built twice, each time from nothing, and
//! what the tool says is put beside what the server counted.

mod node;
mod view;

use crate::cli::{self, CacheAction};
use crate::config::{self, Surroundings};
use crate::exit::Exit;
use crate::signals::Signals;
use crate::state::Layout;
use crate::suggest;
use anyhow::{Context, Result, anyhow};
use node::Node;
use russet_clients::{Build, Counts, Kit, Settings, Target, Tool, Workshop};
use russet_parts::Bars;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) async fn cache(args: &cli::Cache, surroundings: &Surroundings) -> Result<Exit> {
    match &args.action {
        CacheAction::Try(args) => {
            if args.list {
                print(&view::list(&Tool::ALL))?;
                return Ok(Exit::Success);
            }
            let mut signals = Signals::listen().context("failed to listen for signals")?;
            // Dropping the attempt ends the tool and the cache it was tried with.
            tokio::select! {
                exit = attempt(args, surroundings) => exit,
                signal = signals.next() => {
                    say(&format!("{signal}: stopped"));
                    Ok(Exit::Interrupted)
                }
            }
        }
    }
}

async fn attempt(args: &cli::Try, surroundings: &Surroundings) -> Result<Exit> {
    let tools = wanted(args)?;
    let layout = Layout::new(&surroundings.working_dir, &args.dir.dir);
    let node = Node::find(args, &layout).await?;
    say(&format!("cache: {}", node.describe()));
    let mut exit = Exit::Success;
    for tool in tools {
        match one(tool, &node, args, surroundings).await {
            Ok(Verdict::Hits) => {}
            Ok(Verdict::NoHits) => exit = Exit::Failure,
            // The first tool that cannot be had does not hide the others.
            Err(error) if args.all => {
                say(&format!("{tool}: {}", crate::explain(&error)));
                exit = Exit::Failure;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(exit)
}

fn wanted(args: &cli::Try) -> Result<Vec<Tool>> {
    let Some(name) = &args.tool else {
        return Ok(Tool::ALL.to_vec());
    };
    let tool = name
        .parse()
        .map_err(|_| anyhow!(suggest::unknown("tool", name, Tool::ALL.map(Tool::name))))?;
    Ok(vec![tool])
}

/// Whether the cache was of use.
enum Verdict {
    Hits,
    NoHits,
}

/// One of the two builds, as both sides saw it.
struct Round {
    build: Build,
    counted: Counts,
}

async fn one(tool: Tool, node: &Node, args: &cli::Try, surroundings: &Surroundings) -> Result<Verdict> {
    let settings = Settings::from_env(node::program());
    say(&format!("{tool}: looking for {} ({})", tool, tool.comes_from()));
    let kit = Kit::ensure(tool, &settings, &Bars::stderr()).await?;
    let dir = tempfile::Builder::new()
        .prefix("russet-try-")
        .tempdir()
        .context("failed to make a folder for the project")?;
    let mut workshop = Workshop::new(kit, dir.path(), &seed())?;
    let target = Target::new(node.url(), &args.project).with_token(config::cache_token());
    let mut rounds = Vec::new();
    for number in 1..=2 {
        say(&format!("{tool}: build {number}, from nothing"));
        let before = Counts::fetch(node.url(), tool.producers()).await?;
        let build = workshop.build(&target, args.timeout).await?;
        let counted = settle(node.url(), tool, before).await?;
        if args.output || !build.exit.success() {
            say(build.output.trim_end());
        }
        rounds.push(Round { build, counted });
    }
    print(&view::render(tool, &rounds, surroundings.stdout.colour))?;
    Ok(view::verdict(&rounds))
}

/// What was counted since. Some tools upload behind their own back: the numbers are read until they stand still.
async fn settle(url: &str, tool: Tool, before: Counts) -> Result<Counts> {
    let mut last = Counts::fetch(url, tool.producers()).await?;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = Counts::fetch(url, tool.producers()).await?;
        if now == last {
            break;
        }
        last = now;
    }
    Ok(last - before)
}

/// Different at every call, so that the first build finds nothing of an earlier try.
fn seed() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("russet-{}-{}", now.as_nanos(), std::process::id())
}

fn say(text: &str) {
    // Progress that nobody can read stops nothing.
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn print(text: &str) -> Result<()> {
    std::io::stdout()
        .write_all(text.as_bytes())
        .context("failed to write to standard output")
}
