//! `sim-github`: parse, start, say where, run until a signal.

use clap::Parser as _;
use russet_sim_github::Sim;
use russet_sim_github::cli::Cli;
use russet_sim_kit::program;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    program::run("sim-github", async |signals| {
        let sim = Sim::start(cli.options()?).await?;
        program::say(sim.url());
        signals.received().await;
        sim.stop().await;
        Ok(())
    })
    .await
}
