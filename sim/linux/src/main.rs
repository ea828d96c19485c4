//! `sim-linux`: parse, attach, say where, run until a signal. Inside of a server the same program is its manager and its
//! stubbed commands.

use std::path::Path;
use std::process::ExitCode;

use clap::Parser as _;
use russet_cluster::node::Network;
use russet_parts::{Manifest, Silent, Store};
use russet_sim_kit::program::{self, Signals};
use russet_sim_linux::cli::Cli;
use russet_sim_linux::{Fleet, Options, inside, tools};
use russet_sim_scaleway::follow;

/// Printed in the place of a range.
const SYNTHETIC: &str = "synthetic";

fn main() -> ExitCode {
    let mut args = std::env::args();
    let program = args.next().unwrap_or_default();
    if let Some(command) = inside::called_as(&program) {
        return inside::run_stub(command, args);
    }
    let manages = args.next().as_deref() == Some(inside::MANAGE);
    outside(manages)
}

#[tokio::main(flavor = "current_thread")]
async fn outside(manages: bool) -> ExitCode {
    if manages {
        return program::ended("sim-linux", inside::manage().await);
    }
    let cli = Cli::parse();
    program::run("sim-linux", async |signals| run(cli, signals).await).await
}

async fn run(cli: Cli, signals: Signals) -> anyhow::Result<()> {
    let (fleet, range) = match &cli.state {
        Some(state) if cli.synthetic => (Fleet::synthetic_in(state)?, SYNTHETIC.to_owned()),
        Some(state) => real(state, &cli).await?,
        None => (Fleet::synthetic(), SYNTHETIC.to_owned()),
    };
    if let Some(server) = &cli.api_server {
        fleet.follow_api_server(server);
    }
    tokio::select! {
        followed = follow(&fleet, &cli.scaleway, || program::say(range)) => followed?,
        () = signals.received() => {}
    }
    Ok(())
}

/// Real servers, and the range their public addresses are of.
async fn real(state: &Path, cli: &Cli) -> anyhow::Result<(Fleet, String)> {
    let network = match &cli.network {
        Some(directory) => Network::attach(directory)?,
        None => Network::create(state).await?,
    };
    let store = Store::new(Manifest::embedded(), russet_parts::Options::from_env());
    let fleet = Fleet::new(Options {
        state: state.to_owned(),
        program: std::env::current_exe()?,
        tools: store.ensure(&tools(), &Silent).await?,
        network: network.clone(),
        proxy_kubeconfig: cli.proxy_kubeconfig.clone(),
        images: cli.images.clone(),
    });
    Ok((fleet.await?, network.servers().to_string()))
}
