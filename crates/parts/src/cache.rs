//! The cache folder: where finished tools are, and the only way they get there.

use std::{
    fs::{self, File, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::{
    Error, Located, Origin, Part,
    platform::Platform,
    receipt::{self, Check, Receipt},
};

const STAGING: &str = ".staging-";

#[derive(Debug, Clone)]
pub(crate) struct Cache {
    root: PathBuf,
    platform: Platform,
}

impl Cache {
    pub(crate) fn new(root: PathBuf, platform: Platform) -> Self {
        Self { root, platform }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn folder(&self, part: &Part) -> PathBuf {
        self.root
            .join("parts")
            .join(format!("{}-{}-{}", part.name, part.version, self.platform))
    }

    pub(crate) fn tool(&self, part: &Part, tool: &str) -> PathBuf {
        self.folder(part).join(tool)
    }

    pub(crate) fn lock_file(&self, part: &Part) -> PathBuf {
        self.root.join("locks").join(format!("{}.lock", part.name))
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    /// The finished tool, if there is one. A broken one counts as absent: it will be replaced.
    pub(crate) fn find(&self, part: &Part, tool: &str) -> Result<Option<Located>, Error> {
        let path = self.tool(part, tool);
        match receipt::check(&path, false)? {
            Check::Whole(receipt) => Ok(Some(Located {
                path,
                origin: receipt.origin,
                version: Some(receipt.version),
            })),
            Check::Absent => Ok(None),
            Check::Broken(reason) => {
                tracing::warn!(tool = %path.display(), %reason, "a cached tool is broken and will be obtained again");
                Ok(None)
            }
        }
    }

    /// A folder to build in, on the same file system as the result. Call it only with the part's lock: what earlier holders left
    /// behind when they were killed is removed.
    pub(crate) fn stage(&self, part: &Part) -> Result<TempDir, Error> {
        let folder = self.folder(part);
        fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
        for entry in fs::read_dir(&folder).map_err(Error::io("read", &folder))? {
            let entry = entry.map_err(Error::io("read", &folder))?;
            if entry.file_name().to_string_lossy().starts_with(STAGING) {
                let path = entry.path();
                fs::remove_dir_all(&path).map_err(Error::io("remove", &path))?;
            }
        }
        tempfile::Builder::new()
            .prefix(STAGING)
            .tempdir_in(&folder)
            .map_err(Error::io("create a folder in", &folder))
    }

    /// Moves a staged tool into place and vouches for it. The order matters: bytes reach the disk, the old receipt goes, the tool
    /// is renamed, the new receipt appears. Whoever dies in between leaves a tool without a receipt.
    pub(crate) fn install(
        &self,
        part: &Part,
        tool: &str,
        staged: &Path,
        version: &str,
        origin: Origin,
        source: &str,
    ) -> Result<(), Error> {
        let path = self.tool(part, tool);
        if !staged.is_dir() {
            let finish = || -> io::Result<()> {
                fs::set_permissions(staged, Permissions::from_mode(0o755))?;
                File::open(staged)?.sync_all()
            };
            finish().map_err(Error::io("finish", staged))?;
        }
        self.forget(part, tool)?;
        if path.is_dir() {
            fs::remove_dir_all(&path).map_err(Error::io("remove", &path))?;
        }
        fs::rename(staged, &path).map_err(Error::io("move a tool to", &path))?;
        let receipt = Receipt::of(&path, version, origin, source).map_err(Error::io("read", &path))?;
        receipt.write(&path)
    }

    /// Withdraws the receipt of a tool, which is then obtained anew when it is next needed.
    pub(crate) fn forget(&self, part: &Part, tool: &str) -> Result<(), Error> {
        let path = receipt::path_for(&self.tool(part, tool));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", &path)(error)),
            _ => Ok(()),
        }
    }
}

/// Copies a folder; the copy may be written even if the original (Go's module cache) may not.
pub(crate) fn copy_folder(from: &Path, to: &Path) -> Result<(), Error> {
    fs::create_dir_all(to).map_err(Error::io("create", to))?;
    for entry in fs::read_dir(from).map_err(Error::io("read", from))? {
        let entry = entry.map_err(Error::io("read", from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        // A link is followed: what it points to may not be part of the copy.
        if source.is_dir() {
            copy_folder(&source, &target)?;
        } else {
            fs::copy(&source, &target).map_err(Error::io("copy", &source))?;
            let executable = source
                .metadata()
                .is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0);
            let mode = if executable { 0o755 } else { 0o644 };
            fs::set_permissions(&target, Permissions::from_mode(mode))
                .map_err(Error::io("set the mode of", &target))?;
        }
    }
    Ok(())
}
