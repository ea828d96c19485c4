//! The Mac itself: what it is, where it is reached, how it is.

mod address;
pub(crate) mod ask;
pub(crate) mod disk;
pub(crate) mod health;
pub(crate) mod pressure;
mod system;

use std::net::IpAddr;

use russet_node::{Condition, Machine, Sight, System};
use tokio::sync::watch;

use crate::config::{Config, Listen, NodeIpSource};

pub use address::AddressError;
pub use ask::AskError;
pub(crate) use disk::Gauge;
use health::Found;
pub use health::Moved;
pub(crate) use health::{Board, Examiner, LostCount};

/// The Mac.
pub struct Host {
    address: Address,
    system: System,
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
}

impl Machine for Host {
    fn joined(&self, client: &kube::Client, watching: &kube::Client) {
        self.client.send_replace(Some(client.clone()));
        self.watching.send_replace(Some(watching.clone()));
    }

    async fn deleted(&self) {
        self.board.deleted().await;
    }

    /// Reads what is written down, and asks nobody: a host in trouble answers late, and that is when it has to be told.
    async fn look(&self) -> Sight {
        let (health, pressure) = (self.board.health(), self.board.pressure());
        let address = self.address();
        let unreachable = match (address, &health.tailnet) {
            (_, Found::Trouble(why)) => Some(why.clone()),
            (None, _) => Some("the host has no address that others can dial".to_owned()),
            (Some(_), _) => None,
        };
        let mut conditions = vec![
            pressure.on_memory(),
            match self.board.is_pressed() {
                Some(pressed) => Condition::disk_pressure(pressed, disk::sentence(pressed)),
                None => Condition::disk_pressure(false, "the disk was not looked at yet").assumed(),
            },
            pressure.on_processes(),
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

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::pressure::Pressure;
    use super::*;

    /// The heartbeat asked macOS by itself, for up to twelve seconds, and was cut off after five: on a host in trouble it told what had
    /// been so before, for as long as the trouble lasted.
    #[test]
    fn a_look_waits_for_nobody_and_tells_what_was_found() {
        let host = Host {
            address: Address::Fixed(IpAddr::from([100, 64, 0, 7])),
            system: System::default(),
            disk: Gauge::default(),
            board: Board::default(),
            tailnet: true,
            port: None,
            client: watch::channel(None).0,
            watching: watch::channel(None).0,
        };
        let told = |kind: &str| {
            let sight = host.look().now_or_never().expect("it waited for somebody");
            sight.conditions.into_iter().find(|told| told.kind == kind).unwrap()
        };
        for kind in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
            let told = told(kind);
            assert!(told.assumed && !told.holds, "{told:?}");
        }
        host.board().set_pressed(true);
        host.board().set_pressure(Pressure {
            memory: Some(true),
            processes: Some(false),
        });
        let is = |kind| (told(kind).assumed, told(kind).holds);
        assert_eq!(is("DiskPressure"), (false, true));
        assert_eq!(is("MemoryPressure"), (false, true));
        assert_eq!(is("PIDPressure"), (false, false));
    }
}
