//! Makes an unpacked file system tree usable where it lies.

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Component, Path, PathBuf},
};

use crate::Error;

/// What no program reads at run time, and what only costs space.
const UNWANTED: [&str; 3] = ["usr/share/doc", "usr/share/man", "usr/share/lintian"];

/// A path below `root`; `.` is the root itself, which can then be moved.
pub(crate) fn inside(root: &Path, path: &str) -> PathBuf {
    if path == "." { root.to_owned() } else { root.join(path) }
}

/// Packages link to each other and to what the system has already. A link that leads nowhere inside the tree is pointed at the
/// system's own file, or removed when there is none; one that names an absolute path inside the tree is made relative.
pub(crate) fn mend(root: &Path) -> Result<(), Error> {
    for folder in UNWANTED {
        let folder = root.join(folder);
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Error::io("remove", &folder)(error)),
            _ => {}
        }
    }
    // A link may lead to a link that is removed: once more, until all lead somewhere.
    while mend_links(root)? {}
    Ok(())
}

/// Whether anything had to be changed.
fn mend_links(root: &Path) -> Result<bool, Error> {
    let mut changed = false;
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(Error::io("read", &folder))? {
            let entry = entry.map_err(Error::io("read", &folder))?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(Error::io("read", &folder))?);
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_symlink() {
                changed |= mend_link(root, &folder, &path).map_err(Error::io("mend the link", &path))?;
            }
        }
    }
    Ok(changed)
}

fn mend_link(root: &Path, folder: &Path, link: &Path) -> io::Result<bool> {
    let target = fs::read_link(link)?;
    // Where the link would lead if the tree were the system.
    let inside = folder.strip_prefix(root).unwrap_or(Path::new(""));
    let system = normal(&Path::new("/").join(inside).join(&target));
    let relative: PathBuf = inside
        .components()
        .map(|_| Component::ParentDir.as_os_str())
        .chain(system.components().skip(1).map(Component::as_os_str))
        .collect();
    let new = if folder.join(&relative).exists() {
        if target.is_relative() {
            return Ok(false);
        }
        Some(relative)
    } else if system.exists() {
        if target == system {
            return Ok(false);
        }
        Some(system)
    } else {
        None
    };
    fs::remove_file(link)?;
    if let Some(new) = new {
        symlink(new, link)?;
    }
    Ok(true)
}

/// Without `.` and `..`, by name alone.
fn normal(path: &Path) -> PathBuf {
    let mut result = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                result.pop();
            }
            Component::CurDir => {}
            other => result.push(other),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_into_the_tree_to_the_system_or_are_gone() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("usr/share/java")).unwrap();
        fs::create_dir_all(root.join("usr/share/app/lib")).unwrap();
        fs::create_dir_all(root.join("usr/share/doc/app")).unwrap();
        fs::write(root.join("usr/share/java/a.jar"), "a").unwrap();
        let lib = root.join("usr/share/app/lib");
        symlink("../../java/a.jar", lib.join("relative")).unwrap();
        symlink("/usr/share/java/a.jar", lib.join("absolute")).unwrap();
        symlink("../../../bin/env", lib.join("system")).unwrap();
        symlink("../../java/none.jar", lib.join("nowhere")).unwrap();
        symlink("nowhere", lib.join("a-link-to-nowhere")).unwrap();
        mend(root).unwrap();
        // The tree may move: nothing in it may name the place where it was unpacked.
        let moved = dir.path().with_extension("moved");
        fs::rename(root, &moved).unwrap();
        let lib = moved.join("usr/share/app/lib");
        let read = |name: &str| fs::read_to_string(lib.join(name)).ok();
        assert_eq!(read("relative").as_deref(), Some("a"));
        assert_eq!(read("absolute").as_deref(), Some("a"));
        assert_eq!(fs::read_link(lib.join("system")).unwrap(), Path::new("/usr/bin/env"));
        assert!(fs::symlink_metadata(lib.join("nowhere")).is_err());
        assert!(fs::symlink_metadata(lib.join("a-link-to-nowhere")).is_err());
        assert!(!moved.join("usr/share/doc").exists());
        fs::remove_dir_all(moved).unwrap();
    }
}
