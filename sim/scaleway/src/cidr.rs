//! Blocks of addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A block of addresses, for example `172.16.0.0/22`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr {
    base: IpAddr,
    prefix: u8,
}

impl Cidr {
    /// The address `offset` places after the first, if it is inside.
    pub(crate) fn nth(self, offset: u128) -> Option<IpAddr> {
        let (bits, width) = self.bits();
        let inside = offset
            .checked_shr(width.saturating_sub(u32::from(self.prefix)))
            .unwrap_or(0)
            == 0;
        let sum = bits.checked_add(offset).filter(|_| inside)?;
        Some(match self.base {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(sum).ok()?)),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(sum)),
        })
    }

    /// 127.78.0.0/16: addresses every Linux answers on.
    pub(crate) const LOOPBACK: Self = Self {
        base: IpAddr::V4(Ipv4Addr::new(127, 78, 0, 0)),
        prefix: 16,
    };
    /// 172.16.0.0/12.
    pub(crate) const PRIVATE: Self = Self {
        base: IpAddr::V4(Ipv4Addr::new(172, 16, 0, 0)),
        prefix: 12,
    };

    /// The `number`th /22 inside, or the whole block if it is smaller: what a network gets that asks for nothing.
    pub(crate) fn part(self, number: u32) -> Option<Self> {
        if self.prefix >= 22 {
            return (number == 0).then_some(self);
        }
        let base = self.nth(u128::from(number) << 10)?;
        Some(Self { base, prefix: 22 })
    }

    /// A unique local /64: fd, then 56 random bits.
    pub(crate) fn unique_local(random: u64) -> Self {
        let bits = (0xfd_u128 << 120) | (u128::from(random >> 8) << 64);
        Self {
            base: IpAddr::V6(Ipv6Addr::from_bits(bits)),
            prefix: 64,
        }
    }

    /// How many addresses are inside.
    pub(crate) fn size(self) -> u128 {
        let (_, width) = self.bits();
        1_u128
            .checked_shl(width.saturating_sub(u32::from(self.prefix)))
            .unwrap_or(u128::MAX)
    }

    pub(crate) fn is_ipv6(self) -> bool {
        self.base.is_ipv6()
    }

    pub(crate) fn prefix(self) -> u8 {
        self.prefix
    }

    fn bits(self) -> (u128, u32) {
        match self.base {
            IpAddr::V4(base) => (u128::from(base.to_bits()), 32),
            IpAddr::V6(base) => (base.to_bits(), 128),
        }
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        let ((a, width), (b, other_width)) = (self.bits(), other.bits());
        let shift = width - u32::from(self.prefix.min(other.prefix));
        width == other_width && a.checked_shr(shift).unwrap_or(0) == b.checked_shr(shift).unwrap_or(0)
    }
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a network; write it like 172.16.0.0/22");
        let (base, prefix) = text.split_once('/').ok_or_else(wrong)?;
        let base: IpAddr = base.parse().map_err(|_| wrong())?;
        let prefix: u8 = prefix.parse().map_err(|_| wrong())?;
        let cidr = Self { base, prefix };
        let (bits, width) = cidr.bits();
        let host_bits = width.checked_sub(u32::from(prefix)).ok_or_else(wrong)?;
        let below = 1_u128.checked_shl(host_bits).map_or(u128::MAX, |size| size - 1);
        if bits & below == 0 {
            Ok(cidr)
        } else {
            Err(format!("{text:?} has bits set after its prefix"))
        }
    }
}

impl TryFrom<String> for Cidr {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Cidr> for String {
    fn from(cidr: Cidr) -> Self {
        format!("{}/{}", cidr.base, cidr.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_read_strictly() {
        assert!("172.16.0.0/22".parse::<Cidr>().is_ok());
        assert!("fd00::/64".parse::<Cidr>().is_ok());
        for bad in ["172.16.0.0", "172.16.0.1/22", "172.16.0.0/33", "x/22", "172.16.0.0/x"] {
            assert!(bad.parse::<Cidr>().is_err(), "{bad}");
        }
    }

    #[test]
    fn blocks_know_what_is_inside() {
        let block: Cidr = "172.16.0.0/30".parse().unwrap();
        assert_eq!(block.nth(2).unwrap().to_string(), "172.16.0.2");
        assert_eq!(block.nth(4), None);
        assert!(block.overlaps("172.16.0.0/22".parse().unwrap()));
        assert!(!block.overlaps("172.16.4.0/22".parse().unwrap()));
    }

    #[test]
    fn a_block_is_cut_into_networks_until_it_is_used_up() {
        let part = |block: &str, number| block.parse::<Cidr>().unwrap().part(number).map(String::from);
        assert_eq!(part("172.16.0.0/12", 1).as_deref(), Some("172.16.4.0/22"));
        assert_eq!(part("10.0.0.0/21", 2), None);
        assert_eq!(part("10.0.0.0/24", 0).as_deref(), Some("10.0.0.0/24"));
        assert_eq!(part("10.0.0.0/24", 1), None);
    }
}
