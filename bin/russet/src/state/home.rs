//! Making the state directory, knowing it as ours, and removing it.

use super::Layout;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// First line of the marker. A directory without it is never removed, whatever `--dir` says.
const MAGIC: &str = "russet state directory";

const EXPLANATION: &str = "\
This directory was made by `russet up` and holds a local cluster: keys, data and logs.
`russet down` removes it. Nothing else should be kept in here.
";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "{} exists, is not empty, and was not made by russet; choose another place with --dir, or move it away",
        .0.display()
    )]
    NotOurs(PathBuf),
    #[error("{} is not a directory; choose another place with --dir", .0.display())]
    NotADirectory(PathBuf),
    #[error("cannot write in {}; give russet a directory it may write to with --dir", .path.display())]
    NotWritable { path: PathBuf, source: io::Error },
    #[error("failed to read {}", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("failed to remove {}; what is left can be removed by running `russet down` again", .path.display())]
    NotRemoved { path: PathBuf, source: io::Error },
}

/// What is at the place of the state directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    Nothing,
    Empty,
    Ours,
}

/// Looks without changing anything.
pub fn inspect(layout: &Layout) -> Result<Found, Error> {
    let root = layout.root();
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Unreadable { path, source }
    };
    match fs::metadata(root) {
        Ok(metadata) if !metadata.is_dir() => return Err(Error::NotADirectory(root.to_owned())),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(Error::NotADirectory(root.parent().unwrap_or(root).to_owned()));
        }
        Err(error) => return Err(unreadable(root)(error)),
    }
    match fs::read_to_string(layout.marker()) {
        Ok(text) if text.lines().next() == Some(MAGIC) => return Ok(Found::Ours),
        Ok(_) => return Err(Error::NotOurs(root.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(unreadable(&layout.marker())(error)),
    }
    if fs::read_dir(root).map_err(unreadable(root))?.next().is_some() {
        return Err(Error::NotOurs(root.to_owned()));
    }
    Ok(Found::Empty)
}

/// Makes the directory if it is not there, and marks it before anything else is put into it.
pub fn prepare(layout: &Layout) -> Result<Found, Error> {
    let found = inspect(layout)?;
    let not_writable = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::NotWritable { path, source }
    };
    fs::create_dir_all(layout.root()).map_err(not_writable(layout.root()))?;
    if found != Found::Ours {
        super::files::replace(&layout.marker(), format!("{MAGIC}\n{EXPLANATION}").as_bytes(), 0o644)
            .map_err(not_writable(layout.root()))?;
    }
    super::files::replace(&layout.gitignore(), b"*\n", 0o644).map_err(not_writable(layout.root()))?;
    fs::create_dir_all(layout.logs()).map_err(not_writable(&layout.logs()))?;
    Ok(found)
}

/// Removes the directory. The caller holds the lock; the marker goes last but one and the lock last, so that a removal
/// cut short can be repeated.
pub fn remove(layout: &Layout) -> Result<(), Error> {
    match inspect(layout)? {
        Found::Nothing => return Ok(()),
        Found::Empty | Found::Ours => {}
    }
    let root = layout.root();
    let failed = |path: PathBuf| move |source| Error::NotRemoved { path, source };
    let (marker, lock) = (layout.marker(), layout.lock());
    for entry in fs::read_dir(root).map_err(failed(root.to_owned()))? {
        let path = entry.map_err(failed(root.to_owned()))?.path();
        if path == marker || path == lock {
            continue;
        }
        remove_any(&path).map_err(failed(path.clone()))?;
    }
    remove_any(&lock).map_err(failed(lock.clone()))?;
    remove_any(&marker).map_err(failed(marker.clone()))?;
    fs::remove_dir(root).map_err(failed(root.to_owned()))
}

/// A link is removed, never followed.
fn remove_any(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(dir: &tempfile::TempDir) -> Layout {
        Layout::new(dir.path(), Path::new(".russet"))
    }

    #[test]
    fn a_prepared_directory_is_ours_and_is_removed_whole() {
        let dir = tempfile::tempdir().unwrap();
        let layout = layout(&dir);
        assert_eq!(prepare(&layout).unwrap(), Found::Nothing);
        assert_eq!(prepare(&layout).unwrap(), Found::Ours);
        fs::create_dir_all(layout.cluster().join("etcd/member")).unwrap();
        fs::write(layout.lock(), "{}").unwrap();
        remove(&layout).unwrap();
        assert_eq!(inspect(&layout).unwrap(), Found::Nothing);
        remove(&layout).unwrap();
    }

    #[test]
    fn a_directory_of_somebody_else_is_neither_used_nor_removed() {
        let dir = tempfile::tempdir().unwrap();
        let layout = layout(&dir);
        fs::create_dir(layout.root()).unwrap();
        fs::write(layout.root().join("thesis.tex"), "ten years of work").unwrap();
        assert!(matches!(prepare(&layout), Err(Error::NotOurs(_))));
        assert!(matches!(remove(&layout), Err(Error::NotOurs(_))));
        fs::write(layout.marker(), "a file that only shares the name").unwrap();
        assert!(matches!(remove(&layout), Err(Error::NotOurs(_))));
        assert!(layout.root().join("thesis.tex").exists());
    }

    #[test]
    fn an_empty_directory_is_adopted() {
        let dir = tempfile::tempdir().unwrap();
        let layout = layout(&dir);
        fs::create_dir(layout.root()).unwrap();
        assert_eq!(prepare(&layout).unwrap(), Found::Empty);
        assert_eq!(inspect(&layout).unwrap(), Found::Ours);
    }

    #[test]
    fn a_file_in_the_way_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let layout = layout(&dir);
        fs::write(layout.root(), "").unwrap();
        assert!(matches!(prepare(&layout), Err(Error::NotADirectory(_))));
        let below = Layout::new(dir.path(), Path::new(".russet/deeper"));
        assert!(matches!(prepare(&below), Err(Error::NotADirectory(_))));
    }

    #[test]
    fn a_link_inside_is_removed_without_touching_its_target() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("keep"), "").unwrap();
        let layout = layout(&dir);
        prepare(&layout).unwrap();
        std::os::unix::fs::symlink(outside.path(), layout.root().join("link")).unwrap();
        remove(&layout).unwrap();
        assert!(outside.path().join("keep").exists());
    }
}
