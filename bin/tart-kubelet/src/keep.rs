//! What the agent remembers, in a folder of its own.

use std::io;
use std::path::PathBuf;

use russet_node::{KeptMemory, Memory, Store};

use crate::file;

const FILE: &str = "node.json";

/// A folder that holds the node's key. The file in it is readable by its owner alone, and appears whole or not at all.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// This folder.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    fn file(&self) -> PathBuf {
        self.0.join(FILE)
    }
}

impl Store for Folder {
    fn load(&self) -> Memory {
        let kept: KeptMemory = match std::fs::read(self.file()) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                // Not its content, which holds a key.
                tracing::warn!(
                    line = error.line(),
                    "what the node remembered is damaged; it starts anew"
                );
                KeptMemory::default()
            }),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(%error, "what the node remembers cannot be read; it starts anew");
                }
                KeptMemory::default()
            }
        };
        kept.into()
    }

    fn save(&self, memory: &Memory) -> io::Result<()> {
        let bytes = serde_json::to_vec(&KeptMemory::from(memory))?;
        if std::fs::read(self.file()).is_ok_and(|there| there == bytes) {
            return Ok(());
        }
        std::fs::create_dir_all(&self.0)?;
        file::write_durably(&self.file(), &bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use russet_node::Identity;
    use russet_telemetry::Secret;
    use std::collections::BTreeSet;
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
