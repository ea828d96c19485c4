//! `russet`: parse, set up logging and TLS, run, turn the result into an exit code.

use clap::Parser;
use russet::cli::Cli;
use russet::config::Surroundings;
use std::io::Write;
use std::process::ExitCode;

// One thread is enough: the supervisor has its own, and children tied to the thread that started them live as long as it.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match prepare(&cli) {
        Ok(surroundings) => russet::run(cli, &surroundings).await,
        Err(error) => Err(error),
    };
    let exit = outcome.unwrap_or_else(|error| {
        // Standard error that is gone cannot be told so.
        let _ = writeln!(std::io::stderr(), "{}", russet::explain(&error));
        russet::exit_of(&error)
    });
    ExitCode::from(exit)
}

fn prepare(cli: &Cli) -> anyhow::Result<Surroundings> {
    let filter = match cli.verbose {
        // Of libraries only what stops something: what a command has to say, it says itself.
        0 => "error,kube_client=off,russet=warn,russet_cluster=warn,russet_parts=warn",
        1 => "info,russet=debug,russet_cluster=debug,russet_parts=debug",
        _ => "debug",
    };
    let format = russet_telemetry::log::Format::Human;
    russet_telemetry::log::init(&russet_telemetry::log::Options {
        format,
        filter: filter.to_owned(),
    })?;
    // A second installation would mean that a library was faster; either way there is one.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    Ok(Surroundings::read()?)
}
