//! A cluster of our own, in the foreground (also the background process of `--detach`).

use super::board::Board;
use super::cache;
use super::chart::{self, Ownership, Target};
use super::disk;
use super::fleet::{self, Place, Size, Wanted};
use super::linux::{self, Plan, Servers};
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
pub(super) fn wanted(args: &cli::Up, plan: &Plan) -> Vec<&'static str> {
    let extra: &[&str] = if args.no_capi { &[] } else { &CLUSTER_API_TOOLS };
    TOOLS.iter().chain(extra).copied().chain(plan.tools()).collect()
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
    for cgroup in linux::sweep(layout).await? {
        remarks.push(format!("removed the cgroup {cgroup}, left over from a killed run"));
    }
    let plan = Plan::of(args).await;
    if let Plan::Synthetic(_, why) = &plan {
        remarks.push(format!("the cache nodes will be synthetic: {why}"));
    }
    let names = wanted(args, &plan);
    let bars = Bars::stderr();
    let tools = tokio::select! {
        tools = store.ensure(&names, &bars) => tools?,
        signal = signals.next() => return Ok(interrupted(signal)),
    };
    // Without it the shell of the emulated Macs is bash, which does as well.
    let zsh = match fleet_programs(args).filter(|programs| programs.emulate_macos(layout.root())) {
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
    // Outlives the supervisor: the API server is on this network.
    let servers = plan.clone().prepare(layout).await?;
    let supervisor = Supervisor::new(layout.root());
    let start = Box::pin(start(
        args,
        layout,
        &tools,
        (servers.as_ref(), zsh),
        &supervisor,
        &board,
        record,
    ));
    let started = tokio::select! {
        biased;
        signal = signals.next() => Err(Stop::Signal(signal)),
        started = tokio::time::timeout(args.timeout, start) => {
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
                &summary(args, layout, &tools, (started, plan), ready_after, surroundings),
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
    (servers, zsh): (Option<&Servers>, Option<&Path>),
    supervisor: &Supervisor,
    board: &Board,
    mut record: Record,
) -> Result<Started> {
    let before = Ports::remembered(layout);
    let control_plane = ControlPlane::start(tools, supervisor, control_plane(args, layout, servers)).await?;
    let server = control_plane.server().to_owned();
    let kubeconfig = layout.kubeconfig();
    let content = std::fs::read(control_plane.admin_kubeconfig()).context("failed to read the admin kubeconfig")?;
    state::publish(&kubeconfig, &content).with_context(|| format!("failed to write {}", kubeconfig.display()))?;
    board.located(
        &server,
        kubeconfig.clone(),
        Ports::remembered(layout).addresses(&server),
    );

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
    let install = install_crds(&target, board, &mut record);
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
    let emulate = async {
        let account = fleet::emulate(programs.as_ref(), size, layout, supervisor, &server, zsh).await?;
        if let (Some(servers), Some(account)) = (servers, &account) {
            let url = &account.url;
            servers.start(url, layout, tools, supervisor, &control_plane).await?;
        }
        anyhow::Ok(account)
    };
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
        let kura = servers.map(Servers::values);
        fleet::provide(&programs.provider, (size, kura), account, &place, &mut record).await?;
        serve(servers, tools, &place).await?;
    }
    let after = Ports::remembered(layout);
    for remark in after.moved_since(&before) {
        board.note(&remark);
    }
    board.located(&server, kubeconfig, after.addresses(&server));
    Ok(Started {
        server,
        cache,
        account: account.map(|account| account.url),
    })
}

fn control_plane(args: &cli::Up, layout: &Layout, servers: Option<&Servers>) -> control_plane::Options {
    let mut options = control_plane::Options::new(layout.cluster());
    options.extras = Extras::all();
    options.logs = layout.logs();
    options.durability = if args.durable {
        Durability::Synced
    } else {
        Durability::Throwaway
    };
    if let Some(servers) = servers {
        servers.house(&mut options);
    }
    options
}

async fn install_crds(target: &Target<'_>, board: &Board, record: &mut Record) -> Result<()> {
    let recorded = record.charts.get(chart::CRDS.release).cloned();
    board
        .step(
            "CRD chart (helm)",
            |done: &chart::Outcome| done.as_str().to_owned(),
            chart::ensure_crds(target, recorded.as_deref()),
        )
        .await?;
    board
        .step(
            "CRDs",
            |count| format!("{count} Established"),
            chart::wait_established(target.client, target.timeout),
        )
        .await?;
    // At once: Cluster API core may still fail, and the next start need not run Helm again for that.
    let hash = chart::CRDS.content_hash(None);
    record.charts.insert(chart::CRDS.release.to_owned(), hash);
    record::write(target.layout, record)?;
    Ok(())
}

/// Waits until every machine that was ordered serves.
async fn serve(servers: Option<&Servers>, tools: &Tools, place: &Place<'_>) -> Result<()> {
    let (board, client) = (place.board, place.target.client);
    let told = |count: &usize| format!("{count} serve");
    let wait = |wanted| async move { anyhow::Ok(fleet::wait_for(client, wanted).await) };
    let macs = board.step("Macs", told, wait(Wanted::Macs));
    let cache_nodes = async {
        if let Some(servers) = servers {
            let (supervisor, control_plane) = (place.supervisor, place.control_plane);
            servers
                .start_provisioner(tools, supervisor, control_plane, client)
                .await?;
            board.step("cache nodes", told, wait(Wanted::CacheNodes)).await?;
        }
        anyhow::Ok(())
    };
    tokio::try_join!(macs, cache_nodes)?;
    Ok(())
}

/// The programs of the fleet, unless it is left out.
fn fleet_programs(args: &cli::Up) -> Option<fleet::Programs> {
    if args.no_fleet || args.no_capi {
        return None;
    }
    let programs = std::env::current_exe()
        .ok()
        .and_then(|russet| fleet::Programs::beside(&russet))?;
    Some(if args.synthetic_macs {
        programs.without_agent()
    } else {
        programs
    })
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
    (started, linux): (Started, Plan),
    ready_after: f64,
    surroundings: &Surroundings,
) -> Summary {
    Summary {
        server: started.server,
        cache: started.cache,
        fleet: super::summary::Fleet::of(args, started.account),
        linux,
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
