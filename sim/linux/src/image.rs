//! What all servers of a fleet start from: the host's own files with sshd and sudo on top, and the images of containers.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use russet_cluster::node::{self, image, system};
use russet_parts::Tools;

use crate::error::Error;

/// The programs a server is made of, besides those of the host.
pub(crate) const TREE: &str = "ssh-server-tree";
/// What makes XFS file systems, with its libraries.
pub(crate) const XFS_TREE: &str = "xfsprogs-tree";

/// Files below a state directory that servers share and do not change.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    /// Lies over the host's `/etc`.
    pub(crate) etc: PathBuf,
    /// Lies over the host's `/usr`.
    pub(crate) usr: PathBuf,
    /// Archives of container images.
    pub(crate) archives: PathBuf,
    /// Tools by the name they have inside the machine's folder.
    pub(crate) tools: Vec<(&'static str, PathBuf)>,
    /// The host's own programs that stubs call.
    pub(crate) real: Vec<(&'static str, PathBuf)>,
}

impl Image {
    /// Puts it together; what an earlier run made is used again.
    pub(crate) async fn prepare(state: &Path, tools: &Tools, archives: &[PathBuf]) -> Result<Self, Error> {
        let root = state.join("image");
        if !root.is_dir() {
            let fresh = state.join("image.new");
            let _ = std::fs::remove_dir_all(&fresh);
            unpack(tools.path(TREE)?, &fresh).await?;
            libraries(tools.path(XFS_TREE)?, &fresh).await?;
            std::fs::rename(&fresh, &root).map_err(Error::io("put the image into place", &root))?;
        }
        let images = state.join("images");
        std::fs::create_dir_all(&images).map_err(Error::io("make a folder", &images))?;
        standard_images(tools, &images.join("standard.tar")).await?;
        for (number, archive) in archives.iter().enumerate() {
            let copy = images.join(format!("extra-{number}.tar"));
            std::fs::copy(archive, &copy).map_err(Error::io("copy images", archive))?;
        }
        let mut inside = Vec::new();
        for tool in node::TOOLS {
            let path = tools.path(tool)?;
            inside.push((tool, path.canonicalize().map_err(Error::io("find a program", path))?));
        }
        let mut real = Vec::new();
        for program in ["ip", "mount", "findmnt"] {
            let path = system::find(program).ok_or_else(|| node::Error::MissingPrograms {
                programs: program.to_owned(),
                packages: "iproute2 mount".to_owned(),
            })?;
            real.push((program, path.canonicalize().map_err(Error::io("find a program", path))?));
        }
        let tree = tools.path(XFS_TREE)?;
        let places = ["usr/sbin/mkfs.xfs", "sbin/mkfs.xfs"].map(|place| tree.join(place));
        let mkfs = places.iter().find(|place| place.is_file()).unwrap_or(&places[0]);
        real.push((
            "mkfs.xfs",
            mkfs.canonicalize().map_err(Error::io("find a program", mkfs))?,
        ));
        Ok(Self {
            etc: root.join("etc"),
            usr: root.join("usr"),
            archives: images,
            tools: inside,
            real,
        })
    }
}

/// Only the libraries: whether a server has the programs is for whoever sets it up.
async fn libraries(tree: &Path, fresh: &Path) -> Result<(), Error> {
    for from in ["lib", "usr/lib"] {
        copy(&tree.join(from), &fresh.join("usr/lib")).await?;
    }
    Ok(())
}

/// Packages still use `/lib` and `/sbin`, which are links on the machine.
async fn unpack(tree: &Path, fresh: &Path) -> Result<(), Error> {
    for (from, to) in [
        ("etc", "etc"),
        ("usr", "usr"),
        ("lib", "usr/lib"),
        ("bin", "usr/bin"),
        ("sbin", "usr/sbin"),
    ] {
        copy(&tree.join(from), &fresh.join(to)).await?;
    }
    // Who unpacked the packages need not have been root.
    let sudo = fresh.join("usr/bin/sudo");
    if sudo.exists() {
        std::fs::set_permissions(&sudo, std::fs::Permissions::from_mode(0o4755))
            .map_err(Error::io("give sudo its right", &sudo))?;
    }
    Ok(())
}

async fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(to).map_err(Error::io("make a folder", to))?;
    if from.is_dir() {
        let (from, to) = (format!("{}/.", from.display()), to.display().to_string());
        let args = ["-a", "--no-preserve=ownership", &from, &to];
        system::run("copy the image of servers", "cp", &args).await?;
    }
    Ok(())
}

async fn standard_images(tools: &Tools, archive: &Path) -> Result<(), Error> {
    if archive.exists() {
        return Ok(());
    }
    let busybox = tools.path("busybox")?;
    let applets = system::run("list the tools of busybox", &busybox.to_string_lossy(), &["--list"]).await?;
    let applets: Vec<_> = applets.lines().map(str::to_owned).collect();
    std::fs::read(busybox)
        .and_then(|binary| image::Layer::busybox(&binary, &applets))
        .and_then(|layer| image::write_archive(archive, layer, &image::standard()))
        .map_err(Error::io("write the images of nodes", archive))
}
