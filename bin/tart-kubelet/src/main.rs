//! `tart-kubelet`: parse, log, run until a signal.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use russet_tart_kubelet::config::{Args, Config};
use russet_tart_kubelet::{SUPERVISE, run};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    // A process that outlives the agent and sees how a virtual machine ends. Nobody types this, so no flag tells of it.
    if std::env::args_os().nth(1).is_some_and(|word| word == SUPERVISE) {
        return russet_vm::supervise::main();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(start(Args::parse())),
        Err(error) => Err(error.into()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "the agent ends");
            // Standard error that is gone cannot be told so.
            let _ = writeln!(std::io::stderr(), "tart-kubelet: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn start(args: Args) -> anyhow::Result<()> {
    let config = Config::from_args(args)?;
    if config.check_only {
        return Ok(());
    }
    russet_telemetry::log::init(&russet_telemetry::log::Options {
        format: config.log_format,
        filter: config.log_filter.clone(),
    })?;
    // The first of a process wins.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let stop = CancellationToken::new();
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let running = run(config, stop.clone());
    tokio::pin!(running);
    tokio::select! {
        ended = &mut running => return ended,
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    tracing::info!("told to stop");
    stop.cancel();
    running.await
}
