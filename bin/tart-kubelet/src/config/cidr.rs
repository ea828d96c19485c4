//! Ranges of addresses.

use std::net::IpAddr;
use std::str::FromStr;

/// A range of addresses, such as `100.64.0.0/10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    network: IpAddr,
    bits: u8,
}

/// Not a range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a range of addresses such as 100.64.0.0/10")]
pub struct BadCidr(String);

impl FromStr for Cidr {
    type Err = BadCidr;

    fn from_str(text: &str) -> Result<Self, BadCidr> {
        let bad = || BadCidr(text.to_owned());
        let (network, bits) = text.split_once('/').ok_or_else(bad)?;
        let network: IpAddr = network.parse().map_err(|_| bad())?;
        let bits: u8 = bits.parse().map_err(|_| bad())?;
        if bits > if network.is_ipv4() { 32 } else { 128 } {
            return Err(bad());
        }
        Ok(Self { network, bits })
    }
}

impl Cidr {
    const fn v4(network: std::net::Ipv4Addr, bits: u8) -> Self {
        Self {
            network: IpAddr::V4(network),
            bits,
        }
    }

    /// Whether an address is in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        let bits = u32::from(self.bits);
        match (self.network, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
                network.to_bits() & mask == address.to_bits() & mask
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
                network.to_bits() & mask == address.to_bits() & mask
            }
            _ => false,
        }
    }
}

/// The host itself, private networks and the tailnet. The range of the host's own virtual machines is in none of them: a guest has
/// no business with what another one says.
pub(super) fn defaults() -> Vec<Cidr> {
    use std::net::Ipv4Addr;
    vec![
        Cidr::v4(Ipv4Addr::new(127, 0, 0, 0), 8),
        Cidr::v4(Ipv4Addr::new(10, 0, 0, 0), 8),
        Cidr::v4(Ipv4Addr::new(172, 16, 0, 0), 12),
        Cidr::v4(Ipv4Addr::new(100, 64, 0, 0), 10),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_a_range_or_is_not() {
        let range: Cidr = "100.64.0.0/10".parse().unwrap();
        assert!(range.contains("100.127.255.255".parse().unwrap()));
        assert!(range.contains("::ffff:100.64.0.1".parse().unwrap()));
        assert!(!range.contains("100.128.0.0".parse().unwrap()));
        assert!(!range.contains("::1".parse().unwrap()));
        let all: Cidr = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains("8.8.8.8".parse().unwrap()));
        let six: Cidr = "fd7a:115c:a1e0::/48".parse().unwrap();
        assert!(six.contains("fd7a:115c:a1e0::7".parse().unwrap()));
        for bad in ["100.64.0.0", "100.64.0.0/33", "x/8", ""] {
            assert!(bad.parse::<Cidr>().is_err(), "{bad}");
        }
    }

    #[test]
    fn guests_may_read_nothing_unless_somebody_says_so() {
        let guest = "192.168.64.7".parse().unwrap();
        assert!(!defaults().iter().any(|range| range.contains(guest)));
    }
}
