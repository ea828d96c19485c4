//! The Mac itself: what it is, where it is reached, how it is.

mod address;
mod ask;
mod pressure;
mod system;

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use russet_node::{Condition, Machine, Sight, System};
use tokio::time::Instant;

use crate::config::{Config, NodeIpSource};

pub use address::AddressError;
pub use ask::AskError;
use pressure::Pressure;

/// How long an answer of macOS about memory and processes is good for: asking costs two processes.
const GOOD_FOR: Duration = Duration::from_mins(1);

/// The Mac.
#[derive(Debug)]
pub struct Host {
    address: Address,
    system: System,
    pressure: Mutex<Option<(Instant, Pressure)>>,
}

/// Where the host is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Address {
    /// There and nowhere else.
    Fixed(IpAddr),
    /// Wherever its network cards say at the moment.
    Auto,
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
        })
    }

    /// The address that was given or found on the tailnet.
    pub fn fixed(&self) -> Option<IpAddr> {
        match self.address {
            Address::Fixed(address) => Some(address),
            Address::Auto => None,
        }
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
    async fn look(&self) -> Sight {
        let disk = pressure::disk();
        let Pressure { memory, processes } = self.pressure().await;
        let (storage_bytes, full, room) = match disk {
            Some(disk) => (disk.total, disk.is_full(), disk.sentence()),
            None => (0, false, "the disk does not say how full it is".to_owned()),
        };
        Sight {
            address: match self.address {
                Address::Fixed(address) => Some(address),
                Address::Auto => address::auto(),
            },
            storage_bytes,
            system: self.system.clone(),
            conditions: vec![
                Condition::memory_pressure(
                    memory,
                    if memory {
                        "macOS reports critical memory pressure"
                    } else {
                        "there is memory"
                    },
                ),
                Condition::disk_pressure(full, room),
                Condition::pid_pressure(
                    processes,
                    if processes {
                        "nearly as many processes run as macOS allows"
                    } else {
                        "there is room for processes"
                    },
                ),
                Condition::ready(true, "tart-kubelet is running"),
            ],
        }
    }
}
