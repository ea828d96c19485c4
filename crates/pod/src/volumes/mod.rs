//! Volumes of a Pod as folders of the host, which its VMs share.
//!
//! ```text
//!   Volume + objects ──▶ render ──▶ Tree (files, modes) ──▶ Folder::write ──▶ <folder>/key ─▶ ..data/key
//!                                        │                                            ..data ─▶ ..<time>/
//!                                        └──▶ Tree::sub: what a subPath shows, copied once
//! ```
//!
//! Secret, ConfigMap, downwardAPI and projected volumes are trees of files that are swapped as a whole when an object changes;
//! a reader sees the old set or the new one. emptyDir is a folder that everybody may write to; hostPath and persistent volumes
//! that are folders of the host are those folders. What is required and missing is
//! an [`Error`] with the words of a kubelet; the Pod then waits in `ContainerCreating` and the volume is tried again.

mod bundle;
mod enter;
mod folder;
mod host;
mod mounts;
mod render;
#[cfg(test)]
mod tests;
mod usage;

pub use enter::{enter, grant};
pub use folder::{Change, Folder, make_empty_dir, private};
pub use host::{HostError, HostFolder};
pub(crate) use host::{claim_of, unsupported_host_path};
pub use mounts::{BadMount, Mount, mounts};
pub use render::{Error, Rendered, render};
pub use usage::{Hidden, Measured, usage};

use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt;

/// A file of a volume.
#[derive(Clone, PartialEq, Eq)]
pub struct File {
    /// Its contents.
    pub contents: Bytes,
    /// Its permissions.
    pub mode: u32,
}

/// Contents may be secret.
impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes, {:o}", self.contents.len(), self.mode)
    }
}

/// The files of a volume, by their path in it. Paths are relative and have no `.` or `..` in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    files: BTreeMap<String, File>,
}

impl Tree {
    /// All files.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &File)> {
        self.files.iter().map(|(path, file)| (path.as_str(), file))
    }

    /// A file.
    pub fn get(&self, path: &str) -> Option<&File> {
        self.files.get(path)
    }

    /// What a `subPath` shows: one file under the empty path, or what is below a folder. `None` if there is neither.
    #[must_use]
    pub fn sub(&self, path: &str) -> Option<Self> {
        let path = path.trim_matches('/');
        if let Some(file) = self.files.get(path) {
            return Some(Self {
                files: [(String::new(), file.clone())].into(),
            });
        }
        let below = |found: &str| found.strip_prefix(path)?.strip_prefix('/').map(str::to_owned);
        let files: BTreeMap<_, _> = self
            .files
            .iter()
            .filter_map(|(found, file)| Some((below(found)?, file.clone())))
            .collect();
        (!files.is_empty()).then_some(Self { files })
    }

    fn insert(&mut self, path: String, file: File) {
        self.files.insert(path, file);
    }
}
