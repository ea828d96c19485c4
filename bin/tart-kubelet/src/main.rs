//! `tart-kubelet`: parse, log, run until a signal.

use std::io::Write as _;
use std::process::ExitCode;

use russet_tart_kubelet::config::{Args, Config};
use russet_tart_kubelet::{SUPERVISE, run};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// As many as macOS lets a process have, whatever it says of its limits.
const MOST_FILES: u64 = 10_240;

fn main() -> ExitCode {
    // A process that outlives the agent and sees how a virtual machine ends. Nobody types this, so no flag tells of it.
    if std::env::args_os().nth(1).is_some_and(|word| word == SUPERVISE) {
        return russet_vm::supervise::main();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(start(Args::read())),
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

/// A caller of the kubelet API takes a file or two, what runs for it in a guest some more, and launchd gives 256 of them.
fn allow_more_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = raised(limit);
    if raised.current != limit.current && setrlimit(Resource::Nofile, raised).is_err() {
        tracing::warn!(
            limit = ?limit.current,
            "the limit of open files could not be raised; many callers at once may not fit"
        );
    }
}

/// None is no limit.
fn raised(limit: Rlimit) -> Rlimit {
    let most = limit.maximum.unwrap_or(MOST_FILES).min(MOST_FILES);
    Rlimit {
        current: limit.current.map(|current| current.max(most)),
        ..limit
    }
}

/// What `--check-config` says: which Node it would be, and what was asked for in vain.
fn checked(config: &Config) -> String {
    let valid = format!("configuration is valid: Node {}", config.spec.name);
    config.idle.iter().fold(valid, |text, idle| {
        format!("{text}\n{} has no effect yet: {}", idle.flag, idle.reason)
    })
}

async fn start(args: Args) -> anyhow::Result<()> {
    let config = Config::from_args(args)?;
    if config.check_only {
        return Ok(writeln!(std::io::stdout(), "{}", checked(&config))?);
    }
    russet_telemetry::log::init(&russet_telemetry::log::Options {
        format: config.log_format,
        filter: config.log_filter.clone(),
    })?;
    allow_more_files();
    if !config.idle.is_empty() {
        let flags: Vec<&str> = config.idle.iter().map(|idle| idle.flag).collect();
        tracing::warn!(
            flags = flags.join(" "),
            "these flags have no effect yet; --check-config says why"
        );
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_open_files_is_raised_as_far_as_macos_takes_it_and_never_lowered() {
        let raised = |current, maximum| raised(Rlimit { current, maximum }).current;
        assert_eq!(raised(Some(256), None), Some(MOST_FILES));
        assert_eq!(raised(Some(256), Some(1_000_000)), Some(MOST_FILES));
        assert_eq!(raised(Some(256), Some(4096)), Some(4096));
        assert_eq!(raised(Some(20_000), Some(1_000_000)), Some(20_000));
        assert_eq!(raised(None, None), None);
    }
}
