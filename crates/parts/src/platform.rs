//! The operating system and processor tools must run on, in the words release URLs use.

use std::fmt;

/// For example `linux-amd64`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Platform {
    /// `linux` or `darwin`.
    pub os: String,
    /// `amd64` or `arm64`.
    pub arch: String,
}

impl Platform {
    /// The platform this program was compiled for.
    pub fn host() -> Self {
        Self::from_rust(std::env::consts::OS, std::env::consts::ARCH)
    }

    fn from_rust(os: &str, arch: &str) -> Self {
        let os = match os {
            "macos" => "darwin",
            other => other,
        };
        let arch = match arch {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        Self {
            os: os.to_owned(),
            arch: arch.to_owned(),
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.os, self.arch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_names_become_release_names() {
        assert_eq!(Platform::from_rust("macos", "aarch64").to_string(), "darwin-arm64");
        assert_eq!(Platform::from_rust("linux", "x86_64").to_string(), "linux-amd64");
    }
}
