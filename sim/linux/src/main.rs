//! `sim-linux`: parse, attach, say where, run until a signal. Inside of a server the same program is its manager and its
//! stubbed commands.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser as _;
use russet_cluster::node::Network;
use russet_parts::{Manifest, Silent, Store};
use russet_sim_linux::cli::Cli;
use russet_sim_linux::{Fleet, Options, follow, inside, tools};
use tokio::signal::unix::{SignalKind, signal};

/// Printed in the place of a range.
const SYNTHETIC: &str = "synthetic";

fn main() -> ExitCode {
    let mut args = std::env::args();
    let program = args.next().unwrap_or_default();
    if let Some(command) = inside::called_as(&program) {
        return inside::run_stub(command, args);
    }
    let manages = args.next().as_deref() == Some(inside::MANAGE);
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.into()),
    };
    let ended = runtime.block_on(async {
        if manages {
            inside::manage().await
        } else {
            run(Cli::parse()).await
        }
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    // Standard error that is gone cannot be told so.
    let _ = writeln!(std::io::stderr(), "sim-linux: {error:#}");
    ExitCode::FAILURE
}

async fn run(cli: Cli) -> anyhow::Result<()> {
    russet_telemetry::log::init(&russet_telemetry::log::Options {
        format: russet_telemetry::log::Format::Auto,
        filter: "info,hyper=warn,kube_client=warn".to_owned(),
    })?;
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let (fleet, range) = match &cli.state {
        Some(state) if cli.synthetic => (Fleet::synthetic_in(state)?, SYNTHETIC.to_owned()),
        Some(state) => real(state, &cli).await?,
        None => (Fleet::synthetic(), SYNTHETIC.to_owned()),
    };
    if let Some(server) = &cli.api_server {
        fleet.follow_api_server(server);
    }
    // Whoever started this and does not read its output wants the servers all the same.
    let ready = move || drop(writeln!(std::io::stdout(), "{range}"));
    tokio::select! {
        followed = follow(fleet, &cli.scaleway, ready) => followed?,
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
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
