//! `--detach`: the same `up` as a process of its own session; this one watches it and leaves when it is ready.
//!
//! The parts are obtained here, where somebody sees the bars. Everything else happens in the background process, which
//! reports through `status.json` and, if it fails, through its log.

use super::linux::Plan;
use super::local::wanted;
use super::summary::Summary;
use super::view::View;
use crate::cli;
use crate::config::Surroundings;
use crate::exit::Exit;
use crate::parts;
use crate::signals::Signals;
use crate::state::run::{self, Phase};
use crate::state::{Layout, home, lock};
use anyhow::{Context, Result, bail};
use russet_parts::{Bars, Tools};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Between two looks at `status.json`.
const POLL: Duration = Duration::from_millis(50);

/// Name of the background process's own log: `russet logs russet`.
const LOG: &str = "russet";

pub(super) async fn up(
    args: &cli::Up,
    verbose: u8,
    layout: &Layout,
    parts_dir: &[PathBuf],
    surroundings: &Surroundings,
) -> Result<Exit> {
    let mut signals = Signals::listen().context("failed to listen for signals")?;
    home::prepare(layout)?;
    // The background process takes the lock; looking first spares the wait when it is plainly taken.
    if let Some(holder) = lock::holder(&layout.lock()) {
        return Err(lock::Error::Held {
            dir: layout.root().to_owned(),
            holder: Some(holder),
        }
        .into());
    }
    let store = parts::store(parts_dir);
    let plan = Plan::of(args).await;
    let names = wanted(args, &plan);
    let bars = Bars::stderr();
    let tools = tokio::select! {
        tools = store.ensure(&names, &bars) => tools?,
        signal = signals.next() => {
            let _ = writeln!(std::io::stderr(), "{signal}: stopped before it was started");
            return Ok(Exit::Interrupted);
        }
    };
    let log = layout.log(LOG);
    let mut child = spawn(args, verbose, layout, parts_dir, &log)?;
    match watch(&mut child, layout, &mut signals, surroundings).await? {
        Watched::Ready(run) => {
            let summary = summary(args, layout, &tools, (&run, plan), surroundings);
            std::io::stdout()
                .write_all(summary.render(surroundings.stdout.colour).as_bytes())
                .context("failed to write to standard output")?;
            Ok(Exit::Success)
        }
        Watched::Interrupted => Ok(Exit::Interrupted),
        Watched::Ended => {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            bail!(
                "the background process failed; its log is {}\n{}",
                log.display(),
                failure(&text)
            );
        }
    }
}

fn spawn(args: &cli::Up, verbose: u8, layout: &Layout, parts_dir: &[PathBuf], log: &Path) -> Result<Child> {
    let program = std::env::current_exe().context("failed to find our own program")?;
    if log.exists() {
        std::fs::rename(log, log.with_extension("log.1")).context("failed to move the old log away")?;
    }
    let output = File::create(log).with_context(|| format!("failed to create {}", log.display()))?;
    let errors = output
        .try_clone()
        .context("failed to share the log between the two outputs")?;
    let mut command = Command::new(&program);
    command.args(background_args(args, verbose, layout, parts_dir));
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    command
        .spawn()
        .with_context(|| format!("failed to start {} in the background", program.display()))
}

/// The flags of the background process: ours, with every path absolute.
fn background_args(args: &cli::Up, verbose: u8, layout: &Layout, parts_dir: &[PathBuf]) -> Vec<std::ffi::OsString> {
    let mut all: Vec<std::ffi::OsString> = vec!["up".into(), "--background".into()];
    all.extend(["--dir".into(), layout.root().into()]);
    all.extend(["--timeout".into(), format!("{}s", args.timeout.as_secs()).into()]);
    for dir in parts_dir {
        all.extend(["--parts-dir".into(), dir.into()]);
    }
    all.extend(args.durable.then(|| "--durable".into()));
    all.extend(args.no_capi.then(|| "--no-capi".into()));
    all.extend(args.no_fleet.then(|| "--no-fleet".into()));
    all.extend(args.no_linux.then(|| "--no-linux".into()));
    all.extend(args.synthetic_linux.then(|| "--synthetic-linux".into()));
    all.extend(args.synthetic_macs.then(|| "--synthetic-macs".into()));
    all.extend(["--pool".into(), args.pool.to_string().into()]);
    all.extend(["--macs".into(), args.macs.to_string().into()]);
    all.extend((0..verbose).map(|_| "-v".into()));
    all
}

enum Watched {
    Ready(run::Run),
    Ended,
    Interrupted,
}

async fn watch(
    child: &mut Child,
    layout: &Layout,
    signals: &mut Signals,
    surroundings: &Surroundings,
) -> Result<Watched> {
    let mut view = View::new(surroundings.stderr);
    loop {
        // The file may still be that of an earlier run.
        if let Some(run) = run::read(layout).filter(|run| run.pid == child.id()) {
            view.update(&run);
            if run.phase == Phase::Ready {
                view.settle();
                return Ok(Watched::Ready(run));
            }
        }
        if child
            .try_wait()
            .context("failed to watch the background process")?
            .is_some()
        {
            view.settle();
            return Ok(Watched::Ended);
        }
        tokio::select! {
            () = tokio::time::sleep(POLL) => {}
            signal = signals.next() => {
                view.settle();
                let _ = writeln!(std::io::stderr(), "{signal}: stopping the background process");
                terminate(child).await?;
                return Ok(Watched::Interrupted);
            }
        }
    }
}

/// It is our child and has not been waited for, so the pid is certainly its own. It stops its parts before it ends.
async fn terminate(child: &mut Child) -> Result<()> {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // Gone already: just as well.
        let _ = kill_process(pid, Signal::TERM);
    }
    while child
        .try_wait()
        .context("failed to wait for the background process")?
        .is_none()
    {
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

/// The last failure in the log of the background process, causes included; its last lines if it said none.
fn failure(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let from = lines
        .iter()
        .rposition(|line| line.starts_with("error: "))
        .unwrap_or(lines.len().saturating_sub(10));
    lines.into_iter().skip(from).collect::<Vec<_>>().join("\n")
}

fn summary(
    args: &cli::Up,
    layout: &Layout,
    tools: &Tools,
    (run, linux): (&run::Run, Plan),
    surroundings: &Surroundings,
) -> Summary {
    let address = |part: &str| {
        let part = run.parts.iter().find(|known| known.name == part);
        part.and_then(|part| part.address.clone())
    };
    Summary {
        server: run.server.clone().unwrap_or_default(),
        kubeconfig: layout.kubeconfig(),
        kubectl: tools.path("kubectl").ok().map(PathBuf::from),
        logs: layout.logs(),
        crds: crate::status::cluster::our_crds().len(),
        cluster_api: !args.no_capi,
        cache: address(super::cache::NAME),
        fleet: super::summary::Fleet::of(args, address(super::fleet::SCALEWAY)),
        linux,
        ready_after: run.ready_after_seconds.unwrap_or_default(),
        dir: super::named_dir(layout, surroundings),
        background: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn the_background_process_gets_the_same_flags_and_parses_them() {
        let line = "russet up --detach --durable --no-capi --no-fleet --no-linux --synthetic-macs --pool 7 --macs 3 --timeout 2m --dir x --parts-dir bin";
        let cli::Command::Up(args) = cli::Cli::try_parse_from(line.split(' ')).unwrap().command else {
            panic!()
        };
        let layout = Layout::new(Path::new("/w"), &args.dir.dir);
        let passed = background_args(&args, 1, &layout, &[PathBuf::from("/w/bin")]);
        let again = cli::Cli::try_parse_from(["russet".into()].into_iter().chain(passed)).unwrap();
        assert_eq!(again.verbose, 1);
        let cli::Command::Up(again) = again.command else {
            panic!()
        };
        assert!(
            again.background && again.durable && again.no_capi && again.no_fleet && again.no_linux && !again.detach
        );
        assert!(again.synthetic_macs);
        assert_eq!((again.pool, again.macs), (7, 3));
        assert_eq!(again.timeout, args.timeout);
        assert_eq!(again.dir.dir, Path::new("/w/x"));
        assert_eq!(again.parts_dir, [Path::new("/w/bin")]);
    }

    #[test]
    fn a_failure_in_the_log_is_shown_with_its_causes() {
        let log = "etcd   starting\nerror: failed to start\n  because: no space left\n";
        assert_eq!(failure(log), "error: failed to start\n  because: no space left");
        assert_eq!(failure("thread panicked\n"), "thread panicked");
    }
}
