//! `sim-mac`: parse, attach, say where, run until a signal.

use clap::Parser as _;
use russet_sim_kit::program::{self, Signals};
use russet_sim_mac::cli::Cli;
use russet_sim_mac::{Fleet, follow};
use std::process::ExitCode;

fn main() -> ExitCode {
    // Inside an emulated Mac this program is process 1, or launchctl, or sudo.
    match russet_sim_mac::macos::inside() {
        Some(code) => code,
        None => outside(),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn outside() -> ExitCode {
    let cli = Cli::parse();
    program::run("sim-mac", async |signals| run(cli, signals).await).await
}

async fn run(cli: Cli, signals: Signals) -> anyhow::Result<()> {
    allow_many_files();
    let fleet = Fleet::new(cli.options()?).await?;
    if let (Some(address), Some(macs)) = (cli.control, fleet.macs()) {
        let listener = tokio::net::TcpListener::bind(address).await?;
        tracing::info!(address = %listener.local_addr()?, "the control of the Macs");
        tokio::spawn(russet_sim_mac::macos::serve_control(listener, macs.clone()));
    }
    let port = fleet.port();
    tokio::select! {
        followed = follow(fleet, &cli.scaleway, || program::say(port)) => followed?,
        () = signals.received() => {}
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
