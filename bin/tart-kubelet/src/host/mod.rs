//! The Mac itself: what it is, where it is reached, how it is.

mod address;
pub(crate) mod ask;
pub(crate) mod disk;
pub(crate) mod health;
mod pressure;
mod system;

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use russet_node::{Condition, Machine, Sight, System};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::{Config, Listen, NodeIpSource};

pub use address::AddressError;
pub use ask::AskError;
pub(crate) use disk::Gauge;
use health::Found;
pub(crate) use health::{Board, Examiner, LostCount};
use pressure::Pressure;

/// How long an answer of macOS about memory and processes is good for: asking costs two processes.
const GOOD_FOR: Duration = Duration::from_mins(1);

/// The Mac.
pub struct Host {
    address: Address,
    system: System,
    pressure: Mutex<Option<(Instant, Pressure)>>,
    disk: Gauge,
    /// What others found out about it.
    board: Board,
    /// Whether it is reached over the tailnet and in no other way.
    tailnet: bool,
    /// On which port the kubelet API answers.
    port: Option<u16>,
    /// As whom the node speaks.
    client: watch::Sender<Option<kube::Client>>,
    /// The same for watches.
    watching: watch::Sender<Option<kube::Client>>,
}

/// Where the host is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Address {
    /// There and nowhere else.
    Fixed(IpAddr),
    /// Wherever its network cards say at the moment.
    Auto,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host")
            .field("address", &self.address)
            .field("system", &self.system)
            .finish_non_exhaustive()
    }
}

impl Host {
    /// Finds out who it is. Fails only where the tailnet is wanted and not there: an agent that would answer on another address is
    /// one that strangers can reach.
    pub async fn find(config: &Config) -> Result<Self, AddressError> {
        let address = match (config.node_ip, config.node_ip_source) {
            (Some(address), _) => Address::Fixed(address),
            (None, NodeIpSource::Tailscale) => Address::Fixed(address::tailnet(&config.tailscale).await?),
            (None, NodeIpSource::Auto) => Address::Auto,
        };
        Ok(Self {
            address,
            system: system::find(&config.tart).await,
            pressure: Mutex::new(None),
            disk: Gauge::new(&config.tart_home, config.disk_report.clone()),
            board: Board::default(),
            tailnet: config.node_ip.is_none() && config.node_ip_source == NodeIpSource::Tailscale,
            port: config.kubelet.map(Listen::port),
            client: watch::channel(None).0,
            watching: watch::channel(None).0,
        })
    }

    /// The API server as the node may use it, once it has joined, and again with each certificate.
    pub fn client(&self) -> watch::Receiver<Option<kube::Client>> {
        self.client.subscribe()
    }

    /// The same for watches, which are silent for longer than an answer may be.
    pub fn watching(&self) -> watch::Receiver<Option<kube::Client>> {
        self.watching.subscribe()
    }

    /// Where the host is reached at the moment.
    pub fn address(&self) -> Option<IpAddr> {
        match self.address {
            Address::Fixed(address) => Some(address),
            Address::Auto => address::auto(),
        }
    }

    /// The address that was given or found on the tailnet.
    pub fn fixed(&self) -> Option<IpAddr> {
        match self.address {
            Address::Fixed(address) => Some(address),
            Address::Auto => None,
        }
    }

    /// Where is written down what the heartbeat tells.
    pub(crate) fn board(&self) -> Board {
        self.board.clone()
    }

    /// The disk of virtual machines.
    pub(crate) fn disk(&self) -> Gauge {
        self.disk.clone()
    }

    /// Its address, if that is of the tailnet.
    pub(crate) fn on_tailnet(&self) -> Option<IpAddr> {
        self.fixed().filter(|_| self.tailnet)
    }

    async fn pressure(&self) -> Pressure {
        let known = *self.pressure.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, pressure)) = known.filter(|(at, _)| at.elapsed() < GOOD_FOR) {
            return pressure;
        }
        // A question that got no answer changes nothing.
        let before = known.map(|(_, pressure)| pressure).unwrap_or_default();
        let pressure = pressure::current(before).await;
        *self.pressure.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), pressure));
        pressure
    }
}

impl Machine for Host {
    fn joined(&self, client: &kube::Client, watching: &kube::Client) {
        self.client.send_replace(Some(client.clone()));
        self.watching.send_replace(Some(watching.clone()));
    }

    async fn look(&self) -> Sight {
        let Pressure { memory, processes } = self.pressure().await;
        let health = self.board.health();
        let address = self.address();
        let unreachable = match (address, &health.tailnet) {
            (_, Found::Trouble(why)) => Some(why.clone()),
            (None, _) => Some("the host has no address that others can dial".to_owned()),
            (Some(_), _) => None,
        };
        let mut conditions = vec![
            Condition::memory_pressure(
                memory,
                if memory {
                    "macOS reports critical memory pressure"
                } else {
                    "there is memory"
                },
            ),
            match self.board.is_pressed() {
                Some(pressed) => Condition::disk_pressure(pressed, disk::sentence(pressed)),
                None => Condition::disk_pressure(false, "the disk was not looked at yet").assumed(),
            },
            Condition::pid_pressure(
                processes,
                if processes {
                    "nearly as many processes run as macOS allows"
                } else {
                    "there is room for processes"
                },
            ),
            Condition::network_unavailable(
                unreachable.is_some(),
                unreachable.unwrap_or_else(|| "the host has an address that others can dial".to_owned()),
            ),
            self.board.ready(),
        ];
        conditions.extend(self.board.conditions());
        Sight {
            address,
            port: self.port,
            storage_bytes: self.disk.look().map_or(0, |disk| disk.total),
            system: self.system.clone(),
            conditions,
            resident: self.board.resident(),
        }
    }
}
