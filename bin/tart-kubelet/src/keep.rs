//! What the agent remembers, in a folder of its own.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use russet_node::{Identity, Memory, Store};
use russet_telemetry::Secret;
use serde::{Deserialize, Serialize};

const FILE: &str = "node.json";

/// A folder that holds the node's key. The file in it is readable by its owner alone, and appears whole or not at all.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

/// The file. Fields are added, never renamed: the next release reads what this one wrote.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Image {
    identity: Option<Papers>,
    next: Option<Papers>,
    labels: BTreeSet<String>,
}

#[derive(Serialize, Deserialize)]
struct Papers {
    node_name: String,
    server: String,
    key_pem: String,
    certificate_pem: Option<String>,
}

impl From<Papers> for Identity {
    fn from(papers: Papers) -> Self {
        Self {
            node_name: papers.node_name,
            server: papers.server,
            key_pem: Secret::new(papers.key_pem),
            certificate_pem: papers.certificate_pem,
        }
    }
}

impl From<&Identity> for Papers {
    fn from(identity: &Identity) -> Self {
        Self {
            node_name: identity.node_name.clone(),
            server: identity.server.clone(),
            key_pem: identity.key_pem.expose().clone(),
            certificate_pem: identity.certificate_pem.clone(),
        }
    }
}

impl Folder {
    /// This folder.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    fn file(&self) -> PathBuf {
        self.0.join(FILE)
    }
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("json.new");
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(fresh, path)
}

impl Store for Folder {
    fn load(&self) -> Memory {
        let image: Image = match std::fs::read(self.file()) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                // Not its content, which holds a key.
                tracing::warn!(
                    line = error.line(),
                    "what the node remembered is damaged; it starts anew"
                );
                Image::default()
            }),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(%error, "what the node remembers cannot be read; it starts anew");
                }
                Image::default()
            }
        };
        Memory {
            identity: image.identity.map(Identity::from),
            next: image.next.map(Identity::from),
            labels: image.labels,
        }
    }

    fn save(&self, memory: &Memory) -> io::Result<()> {
        let image = Image {
            identity: memory.identity.as_ref().map(Papers::from),
            next: memory.next.as_ref().map(Papers::from),
            labels: memory.labels.clone(),
        };
        let bytes = serde_json::to_vec(&image)?;
        if std::fs::read(self.file()).is_ok_and(|there| there == bytes) {
            return Ok(());
        }
        std::fs::create_dir_all(&self.0)?;
        write(&self.file(), &bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn memory() -> Memory {
        Memory {
            identity: Some(Identity {
                node_name: "mac-1".to_owned(),
                server: "https://a/".to_owned(),
                key_pem: Secret::new("the key".to_owned()),
                certificate_pem: Some("the certificate".to_owned()),
            }),
            next: None,
            labels: BTreeSet::from(["tuist.dev/fleet".to_owned()]),
        }
    }

    #[test]
    fn what_was_kept_is_there_after_a_restart_and_nobody_else_can_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().join("state"));
        assert!(folder.load().identity.is_none());
        folder.save(&memory()).unwrap();
        let kept = folder.load();
        let identity = kept.identity.unwrap();
        assert_eq!(identity.key_pem.expose(), "the key");
        assert_eq!(identity.certificate_pem.as_deref(), Some("the certificate"));
        assert_eq!(kept.labels, memory().labels);
        let mode = std::fs::metadata(folder.file()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_file_that_is_half_there_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path());
        folder.save(&memory()).unwrap();
        let bytes = std::fs::read(folder.file()).unwrap();
        std::fs::write(folder.file(), &bytes[..bytes.len() / 2]).unwrap();
        assert!(folder.load().identity.is_none());
        folder.save(&memory()).unwrap();
        assert!(folder.load().identity.is_some());
    }
}
