//! What a [`Store`](crate::Store) hands out.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::Error;

/// Where a tool came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A folder the user named.
    Given,
    /// The makers' own download.
    Release,
    /// A package of the distribution, unpacked.
    Debian,
    /// The npm registry.
    Npm,
    /// The Python registry.
    Pypi,
    /// The Maven registry.
    Maven,
    /// Built here with Go.
    Go,
    /// Already on this system's PATH.
    System,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Given => "given folder",
            Self::Release => "official release",
            Self::Debian => "distribution package",
            Self::Npm => "npm registry",
            Self::Pypi => "Python registry",
            Self::Maven => "Maven registry",
            Self::Go => "built with Go",
            Self::System => "this system",
        })
    }
}

/// A tool that is there and may be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Located {
    pub path: PathBuf,
    pub origin: Origin,
    /// Known for tools from the cache; a given or a system tool is not started merely to ask it.
    pub version: Option<String>,
}

/// The tools one call of [`Store::ensure`](crate::Store::ensure) made sure of. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Tools {
    found: Arc<BTreeMap<String, Located>>,
}

impl Tools {
    /// The path of a tool that was asked for.
    pub fn path(&self, tool: &str) -> Result<&Path, Error> {
        self.located(tool).map(|located| located.path.as_path())
    }

    /// The same, with its origin.
    pub fn located(&self, tool: &str) -> Result<&Located, Error> {
        self.found
            .get(tool)
            .ok_or_else(|| Error::NotAskedFor { tool: tool.to_owned() })
    }

    /// Every tool, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Located)> {
        self.found.iter().map(|(name, located)| (name.as_str(), located))
    }

    /// These tools and those, the latter winning.
    #[must_use]
    pub fn and(&self, others: &Self) -> Self {
        self.iter()
            .chain(others.iter())
            .map(|(name, located)| (name.to_owned(), located.clone()))
            .collect()
    }
}

impl FromIterator<(String, Located)> for Tools {
    fn from_iter<I: IntoIterator<Item = (String, Located)>>(iter: I) -> Self {
        Self {
            found: Arc::new(iter.into_iter().collect()),
        }
    }
}

/// Paths the caller vouches for.
impl FromIterator<(String, PathBuf)> for Tools {
    fn from_iter<I: IntoIterator<Item = (String, PathBuf)>>(iter: I) -> Self {
        iter.into_iter()
            .map(|(name, path)| {
                (
                    name,
                    Located {
                        path,
                        origin: Origin::Given,
                        version: None,
                    },
                )
            })
            .collect()
    }
}
