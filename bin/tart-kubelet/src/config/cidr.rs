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

/// Private networks, the tailnet, the link and the host itself, as hosts have had them before. Virtual machines of this host are in
/// some of them and are refused all the same: see [`crate::forward::Allowed`].
const DEFAULTS: [&str; 9] = [
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",
    "169.254.0.0/16",
    "127.0.0.0/8",
    "fc00::/7",
    "fe80::/10",
    "::1/128",
];

/// Who may read what virtual machines say where nobody is named.
pub(super) fn defaults() -> Vec<Cidr> {
    DEFAULTS.iter().filter_map(|range| range.parse().ok()).collect()
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
    fn those_near_the_host_may_read_and_the_rest_of_the_world_may_not() {
        assert_eq!(defaults().len(), DEFAULTS.len(), "each of them is a range");
        let within = |address: &str| {
            let address = address.parse().unwrap();
            defaults().iter().any(|range| range.contains(address))
        };
        for near in [
            "10.1.2.3",
            "192.168.1.7",
            "100.64.0.7",
            "169.254.1.1",
            "fd7a:115c:a1e0::7",
            "fe80::1",
            "::1",
        ] {
            assert!(within(near), "{near}");
        }
        for far in ["203.0.113.9", "100.128.0.1", "2001:db8::1", "::ffff:203.0.113.9"] {
            assert!(!within(far), "{far}");
        }
    }
}
