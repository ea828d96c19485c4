//! A cluster of our own, in the foreground (also the background process of `--detach`).

use super::board::Board;
use super::cache;
use super::chart::{self, Ownership, Target};
use super::disk;
use super::fleet::{self, Place, Size};
use super::ports::Ports;
use super::summary::Summary;
use super::view::View;
use super::{Admitted, Kind, admit, open};
use crate::cli;
use crate::config::Surroundings;
use crate::exit::Exit;
use crate::parts;
use crate::signals::Signals;
use crate::state::record::{self, Record};
use crate::state::{self, Layout};
use anyhow::{Context, Result, anyhow};
use russet_cluster::capi;
use russet_cluster::control_plane::{self, ControlPlane, Durability, Extras};
use russet_cluster::process::{Supervisor, sweep};
use russet_parts::{Bars, Tools};
use std::io::Write;
use std::path::{Path, PathBuf};

/// What a cluster is made of, in the order in which it is told.
pub(super) const TOOLS: [&str; 6] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "helm",
];
pub(super) const CLUSTER_API_TOOLS: [&str; 2] = [capi::NAME, capi::CONFIG];

/// The tools a run needs.
pub(super) fn wanted(args: &cli::Up) -> Vec<&'static str> {
    let extra: &[&str] = if args.no_capi { &[] } else { &CLUSTER_API_TOOLS };
    TOOLS.iter().chain(extra).copied().collect()
}

pub(super) async fn up(
    args: &cli::Up,
    layout: &Layout,
    parts_dir: &[PathBuf],
    surroundings: &Surroundings,
) -> Result<Exit> {
    if args.background {
        // Our own session: the terminal that started us may close. It fails only if we lead one already.
        let _ = rustix::process::setsid();
    }
    let mut signals = Signals::listen().context("failed to listen for signals")?;
    let _lock = open(layout)?;
    let store = parts::store(parts_dir);
    let space = store.options().free_space.clone();
    disk::check(layout.root(), &space)?;
    let Admitted { record, mut remarks } = admit(layout, store.manifest(), Kind::Local)?;
    for left in sweep(layout.root())
        .await
        .context("failed to end the processes of an earlier run")?
    {
        remarks.push(format!(
            "ended {} (pid {}), left over from a killed run",
            left.name, left.pid
        ));
    }
    let names = wanted(args);
    let bars = Bars::stderr();
    let tools = tokio::select! {
        tools = store.ensure(&names, &bars) => tools?,
        signal = signals.next() => return Ok(interrupted(signal)),
    };
    // Without it the shell of the emulated Macs is bash, which does as well.
    let zsh = match fleet_programs(args).filter(fleet::Programs::emulate_macos) {
        Some(_) => store.ensure(&["zsh"], &bars).await.ok(),
        None => None,
    };
    let zsh = zsh.as_ref().and_then(|tools| tools.path("zsh").ok());
    // Before the first byte of data: a run killed half-way must not leave data of unknown versions.
    record::write(layout, &record)?;

    let board = Board::begin(layout, View::new(surroundings.stderr), !args.no_capi);
    for remark in remarks {
        board.note(&remark);
    }
    let supervisor = Supervisor::new(layout.root());
    let started = tokio::select! {
        biased;
        signal = signals.next() => Err(Stop::Signal(signal)),
        started = tokio::time::timeout(args.timeout, start(args, layout, &tools, zsh, &supervisor, &board, record)) => {
            match started {
                Ok(Ok(started)) => Ok(started),
                Ok(Err(error)) => Err(Stop::Failed(error)),
                Err(_) => Err(Stop::Failed(anyhow!(
                    "not ready within {} s; `russet logs` has the logs, --timeout allows more time", args.timeout.as_secs()
                ))),
            }
        }
        never = board.follow(&supervisor) => match never {},
    };
    board.observe(&supervisor);
    let exit = match started {
        Ok(started) => {
            let ready_after = board.ready();
            print(
                &summary(args, layout, &tools, started, ready_after, surroundings),
                surroundings,
            )?;
            let signal = tokio::select! {
                signal = signals.next() => signal,
                never = board.follow(&supervisor) => match never {},
            };
            board.note(&format!("{signal}: stopping; the state is kept"));
            Ok(Exit::Success)
        }
        Err(Stop::Signal(signal)) => {
            board.settle();
            Ok(interrupted(signal))
        }
        Err(Stop::Failed(error)) => {
            board.settle();
            Err(match disk::explain(layout.root(), &space) {
                Some(hint) => error.context(hint),
                None => error,
            })
        }
    };
    stop(&board, &supervisor, &mut signals).await;
    exit
}

enum Stop {
    Signal(&'static str),
    Failed(anyhow::Error),
}

fn interrupted(signal: &str) -> Exit {
    let _ = writeln!(std::io::stderr(), "{signal}: stopped before it was ready");
    Exit::Interrupted
}

/// What was started, as the table at the end tells it.
struct Started {
    server: String,
    cache: Option<String>,
    account: Option<String>,
}

/// Starts everything.
async fn start(
    args: &cli::Up,
    layout: &Layout,
    tools: &Tools,
    zsh: Option<&Path>,
    supervisor: &Supervisor,
    board: &Board,
    mut record: Record,
) -> Result<Started> {
    let before = Ports::remembered(layout);
    let mut options = control_plane::Options::new(layout.cluster());
    options.extras = Extras::all();
    options.logs = layout.logs();
    options.durability = if args.durable {
        Durability::Synced
    } else {
        Durability::Throwaway
    };
    let control_plane = ControlPlane::start(tools, supervisor, options).await?;
    let server = control_plane.server().to_owned();
    let kubeconfig = layout.kubeconfig();
    let content = std::fs::read(control_plane.admin_kubeconfig()).context("failed to read the admin kubeconfig")?;
    state::publish(&kubeconfig, &content).with_context(|| format!("failed to write {}", kubeconfig.display()))?;
    board.located(&server, kubeconfig.clone(), Ports::remembered(layout).addresses());

    let client = control_plane.client().await?;
    let target = Target {
        helm: tools.path("helm")?,
        layout,
        kubeconfig: &kubeconfig,
        context: None,
        client: &client,
        ownership: Ownership::Ours,
        timeout: args.timeout,
    };
    let recorded = record.charts.get(chart::CRDS.release).cloned();
    let install = async {
        board
            .step(
                "CRD chart (helm)",
                |done: &chart::Outcome| done.as_str().to_owned(),
                chart::ensure_crds(&target, recorded.as_deref()),
            )
            .await?;
        board
            .step(
                "CRDs",
                |count| format!("{count} Established"),
                chart::wait_established(&client, args.timeout),
            )
            .await?;
        // At once: Cluster API core may still fail, and the next start need not run Helm again for that.
        let hash = chart::CRDS.content_hash(None);
        record.charts.insert(chart::CRDS.release.to_owned(), hash);
        record::write(layout, &record)?;
        anyhow::Ok(())
    };
    let cluster_api = async {
        if !args.no_capi {
            let options = capi::Options {
                logs: layout.logs(),
                ..capi::Options::new(layout.capi())
            };
            capi::start(tools, supervisor, &control_plane, options).await?;
        }
        anyhow::Ok(())
    };
    let cache = async {
        let program = std::env::current_exe().ok().and_then(|russet| cache::program(&russet));
        match program {
            Some(program) => cache::start(&program, layout, supervisor).await.map(Some),
            None => Ok(None),
        }
    };
    let programs = fleet_programs(args);
    let size = Size {
        pool: args.pool,
        macs: args.macs,
    };
    let emulate = fleet::emulate(programs.as_ref(), size, layout, supervisor, &server, zsh);
    // None needs another.
    let ((), (), cache, account) = tokio::try_join!(install, cluster_api, cache, emulate)?;
    if let (Some(programs), Some(account)) = (&programs, &account) {
        let place = Place {
            layout,
            supervisor,
            control_plane: &control_plane,
            board,
            target: &target,
        };
        board.note(&format!("the Macs are {}", account.way.sentence()));
        fleet::provide(&programs.provider, size, account, &place, &mut record).await?;
        let serve = async { anyhow::Ok(fleet::wait_for_macs(&client).await) };
        board.step("Macs", |count| format!("{count} serve"), serve).await?;
    }
    let after = Ports::remembered(layout);
    for remark in after.moved_since(&before) {
        board.note(&remark);
    }
    board.located(&server, kubeconfig, after.addresses());
    Ok(Started {
        server,
        cache,
        account: account.map(|account| account.url),
    })
}

/// The programs of the fleet, unless it is left out.
fn fleet_programs(args: &cli::Up) -> Option<fleet::Programs> {
    if args.no_fleet || args.no_capi {
        return None;
    }
    std::env::current_exe()
        .ok()
        .and_then(|russet| fleet::Programs::beside(&russet))
}

/// Stops the parts in order. A second signal ends the wait: the kernel, or the next run's sweep, does the rest.
async fn stop(board: &Board, supervisor: &Supervisor, signals: &mut Signals) {
    board.stopping();
    tokio::select! {
        () = supervisor.shutdown() => board.observe(supervisor),
        signal = signals.next() => {
            board.note(&format!("{signal} again: not waiting any longer"));
            // Dropping the last handle would wait for the parts once more.
            std::mem::forget(supervisor.clone());
        }
        never = board.follow(supervisor) => match never {},
    }
}

fn summary(
    args: &cli::Up,
    layout: &Layout,
    tools: &Tools,
    started: Started,
    ready_after: f64,
    surroundings: &Surroundings,
) -> Summary {
    Summary {
        server: started.server,
        cache: started.cache,
        fleet: super::summary::Fleet::of(args, started.account),
        kubeconfig: layout.kubeconfig(),
        kubectl: tools.path("kubectl").ok().map(PathBuf::from),
        logs: layout.logs(),
        crds: crate::status::cluster::our_crds().len(),
        cluster_api: !args.no_capi,
        ready_after,
        dir: super::named_dir(layout, surroundings),
        background: args.background,
    }
}

fn print(summary: &Summary, surroundings: &Surroundings) -> Result<()> {
    let mut out = std::io::stdout();
    out.write_all(summary.render(surroundings.stdout.colour).as_bytes())
        .and_then(|()| out.flush())
        .context("failed to write to standard output")
}
