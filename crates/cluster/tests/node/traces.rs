//! What a node leaves in the system while it runs, and must not leave afterwards.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::cluster::eventually;

/// Processes, cgroups and interfaces that exist now and shall be gone later.
#[derive(Debug)]
pub(crate) struct Traces {
    files: Vec<PathBuf>,
}

impl Traces {
    /// Every process in the pid namespace of `pid`, and every cgroup of the node.
    pub(crate) fn of_node(pid: u32, name: &str) -> Self {
        let namespace = fs::read_link(format!("/proc/{pid}/ns/pid")).unwrap();
        let entries = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        let processes: Vec<_> = entries
            .filter(|process| fs::read_link(process.join("ns/pid")).is_ok_and(|link| link == namespace))
            .collect();
        assert!(
            processes.len() >= 4,
            "the holder, containerd, kubelet and kube-proxy should run: {processes:?}"
        );
        let cgroups = cgroups(name);
        assert!(!cgroups.is_empty(), "the node should have cgroups");
        Self {
            files: processes.into_iter().chain(cgroups).collect(),
        }
    }

    pub(crate) fn of_network(interface: &str) -> Self {
        let interface = Path::new("/sys/class/net").join(interface);
        assert!(interface.exists());
        Self { files: vec![interface] }
    }

    pub(crate) async fn vanish(&self) {
        eventually(
            &format!("these are gone: {:?}", self.files),
            Duration::from_secs(20),
            async || self.files.iter().all(|file| !file.exists()),
        )
        .await;
    }
}

fn cgroups(node: &str) -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let below = fs::read_dir(root).unwrap().flatten().map(|entry| entry.path());
    let suffix = format!("-{node}");
    std::iter::once(root.to_owned())
        .chain(below)
        .filter_map(|tree| fs::read_dir(tree).ok())
        .flat_map(Iterator::flatten)
        .map(|entry| entry.path())
        .filter(|path| {
            path.file_name().is_some_and(|name| {
                let name = name.to_string_lossy();
                name.starts_with("russet-") && name.ends_with(&suffix)
            })
        })
        .collect()
}
