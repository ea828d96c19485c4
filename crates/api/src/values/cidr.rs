//! Networks.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Invalid;

const RULE: &str = "use an address and a prefix length, such as 172.16.0.0/22 or fd00::/8";

/// A network: an address and the number of leading bits that count. Bits after the prefix are kept as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CidrBlock {
    address: IpAddr,
    prefix: u8,
}

impl CidrBlock {
    /// The address as written.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Number of leading bits that count.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Whether the address is in this network.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => same_prefix(
                u128::from(u32::from(ours)),
                u128::from(u32::from(theirs)),
                32,
                self.prefix,
            ),
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => same_prefix(ours.into(), theirs.into(), 128, self.prefix),
            _ => false,
        }
    }
}

fn same_prefix(a: u128, b: u128, width: u8, prefix: u8) -> bool {
    // Shifting by the full width of u128 is not defined; a prefix of 0 matches everything.
    prefix == 0 || (a ^ b) >> (width - prefix) == 0
}

impl FromStr for CidrBlock {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid = || Invalid::new("network", text, RULE);
        let (address, prefix) = text.split_once('/').ok_or_else(invalid)?;
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let digits = !prefix.is_empty() && prefix.bytes().all(|c| c.is_ascii_digit());
        let prefix: u8 = prefix.parse().ok().filter(|_| digits).ok_or_else(invalid)?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        if prefix > width {
            return Err(invalid());
        }
        Ok(Self { address, prefix })
    }
}

impl TryFrom<&str> for CidrBlock {
    type Error = Invalid;

    fn try_from(text: &str) -> Result<Self, Invalid> {
        text.parse()
    }
}

impl TryFrom<String> for CidrBlock {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
    }
}

impl From<CidrBlock> for String {
    fn from(value: CidrBlock) -> Self {
        value.to_string()
    }
}

impl fmt::Display for CidrBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use proptest::prelude::*;

    fn cidr(text: &str) -> CidrBlock {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_contains_its_addresses_and_no_others() {
        assert!(cidr("172.16.0.0/22").contains("172.16.3.255".parse().unwrap()));
        assert!(!cidr("172.16.0.0/22").contains("172.16.4.0".parse().unwrap()));
        assert!(cidr("0.0.0.0/0").contains("8.8.8.8".parse().unwrap()));
        assert!(!cidr("0.0.0.0/0").contains("::1".parse().unwrap()));
        assert!(cidr("fd00::/8").contains("fdff::1".parse().unwrap()));
        assert!(cidr("::/0").contains("::1".parse().unwrap()));
        assert!(!cidr("10.0.0.1/32").contains("10.0.0.2".parse().unwrap()));
    }

    #[test]
    fn things_that_are_no_network_are_refused() {
        for bad in [
            "",
            "10.0.0.0",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0/8",
            "fd00::/129",
            "10.0.0.0/+8",
            "x/8",
        ] {
            assert!(bad.parse::<CidrBlock>().is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn an_ipv4_network_survives_text_and_contains_itself(bits: u32, prefix in 0u8..=32) {
            let text = format!("{}/{prefix}", Ipv4Addr::from(bits));
            let block = cidr(&text);
            prop_assert_eq!(block.to_string(), text);
            prop_assert!(block.contains(block.address()));
        }

        #[test]
        fn an_ipv6_network_survives_text_and_contains_itself(bits: u128, prefix in 0u8..=128) {
            let block = cidr(&format!("{}/{prefix}", Ipv6Addr::from(bits)));
            prop_assert_eq!(cidr(&block.to_string()), block);
            prop_assert!(block.contains(block.address()));
        }
    }
}
