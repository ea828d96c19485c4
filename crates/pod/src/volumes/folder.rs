//! A tree of files on the disk, changed as a whole.
//!
//! ```text
//!   folder/            0700 above it: only we and the VM reach what is in it
//!     key ────────────▶ ..data/key
//!     ..data ─────────▶ ..1763262000.0      swapped by one rename
//!     ..1763262000.0/  the files
//! ```
//!
//! A process that dies at any point leaves the old set or the new one in place; what else it left is removed by the next write.

use super::{File, Tree};
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

const DATA: &str = "..data";
const NEXT: &str = "..data_tmp";

/// Whether a write changed anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The files were as they should be.
    None,
    /// They are now.
    Written,
}

/// The folder of a volume.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Opens the folder, or makes it. The one it is in must not be open to others; see [`private`].
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        if let Some(parent) = path.parent() {
            private(parent)?;
        }
        make(&path, 0o755)?;
        Ok(Self { path })
    }

    /// Makes the folder hold exactly these files. `now` names the new set.
    pub fn write(&self, tree: &Tree, now: Timestamp) -> io::Result<Change> {
        let current = fs::read_link(self.path.join(DATA)).ok();
        let same = current.as_ref().is_some_and(|set| is_same(&self.path.join(set), tree));
        if !same {
            let set = self.write_set(tree, now)?;
            remove(&self.path.join(NEXT))?;
            symlink(&set, self.path.join(NEXT))?;
            fs::rename(self.path.join(NEXT), self.path.join(DATA))?;
        }
        self.link(tree)?;
        self.sweep(tree)?;
        Ok(if same { Change::None } else { Change::Written })
    }

    /// Writes the files into a folder that nobody looks into yet. Returns its name.
    fn write_set(&self, tree: &Tree, now: Timestamp) -> io::Result<String> {
        let mut number = 0_u32;
        let set = loop {
            let name = format!("..{}.{number}", now.as_second());
            match DirBuilder::new().mode(0o755).create(self.path.join(&name)) {
                Ok(()) => break name,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number = number.saturating_add(1),
                Err(error) => return Err(error),
            }
        };
        let folder = self.path.join(&set);
        fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
        for (path, file) in tree.iter() {
            let path = folder.join(path);
            let above: Vec<_> = path.ancestors().skip(1).take_while(|above| *above != folder).collect();
            for above in above.into_iter().rev() {
                make(above, 0o755)?;
            }
            write_file(&path, file)?;
        }
        Ok(set)
    }

    /// The names that containers see.
    fn link(&self, tree: &Tree) -> io::Result<()> {
        for name in names(tree) {
            let (at, to) = (self.path.join(&name), Path::new(DATA).join(&name));
            if fs::read_link(&at).ok().as_deref() != Some(&to) {
                remove(&at)?;
                symlink(&to, &at)?;
            }
        }
        Ok(())
    }

    /// Removes names that are gone and sets that are not the current one.
    fn sweep(&self, tree: &Tree) -> io::Result<()> {
        let (names, current) = (names(tree), fs::read_link(self.path.join(DATA))?);
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let kept = name == *DATA || name == *current || name.to_str().is_some_and(|name| names.contains(name));
            if !kept {
                remove(&self.path.join(name))?;
            }
        }
        Ok(())
    }

    /// Takes everything away. Not being there is success.
    pub fn remove(self) -> io::Result<()> {
        remove(&self.path)
    }
}

/// Makes a folder that others on the host cannot look into, whatever is in it.
pub fn private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o700))
}

/// Makes the folder of an emptyDir, in which everybody inside the VMs may write.
pub fn make_empty_dir(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        private(parent)?;
    }
    make(path, 0o777)
}

fn make(path: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
        // What umask took away.
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(mode)),
    }
}

fn write_file(path: &Path, file: &File) -> io::Result<()> {
    let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    out.write_all(&file.contents)?;
    out.set_permissions(Permissions::from_mode(file.mode))
}

fn names(tree: &Tree) -> BTreeSet<String> {
    tree.iter()
        .filter_map(|(path, _)| path.split('/').next())
        .map(str::to_owned)
        .collect()
}

/// Whether a set holds exactly these files.
fn is_same(set: &Path, tree: &Tree) -> bool {
    let mut found = BTreeSet::new();
    if list(set, "", &mut found).is_err() || found.len() != tree.iter().count() {
        return false;
    }
    tree.iter().all(|(path, file)| {
        let at = set.join(path);
        let mode = fs::metadata(&at).map(|meta| meta.permissions().mode() & 0o777).ok();
        found.contains(path) && mode == Some(file.mode) && fs::read(&at).is_ok_and(|bytes| *bytes == file.contents)
    })
}

fn list(folder: &Path, prefix: &str, found: &mut BTreeSet<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            list(&entry.path(), &format!("{name}/"), found)?;
        } else {
            found.insert(name);
        }
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    let result = match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    result.or_else(|error| {
        if error.kind() == io::ErrorKind::NotFound {
            Ok(())
        } else {
            Err(error)
        }
    })
}
