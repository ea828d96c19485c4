//! Files that are sent to hosts, known by their content.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};

/// A file that cannot be sent.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: {source}; it is a part of the provider's image, check the flag that names it", path.display())]
pub struct ArtifactError {
    path: PathBuf,
    source: io::Error,
}

/// A file as it was when it was read. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Artifact(Arc<Inner>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Inner {
    path: PathBuf,
    sha: String,
    len: u64,
}

impl Artifact {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// SHA-256 of its content, in hexadecimal.
    pub fn sha(&self) -> &str {
        &self.0.sha
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.0.len
    }

    /// Whether it has no content.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }
}

/// Hashes files once for each time they change.
#[derive(Debug, Default)]
pub struct Artifacts {
    known: Mutex<HashMap<PathBuf, (Stamp, Artifact)>>,
    hashed: AtomicU64,
}

/// What changes when a file is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    len: u64,
    modified: Option<SystemTime>,
    inode: u64,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        Self {
            len: metadata.len(),
            modified: metadata.modified().ok(),
            inode: metadata.ino(),
        }
    }
}

impl Artifacts {
    /// The file at this path, as it is now.
    pub fn get(&self, path: &Path) -> Result<Artifact, ArtifactError> {
        let wrap = |source| ArtifactError {
            path: path.to_owned(),
            source,
        };
        let mut file = File::open(path).map_err(wrap)?;
        let stamp = Stamp::of(&file.metadata().map_err(wrap)?);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, artifact)) = known.get(path).filter(|(seen, _)| *seen == stamp) {
            return Ok(artifact.clone());
        }
        let (sha, len) = hash(&mut file).map_err(wrap)?;
        self.hashed.fetch_add(1, Ordering::Relaxed);
        let path = path.to_owned();
        let artifact = Artifact(Arc::new(Inner {
            path: path.clone(),
            sha,
            len,
        }));
        known.insert(path, (stamp, artifact.clone()));
        Ok(artifact)
    }

    /// How many files were read to the end so far.
    pub fn hashed(&self) -> u64 {
        self.hashed.load(Ordering::Relaxed)
    }
}

fn hash(file: &mut File) -> io::Result<(String, u64)> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 256 * 1024];
    let mut len = 0;
    loop {
        let count = file.read(&mut buffer)?;
        let Some(read) = buffer.get(..count).filter(|read| !read.is_empty()) else {
            let text = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
            return Ok((text, len));
        };
        hasher.update(read);
        len += count as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_once_until_it_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent");
        std::fs::write(&path, "one").unwrap();
        let artifacts = Artifacts::default();
        let first = artifacts.get(&path).unwrap();
        for _ in 0..1_000 {
            assert_eq!(artifacts.get(&path).unwrap(), first);
        }
        assert_eq!(artifacts.hashed(), 1);
        let other = dir.path().join("other");
        std::fs::write(&other, "two").unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert_ne!(artifacts.get(&path).unwrap().sha(), first.sha());
        assert_eq!(artifacts.hashed(), 2);
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Artifacts::default().get(Path::new("/nowhere/agent")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/agent"), "{error}");
    }
}
