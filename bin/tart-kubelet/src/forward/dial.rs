//! Connections to guests.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nametoindex;
use socket2::SockRef;
use tokio::net::{TcpSocket, TcpStream};

use crate::config::Cidr;

/// Connects to a guest through the card its network is on. macOS routes by scope: on a host with several cards, a connection that
/// does not name one ends with "no route to host".
pub(crate) async fn dial(address: SocketAddr) -> io::Result<TcpStream> {
    let IpAddr::V4(guest) = address.ip() else {
        return TcpStream::connect(address).await;
    };
    let socket = TcpSocket::new_v4()?;
    if let Some(card) = card_of(guest) {
        SockRef::from(&socket).bind_device_by_index_v4(Some(card))?;
    }
    socket.connect(address).await
}

/// How many bits the network of a guest has, by the card that it is on.
pub(crate) fn network_of(guest: Ipv4Addr) -> Option<u32> {
    let (mask, _) = nearest(guest)?;
    Some(mask.leading_ones())
}

/// The IPv6 networks of the card that a guest is on: macOS gives a guest addresses of both kinds and tells only one. None where its
/// card is not known.
pub(crate) fn networks_v6_of(guest: Ipv4Addr) -> Option<Vec<Cidr>> {
    let (_, name) = nearest(guest)?;
    let all = getifaddrs().ok()?.filter(|card| card.interface_name == name);
    let networks = all.filter_map(|card| {
        let own = card.address?.as_sockaddr_in6()?.ip();
        let mask = card.netmask?.as_sockaddr_in6()?.ip();
        format!("{own}/{}", mask.to_bits().leading_ones()).parse::<Cidr>().ok()
    });
    Some(networks.collect())
}

fn card_of(guest: Ipv4Addr) -> Option<NonZeroU32> {
    let (_, name) = nearest(guest)?;
    NonZeroU32::new(if_nametoindex(name.as_str()).ok()?)
}

/// The card whose network an address is in, and its mask; of several, the smallest network.
fn nearest(guest: Ipv4Addr) -> Option<(u32, String)> {
    let all = getifaddrs().ok()?;
    let holding = all.filter_map(|card| {
        let own = card.address.as_ref()?.as_sockaddr_in()?.ip();
        let mask = card.netmask.as_ref()?.as_sockaddr_in()?.ip();
        holds(own, mask, guest).then_some((mask.to_bits(), card.interface_name))
    });
    holding.max()
}

fn holds(own: Ipv4Addr, mask: Ipv4Addr, guest: Ipv4Addr) -> bool {
    let mask = mask.to_bits();
    mask != 0 && own.to_bits() & mask == guest.to_bits() & mask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_is_on_the_card_whose_network_it_is_in() {
        let mask = Ipv4Addr::new(255, 255, 255, 0);
        let bridge = Ipv4Addr::new(192, 168, 64, 1);
        assert!(holds(bridge, mask, Ipv4Addr::new(192, 168, 64, 7)));
        assert!(!holds(bridge, mask, Ipv4Addr::new(192, 168, 65, 7)));
        assert!(!holds(bridge, Ipv4Addr::UNSPECIFIED, Ipv4Addr::new(192, 168, 64, 7)));
        assert!(card_of(Ipv4Addr::LOCALHOST).is_some(), "the loopback is a card");
        assert_eq!(network_of(Ipv4Addr::LOCALHOST), Some(8));
        assert_eq!(card_of(Ipv4Addr::new(198, 51, 100, 7)), None);
        let here = networks_v6_of(Ipv4Addr::LOCALHOST).unwrap();
        let elsewhere = "2001:db8::1".parse().unwrap();
        assert!(!here.iter().any(|network| network.contains(elsewhere)), "{here:?}");
        assert_eq!(networks_v6_of(Ipv4Addr::new(198, 51, 100, 7)), None);
    }
}
