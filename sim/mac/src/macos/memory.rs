//! A disk in memory that can be full. One process holds a mount namespace with it for as long as the installation lives; every boot
//! of the Mac is a child of that namespace. It costs memory, so that it is for tests that fill disks.

use super::error::MacError;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The disk; it is gone with this value.
#[derive(Debug)]
pub(super) struct MemoryDisk {
    holder: Child,
    /// Where it is mounted, in the namespace of the holder.
    mount: PathBuf,
    size: u64,
    as_root: bool,
}

impl MemoryDisk {
    /// Mounts an empty disk of this size over a folder.
    pub(super) fn make(mount: &Path, size: u64, as_root: bool) -> Result<Self, MacError> {
        std::fs::create_dir_all(mount).map_err(MacError::io("make", mount))?;
        let failed = |error: std::io::Error| MacError::Boot(error.to_string());
        let mut command = Command::new("unshare");
        if !as_root {
            command.args(["--user", "--map-root-user"]);
        }
        // Reads until the emulator is gone, in whatever way.
        let script = "mount -t tmpfs -o \"size=$1,mode=755\" none \"$0\" && echo mounted && exec cat >/dev/null";
        let mut holder = command
            .args(["--mount", "--", "sh", "-c", script])
            .arg(mount)
            .arg(size.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let mut line = String::new();
        if let Some(stdout) = holder.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(failed)?;
        }
        if line.trim() != "mounted" {
            let _ = holder.wait();
            return Err(MacError::Boot("a disk in memory could not be mounted".to_owned()));
        }
        Ok(Self {
            holder,
            mount: mount.to_owned(),
            size,
            as_root,
        })
    }

    /// The same folder as others see it.
    pub(super) fn outside_path(&self) -> PathBuf {
        let inside = self.mount.strip_prefix("/").unwrap_or(&self.mount);
        Path::new("/proc")
            .join(self.holder.id().to_string())
            .join("root")
            .join(inside)
    }

    /// The words that start a program in its namespace.
    pub(super) fn enter(&self) -> Vec<String> {
        let mut words = vec![
            "--target".to_owned(),
            self.holder.id().to_string(),
            "--mount".to_owned(),
        ];
        if !self.as_root {
            words.extend(["--user".to_owned(), "--preserve-credentials".to_owned()]);
        }
        words.push("--".to_owned());
        words
    }

    /// Leaves this much room, or all there is. The kernel counts in pages.
    pub(super) fn leave(&self, left: Option<u64>) -> Result<(), MacError> {
        let path = self.outside_path();
        let size = match left {
            None => self.size,
            Some(left) => {
                let vfs = rustix::fs::statvfs(&path).map_err(|error| MacError::io("measure", &path)(error.into()))?;
                (vfs.f_blocks - vfs.f_bfree) * vfs.f_frsize + left
            }
        };
        let status = Command::new("nsenter")
            .args(self.enter())
            .args(["mount", "-o", &format!("remount,size={}", size.max(4096))])
            .arg(&self.mount)
            .status();
        match status {
            Ok(status) if status.success() => Ok(()),
            _ => Err(MacError::Switch("the disk in memory could not be resized".to_owned())),
        }
    }
}

impl Drop for MemoryDisk {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        // Ends with its input; the wait only collects it.
        let _ = self.holder.wait();
    }
}
