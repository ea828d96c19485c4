//! `kura`: parse, set up logging and TLS, run, turn the result into an exit code.

use kura::cli::{Cli, Command, Idle};
use kura::config::{Config, Secrets, args::Args};
use std::io::Write as _;
use std::process::ExitCode;

/// What a shell expects of a program whose configuration is wrong (sysexits).
const BAD_CONFIG: u8 = 64;

fn main() -> ExitCode {
    let (cli, idle) = Cli::read();
    let outcome = match cli.command {
        Some(Command::Inspect(look)) => kura::look::inspect(&look).and_then(say),
        Some(Command::Verify(look)) => kura::look::verify(&look).and_then(say),
        Some(Command::Cacheprog(args)) => {
            // A second installation would mean that a library was faster; either way there is one.
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
            kura::cacheprog::run(args, kura::config::cacheprog_environment())
        }
        Some(Command::Version) => say(kura::VERSION),
        Some(Command::Serve(args)) => return serve(*args, &idle),
        None => return serve(cli.serve, &idle),
    };
    outcome.map_or_else(|error| fail(&error, 1), |()| ExitCode::SUCCESS)
}

fn serve(args: Args, idle: &[Idle]) -> ExitCode {
    let inquiry = args.inquiry;
    let config = match Config::new(args, Secrets::from_env()) {
        Ok(config) => config,
        Err(error) => return fail(&error.into(), BAD_CONFIG),
    };
    let outcome = if inquiry.print_config {
        say(format!("{:#}", config.redacted()))
    } else if inquiry.check_config {
        say(checked(&config, idle))
    } else {
        prepare(&config, idle).and_then(|()| kura::serve::run(config))
    };
    outcome.map_or_else(|error| fail(&error, 1), |()| ExitCode::SUCCESS)
}

/// What `--check-config` says: where the node would serve, and what was set in vain.
fn checked(config: &Config, idle: &[Idle]) -> String {
    let (address, dir) = (config.address, config.data_dir.display());
    idle.iter()
        .fold(format!("configuration is valid: {address} in {dir}"), |text, idle| {
            format!("{text}\n{} has no effect: {}", idle.name, idle.reason)
        })
}

fn prepare(config: &Config, idle: &[Idle]) -> anyhow::Result<()> {
    russet_telemetry::log::init(&config.log)?;
    if !idle.is_empty() {
        let names: Vec<_> = idle.iter().map(|idle| idle.name.as_str()).collect();
        tracing::info!(
            settings = names.join(" "),
            "these settings have no effect; --check-config says why"
        );
    }
    // A second installation would mean that a library was faster; either way there is one.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    Ok(())
}

fn say(text: impl std::fmt::Display) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

fn fail(error: &anyhow::Error, code: u8) -> ExitCode {
    // Standard error that is gone cannot be told so.
    let _ = writeln!(std::io::stderr(), "kura: {error:#}");
    ExitCode::from(code)
}
