//! The catalogue: which build tools there are, what they speak, what they stand on.

use std::{fmt, str::FromStr};

use crate::Error;

/// A build tool that can be run against the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tool {
    Gradle,
    Maven,
    Ccache,
    Sccache,
    /// Bazel over HTTP.
    Bazel,
    /// Bazel over gRPC.
    BazelGrpc,
    Nx,
    Turborepo,
    Metro,
    Moon,
    Go,
}

/// A command of a toolchain that is not ours to install.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) command: &'static str,
    pub(crate) advice: &'static str,
}

const JAVA: Need = Need {
    command: "java",
    advice: "install a JDK, version 17 or newer",
};
const JAVAC: Need = Need {
    command: "javac",
    advice: "install a JDK, version 17 (a JRE alone does not compile)",
};
const JAR: Need = Need {
    command: "jar",
    advice: "install a JDK, version 17 (a JRE alone does not compile)",
};
const NODE: Need = Need {
    command: "node",
    advice: "install Node.js 20 or newer",
};
const NPM: Need = Need {
    command: "npm",
    advice: "install Node.js 20 or newer, with npm",
};
const CC: Need = Need {
    command: "gcc",
    advice: "install a C compiler",
};
const GIT: Need = Need {
    command: "git",
    advice: "install git",
};
const GO: Need = Need {
    command: "go",
    advice: "install Go 1.24 or newer",
};

impl Tool {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Self; 11] = [
        Self::Gradle,
        Self::Maven,
        Self::Ccache,
        Self::Sccache,
        Self::Bazel,
        Self::BazelGrpc,
        Self::Nx,
        Self::Turborepo,
        Self::Metro,
        Self::Moon,
        Self::Go,
    ];

    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gradle => "gradle",
            Self::Maven => "maven",
            Self::Ccache => "ccache",
            Self::Sccache => "sccache",
            Self::Bazel => "bazel",
            Self::BazelGrpc => "bazel-grpc",
            Self::Nx => "nx",
            Self::Turborepo => "turborepo",
            Self::Metro => "metro",
            Self::Moon => "moon",
            Self::Go => "go",
        }
    }

    /// What it speaks to the cache.
    pub fn protocol(self) -> &'static str {
        match self {
            Self::Gradle => "HTTP build cache",
            Self::Maven => "HTTP, build-cache extension",
            Self::Ccache => "HTTP remote storage",
            Self::Sccache => "WebDAV",
            Self::Bazel => "HTTP /ac and /cas",
            Self::BazelGrpc => "REAPI over gRPC",
            Self::Nx => "HTTP self-hosted cache",
            Self::Turborepo => "HTTP /v8/artifacts",
            Self::Metro => "HTTP store",
            Self::Moon => "REAPI over gRPC, zstd",
            Self::Go => "GOCACHEPROG through kura cacheprog",
        }
    }

    /// Where it comes from, and its version.
    pub fn comes_from(self) -> &'static str {
        match self {
            Self::Gradle => "Debian package 4.4.1",
            Self::Maven => "Maven registry 3.9.12, extension 1.3.0",
            Self::Ccache => "Python registry 4.14.2",
            Self::Sccache => "Python registry 0.16.0",
            Self::Bazel | Self::BazelGrpc => "Debian package 4.2.3",
            Self::Nx => "npm 24.0.0",
            Self::Turborepo => "npm 2.11.10",
            Self::Metro => "npm 0.84.6",
            Self::Moon => "npm 2.5.5",
            Self::Go => "the Go toolchain of this system",
        }
    }

    /// Under which labels the server counts what this tool reads and writes.
    pub fn producers(self) -> &'static [&'static str] {
        match self {
            Self::Gradle => &["gradle"],
            Self::Maven => &["maven"],
            Self::Ccache => &["ccache"],
            Self::Sccache => &["sccache"],
            Self::Bazel | Self::BazelGrpc | Self::Moon => &["reapi", "reapi_action"],
            Self::Nx => &["nx"],
            Self::Turborepo => &["turborepo"],
            Self::Metro => &["metro"],
            // What an action made is a content-addressed blob like any other, but counted as what it was made for.
            Self::Go => &["go"],
        }
    }

    /// The part of `clients.toml` it is, if it is not a toolchain of the system.
    pub(crate) fn part(self) -> Option<&'static str> {
        match self {
            Self::Gradle => Some("gradle-tree"),
            Self::Maven => Some("maven-home"),
            Self::Ccache => Some("ccache"),
            Self::Sccache => Some("sccache"),
            Self::Bazel | Self::BazelGrpc => Some("bazel-tree"),
            Self::Nx => Some("nx-modules"),
            Self::Turborepo => Some("turborepo-modules"),
            Self::Metro => Some("metro-modules"),
            Self::Moon => Some("moon-modules"),
            Self::Go => None,
        }
    }

    pub(crate) fn needs(self) -> &'static [Need] {
        match self {
            Self::Gradle => &[JAVA, JAVAC, JAR],
            Self::Maven | Self::Bazel | Self::BazelGrpc => &[JAVA, JAVAC],
            Self::Ccache | Self::Sccache => &[CC],
            Self::Nx | Self::Metro => &[NODE],
            Self::Turborepo => &[NODE, NPM],
            Self::Moon => &[NODE, GIT],
            Self::Go => &[GO],
        }
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Tool {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL
            .into_iter()
            .find(|tool| tool.name() == name)
            .ok_or_else(|| Error::UnknownTool(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for tool in Tool::ALL {
            assert_eq!(tool.name().parse::<Tool>().unwrap(), tool);
        }
        assert!("gradel".parse::<Tool>().is_err());
    }

    #[test]
    fn the_catalogue_names_the_versions_that_are_installed() {
        let manifest = crate::kit::manifest().unwrap();
        for tool in Tool::ALL {
            let Some(name) = tool.part() else { continue };
            let (part, _) = manifest.tool(name).unwrap();
            assert!(
                tool.comes_from().contains(&part.version),
                "{tool}: {} does not say {}",
                tool.comes_from(),
                part.version
            );
        }
    }
}
