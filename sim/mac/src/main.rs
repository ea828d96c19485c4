//! `sim-mac`: parse, attach, say where, run until a signal.

use clap::Parser as _;
use russet_sim_mac::cli::Cli;
use russet_sim_mac::{Fleet, follow};
use std::io::Write as _;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    // Inside an emulated Mac this program is process 1, or launchctl, or sudo.
    match russet_sim_mac::macos::inside() {
        Some(code) => code,
        None => outside(),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn outside() -> ExitCode {
    match run(Cli::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error that is gone cannot be told so.
            let _ = writeln!(std::io::stderr(), "sim-mac: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> anyhow::Result<()> {
    russet_telemetry::log::init(&russet_telemetry::log::Options {
        format: russet_telemetry::log::Format::Auto,
        filter: "info,hyper=warn,kube_client=warn".to_owned(),
    })?;
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    allow_many_files();
    let fleet = Fleet::new(cli.options()?).await?;
    if let (Some(address), Some(macs)) = (cli.control, fleet.macs()) {
        let listener = tokio::net::TcpListener::bind(address).await?;
        tracing::info!(address = %listener.local_addr()?, "the control of the Macs");
        tokio::spawn(russet_sim_mac::macos::serve_control(listener, macs.clone()));
    }
    let port = fleet.port();
    // Whoever started this and does not read its output wants the machines all the same.
    let ready = move || drop(writeln!(std::io::stdout(), "{port}"));
    tokio::select! {
        followed = follow(fleet, &cli.scaleway, ready) => followed?,
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

/// A machine has a socket it listens on and a connection to the API server; a thousand of them are more than the soft limit.
fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if setrlimit(Resource::Nofile, raised).is_err() {
        tracing::warn!(limit = ?limit.current, "could not raise the limit of open files; a large fleet may not fit");
    }
}
