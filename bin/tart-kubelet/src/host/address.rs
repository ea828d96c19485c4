//! Where a host is reached.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

use super::ask::{AskError, ask};

const PATIENCE: Duration = Duration::from_secs(10);

/// A host that shall be on the tailnet and is not.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// Nobody can say which address it has.
    #[error("--node-ip-source=tailscale, but {} does not tell the address: {source}", program.display())]
    Silent {
        /// The program that was asked.
        program: PathBuf,
        /// Why.
        source: AskError,
    },
    /// It says something else.
    #[error("--node-ip-source=tailscale, but {} tells no IPv4 address: {said:?}", program.display())]
    NoAddress {
        /// The program that was asked.
        program: PathBuf,
        /// What it said.
        said: String,
    },
}

/// The address on the tailnet. There is no other answer: see the incident `tailscale-down-no-fallback`.
pub(super) async fn tailnet(program: &Path) -> Result<IpAddr, AddressError> {
    let said = ask(program, &["ip", "-4"], PATIENCE)
        .await
        .map_err(|source| AddressError::Silent {
            program: program.to_owned(),
            source,
        })?;
    let first = said.lines().next().unwrap_or_default().trim();
    first
        .parse::<Ipv4Addr>()
        .map(IpAddr::V4)
        .map_err(|_| AddressError::NoAddress {
            program: program.to_owned(),
            said: said.chars().take(200).collect(),
        })
}

/// A network card as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Card {
    name: String,
    up: bool,
    address: Ipv4Addr,
}

/// The first address that others can dial.
pub(super) fn auto() -> Option<IpAddr> {
    let cards = getifaddrs().ok()?.filter_map(|found| {
        Some(Card {
            address: found.address?.as_sockaddr_in()?.ip(),
            up: found.flags.contains(InterfaceFlags::IFF_UP),
            name: found.interface_name,
        })
    });
    choose(cards).map(IpAddr::V4)
}

/// Not one that only the host itself or its virtual machines know.
fn choose(cards: impl Iterator<Item = Card>) -> Option<Ipv4Addr> {
    let foreign = |card: &Card| !card.name.starts_with("bridge") && !card.name.starts_with("vmnet");
    let dialled = |address: Ipv4Addr| !address.is_loopback() && !address.is_link_local() && !address.is_unspecified();
    cards
        .filter(|card| card.up && foreign(card) && dialled(card.address))
        .map(|card| card.address)
        .next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(name: &str, up: bool, address: &str) -> Card {
        Card {
            name: name.to_owned(),
            up,
            address: address.parse().unwrap(),
        }
    }

    #[test]
    fn the_first_address_others_can_dial_is_taken() {
        let cards = [
            card("lo0", true, "127.0.0.1"),
            card("bridge100", true, "192.168.64.1"),
            card("vmnet1", true, "192.168.65.1"),
            card("en1", false, "10.0.0.1"),
            card("en2", true, "169.254.7.7"),
            card("en0", true, "51.159.1.2"),
            card("utun3", true, "100.64.0.7"),
        ];
        assert_eq!(choose(cards.into_iter()), Some("51.159.1.2".parse().unwrap()));
        assert_eq!(choose([card("lo0", true, "127.0.0.1")].into_iter()), None);
    }

    async fn says(script: &str) -> Result<IpAddr, String> {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("tailscale");
        russet_program::write(&program, &format!("#!/bin/sh\n{script}\n")).unwrap();
        tailnet(&program).await.map_err(|error| error.to_string())
    }

    /// A host that fell back to its public address put its metrics on the internet. (incident tailscale-down-no-fallback)
    #[tokio::test]
    async fn without_the_tailnet_there_is_no_address() {
        assert_eq!(says("echo 100.64.0.7").await, Ok("100.64.0.7".parse().unwrap()));
        let said = says("echo 'failed to connect to local Tailscale service' >&2; exit 1").await;
        assert!(said.unwrap_err().contains("failed to connect"));
        assert!(says("true").await.unwrap_err().contains("no IPv4 address"));
        let missing = tailnet(Path::new("/nowhere/tailscale")).await.unwrap_err();
        assert!(missing.to_string().contains("/nowhere/tailscale"), "{missing}");
    }
}
