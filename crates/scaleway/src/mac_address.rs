//! Hardware addresses.

use serde::Deserialize;

/// A hardware address. IPAM writes them in upper case and Instances in lower case, so they are kept in lower case and are
/// equal however they were written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(from = "String")]
pub struct MacAddress(String);

impl MacAddress {
    /// The text, in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for MacAddress {
    fn from(text: String) -> Self {
        Self(text.to_ascii_lowercase())
    }
}

impl From<&str> for MacAddress {
    fn from(text: &str) -> Self {
        Self(text.to_ascii_lowercase())
    }
}

impl std::fmt::Display for MacAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hardware_address_is_the_same_in_either_case() {
        assert_eq!(
            MacAddress::from("02:00:00:AB:cd:EF"),
            MacAddress::from("02:00:00:ab:CD:ef".to_owned())
        );
        assert_ne!(
            MacAddress::from("02:00:00:ab:cd:ef"),
            MacAddress::from("02:00:00:ab:cd:ee")
        );
    }
}
