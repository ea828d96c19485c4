//! Who runs a node, so that a later run can tell a live one from a leftover.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Error, cgroup, holder, image, system};
use crate::files::{self, Access};

/// Below a state directory.
const NODES: &str = "nodes";
const RECORD: &str = "owner.json";

/// Written before anything that could be left behind is made.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Owner {
    pid: u32,
    /// Process ids are reused; together with its start time one is unique until the machine restarts.
    started: String,
    cgroup: String,
}

impl Owner {
    /// This process, for a node with the given cgroup.
    pub(super) fn this_process(cgroup: &str) -> Self {
        let pid = std::process::id();
        Self {
            pid,
            started: started(pid).unwrap_or_default(),
            cgroup: cgroup.to_owned(),
        }
    }

    pub(super) fn write(&self, node: &Path) -> Result<(), Error> {
        let json = serde_json::to_vec_pretty(self).unwrap_or_default();
        Ok(files::write(&node.join(RECORD), &json, Access::Public)?)
    }

    fn read(node: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(node.join(RECORD)).ok()?).ok()
    }

    fn is_alive(&self) -> bool {
        started(self.pid).is_some_and(|started| started == self.started)
    }
}

/// The directory of a node.
pub(super) fn directory(state_dir: &Path, name: &str) -> PathBuf {
    state_dir.join(NODES).join(name)
}

/// The cgroup of a node: unlike those of all other nodes and state directories.
pub(super) fn cgroup_name(state_dir: &Path, name: &str) -> String {
    let digest = image::digest(state_dir.as_os_str().as_encoded_bytes());
    format!("russet-{}-{name}", digest.get(..8).unwrap_or_default())
}

/// Fails when a process other than this one runs a node in that directory.
pub(super) fn ensure_free(node: &Path, name: &str) -> Result<(), Error> {
    match Owner::read(node) {
        Some(owner) if owner.is_alive() && owner.pid != std::process::id() => Err(Error::InUse {
            name: name.to_owned(),
            pid: owner.pid,
        }),
        _ => Ok(()),
    }
}

/// Removes what nodes of dead runs left below a state directory, and returns their names. Live nodes are not touched.
///
/// Usually there are only files, since everything else ended with the run.
pub async fn sweep(state_dir: &Path) -> Result<Vec<String>, Error> {
    let nodes = state_dir.join(NODES);
    let Ok(entries) = std::fs::read_dir(&nodes) else {
        return Ok(Vec::new());
    };
    let mut swept = Vec::new();
    for node in entries.flatten().map(|entry| entry.path()) {
        match Owner::read(&node) {
            Some(owner) if owner.is_alive() => continue,
            Some(owner) => remove_cgroup(&owner.cgroup).await?,
            None => {}
        }
        remove(&node)?;
        swept.extend(node.file_name().map(|name| name.to_string_lossy().into_owned()));
    }
    swept.sort();
    Ok(swept)
}

async fn remove_cgroup(name: &str) -> Result<(), Error> {
    let mut args = vec![
        "-c".to_owned(),
        holder::REMOVE_CGROUPS.to_owned(),
        "russet-sweep".to_owned(),
    ];
    args.extend(
        cgroup::trees(name)?
            .iter()
            .map(|tree| tree.to_string_lossy().into_owned()),
    );
    system::run(format!("remove the cgroup {name} of an earlier run"), "sh", &args)
        .await
        .map(drop)
}

/// Removes the cgroups of machines that had their files below a state directory, and returns their names. Only for
/// whoever knows that none of them runs. Usually there are none: each has a guard for that, unless it was killed too.
pub async fn sweep_cgroups(state_dir: &Path) -> Result<Vec<String>, Error> {
    // Never made, or on a system without cgroups: nothing to sweep.
    let (Ok(directory), true) = (state_dir.canonicalize(), Path::new("/proc/self/mountinfo").exists()) else {
        return Ok(Vec::new());
    };
    let left = cgroup::beginning_with(&cgroup_name(&directory, ""))?;
    for name in &left {
        remove_cgroup(name).await?;
    }
    Ok(left)
}

/// Removes a node's files; a node that has none is fine.
pub(super) fn remove(node: &Path) -> Result<(), Error> {
    match std::fs::remove_dir_all(node) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("remove the files of a node", node)(error))
        }
        _ => Ok(()),
    }
}

/// When a process started, in the kernel's own terms; `None` when there is no such process.
pub(super) fn started(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses, and may itself contain spaces and parentheses.
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(19).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_one_with_another_start_time_is_not() {
        let mut owner = Owner::this_process("c");
        assert!(owner.is_alive());
        owner.started.push('1');
        assert!(!owner.is_alive());
    }

    #[tokio::test]
    async fn only_nodes_of_dead_runs_are_swept() {
        let state = tempfile::tempdir().unwrap();
        let (live, dead) = (directory(state.path(), "live"), directory(state.path(), "dead"));
        Owner::this_process("russet-test-none").write(&live).unwrap();
        Owner {
            started: "0".to_owned(),
            ..Owner::this_process("russet-test-none")
        }
        .write(&dead)
        .unwrap();
        std::fs::create_dir_all(dead.join("containerd/deep")).unwrap();

        assert_eq!(sweep(state.path()).await.unwrap(), ["dead"]);
        assert!(live.exists() && !dead.exists());
        assert!(sweep(&state.path().join("absent")).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn only_cgroups_of_the_given_directory_are_swept() {
        if !russet_skip::can_run(russet_skip::test_name!(), system::check()) {
            return;
        }
        let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let names = [&ours, &theirs].map(|dir| cgroup_name(&dir.path().canonicalize().unwrap(), "0a1b2c3d4e"));
        for name in &names {
            cgroup::create(name).unwrap();
        }
        assert_eq!(sweep_cgroups(ours.path()).await.unwrap(), names[..1]);
        let exists = |name: &str| cgroup::trees(name).unwrap().iter().any(|tree| tree.exists());
        assert!(!exists(&names[0]) && exists(&names[1]));
        sweep_cgroups(theirs.path()).await.unwrap();
        assert!(!exists(&names[1]));
        assert!(sweep_cgroups(&ours.path().join("absent")).await.unwrap().is_empty());
    }

    /// The guard of a node normally does this; it is needed when somebody killed that one as well.
    #[tokio::test]
    async fn the_cgroups_of_a_dead_run_are_swept() {
        if !russet_skip::can_run(russet_skip::test_name!(), system::check()) {
            return;
        }
        let state = tempfile::tempdir().unwrap();
        let name = cgroup_name(state.path(), "dead");
        let owner = Owner {
            started: "0".to_owned(),
            ..Owner::this_process(&name)
        };
        owner.write(&directory(state.path(), "dead")).unwrap();
        cgroup::create(&name).unwrap();
        let made: Vec<_> = cgroup::trees(&name)
            .unwrap()
            .into_iter()
            .filter(|tree| tree.exists())
            .collect();
        assert!(!made.is_empty());
        std::fs::create_dir(made[0].join("pod")).unwrap();

        sweep(state.path()).await.unwrap();
        assert!(made.iter().all(|tree| !tree.exists()));
    }
}
