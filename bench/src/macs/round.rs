//! All hosts once through the provider's pool.

use super::threads;
use super::world::World;
use anyhow::{Context, Result, bail};
use russet_capi_provider::bootstrap::{Bootstrapper as _, Done, Effort, Kind, Pool, Recipe, Seat, Ssh, Trouble, Work};
use russet_capi_provider::clock::SystemClock;
use russet_capi_provider::metrics::ProviderMetrics;
use russet_capi_provider::registry::{Key, Registry};
use russet_telemetry::Metrics;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

/// Threads by which the provider's processor time is known.
const THREADS: &str = "provider";
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Nothing here takes long; a thread that ended would take its time with it.
const KEEP: Duration = Duration::from_hours(24);
/// Longer than any round: a host that failed is the end of a run.
const REST: Duration = Duration::from_hours(1);

/// The parts of a provider that set up hosts.
pub(super) struct Provider {
    runtime: Runtime,
    pool: Pool,
    ssh: Ssh,
    stop: CancellationToken,
    /// Host keys, as the provider keeps them in Secrets.
    pins: Mutex<BTreeMap<u32, String>>,
}

/// What a round took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Round {
    pub(super) wall: Duration,
    pub(super) cpu: Duration,
    pub(super) efforts: Vec<Effort>,
}

impl Provider {
    pub(super) fn new(world: &World, at_once: usize) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_name(THREADS)
            .thread_keep_alive(KEEP)
            .enable_all()
            .build()?;
        let recipe: Recipe = world.recipe()?;
        let ssh = Ssh::new(recipe, world.port);
        let pool = Pool::new(
            at_once,
            REST,
            Registry::default(),
            ProviderMetrics::new(&Metrics::new()),
            Arc::new(SystemClock),
        );
        let stop = CancellationToken::new();
        drop(runtime.spawn(pool.clone().run(stop.clone())));
        Ok(Self {
            runtime,
            pool,
            ssh,
            stop,
            pins: Mutex::default(),
        })
    }

    pub(super) fn bootstrapper(&self) -> &Ssh {
        &self.ssh
    }

    /// Files that were read to the end so far.
    pub(super) fn hashed(&self) -> u64 {
        self.ssh.hashed()
    }

    /// Every host once, as many at a time as the pool has places.
    pub(super) async fn round(&self, world: &World, kind: Kind) -> Result<Round> {
        let (began, used) = (Instant::now(), threads::used(THREADS));
        let mut open: Vec<u32> = world.numbers().collect();
        let mut efforts = Vec::new();
        while !open.is_empty() {
            let mut left = Vec::new();
            for number in open {
                match self.look(world, number, kind)? {
                    Some(done) => efforts.push(done.effort),
                    None => left.push(number),
                }
            }
            open = left;
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(Round {
            wall: began.elapsed(),
            cpu: threads::used(THREADS).saturating_sub(used),
            efforts,
        })
    }

    /// Begins what can begin. What came of it, once it ended.
    fn look(&self, world: &World, number: u32, kind: Kind) -> Result<Option<Done>> {
        let name = format!("mac-{number}");
        let key = Key {
            namespace: "bench".to_owned(),
            name: name.clone(),
        };
        let server = world.mini(number)?.server_id.to_string().parse();
        let server = server.context("the id of a mini")?;
        match self.pool.seat(&name, &key, &server) {
            Seat::Free => {
                let work = self.work(world, number, kind)?;
                self.pool.start(&name, &key, &server, Vec::new(), work);
                Ok(None)
            }
            Seat::Full | Seat::Running(_) => Ok(None),
            Seat::Ended(_, result) => {
                self.pool.acknowledge(&name);
                match &*result {
                    Ok(done) => {
                        if let (Ok(mut pins), Some(pin)) = (self.pins.lock(), &done.fingerprint) {
                            pins.insert(number, pin.clone());
                        }
                        Ok(Some(done.clone()))
                    }
                    Err(trouble) => bail!("{name} was not set up: {}", said(trouble)),
                }
            }
            Seat::Resting(_) => bail!("{name} rests, though nothing failed"),
        }
    }

    fn work(&self, world: &World, number: u32, kind: Kind) -> Result<Work> {
        let pin = self.pins.lock().ok().and_then(|pins| pins.get(&number).cloned());
        let job = world.job(number, kind, pin)?;
        let ssh = self.ssh.clone();
        Ok(Box::new(move |progress, stop| {
            Box::pin(async move { ssh.run(job, progress, stop).await.map_err(Trouble::Host) })
        }))
    }

    /// A runtime cannot be dropped where futures run.
    pub(super) fn end(self) {
        self.stop.cancel();
        self.runtime.shutdown_background();
    }
}

fn said(trouble: &Trouble) -> String {
    match trouble {
        Trouble::Host(failed) => failed.to_string(),
        Trouble::Preparation(problem) => problem.to_string(),
        Trouble::NoCredentials => "it has no credentials".to_owned(),
        Trouble::Stopped => "it was stopped".to_owned(),
    }
}
