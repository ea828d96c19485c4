//! Starting and stopping.

use crate::core::Core;
use crate::deed::{Deed, DeedError};
use crate::handle::Handle;
use crate::settings::Settings;
use crate::world::World;
use jiff::Timestamp;
use russet_sim_kit::clock::{Clock, Factor};
use russet_sim_kit::wire::{self, Taken};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How to start.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// How fast emulated time runs.
    pub clock_factor: Factor,
    /// When emulated time starts; none means now.
    pub start: Option<Timestamp>,
    /// Which tokens there will be.
    pub seed: u64,
    /// The switches.
    pub settings: Settings,
    /// What was done before the start.
    pub deeds: Vec<Deed>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            clock_factor: Factor::REAL,
            start: None,
            seed: 1,
            settings: Settings::default(),
            deeds: Vec::new(),
        }
    }
}

/// Why it did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The address cannot be had.
    #[error(transparent)]
    Listen(#[from] Taken),
    /// The seed asks for something impossible.
    #[error("the seed cannot be done")]
    Seed(#[from] DeedError),
}

/// A running emulator. Dropped, it stops.
#[derive(Debug)]
pub struct Sim {
    url: String,
    handle: Handle,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Sim {
    /// Starts.
    pub async fn start(options: Options) -> Result<Self, SimError> {
        let start = options.start.unwrap_or_else(Timestamp::now);
        let mut world = World::new(options.seed, options.settings);
        for deed in options.deeds {
            world.perform(start, deed)?;
        }
        let core = Arc::new(Core::new(world, Clock::new(start, options.clock_factor)));
        let (listener, url) = wire::bind(options.listen).await?;
        let stop = CancellationToken::new();
        let task = tokio::spawn(wire::run(listener, Arc::clone(&core), stop.clone()));
        Ok(Self {
            url,
            handle: Handle(core),
            stop,
            task,
        })
    }

    /// Where it listens, for example `http://127.0.0.1:40123`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The control API.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Stops: no new connections, answers under way go out.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Err(error) = (&mut self.task).await {
            tracing::error!(%error, "the server did not end by itself");
        }
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
