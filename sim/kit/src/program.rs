//! What the programs of the emulators have in common: a log, an address on standard output, and an end by a signal.

use std::fmt::Display;
use std::io::Write as _;
use std::process::ExitCode;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT and SIGTERM, caught from the start.
#[derive(Debug)]
pub struct Signals(Signal, Signal);

impl Signals {
    /// Returns when one of them has come.
    pub async fn received(mut self) {
        tokio::select! {
            _ = self.0.recv() => {}
            _ = self.1.recv() => {}
        }
    }
}

/// Does the work of a program with its log set up and signals caught.
pub async fn run(name: &str, work: impl AsyncFnOnce(Signals) -> anyhow::Result<()>) -> ExitCode {
    let done = async {
        russet_telemetry::log::init(&russet_telemetry::log::Options {
            format: russet_telemetry::log::Format::Auto,
            filter: "info,hyper=warn,kube_client=warn".to_owned(),
        })?;
        work(Signals(
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        ))
        .await
    };
    ended(name, done.await)
}

/// The exit code of a program, whose failure is told in one line.
pub fn ended(name: &str, done: anyhow::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error that is gone cannot be told so.
            let _ = writeln!(std::io::stderr(), "{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints where the emulator is. A parent that does not read this wants the emulator all the same.
pub fn say(place: impl Display) {
    let _ = writeln!(std::io::stdout(), "{place}");
}
