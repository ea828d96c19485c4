//! Names of things: resource ids, zones and regions.

use sha2::{Digest as _, Sha256};
use std::fmt;
use std::str::FromStr;

/// The id of a resource: a UUID in its usual lower-case spelling.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Id(String);

/// Why a text is no [`Id`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a UUID; write it like 6b3fb7ae-e5b6-450f-952f-57f8fab41662")]
pub struct BadId(String);

impl Id {
    /// A version 4 UUID out of random bytes.
    pub(crate) fn from_random(bytes: [u8; 32]) -> Self {
        let (random, _) = bytes.split_at(16);
        let number = random
            .iter()
            .fold(0_u128, |number, byte| (number << 8) | u128::from(*byte));
        let hex = format!("{number:032x}");
        let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
        Self(format!(
            "{}-{}-4{}-a{}-{}",
            part(0, 8),
            part(8, 12),
            part(13, 16),
            part(17, 20),
            part(20, 32)
        ))
    }

    /// The id of something that has the same one in every world, such as an image.
    pub fn named(name: &str) -> Self {
        Self::from_random(Sha256::digest(name).into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Id {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl FromStr for Id {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let groups: Vec<usize> = text.split('-').map(str::len).collect();
        let shaped = groups == [8, 4, 4, 4, 12];
        if shaped && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit()) {
            Ok(Self(text.to_ascii_lowercase()))
        } else {
            Err(BadId(text.to_owned()))
        }
    }
}

impl TryFrom<String> for Id {
    type Error = BadId;

    fn try_from(text: String) -> Result<Self, BadId> {
        text.parse()
    }
}

impl From<Id> for String {
    fn from(id: Id) -> Self {
        id.0
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An availability zone, for example `fr-par-1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Zone(String);

impl Zone {
    /// A zone by its name; whether it exists is for the catalogue to say.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The zones of Linux servers.
    pub(crate) const LINUX: [&str; 9] = [
        "fr-par-1", "fr-par-2", "fr-par-3", "nl-ams-1", "nl-ams-2", "nl-ams-3", "pl-waw-1", "pl-waw-2", "pl-waw-3",
    ];

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The region the zone is in: its name without the number.
    pub fn region(&self) -> Region {
        Region(
            self.0
                .rsplit_once('-')
                .map_or(self.0.as_str(), |(region, _)| region)
                .to_owned(),
        )
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A region, for example `fr-par`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Region(String);

impl Region {
    /// The regions with private networks.
    pub(crate) const KNOWN: [&str; 3] = ["fr-par", "nl-ams", "pl-waw"];

    /// A region by its name.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_id_is_a_version_four_uuid() {
        let id = Id::from_random([0xff; 32]);
        assert_eq!(id.as_str(), "ffffffff-ffff-4fff-afff-ffffffffffff");
        assert_eq!(id.as_str().parse::<Id>(), Ok(id));
    }

    #[test]
    fn an_id_is_a_uuid_or_an_error_that_shows_one() {
        for bad in [
            "",
            "x",
            "6b3fb7ae-e5b6-450f-952f-57f8fab4166",
            "6b3fb7ae-e5b6-450f-952f-57f8fab4166z",
        ] {
            assert!(
                bad.parse::<Id>().unwrap_err().to_string().contains("write it like"),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_zone_knows_its_region() {
        assert_eq!(Zone::new("fr-par-1").region().as_str(), "fr-par");
    }
}
