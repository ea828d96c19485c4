//! Images and the registry that serves them: `<registry>/<host>/<namespace>/{sha256:… , <tag>}`.

use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// What a guest runs.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Os {
    /// macOS; counts against the limit of the kernel.
    #[default]
    Darwin,
    /// Linux; does not count [guess].
    Linux,
}

/// An image, in a registry or on a disk.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Image {
    /// The system in it.
    pub os: Os,
    /// CPU cores of a fresh VM.
    pub cpu: u32,
    /// The least it runs with.
    pub cpu_min: u32,
    /// Memory of a fresh VM.
    pub memory_mb: u64,
    /// The least it runs with.
    pub memory_mb_min: u64,
    /// The size of the disk.
    pub disk_gb: u64,
    /// How much of the disk is allocated.
    pub size_gb: f64,
    /// How much a download moves.
    pub compressed_gb: f64,
    /// What the guest runs once it is up, by `/bin/sh`. That it ends does not end the VM; `shutdown -h now` does.
    pub boot: String,
    /// Whether the guest agent is installed, without which `tart exec` finds nobody.
    pub agent: bool,
    /// Tells apart images that are otherwise the same.
    pub label: String,
}

impl Default for Image {
    fn default() -> Self {
        Self {
            os: Os::Darwin,
            cpu: 4,
            cpu_min: 4,
            memory_mb: 8192,
            memory_mb_min: 4096,
            disk_gb: 50,
            size_gb: 25.123,
            compressed_gb: 18.5,
            boot: String::new(),
            agent: true,
            label: String::new(),
        }
    }
}

impl Image {
    pub(crate) fn digest(&self) -> Result<String, Failure> {
        let mut text = "sha256:".to_owned();
        for byte in Sha256::digest(serde_json::to_vec(self)?) {
            let _ = write!(text, "{byte:02x}");
        }
        Ok(text)
    }
}

/// `host/namespace:tag` or `host/namespace@sha256:…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteName {
    pub(crate) host: String,
    pub(crate) namespace: String,
    /// A tag, or a digest with its `sha256:`.
    pub(crate) reference: String,
}

impl RemoteName {
    /// Only names with a slash are remote.
    pub(crate) fn is_remote(name: &str) -> bool {
        name.contains('/')
    }

    pub(crate) fn parse(name: &str) -> Result<Self, Failure> {
        let wrong = |why: &str| Failure::Own(format!("failed to parse remote name: {why}"), 1);
        let (host, rest) = name.split_once('/').ok_or_else(|| wrong("no host"))?;
        let (namespace, reference) = match rest.split_once('@') {
            Some((namespace, digest)) => (namespace, digest),
            None => rest.split_once(':').unwrap_or((rest, "latest")),
        };
        let good = |text: &str| {
            !text.is_empty()
                && !text.starts_with(['.', '/'])
                && !text.contains("..")
                && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-/:".contains(c))
        };
        if !good(host) || !good(namespace) || namespace.contains(':') || !good(reference) || reference.contains('/') {
            return Err(wrong(&format!("unexpected characters in {name}")));
        }
        if rest.contains('@') && !(reference.starts_with("sha256:") && reference.len() == 71) {
            return Err(wrong(&format!("not a digest: {reference}")));
        }
        Ok(Self {
            host: host.to_owned(),
            namespace: namespace.to_owned(),
            reference: reference.to_owned(),
        })
    }

    pub(crate) fn is_digest(&self) -> bool {
        self.reference.starts_with("sha256:")
    }

    /// As `tart list` prints it.
    pub(crate) fn full(&self) -> String {
        let joint = if self.is_digest() { '@' } else { ':' };
        format!("{}/{}{joint}{}", self.host, self.namespace, self.reference)
    }

    /// A folder of the repository below a root; `:` of a port is `%3A` there.
    pub(crate) fn folder(&self, root: &Path) -> PathBuf {
        root.join(self.host.replace(':', "%3A")).join(&self.namespace)
    }
}

/// The registry: a folder that all hosts may share.
#[derive(Clone, Debug)]
pub(crate) struct Registry(pub(crate) PathBuf);

impl Registry {
    /// Stores an image under a name and gives its digest.
    pub(crate) fn push(&self, name: &RemoteName, image: &Image) -> Result<String, Failure> {
        let folder = name.folder(&self.0);
        std::fs::create_dir_all(&folder)?;
        let digest = image.digest()?;
        std::fs::write(folder.join(&digest), serde_json::to_vec_pretty(image)?)?;
        if !name.is_digest() {
            std::fs::write(folder.join(&name.reference), &digest)?;
        }
        Ok(digest)
    }

    /// The digest and the image behind a name, if there is one.
    pub(crate) fn find(&self, name: &RemoteName) -> Result<Option<(String, Image)>, Failure> {
        let folder = name.folder(&self.0);
        let digest = if name.is_digest() {
            name.reference.clone()
        } else {
            match std::fs::read_to_string(folder.join(&name.reference)) {
                Ok(digest) => digest,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        };
        match std::fs::read(folder.join(&digest)) {
            Ok(bytes) => Ok(Some((digest, serde_json::from_slice(&bytes)?))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_split_at_host_namespace_and_reference() {
        let name = RemoteName::parse("localhost:5000/org/mac:v1").unwrap();
        assert_eq!(
            (name.host.as_str(), name.namespace.as_str()),
            ("localhost:5000", "org/mac")
        );
        assert_eq!(name.full(), "localhost:5000/org/mac:v1");
        assert_eq!(RemoteName::parse("ghcr.io/org/mac").unwrap().reference, "latest");
        assert!(
            RemoteName::parse(&format!("ghcr.io/org/mac@sha256:{}", "a".repeat(64)))
                .unwrap()
                .is_digest()
        );
        for bad in [
            "ghcr.io/",
            "ghcr.io/../x",
            "ghcr.io/a b",
            "ghcr.io/a@sha256:short",
            "/a",
        ] {
            assert!(RemoteName::parse(bad).is_err(), "{bad}");
        }
    }
}
