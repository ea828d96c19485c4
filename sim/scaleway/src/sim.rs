//! Starting and stopping.

use crate::boxes::{BoxFactory, NoBoxes};
use crate::core::Core;
use crate::deed::{Deed, DeedError};
use crate::handle::Handle;
use crate::host::{AddressPlan, HostFactory, NoHosts};
use crate::settings::Settings;
use crate::snapshot::{Snapshot, SnapshotError};
use crate::world::World;
use jiff::Timestamp;
use russet_sim_kit::clock::{Clock, Factor, wall};
use russet_sim_kit::wire::{self, Taken};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long changes gather before they are written.
const GATHER: Duration = Duration::from_millis(200);

/// How to start.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// How fast emulated time runs.
    pub clock_factor: Factor,
    /// When emulated time starts; none means now. A state that is restored brings its own.
    pub start: Option<Timestamp>,
    /// Which ids, passwords and keys there will be.
    pub seed: u64,
    /// The switches.
    pub settings: Settings,
    /// Which addresses machines get.
    pub addresses: AddressPlan,
    /// What was done before the start. Not done again on a state that is restored.
    pub deeds: Vec<Deed>,
    /// Where the state survives.
    pub state: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            clock_factor: Factor::REAL,
            start: None,
            seed: 1,
            settings: Settings::default(),
            addresses: AddressPlan::default(),
            deeds: Vec::new(),
            state: None,
        }
    }
}

/// Why it did not start or stop.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The address cannot be had.
    #[error(transparent)]
    Listen(#[from] Taken),
    /// The state file cannot be used.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The seed asks for something impossible.
    #[error("the seed cannot be done")]
    Seed(#[from] DeedError),
}

/// A running emulator. Dropped, it stops without writing its state; [`Sim::stop`] does both.
#[derive(Debug)]
pub struct Sim {
    url: String,
    handle: Handle,
    state: Option<PathBuf>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Sim {
    /// Starts without machines behind the API.
    pub async fn start(options: Options) -> Result<Self, SimError> {
        Self::start_with(options, NoHosts).await
    }

    /// Starts with somebody who makes the machines.
    pub async fn start_with(options: Options, hosts: impl HostFactory) -> Result<Self, SimError> {
        Self::start_with_boxes(options, hosts, NoBoxes).await
    }

    /// Starts with somebody who makes the minis, and somebody who makes the Linux machines.
    pub async fn start_with_boxes(
        options: Options,
        hosts: impl HostFactory,
        boxes: impl BoxFactory,
    ) -> Result<Self, SimError> {
        let core = Arc::new(make(&options)?);
        let (listener, url) = wire::bind(options.listen).await?;
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(wire::run(listener, Arc::clone(&core), stop.clone()));
        spawn_until(&mut tasks, &stop, tick(Arc::clone(&core)));
        spawn_until(&mut tasks, &stop, tell(Arc::clone(&core), hosts));
        spawn_until(&mut tasks, &stop, tell_boxes(Arc::clone(&core), boxes));
        if let Some(path) = options.state.clone() {
            spawn_until(&mut tasks, &stop, keep(Arc::clone(&core), path));
        }
        Ok(Self {
            url,
            handle: Handle(core),
            state: options.state,
            stop,
            tasks,
        })
    }

    /// Where it listens, for example `http://127.0.0.1:40123`: the value of `SCW_API_URL`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The control API.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Stops: no new connections, answers under way go out, the state is written.
    pub async fn stop(mut self) -> Result<(), SimError> {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
        if let Some(path) = self.state.take() {
            self.handle.snapshot().write(&path)?;
        }
        Ok(())
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn make(options: &Options) -> Result<Core, SimError> {
    let restored = match &options.state {
        Some(path) => Snapshot::read(path)?,
        None => None,
    };
    if let Some(snapshot) = restored {
        let clock = Clock::new(snapshot.now, options.clock_factor);
        return Ok(Core::new(snapshot.world, clock));
    }
    let start = options.start.unwrap_or_else(wall);
    let mut world = World::new(options.seed, start, options.settings.clone(), options.addresses);
    for deed in &options.deeds {
        world.perform(start, deed.clone())?;
    }
    Ok(Core::new(world, Clock::new(start, options.clock_factor)))
}

/// Lets things happen when nobody looks.
async fn tick(core: Arc<Core>) {
    loop {
        let stirred = core.stirred.notified();
        match core.next_tick() {
            Some(wait) => drop(tokio::time::timeout(wait, stirred).await),
            None => stirred.await,
        }
        core.tick();
    }
}

/// Tells the maker of machines what happened, in order.
async fn tell(core: Arc<Core>, hosts: impl HostFactory) {
    let mut last = core.last_event(|state| &state.events);
    let mut told = 0;
    loop {
        for event in core.events(|state| &state.events, told) {
            told = event.number;
            hosts.changed(&event).await;
        }
        if last.wait_for(|last| *last > told).await.is_err() {
            return;
        }
    }
}

/// The same for the maker of Linux machines.
async fn tell_boxes(core: Arc<Core>, boxes: impl BoxFactory) {
    let mut last = core.last_event(|state| &state.box_events);
    let mut told = 0;
    loop {
        for event in core.events(|state| &state.box_events, told) {
            told = event.number;
            boxes.changed(&event).await;
        }
        if last.wait_for(|last| *last > told).await.is_err() {
            return;
        }
    }
}

/// Writes the state after it changed.
async fn keep(core: Arc<Core>, path: PathBuf) {
    loop {
        core.dirty.notified().await;
        tokio::time::sleep(GATHER).await;
        let snapshot = core.snapshot();
        let path: PathBuf = Path::new(&path).to_owned();
        let written = tokio::task::spawn_blocking(move || snapshot.write(&path)).await;
        match written {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(error = &error as &dyn std::error::Error, "could not keep the state"),
            Err(error) => tracing::error!(%error, "could not keep the state"),
        }
    }
}

fn spawn_until(tasks: &mut JoinSet<()>, stop: &CancellationToken, work: impl Future<Output = ()> + Send + 'static) {
    let running = stop.clone().run_until_cancelled_owned(work);
    tasks.spawn(async move {
        running.await;
    });
}
