//! The cgroup below which a node keeps its pods.
//!
//! A kubelet removes pod cgroups it does not know, so nodes on one machine must not share a root. On cgroup v1 the
//! root exists once per controller; on v2 it is one directory whose controllers the parent has to hand down.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::Error;

/// Where the kernel offers cgroups, as found in a mount table.
#[derive(Debug, Default, PartialEq, Eq)]
struct Hierarchies {
    v1: Vec<(PathBuf, Vec<String>)>,
    v2: Option<PathBuf>,
}

impl Hierarchies {
    fn parse(mountinfo: &str) -> Self {
        let mut found = Self::default();
        for line in mountinfo.lines() {
            // "36 35 98:0 /root /mount/point options optional… - type source super,options"
            let Some((left, right)) = line.split_once(" - ") else {
                continue;
            };
            let Some(point) = left.split(' ').nth(4).map(PathBuf::from) else {
                continue;
            };
            let mut right = right.split(' ');
            match right.next() {
                Some("cgroup") => {
                    let options = right.nth(1).unwrap_or_default();
                    found.v1.push((point, options.split(',').map(str::to_owned).collect()));
                }
                Some("cgroup2") => found.v2 = Some(point),
                _ => {}
            }
        }
        found
    }

    /// v1 is in charge when it holds the memory controller; a v2 mount beside it then has nothing to offer.
    fn uses_v1(&self) -> bool {
        self.v1
            .iter()
            .any(|(_, options)| options.iter().any(|option| option == "memory"))
    }

    fn trees(&self, name: &str) -> Vec<PathBuf> {
        self.v1
            .iter()
            .map(|(point, _)| point)
            .chain(&self.v2)
            .map(|point| point.join(name))
            .collect()
    }
}

fn hierarchies() -> Result<Hierarchies, Error> {
    let table = Path::new("/proc/self/mountinfo");
    let text = std::fs::read_to_string(table).map_err(Error::io("read the mount table", table))?;
    Ok(Hierarchies::parse(&text))
}

/// Every directory a cgroup of this name has or may get, on all hierarchies; for removal.
pub fn trees(name: &str) -> Result<Vec<PathBuf>, Error> {
    Ok(hierarchies()?.trees(name))
}

/// The names of cgroups that begin like this, on any hierarchy.
pub(super) fn beginning_with(prefix: &str) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    for tree in hierarchies()?.trees("") {
        let entries = std::fs::read_dir(&tree).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        names.extend(folders.map(|entry| entry.file_name().to_string_lossy().into_owned()));
    }
    names.retain(|name| name.starts_with(prefix));
    names.sort();
    names.dedup();
    Ok(names)
}

/// Makes the cgroup. Its removal is the guard's task, see [`super::holder`].
pub fn create(name: &str) -> Result<(), Error> {
    let found = hierarchies()?;
    if found.uses_v1() {
        for (point, _) in &found.v1 {
            create_v1(point, name)?;
        }
        return Ok(());
    }
    match found.v2 {
        Some(point) => create_v2(&point, name),
        None => Err(Error::NoCgroups),
    }
}

fn create_v1(point: &Path, name: &str) -> Result<(), Error> {
    let tree = point.join(name);
    make(&tree)?;
    // A new cpuset has neither processors nor memory, and nothing can join it until it has both.
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let parent = point.join(file);
        if parent.exists() {
            let value = std::fs::read(&parent).map_err(Error::io("read a cgroup setting", &parent))?;
            let child = tree.join(file);
            std::fs::write(&child, value).map_err(Error::io("write a cgroup setting", &child))?;
        }
    }
    Ok(())
}

fn create_v2(point: &Path, name: &str) -> Result<(), Error> {
    let offered = point.join("cgroup.controllers");
    let offered = std::fs::read_to_string(&offered).map_err(Error::io("read the cgroup controllers", &offered))?;
    let wanted: Vec<_> = ["cpuset", "cpu", "io", "memory", "pids"]
        .into_iter()
        .filter(|controller| offered.split_whitespace().any(|word| word == *controller))
        .map(|controller| format!("+{controller}"))
        .collect();
    let handed_down = point.join("cgroup.subtree_control");
    std::fs::write(&handed_down, wanted.join(" ")).map_err(Error::io("hand cgroup controllers down", &handed_down))?;
    make(&point.join(name))
}

fn make(tree: &Path) -> Result<(), Error> {
    match std::fs::create_dir(tree) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(Error::io("make a cgroup", tree)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_one_is_in_charge_where_it_has_the_memory_controller() {
        let found = Hierarchies::parse(
            "30 23 0:26 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
             31 23 0:27 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n\
             32 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
        );
        assert!(found.uses_v1());
        let expected = ["memory/n", "systemd/n", "unified/n"].map(|tree| Path::new("/sys/fs/cgroup").join(tree));
        assert_eq!(found.trees("n"), expected);
    }

    #[test]
    fn a_machine_with_version_two_only_has_one_tree() {
        let found =
            Hierarchies::parse("30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
        assert!(!found.uses_v1());
        assert_eq!(found.trees("n"), [Path::new("/sys/fs/cgroup/n")]);
    }
}
