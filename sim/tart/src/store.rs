//! Where everything lies: `$TART_HOME` as the real one lays it out (facts 6.2), and `.sim` beside it.

use crate::failure::Failure;
use crate::image::{Image, Registry, RemoteName};
use crate::switches::Switches;
use crate::vm::VmDir;
use std::path::{Path, PathBuf};

/// The home folder.
#[derive(Clone, Debug)]
pub(crate) struct Home(pub(crate) PathBuf);

impl Home {
    /// Makes the folders that the real one makes at every start.
    pub(crate) fn open(root: PathBuf) -> Result<Self, Failure> {
        let home = Self(root);
        for folder in [home.vms(), home.ocis(), home.tmp(), home.sim()] {
            std::fs::create_dir_all(folder)?;
        }
        Ok(home)
    }

    pub(crate) fn vms(&self) -> PathBuf {
        self.0.join("vms")
    }

    pub(crate) fn ocis(&self) -> PathBuf {
        self.0.join("cache/OCIs")
    }

    pub(crate) fn tmp(&self) -> PathBuf {
        self.0.join("tmp")
    }

    /// The emulated world.
    pub(crate) fn sim(&self) -> PathBuf {
        self.0.join(".sim")
    }

    pub(crate) fn switches(&self) -> PathBuf {
        self.sim().join("switches.json")
    }

    pub(crate) fn switches_lock(&self) -> PathBuf {
        self.sim().join("switches.lock")
    }

    pub(crate) fn registry(&self) -> Result<Registry, Failure> {
        let elsewhere = Switches::load(self)?.registry;
        Ok(Registry(elsewhere.unwrap_or_else(|| self.sim().join("registry"))))
    }

    /// A local VM, which must exist.
    pub(crate) fn local(&self, name: &str) -> Result<VmDir, Failure> {
        let dir = VmDir(self.vms().join(name));
        if name.is_empty() || name.contains('/') || name.starts_with('.') || !dir.0.is_dir() {
            return Err(Failure::missing(name));
        }
        dir.check()?;
        dir.touch();
        Ok(dir)
    }

    /// Names of the local VMs, sorted.
    pub(crate) fn local_names(&self) -> Result<Vec<String>, Failure> {
        names_in(&self.vms())
    }

    /// The folder of an image in the cache, through its tag if it has one.
    pub(crate) fn cached(&self, name: &RemoteName) -> Option<VmDir> {
        let dir = VmDir(name.folder(&self.ocis()).join(&name.reference));
        dir.0.join("config.json").is_file().then_some(dir)
    }

    /// Every name in the cache, tags and digests alike, sorted.
    pub(crate) fn cached_names(&self) -> Result<Vec<RemoteName>, Failure> {
        let mut found = Vec::new();
        for host in names_in(&self.ocis())? {
            walk(&self.ocis().join(&host), &host.replace("%3A", ":"), "", &mut found)?;
        }
        found.sort_by_key(RemoteName::full);
        Ok(found)
    }

    /// Whether a name leads to an image already.
    pub(crate) fn is_linked(&self, name: &RemoteName, digest: &str) -> bool {
        let place = name.folder(&self.ocis());
        match std::fs::read_link(place.join(&name.reference)) {
            Ok(target) => target == Path::new(digest),
            Err(_) => name.is_digest() && place.join(digest).join(".explicitly-pulled").exists(),
        }
    }

    /// Puts a downloaded image into the cache and points the tag at it. Untagged digests go, unless they were asked for.
    pub(crate) fn link(&self, name: &RemoteName, digest: &str, image: &Image) -> Result<(), Failure> {
        let folder = name.folder(&self.ocis());
        std::fs::create_dir_all(&folder)?;
        let place = VmDir(folder.join(digest));
        if !place.0.is_dir() {
            let fresh = VmDir(self.tmp().join(format!("pull-{}", std::process::id())));
            fresh.create(image, digest)?;
            std::fs::write(fresh.0.join("manifest.json"), "{}")?;
            std::fs::rename(&fresh.0, &place.0)?;
        }
        if name.is_digest() {
            std::fs::write(place.0.join(".explicitly-pulled"), "")?;
        } else {
            let link = folder.join(&name.reference);
            let _ = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(digest, link)?;
        }
        place.touch();
        self.collect(&folder)
    }

    /// Removes a name from the cache.
    pub(crate) fn unlink(&self, name: &RemoteName) -> Result<(), Failure> {
        let folder = name.folder(&self.ocis());
        let path = folder.join(&name.reference);
        if path.is_symlink() {
            std::fs::remove_file(path)?;
        } else {
            std::fs::remove_dir_all(path)?;
        }
        self.collect(&folder)
    }

    /// What the real one collects at each link and delete.
    #[expect(clippy::unused_self, reason = "belongs to the cache")]
    fn collect(&self, folder: &Path) -> Result<(), Failure> {
        let mut wanted = Vec::new();
        let mut digests = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_symlink() {
                match std::fs::read_link(&path) {
                    Ok(target) if folder.join(&target).is_dir() => wanted.push(folder.join(target)),
                    _ => std::fs::remove_file(&path)?,
                }
            } else if path.join("config.json").is_file() {
                digests.push(path);
            }
        }
        for path in digests {
            if !wanted.contains(&path) && !path.join(".explicitly-pulled").exists() {
                std::fs::remove_dir_all(path)?;
            }
        }
        Ok(())
    }
}

fn names_in(folder: &Path) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn walk(folder: &Path, host: &str, namespace: &str, found: &mut Vec<RemoteName>) -> Result<(), Failure> {
    for name in names_in(folder)? {
        let path = folder.join(&name);
        if path.join("config.json").is_file() {
            found.push(RemoteName {
                host: host.to_owned(),
                namespace: namespace.to_owned(),
                reference: name,
            });
        } else if path.is_dir() {
            let deeper = if namespace.is_empty() {
                name.clone()
            } else {
                format!("{namespace}/{name}")
            };
            walk(&path, host, &deeper, found)?;
        }
    }
    Ok(())
}
