//! `sim-github`: parse, start, say where, run until a signal.

use clap::Parser as _;
use russet_sim_github::Sim;
use russet_sim_github::cli::Cli;
use std::io::Write as _;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Cli::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error that is gone cannot be told so.
            let _ = writeln!(std::io::stderr(), "sim-github: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> anyhow::Result<()> {
    russet_telemetry::log::init(&russet_telemetry::log::Options {
        format: russet_telemetry::log::Format::Auto,
        filter: "info,hyper=warn".to_owned(),
    })?;
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let sim = Sim::start(cli.options()?).await?;
    writeln!(std::io::stdout(), "{}", sim.url())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    sim.stop().await;
    Ok(())
}
