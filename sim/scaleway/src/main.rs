//! `sim-scaleway`: parse, start, say where, run until a signal.

use clap::Parser as _;
use russet_sim_kit::program;
use russet_sim_scaleway::Sim;
use russet_sim_scaleway::cli::Cli;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    program::run("sim-scaleway", async |signals| {
        let sim = Sim::start(cli.options()?).await?;
        program::say(sim.url());
        signals.received().await;
        Ok(sim.stop().await?)
    })
    .await
}
