//! What turns bare namespaces into a machine: its own directories, its name, its place for each program's files.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use russet_parts::Tools;

use super::{Error, TOOLS, containerd, holder::quote};
use crate::files;

/// Directories every machine has for itself, so that programs with fixed paths (shim sockets, device plugins, CNI state)
/// neither meet those of the host nor leave anything there.
const COVERED: [&str; 3] = ["/run", "/var/lib", "/var/log"];

/// Parts of a node's directory, and where they are inside.
const PLACES: [(&str, &str); 5] = [
    ("cni", containerd::CNI_CONFIG),
    ("containerd", "/var/lib/containerd"),
    ("kube-proxy", "/var/lib/kube-proxy"),
    ("kubelet", "/var/lib/kubelet"),
    ("pods", "/var/log/pods"),
];

/// Where directories are put together before they cover those of the host.
const STAGE: &str = "stage";

/// Whether a path of the host means something else inside.
pub(super) fn is_covered(path: &Path) -> bool {
    COVERED.iter().any(|covered| path.starts_with(covered))
}

/// Makes the directories of a node that [`script`] puts into place.
pub(super) fn prepare(directory: &Path) -> Result<(), Error> {
    for part in PLACES.iter().map(|(part, _)| *part).chain([STAGE]) {
        files::create_private_dir(&directory.join(part))?;
    }
    Ok(())
}

/// Everything below covered directories that must stay visible inside.
pub(super) fn keep(tools: &Tools, directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut keep = vec![directory.to_owned()];
    for tool in TOOLS {
        let path = tools.path(tool)?;
        // A given tool may be a link to another place, and both have to be there.
        let real = path
            .canonicalize()
            .map_err(Error::io("find a program of the node", path))?;
        keep.extend([path, &real].into_iter().filter_map(Path::parent).map(Path::to_owned));
    }
    keep.sort();
    keep.dedup();
    Ok(keep)
}

/// The commands, run inside new namespaces.
pub(super) fn script(name: &str, directory: &Path, keep: &[PathBuf]) -> String {
    let mut script = private_directories(&directory.join(STAGE), keep);
    script.push_str("mount -n -t proc proc /proc\n");
    for (part, place) in PLACES {
        let part = quote(&directory.join(part).to_string_lossy());
        let _ = writeln!(script, "mkdir -p {place}\nmount -n --bind {part} {place}");
    }
    // Volumes with mount propagation need shared mounts; they are shared with nobody outside.
    script.push_str("mkdir -p /run/lock /run/netns\nmount -n --make-rshared /\n");
    let _ = writeln!(script, "echo {} >/proc/sys/kernel/hostname", quote(name));
    script.push_str("echo 1 >/proc/sys/net/ipv4/ip_forward\nip link set lo up\n");
    script
}

/// Covers the host's directories with empty ones. What of `keep` lies below them stays visible at its place.
///
/// The replacement is put together beside the original and moved over it last, since afterwards the original is out of
/// reach. (`mount -n` keeps no table in `/run`, which is about to be covered.)
fn private_directories(stage: &Path, keep: &[PathBuf]) -> String {
    let stage = stage.to_string_lossy();
    let mut script = String::new();
    for covered in COVERED {
        let _ = writeln!(script, "mount -n -t tmpfs -o mode=755 russet {}", quote(&stage));
        for path in keep {
            if let Ok(inside) = path.strip_prefix(covered) {
                let target = quote(&format!("{stage}/{}", inside.to_string_lossy()));
                let path = quote(&path.to_string_lossy());
                let _ = writeln!(script, "mkdir -p {target}\nmount -n --rbind {path} {target}");
            }
        }
        let _ = writeln!(script, "mount -n --move {} {covered}", quote(&stage));
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_would_be_covered_is_carried_over() {
        let script = private_directories(Path::new("/var/lib/ci/s"), &["/var/lib/ci".into(), "/home/x".into()]);
        let mounts = script.contains("mount -n --rbind '/var/lib/ci' '/var/lib/ci/s/ci'");
        assert!(mounts, "{script}");
        assert!(!script.contains("/home/x"), "{script}");
        assert_eq!(script.matches("mount -n --move").count(), COVERED.len());
    }

    #[test]
    fn a_path_is_covered_with_all_below_it() {
        assert!(is_covered(Path::new("/var/lib/x")) && is_covered(Path::new("/run")));
        assert!(!is_covered(Path::new("/var/library")) && !is_covered(Path::new("/home/run")));
    }
}
