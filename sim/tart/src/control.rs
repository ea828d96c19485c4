//! The hand that reaches into the emulated world, for tests and demos.

use crate::counted;
use crate::failure::Failure;
use crate::host;
use crate::image::{Image, RemoteName};
use crate::locks;
use crate::running::Note;
use crate::space;
use crate::store::Home;
use crate::switches::Switches;
use crate::vm::VmDir;
use rustix::process::{Signal, kill_process};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Why the world could not be changed.
#[derive(Debug, thiserror::Error)]
#[error("could not change the emulated world: {0}")]
pub struct ControlError(String);

impl From<Failure> for ControlError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Own(text, _) | Failure::Thrown(text) | Failure::Emulator(text) => Self(text),
            other => Self(format!("{other:?}")),
        }
    }
}

impl From<std::io::Error> for ControlError {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

/// A `$TART_HOME` and the world around it.
#[derive(Clone, Debug)]
pub struct Control(Home);

impl Control {
    /// Makes the home if it is not there.
    pub fn new(home: impl Into<PathBuf>) -> Result<Self, ControlError> {
        Ok(Self(Home::open(home.into())?))
    }

    /// The home of a user of an emulated Mac, whose `/` is this folder, once `tart` was called there.
    pub fn on_mac(root: &Path, user: &str) -> Result<Self, ControlError> {
        let home = Home(root.join("Users").join(user).join(".tart"));
        let owner = std::fs::metadata(home.sim())?;
        // The user's, who could not open one of root's.
        drop(locks::exclusive(&home.switches_lock())?);
        std::os::unix::fs::chown(home.switches_lock(), Some(owner.uid()), Some(owner.gid()))?;
        if !home.switches().exists() {
            host::switches_of(root)?.save(&home)?;
        }
        Ok(Self(home))
    }

    /// Puts the emulator at `path` under the name `tart`.
    pub fn install(program: &Path, path: &Path) -> Result<(), ControlError> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let _ = std::fs::remove_file(path);
        Ok(std::os::unix::fs::symlink(program, path)?)
    }

    /// The folder that `TART_HOME` has to name.
    pub fn home(&self) -> &Path {
        &self.0.0
    }

    /// Puts an image into the registry, moves its tag there, and gives its digest.
    pub fn push(&self, name: &str, image: &Image) -> Result<String, ControlError> {
        Ok(self.0.registry()?.push(&RemoteName::parse(name)?, image)?)
    }

    /// Makes the registry of a host private.
    pub fn require_login(&self, host: &str, username: &str, password: &str) -> Result<(), ControlError> {
        let folder = self.0.registry()?.0.join(host.replace(':', "%3A"));
        std::fs::create_dir_all(&folder)?;
        let pair = serde_json::json!({ "username": username, "password": password });
        Ok(std::fs::write(folder.join(".auth.json"), pair.to_string())?)
    }

    /// Makes a local VM that nobody cloned: somebody else's.
    pub fn create(&self, name: &str, image: &Image) -> Result<(), ControlError> {
        Ok(VmDir(self.0.vms().join(name)).create(image, name)?)
    }

    /// Flips switches.
    pub fn switch(&self, change: impl FnOnce(&mut Switches)) -> Result<(), ControlError> {
        Switches::change(&self.0, change)?;
        Ok(space::report(&self.0)?)
    }

    /// Where it says how full the disk is, if [`Switches::capacity_gb`] makes it one that can be full.
    pub fn disk_report(&self) -> PathBuf {
        self.0.sim().join("disk.json")
    }

    /// The guest of a VM dies as in a kernel panic.
    pub fn crash(&self, name: &str) -> Result<(), ControlError> {
        self.kill(name, |note| note.guest)
    }

    /// The `tart run` of a VM is killed.
    pub fn kill_run(&self, name: &str) -> Result<(), ControlError> {
        self.kill(name, |note| note.run)
    }

    fn kill(&self, name: &str, which: impl FnOnce(&Note) -> u32) -> Result<(), ControlError> {
        let note = Note::read(&self.0, name)?.ok_or_else(|| ControlError(format!("VM {name} does not run")))?;
        let pid = counted::from_here(which(&note), &note.counted_in);
        let pid = pid.ok_or_else(|| ControlError(format!("VM {name} has no process")))?;
        kill_process(pid, Signal::KILL).map_err(|error| ControlError(error.to_string()))
    }

    /// Names of the VMs that run, whatever `tart list` says.
    pub fn running(&self) -> Result<Vec<String>, ControlError> {
        let mut names = Vec::new();
        for name in self.0.local_names()? {
            let Some(note) = Note::read(&self.0, &name)? else {
                continue;
            };
            let pid = counted::from_here(note.run, &note.counted_in);
            if pid.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok()) {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// The host restarts: all VMs are gone, and the kernel counts from zero.
    pub fn reboot(&self) -> Result<(), ControlError> {
        for name in self.running()? {
            self.kill_run(&name)?;
            Note::remove(&self.0, &name);
        }
        match std::fs::remove_dir_all(self.0.sim().join("slots")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Where a file of the guest lies on the host.
    pub fn guest_path(&self, name: &str, path: &str) -> PathBuf {
        self.0.vms().join(name).join("guest").join(path.trim_start_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_on_a_mac_begins_with_what_came_with_the_archive_and_keeps_it() {
        let root = tempfile::tempdir().unwrap();
        let library = root.path().join("usr/local/lib");
        std::fs::create_dir_all(&library).unwrap();
        crate::write_bundle(&library, &[]).unwrap();
        let sim = root.path().join(".sim");
        std::fs::create_dir_all(&sim).unwrap();
        std::fs::write(sim.join("guests"), "127.130.7\n").unwrap();
        assert!(Control::on_mac(root.path(), "m1").is_err(), "nobody called tart there");

        let home = Home::open(root.path().join("Users/m1/.tart")).unwrap();
        let control = Control::on_mac(root.path(), "m1").unwrap();
        control.switch(|switches| switches.vm_limit = 8).unwrap();
        let again = Control::on_mac(root.path(), "m1").unwrap();
        assert_eq!(again.home(), home.0);
        let switches = Switches::load(&home).unwrap();
        assert_eq!((switches.addresses.as_str(), switches.vm_limit), ("127.130.7", 8));
        assert!(switches.registry.unwrap().starts_with(host::RESOURCES));
    }
}
