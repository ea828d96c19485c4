//! Measures the set-up of Macs over SSH: so many emulated ones at once, again with nothing to do, with another agent, and the check
//! whether a thousand hosts are what they should be.
//!
//! What runs is the provider's own: its pool, its SSH bootstrapper and its recipe, on threads of their own, so that their processor time
//! can be told from that of the emulated Macs, which live in this process too. There is no API server: what is written to one is
//! measured by `fleet`.
//!
//! What must hold on any machine (nothing uploaded twice, few round trips, no file hashed again) ends a run with an error.

mod drift;
mod report;
mod round;
mod threads;
mod world;

use crate::fleet::table::Head;
use crate::fleet::{command_with, head, load, say};
use anyhow::{Result, ensure};
use clap::Args;
use report::{Downtime, Report};
use round::Provider;
use russet_capi_provider::bootstrap::Kind;
use world::World;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How many Macs are set up
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=500))]
    macs: u32,

    /// How many at the same time: the provider's --max-concurrent-bootstraps
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    at_once: u16,

    /// Size of the agent in MiB
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    agent_mib: u32,

    /// How many hosts are checked for drift
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    hosts: u32,
}

impl Options {
    /// The command that makes the same figures.
    fn command(&self) -> String {
        let Self {
            macs,
            at_once,
            agent_mib,
            hosts,
        } = self;
        let words = format!("macs --macs {macs} --at-once {at_once} --agent-mib {agent_mib} --hosts {hosts}");
        // The emulated Macs run a program of their own.
        command_with(&["russet-sim-mac"], &words)
    }
}

pub(crate) async fn measure(options: &Options) -> Result<String> {
    let before = load();
    say(&format!("making {} emulated Macs", options.macs));
    let world = World::new(options.macs, options.agent_mib).await?;
    let provider = Provider::new(&world, usize::from(options.at_once))?;
    let files = provider.hashed();

    say("setting them up");
    let first = provider.round(&world, Kind::First).await?;
    say("once more, with nothing to do");
    let again = provider.round(&world, Kind::Update).await?;
    let unread = provider.hashed();

    say("another agent");
    let agent = world.next_agent()?;
    let roll = provider.round(&world, Kind::Update).await?;
    let downtimes = world.downtimes().await?;
    ensure!(
        provider.hashed() == unread + 1,
        "another agent is one file to read, and {} were read",
        provider.hashed() - unread
    );

    say(&format!("{} hosts", options.hosts));
    let drift = drift::measure(provider.bootstrapper(), options.hosts);
    provider.end();
    let report = Report {
        head: Head {
            versions: vec![("capi-provider".to_owned(), env!("CARGO_PKG_VERSION").to_owned())],
            ..head(options.command(), before)
        },
        at_once: options.at_once,
        files,
        read_again: unread - files,
        first,
        again,
        roll,
        agent,
        downtime: Downtime::of(downtimes)?,
        drift,
    };
    report.check()?;
    Ok(report.markdown())
}
