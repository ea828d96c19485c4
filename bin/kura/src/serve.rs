//! The running node: one thread that accepts and looks after things, and one thread per core that serves.
//!
//! ```text
//! control thread            accept ──► the worker with the fewest connections
//!                           signals, certificates, uploads' janitor, usage, questions to the control plane
//! worker 0..n               one current-thread runtime each; a connection lives and dies on one worker
//! ```
//! Shutdown order: announce (draining), wait for requests in flight, stop accepting, end the workers, deliver usage, close the
//! store.

mod takeover;
mod workers;

use crate::analytics::{self, Analytics};
use crate::blob::Blobs;
use crate::budget::{Budget, MemoryLimit};
use crate::config::Config;
use crate::http::routes::turborepo::SignatureKey;
use crate::http::service::{Node, Shared};
use crate::lifecycle::Lifecycle;
use crate::metrics::Metrics;
use crate::multipart::{self, Uploads, unix_ms};
use crate::pressure::{self, Bounds, Meter, Pressure};
use crate::reapi::{self, Reapi};
use crate::tls::{self, Certificate};
use crate::tools::Tools;
use crate::usage::{self, Ledger, Outbox, Reporter};
use anyhow::Context as _;
use russet_identity::{Authorizer, SystemClock};
use russet_telemetry::trace::{self, Traces};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use workers::{Acceptor, Workers};

/// Four megabytes a second are checked in the background: a 50 GB store in four hours, at a cost nobody notices.
const SCRUB_EVERY: Duration = Duration::from_secs(2);
const SCRUB_BYTES: u64 = 8 * 1024 * 1024;
/// How often a drain looks whether requests are still in flight.
const DRAIN_LOOK: Duration = Duration::from_millis(20);

/// Serves until told to stop.
pub fn run(config: Config) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_name("kura-control")
        .build()?;
    runtime.block_on(serve(config))
}

async fn serve(config: Config) -> anyhow::Result<()> {
    // First, so that a signal during a long start is not lost to the default action.
    let mut signals = Signals::new()?;
    let descriptors = raise_descriptor_limit();
    // A predecessor that drains still has the port; it is free when the folder is.
    let early = bind(config.address).await;
    let certificate = config.tls.clone().map(Certificate::new).transpose()?.map(Arc::new);
    let threads = if config.workers == 0 { cores() } else { config.workers };
    let (analytics, backlogs) = match &config.analytics {
        Some(analytics) => Analytics::on(analytics, config.tenant.as_str()),
        None => (Analytics::default(), Vec::new()),
    };
    let (traces, exporter) = match &config.traces {
        Some(options) => trace::start(options).map(|(traces, exporter)| (traces, Some(exporter)))?,
        None => (Traces::off(), None),
    };
    let blobs = tokio::select! {
        blobs = takeover::open(&config) => blobs?,
        () = signals.end() => return Ok(()),
    };
    let plain = match early {
        Ok(plain) => plain,
        Err(_) => bind(config.address).await?,
    };
    let secure = match &config.tls {
        Some(tls) => Some(bind(tls.address).await?),
        None => None,
    };
    let shared = Arc::new(open(&config, threads, blobs, analytics, traces)?);
    let stop = CancellationToken::new();
    let workers = Workers::start(threads, &shared, config.patience)?;
    // Segments and the process itself need descriptors too.
    let acceptor = Acceptor::new(workers.handle(), descriptors.saturating_sub(512).max(64));
    let mut tasks = tokio::task::JoinSet::new();
    let address = plain.local_addr()?;
    tasks.spawn(acceptor.clone().plain(plain, stop.clone()));
    let mut secure_address = None;
    if let (Some(listener), Some(certificate)) = (secure, certificate) {
        secure_address = Some(listener.local_addr()?);
        tasks.spawn(acceptor.secure(listener, Arc::new(certificate.server()?), stop.clone()));
        tasks.spawn(reload(certificate, stop.clone()));
    }
    tasks.spawn(sweep(Arc::clone(&shared), config.multipart.janitor, stop.clone()));
    tasks.spawn(reapi::sweep(Arc::clone(&shared), stop.clone()));
    tasks.spawn(scrub(Arc::clone(&shared), stop.clone()));
    tasks.spawn(measure(
        Arc::clone(&shared),
        Meter::of(&memory_limit(&config), Path::new("/")),
        stop.clone(),
    ));
    // What tells others ends last, when everything that is to be told has happened.
    let told = CancellationToken::new();
    let mut telling = tokio::task::JoinSet::new();
    report(&config, &shared, &mut telling, told.clone())?;
    if let Some(analytics) = &config.analytics {
        for backlog in backlogs {
            let (analytics, endpoint) = (analytics.clone(), config.endpoint.clone());
            telling.spawn(analytics::run(analytics, backlog, endpoint, told.clone()));
        }
    }
    if let Some(exporter) = exporter {
        let told = told.clone();
        telling.spawn(async move { exporter.run(told.cancelled()).await });
    }
    shared.lifecycle.serve();
    tracing::info!(
        %address,
        secure_address = secure_address.map(|address| address.to_string()),
        threads,
        anonymous = config.trust.anonymous.as_str(),
        data_dir = %config.data_dir.display(),
        "serving"
    );
    signals.drain(&shared.lifecycle, &config).await;
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    workers.stop();
    told.cancel();
    while telling.join_next().await.is_some() {}
    shared.authorizer.shutdown().await;
    shared.blobs.close().context("closing the store")?;
    tracing::info!("stopped");
    Ok(())
}

/// Opens everything requests need.
fn open(config: &Config, threads: usize, blobs: Blobs, analytics: Analytics, traces: Traces) -> anyhow::Result<Shared> {
    let limit = memory_limit(config);
    let bounds = Bounds::new(limit.bytes, config.memory.soft, config.memory.hard);
    let pressure = Arc::new(Pressure::new(bounds, config.memory.forced));
    tracing::info!(
        bytes = limit.bytes,
        source = ?limit.source,
        budget = limit.budget(),
        soft = bounds.soft,
        hard = bounds.hard,
        "memory"
    );
    let runtime = tokio::runtime::Handle::current();
    let metrics = Metrics::new(threads);
    Ok(Shared {
        blobs,
        authorizer: Authorizer::new(config.trust.clone(), Arc::new(SystemClock), metrics.trust(), runtime)?,
        lifecycle: Lifecycle::default(),
        budget: Budget::new(limit.budget(), Arc::clone(&pressure)),
        pressure,
        metrics,
        uploads: Uploads::open(multipart::Options {
            dir: config.multipart.dir.clone(),
            max_active: config.multipart.max_active,
            max_bytes: config.multipart.max_bytes,
            ttl: config.multipart.ttl,
        })?,
        usage: config
            .usage
            .as_ref()
            .map_or_else(Ledger::off, |usage| Ledger::on(usage.max_buckets)),
        analytics,
        traces,
        reapi: Reapi::default(),
        node: Node {
            tenant: config.tenant.clone(),
            region: config.region.clone(),
            url: config.node_url.clone(),
            place: config.place.clone(),
            started: unix_ms() / 1000,
        },
        max_keyvalue: config.max_keyvalue,
        tools: Tools::default(),
        turborepo: config.turborepo_signature.as_ref().map(SignatureKey::new),
    })
}

fn memory_limit(config: &Config) -> MemoryLimit {
    let mut limit = MemoryLimit::discover(Path::new("/"), machine_memory());
    if let Some(bytes) = config.memory.hard {
        limit.bytes = limit.bytes.min(bytes);
    }
    limit
}

/// All memory of the machine, where the kernel says so.
#[cfg(target_os = "linux")]
fn machine_memory() -> Option<u64> {
    let info = rustix::system::sysinfo();
    info.totalram.checked_mul(u64::from(info.mem_unit))
}

/// Elsewhere a small machine is assumed; KURA_MEMORY_HARD_LIMIT_BYTES says better.
#[cfg(not(target_os = "linux"))]
fn machine_memory() -> Option<u64> {
    None
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// As many descriptors as we may have; how many that is.
fn raise_descriptor_limit() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let current = if setrlimit(Resource::Nofile, raised).is_ok() {
        limit.maximum
    } else {
        limit.current
    };
    // Without a limit a million is as good as any other number.
    current
        .and_then(|count| usize::try_from(count).ok())
        .map_or(1_000_000, |count| count.min(1_000_000))
}

async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}; is another process using the port? choose one with --port")
    })
}

async fn reload(certificate: Arc<Certificate>, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(tls::RELOAD_EVERY);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        match certificate.refresh() {
            Ok(false) => {}
            Ok(true) => tracing::info!("the TLS certificate was read again"),
            Err(error) => tracing::warn!(%error, "the new TLS certificate cannot be used; the old one stays in force"),
        }
    }
}

async fn sweep(shared: Arc<Shared>, every: Duration, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(every);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let forgotten = shared.uploads.sweep(unix_ms());
        if forgotten > 0 {
            tracing::info!(forgotten, "uploads in parts were not completed in time");
        }
    }
}

/// Looks how much memory is in use. Where nothing tells, the pressure stays what it is.
async fn measure(shared: Arc<Shared>, meter: Meter, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(pressure::EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        shared.pressure.observe(meter.read().unwrap_or(0));
    }
}

async fn scrub(shared: Arc<Shared>, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(SCRUB_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        if shared.pressure.pauses_background() {
            continue;
        }
        let blobs = shared.blobs.clone();
        match tokio::task::spawn_blocking(move || blobs.scrub(SCRUB_BYTES)).await {
            Ok(Ok(0)) => {}
            Ok(Ok(damaged)) => tracing::error!(
                damaged,
                "stored bytes do not match their checksums; the entries were dropped"
            ),
            Ok(Err(error)) => tracing::warn!(%error, "stored bytes could not be checked"),
            Err(error) => tracing::error!(%error, "checking stored bytes failed"),
        }
    }
}

/// Starts reporting usage, if there is someone to report to. Ends by itself after `stop`.
fn report(
    config: &Config,
    shared: &Arc<Shared>,
    telling: &mut tokio::task::JoinSet<()>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let Some(usage) = config.usage.clone() else {
        return Ok(());
    };
    let outbox = Outbox::open(&config.data_dir, usage.max_depth).context("cannot read the usage outbox")?;
    let reporter = Reporter {
        node_id: config.node_id.clone(),
        tenant_id: config.tenant.as_str().to_owned(),
        region: config.region.clone(),
    };
    let shared = Arc::clone(shared);
    telling.spawn(async move {
        usage::deliver(usage, reporter, outbox, &shared.usage, stop).await;
    });
    Ok(())
}

struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    drain: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            drain: signal(SignalKind::user_defined1())?,
        })
    }

    /// Returns when the process is told to end before it serves.
    async fn end(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Returns when the process may end. SIGUSR1 only drains; SIGTERM and SIGINT drain and then end.
    async fn drain(&mut self, lifecycle: &Lifecycle, config: &Config) {
        loop {
            let end = tokio::select! {
                _ = self.terminate.recv() => true,
                _ = self.interrupt.recv() => true,
                _ = self.drain.recv() => false,
            };
            if lifecycle.drain() {
                takeover::announce(&config.data_dir);
                tracing::info!("draining");
            }
            if end {
                break;
            }
        }
        let quiet = async {
            let mut looks = tokio::time::interval(DRAIN_LOOK);
            while !lifecycle.is_quiet() {
                looks.tick().await;
            }
        };
        tokio::select! {
            () = quiet => {}
            () = tokio::time::sleep(config.drain_timeout) => {
                let (inflight, calls) = (lifecycle.inflight(), lifecycle.inflight_calls());
                tracing::warn!(inflight, calls, "requests are still in flight; they are cut off");
            }
            // A second wish to end is a wish to end now.
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
