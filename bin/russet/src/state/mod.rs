//! What lives under `.russet/`, who may touch it, and what may be taken over from an earlier run.
//!
//! ```text
//! .russet/
//!   RUSSET-STATE    marker: without it `down` removes nothing
//!   .gitignore      keys and data never end up in a commit
//!   lock            held (flock) by the one running `up` or `down`; names its pid
//!   state.json      versions that wrote the data, chart hash: survives restarts
//!   status.json     what the running `up` last saw: rewritten at every change
//!   kubeconfig      admin credentials (0600), the path `up` prints
//!   pids.json       every process that runs, for whoever must clean up after a killed run
//!   cluster/        PKI, etcd data, ports.json of the control plane
//!   kura/           data and ports.json of the cache node
//!   fleet/          the emulated account, kubeconfig and ports.json of the provider
//!   linux/          disks and network of the cache nodes
//!   cluster-api/    certificate, kubeconfig, ports.json of Cluster API core
//!   charts/ helm/   the unpacked CRD chart, Helm's own folders
//!   logs/           one file per part
//! ```

pub mod home;
pub mod lock;
pub mod record;
pub mod run;

mod files;

use std::io;
use std::path::{Path, PathBuf};

/// Replaces a file with credentials in one step; only its owner may read it.
pub fn publish(path: &Path, content: &[u8]) -> io::Result<()> {
    files::replace(path, content, 0o600)
}

/// Where everything is. Always absolute, since the parts run in other working directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// `dir` as given on the command line, relative to `base`.
    pub fn new(base: &Path, dir: &Path) -> Self {
        // Joining an absolute path replaces the base; components() drops `.` and doubled slashes.
        Self {
            root: base.join(dir).components().collect(),
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn marker(&self) -> PathBuf {
        self.root.join("RUSSET-STATE")
    }

    pub fn gitignore(&self) -> PathBuf {
        self.root.join(".gitignore")
    }

    pub fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    pub fn record(&self) -> PathBuf {
        self.root.join("state.json")
    }

    pub fn run(&self) -> PathBuf {
        self.root.join("status.json")
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    pub fn cluster(&self) -> PathBuf {
        self.root.join("cluster")
    }

    pub fn cache(&self) -> PathBuf {
        self.root.join("kura")
    }

    pub fn fleet(&self) -> PathBuf {
        self.root.join("fleet")
    }

    pub fn linux(&self) -> PathBuf {
        self.root.join("linux")
    }

    pub fn capi(&self) -> PathBuf {
        self.root.join("cluster-api")
    }

    pub fn chart(&self, name: &str) -> PathBuf {
        self.root.join("charts").join(name)
    }

    pub fn helm(&self) -> PathBuf {
        self.root.join("helm")
    }

    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    pub fn log(&self, part: &str) -> PathBuf {
        self.logs().join(format!("{part}.log"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_absolute_whatever_was_typed() {
        let base = Path::new("/home/me/project");
        let layout = Layout::new(base, Path::new(".russet"));
        assert_eq!(layout.root(), Path::new("/home/me/project/.russet"));
        let layout = Layout::new(base, Path::new("./a//b/"));
        assert_eq!(layout.root(), Path::new("/home/me/project/a/b"));
        assert_eq!(Layout::new(base, Path::new("/tmp/x")).root(), Path::new("/tmp/x"));
    }
}
