//! The whole `main` of a controller.

use std::process::ExitCode;

use serde::Serialize;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::{About, BoxError, Component, Manager};
use crate::config::{self, CommonArgs, Config, Mode};

/// Fires on SIGTERM and SIGINT.
pub fn shutdown_signal() -> std::io::Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let token = CancellationToken::new();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let fired = token.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        fired.cancel();
    });
    Ok(token)
}

/// The whole `main` of a controller: configuration, logs, crypto provider, components, exit code.
///
/// `settings` is what the controller was configured with beyond the common
/// flags; it is shown by `--print-config`. Exit codes: 0 stopped as asked, 64 the configuration is wrong, 1 anything else,
/// lost leadership included.
pub async fn launch<S, B, E>(about: About, common: CommonArgs, settings: &S, build: B) -> ExitCode
where
    S: Serialize,
    B: FnOnce(&Manager) -> Result<Vec<Component>, E>,
    E: Into<BoxError>,
{
    const EX_USAGE: u8 = 64;
    let name = about.name;
    let fail = |code: u8, error: &dyn std::error::Error| {
        #[expect(clippy::print_stderr, reason = "logging may not be set up, and this is for a person")]
        {
            eprintln!("{name}: {}", chain(error));
        }
        ExitCode::from(code)
    };
    let config = match Config::from_args(common, config::unique_identity) {
        Ok(config) => config,
        Err(error) => return fail(EX_USAGE, &error),
    };
    if config.mode == Mode::Print {
        return match serde_json::to_string_pretty(&serde_json::json!({"common": config, "settings": settings})) {
            Ok(text) => {
                #[expect(clippy::print_stdout, reason = "this is what was asked for")]
                {
                    println!("{text}");
                }
                ExitCode::SUCCESS
            }
            Err(error) => fail(1, &error),
        };
    }
    let log = russet_telemetry::Options {
        format: config.log_format,
        filter: config.log_filter.clone(),
    };
    if let Err(error) = russet_telemetry::init(&log) {
        return fail(EX_USAGE, &error);
    }
    // Another part of the process may have chosen one already; the first choice stands.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mode = config.mode;
    let manager = match Manager::new(about, config).await {
        Ok(manager) => manager,
        Err(error) => return fail(EX_USAGE, &error),
    };
    let components = match build(&manager) {
        Ok(components) => components,
        Err(error) => return fail(EX_USAGE, &*error.into()),
    };
    if mode == Mode::Check {
        #[expect(clippy::print_stdout, reason = "this is what was asked for")]
        {
            println!("{name}: the configuration is usable");
        }
        return ExitCode::SUCCESS;
    }
    let stop = match shutdown_signal() {
        Ok(stop) => stop,
        Err(error) => return fail(1, &error),
    };
    match manager.run(components, stop).await {
        Ok(()) => {
            info!(name, "stopped");
            ExitCode::SUCCESS
        }
        Err(error) => {
            error!(name, error = chain(&error), "ended");
            ExitCode::FAILURE
        }
    }
}

/// An error and its sources in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Transparent errors repeat their source.
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
