//! Where things of Pods are on the host.
//!
//! ```text
//! <state>/pods/<uid>/volumes/<volume>/                 shared with the VMs
//!                   /<container>/<attempt>/env/        what the container is started with; goes with the VM
//!                                         /status/     what the guest leaves for the host
//!                                         /log         what the container said; goes with the Pod
//! <state>/trash/                                       what is being removed
//! ```

use std::fs::DirBuilder;
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use russet_vm::PodVm;
use russet_vm::log::marks;
use rustix::fs::{Mode, OFlags};

use super::trash::{Trash, remove};

/// The folder of all Pods. Only the agent's user can look into it: Secrets are there.
#[derive(Clone, Debug)]
pub(crate) struct Folders {
    pods: PathBuf,
    trash: Trash,
}

/// The folder of one start of one container.
#[derive(Clone, Debug)]
pub(crate) struct Room(PathBuf);

impl Folders {
    pub(crate) fn new(state: &Path) -> Self {
        Self {
            pods: state.join("pods"),
            trash: Trash::new(state.join("trash")),
        }
    }

    /// Where goes what is removed.
    pub(crate) fn trash(&self) -> &Trash {
        &self.trash
    }

    pub(crate) fn pod(&self, uid: &str) -> PathBuf {
        self.pods.join(uid)
    }

    pub(crate) fn volumes(&self, uid: &str) -> PathBuf {
        self.pod(uid).join("volumes")
    }

    pub(crate) fn room(&self, vm: &PodVm) -> Room {
        Room(
            self.pod(vm.uid())
                .join("containers")
                .join(vm.container())
                .join(vm.attempt().to_string()),
        )
    }

    /// Removes what the containers of a Pod were given: its volumes, and what each was started with.
    pub(crate) fn clear_secrets(&self, uid: &str) -> io::Result<()> {
        let inside = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten();
        // One that stays must not keep the others.
        let mut first = self.trash.throw(&self.volumes(uid));
        for container in inside(&self.pod(uid).join("containers")) {
            for attempt in inside(&container.path()) {
                first = first.and(Room(attempt.path()).clear_secrets());
            }
        }
        first
    }

    /// Removes the starts of a Pod's containers that are not wanted, by container and attempt. What else lies there is left alone.
    pub(crate) fn remove_rooms(&self, uid: &str, wanted: impl Fn(&str, u32) -> bool) -> io::Result<()> {
        let inside = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten();
        let mut first = Ok(());
        for container in inside(&self.pod(uid).join("containers")) {
            let name = container.file_name();
            for room in inside(&container.path()) {
                let attempt = room.file_name().to_str().and_then(|attempt| attempt.parse().ok());
                let (Some(name), Some(attempt)) = (name.to_str(), attempt) else {
                    continue;
                };
                if !wanted(name, attempt) {
                    first = first.and(self.trash.throw(&room.path()));
                }
            }
        }
        first
    }

    /// Removes everything of one start of a container.
    pub(crate) fn remove_room(&self, vm: &PodVm) -> io::Result<()> {
        self.trash.throw(&self.room(vm).0)
    }

    /// Removes everything of a Pod.
    pub(crate) fn remove_pod(&self, uid: &str) -> io::Result<()> {
        self.trash.throw(&self.pod(uid))
    }

    /// The Pods that something is left of.
    pub(crate) fn uids(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.pods).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect()
    }
}

impl Room {
    pub(crate) fn env(&self) -> PathBuf {
        self.0.join("env")
    }

    pub(crate) fn status(&self) -> PathBuf {
        self.0.join("status")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// Where an image that does all by itself leaves its log.
    pub(crate) fn left_log(&self) -> PathBuf {
        self.status().join("runner.log")
    }

    /// When what of the log was written.
    pub(crate) fn marks(&self) -> PathBuf {
        marks::beside(&self.log())
    }

    /// Makes the folders.
    pub(crate) fn furnish(&self) -> io::Result<()> {
        for dir in [self.env(), self.status()] {
            make(&dir)?;
        }
        Ok(())
    }

    /// Removes what the container was started with.
    pub(crate) fn clear_secrets(&self) -> io::Result<()> {
        remove(&self.env())
    }

    /// A file that the guest left, at most so many bytes of its end. The guest is not trusted: no link is followed, and what is no
    /// plain file is not read.
    pub(crate) fn left(&self, name: &str, most: u64) -> Option<Vec<u8>> {
        tail(&self.status().join(name), most)
    }

    /// The exit code that the guest left.
    pub(crate) fn exit_code(&self) -> Option<i32> {
        let text = self.left("runner-rc", 16)?;
        let code: u8 = std::str::from_utf8(&text).ok()?.trim().parse().ok()?;
        Some(i32::from(code))
    }
}

/// The end of a plain file.
pub(crate) fn tail(path: &Path, most: u64) -> Option<Vec<u8>> {
    use std::io::Seek as _;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = std::fs::File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    file.seek(io::SeekFrom::Start(metadata.len().saturating_sub(most)))
        .ok()?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

pub(crate) fn make(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn room(dir: &Path) -> Room {
        let vm = PodVm::new("ci", "job-1", "main", "0b5d7f3c", 2).unwrap();
        let room = Folders::new(dir).room(&vm);
        room.furnish().unwrap();
        room
    }

    #[test]
    fn an_exit_code_is_one_that_a_process_can_have() {
        let dir = tempfile::tempdir().unwrap();
        let room = room(dir.path());
        for (text, code) in [
            ("137\n", Some(137)),
            ("0", Some(0)),
            ("256", None),
            ("-1", None),
            ("text", None),
            ("", None),
        ] {
            std::fs::write(room.status().join("runner-rc"), text).unwrap();
            assert_eq!(room.exit_code(), code, "{text:?}");
        }
    }

    /// The guest may put anything there, such as a link to a file of the host.
    #[test]
    fn what_a_guest_left_is_read_only_if_it_is_a_plain_file() {
        let dir = tempfile::tempdir().unwrap();
        let room = room(dir.path());
        let path = room.status().join("runner.log");
        std::fs::write(dir.path().join("secret"), "of the host").unwrap();
        symlink(dir.path().join("secret"), &path).unwrap();
        assert_eq!(room.left("runner.log", 100), None);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert_eq!(room.left("runner.log", 100), None);
        std::fs::remove_dir(&path).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        assert_eq!(room.left("runner.log", 100), None);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "hello").unwrap();
        assert_eq!(room.left("runner.log", 3).unwrap(), b"llo");
    }

    /// An agent was killed while a container that was dressed for its start waited for a place. The next one used another number,
    /// and the Secrets of the first lay there for as long as the Pod did.
    #[test]
    fn starts_that_nobody_wants_go_and_the_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let (folders, wanted) = (Folders::new(dir.path()), room(dir.path()));
        let vm = |container, attempt| PodVm::new("ci", "job-1", container, "0b5d7f3c", attempt).unwrap();
        let unwanted = [vm("main", 1), vm("main", 3), vm("side", 2)].map(|vm| folders.room(&vm));
        for room in &unwanted {
            room.furnish().unwrap();
            crate::file::write(&room.env().join("tuist.env"), b"KEY=value").unwrap();
        }
        let stranger = folders.pod("0b5d7f3c").join("containers/main/notes");
        make(&stranger).unwrap();
        let keep = |container: &str, attempt| (container, attempt) == ("main", 2);
        folders.remove_rooms("0b5d7f3c", keep).unwrap();
        assert!(unwanted.iter().all(|room| !room.0.exists()));
        assert!(wanted.env().exists() && stranger.exists());
        folders.remove_rooms("nobody", keep).unwrap();
    }

    #[test]
    fn nothing_of_a_pod_can_be_read_by_others_and_nothing_stays() {
        let dir = tempfile::tempdir().unwrap();
        let room = room(dir.path());
        crate::file::write(&room.env().join("tuist.env"), b"KEY=value").unwrap();
        for path in [room.env(), dir.path().join("pods/0b5d7f3c")] {
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o077, 0);
        }
        room.clear_secrets().unwrap();
        assert!(!room.env().exists() && room.status().exists());
        // A start that was given up before it had a VM.
        room.furnish().unwrap();
        let folders = Folders::new(dir.path());
        make(&folders.volumes("0b5d7f3c")).unwrap();
        folders.clear_secrets("0b5d7f3c").unwrap();
        assert!(!room.env().exists() && room.status().exists() && !folders.volumes("0b5d7f3c").exists());
        assert_eq!(folders.uids(), ["0b5d7f3c"]);
        folders.remove_pod("0b5d7f3c").unwrap();
        folders.remove_pod("0b5d7f3c").unwrap();
        assert!(folders.uids().is_empty());
    }
}
