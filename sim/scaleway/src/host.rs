//! The machines behind the API.
//!
//! The emulator knows what a mini is, not how one behaves: whoever emulates the machine itself attaches here. In process
//! that is a [`HostFactory`]; another process reads `/_sim/hosts` and follows `/_sim/events`.

use crate::ids::{Id, Zone};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use std::fmt;
use std::net::IpAddr;

/// The SSH host key of one installation, as the 32 bytes an Ed25519 key is made of.
#[derive(Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct HostKey(String);

impl HostKey {
    /// The key with this private seed.
    pub fn new(seed: [u8; 32]) -> Self {
        Self(BASE64.encode(seed))
    }

    /// The private seed, base64.
    pub fn seed_base64(&self) -> &str {
        &self.0
    }

    /// The public half as a line of `known_hosts` has it: `ssh-ed25519 AAAA…`.
    pub fn public_openssh(&self) -> String {
        let public = BASE64
            .decode(&self.0)
            .ok()
            .and_then(|seed| Ed25519KeyPair::from_seed_unchecked(&seed).ok())
            .map(|pair| pair.public_key().as_ref().to_vec())
            .unwrap_or_default();
        let mut blob = Vec::with_capacity(64);
        for part in [b"ssh-ed25519".as_slice(), &public] {
            blob.extend(u32::try_from(part.len()).unwrap_or(0).to_be_bytes());
            blob.extend(part);
        }
        format!("ssh-ed25519 {}", BASE64.encode(blob))
    }
}

impl fmt::Debug for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostKey(..)")
    }
}

/// A machine as whoever emulates it must make it.
#[derive(Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Host {
    /// Whose machine it is.
    pub server_id: Id,
    /// Its name when this was written.
    pub name: String,
    pub zone: Zone,
    pub server_type: String,
    /// The address the API shows.
    pub address: IpAddr,
    /// Where SSH listens. The API has no such field: real minis use 22.
    pub ssh_port: u16,
    pub username: String,
    pub password: String,
    /// The host key of this installation.
    pub host_key: HostKey,
    /// Who may log in: the project's keys when the installation began.
    pub authorized_keys: Vec<String>,
    /// The image, for example `macos-tahoe-26.3`.
    pub os: String,
    /// 1 for the first installation, one more after each wipe.
    pub generation: u32,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("server_id", &self.server_id)
            .field("name", &self.name)
            .field("address", &self.address)
            .field("ssh_port", &self.ssh_port)
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

/// What happened to a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostChange {
    /// It runs for the first time since it was wiped or ordered.
    Installed,
    /// It is being wiped: nothing on it survives, nothing answers.
    Wiped,
    /// The power was cut.
    Rebooting,
    /// It is back, with its disk as it was.
    Rebooted,
    /// It belongs to nobody any more.
    Gone,
}

/// One entry of the event feed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct HostEvent {
    /// Counts from 1 in each run of the emulator.
    pub number: u64,
    /// What happened.
    pub change: HostChange,
    /// To which machine.
    pub host: Host,
}

/// Somebody who makes the machines.
///
/// Events arrive one at a time and in order, on a task of the emulator. A call that takes long delays the next event and
/// nothing else: the API goes on answering. When the emulator starts with servers, each is announced as installed.
pub trait HostFactory: Send + Sync + 'static {
    /// Something happened to a machine.
    fn changed(&self, event: &HostEvent) -> impl Future<Output = ()> + Send;
}

/// Nobody: the machines exist on paper only.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHosts;

impl HostFactory for NoHosts {
    async fn changed(&self, _: &HostEvent) {}
}

/// Which addresses new machines get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressPlan {
    /// Each machine its own address in 127.77.0.0/16, all with the same SSH port. Linux answers on all of them.
    LoopbackEach { ssh_port: u16 },
    /// All machines on 127.0.0.1, each with its own SSH port.
    OneAddress {
        /// The port of the first.
        first_port: u16,
    },
}

impl Default for AddressPlan {
    fn default() -> Self {
        Self::LoopbackEach { ssh_port: 22 }
    }
}

impl AddressPlan {
    /// The place of the `number`th machine, counted from 0.
    pub(crate) fn place(self, number: u32) -> (IpAddr, u16) {
        match self {
            Self::LoopbackEach { ssh_port } => {
                let [_, _, high, low] = (number % 65_000 + 1).to_be_bytes();
                (IpAddr::from([127, 77, high, low]), ssh_port)
            }
            Self::OneAddress { first_port } => {
                let port = u32::from(first_port).saturating_add(number);
                (IpAddr::from([127, 0, 0, 1]), u16::try_from(port).unwrap_or(u16::MAX))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_key_is_a_public_key_line() {
        let line = HostKey::new([7; 32]).public_openssh();
        // The blob of an Ed25519 key always starts like this.
        assert!(line.starts_with("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI"), "{line}");
        assert_ne!(line, HostKey::new([8; 32]).public_openssh());
    }

    #[test]
    fn machines_do_not_share_a_place() {
        for plan in [AddressPlan::default(), AddressPlan::OneAddress { first_port: 2200 }] {
            let places: std::collections::BTreeSet<_> = (0..2000).map(|number| plan.place(number)).collect();
            assert_eq!(places.len(), 2000, "{plan:?}");
        }
    }
}
