//! Bandwidth.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Invalid;

const RULE: &str = "use a whole number of Mbit/s from 0 to 4294967295, as text with a trailing M (for example 750M)";

/// Bandwidth in Mbit/s. A number in JSON; as text the form of the Kubernetes bandwidth annotations, `750M`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub struct Mbps(u32);

impl Mbps {
    /// Bandwidth of this many Mbit/s.
    pub const fn new(mbps: u32) -> Self {
        Self(mbps)
    }

    /// Mbit/s.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Bytes per second.
    pub const fn bytes_per_second(self) -> u64 {
        // u32 to u64 cannot lose anything, and `From` is not const.
        self.0 as u64 * 1_000_000 / 8
    }
}

impl TryFrom<i64> for Mbps {
    type Error = Invalid;

    fn try_from(mbps: i64) -> Result<Self, Invalid> {
        u32::try_from(mbps)
            .map(Self)
            .map_err(|_| Invalid::new("bandwidth", mbps.to_string(), RULE))
    }
}

impl From<Mbps> for i64 {
    fn from(value: Mbps) -> Self {
        Self::from(value.0)
    }
}

impl fmt::Display for Mbps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}M", self.0)
    }
}

impl FromStr for Mbps {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let number = text.strip_suffix('M').filter(|n| n.bytes().all(|c| c.is_ascii_digit()));
        number
            .and_then(|n| n.parse().ok())
            .map(Self)
            .ok_or_else(|| Invalid::new("bandwidth", text, RULE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn negative_or_fractional_bandwidth_is_refused() {
        assert!(Mbps::try_from(-1).is_err());
        for bad in ["", "M", "750", "+7M", "1.5M", "7G"] {
            assert!(bad.parse::<Mbps>().is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn bandwidth_survives_text_and_json(mbps: u32) {
            let value = Mbps::new(mbps);
            prop_assert_eq!(value.to_string().parse::<Mbps>().unwrap(), value);
            let json = serde_json::to_string(&value).unwrap();
            prop_assert_eq!(&json, &mbps.to_string());
            prop_assert_eq!(serde_json::from_str::<Mbps>(&json).unwrap(), value);
        }
    }
}
