//! An IPv4 range in CIDR notation: just enough to choose ranges that nothing on the machine uses.

use std::{fmt, net::Ipv4Addr, str::FromStr};

/// A range such as `10.77.3.0/24`. The base is always the first address of the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    base: Ipv4Addr,
    prefix: u8,
}

/// Text that is not an IPv4 range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an IPv4 range; write it as in 10.244.0.0/24")]
pub struct Invalid {
    text: String,
}

impl Range {
    /// The range of `2^(32 - prefix)` addresses around `address`; a prefix above 32 means one address.
    pub fn new(address: Ipv4Addr, prefix: u8) -> Self {
        let prefix = prefix.min(32);
        Self {
            base: Ipv4Addr::from_bits(address.to_bits() & mask(prefix)),
            prefix,
        }
    }

    pub fn base(self) -> Ipv4Addr {
        self.base
    }

    pub fn prefix(self) -> u8 {
        self.prefix
    }

    /// Two ranges overlap exactly when the wider one contains the base of the narrower.
    pub fn overlaps(self, other: Self) -> bool {
        let common = mask(self.prefix.min(other.prefix));
        self.base.to_bits() & common == other.base.to_bits() & common
    }

    /// The address `offset` places after the base; wraps at the end of the address space.
    pub fn address(self, offset: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.base.to_bits().wrapping_add(offset))
    }
}

fn mask(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0)
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

impl FromStr for Range {
    type Err = Invalid;

    /// A bare address is the range of that one address, as routing tables print it.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid = || Invalid { text: text.to_owned() };
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, prefix.parse().map_err(|_| invalid())?),
            None => (text, 32),
        };
        if prefix > 32 {
            return Err(invalid());
        }
        Ok(Self::new(address.parse().map_err(|_| invalid())?, prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Range {
        text.parse().unwrap()
    }

    #[test]
    fn a_range_prints_as_it_was_read_from_its_first_address() {
        assert_eq!(range("10.77.3.9/24").to_string(), "10.77.3.0/24");
        assert_eq!(range("10.77.3.9").to_string(), "10.77.3.9/32");
        assert_eq!(range("10.77.3.9/0").to_string(), "0.0.0.0/0");
        assert_eq!(range("10.77.3.0/24").address(12), Ipv4Addr::new(10, 77, 3, 12));
    }

    #[test]
    fn overlap_is_symmetric_and_ignores_which_range_is_wider() {
        for (a, b, overlap) in [
            ("10.77.0.0/16", "10.77.9.0/24", true),
            ("10.77.8.0/24", "10.77.9.0/24", false),
            ("10.77.9.4", "10.77.9.0/24", true),
            ("0.0.0.0/0", "10.77.9.0/24", true),
        ] {
            assert_eq!(range(a).overlaps(range(b)), overlap, "{a} {b}");
            assert_eq!(range(b).overlaps(range(a)), overlap, "{b} {a}");
        }
    }

    #[test]
    fn text_that_is_no_range_is_refused() {
        for text in ["", "default", "10.0.0.0/33", "10.0.0/8", "fd00::/64", "10.0.0.0/x"] {
            assert!(text.parse::<Range>().is_err(), "{text:?}");
        }
    }
}
