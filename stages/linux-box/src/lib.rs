//! A scratch root in which the program runs untouched, with a shim in place of every command that would change the
//! machine. It is a mount namespace and a chroot, so the program's absolute paths are its own.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of tests, which fail by panicking"
)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// What the shim imitates.
const COMMANDS: [&str; 19] = [
    "apt-get",
    "apt-mark",
    "chmod",
    "curl",
    "dhclient",
    "findmnt",
    "ip",
    "journalctl",
    "kubelet",
    "lsattr",
    "modprobe",
    "mount",
    "sleep",
    "swapoff",
    "sysctl",
    "systemctl",
    "umount",
    "xfs_quota",
    "containerd",
];

/// Puts the root together and runs the command given as its arguments there. `$1` is the folder of the box.
const ENTER: &str = r#"
set -euo pipefail
root=$1/root; shift
mount --rbind /usr "$root/usr"
mount --bind "$root/../local" "$root/usr/local"
mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
echo $$ >"$root/var/shim/group"
exec chroot "$root" "$@"
"#;

#[derive(Debug)]
pub struct LinuxBox {
    folder: TempDir,
}

impl LinuxBox {
    pub fn new(secret: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let new = Self { folder };
        for name in [
            "usr",
            "proc",
            "dev",
            "tmp",
            "etc/ssl/certs",
            "var/lib",
            "var/shim",
            "opt",
            "run",
            "data",
        ] {
            fs::create_dir_all(new.root().join(name)).unwrap();
        }
        for name in ["bin", "sbin", "lib", "lib64"] {
            symlink(format!("usr/{name}"), new.root().join(name)).unwrap();
        }
        new.write("etc/ssl/certs/ca-certificates.crt", "");
        new.write("etc/fstab", "# made by the installer\nUUID=1 / ext4 defaults 0 1\nUUID=2 none swap sw 0 0\nUUID=3 /data xfs defaults 0 2\n");
        new.write("var/shim/mounts", "/dev/md1 /data xfs rw,relatime\n");
        new.write("secret", secret);
        // Some systems reach awk through here.
        let alternatives = Path::new("/etc/alternatives");
        if alternatives.exists() {
            let copied = Command::new("cp")
                .arg("-a")
                .arg(alternatives)
                .arg(new.root().join("etc"))
                .status()
                .unwrap();
            assert!(copied.success());
        }
        let sbin = new.folder.path().join("local/sbin");
        let (first, others) = COMMANDS.split_first().unwrap();
        russet_program::write(&sbin.join(first), include_str!("shim.sh")).unwrap();
        for name in others {
            fs::hard_link(sbin.join(first), sbin.join(name)).unwrap();
        }
        new
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// Where a path of the box is outside of it.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    pub fn write(&self, path: &str, text: &str) {
        fs::write(self.root().join(path), text).unwrap();
    }

    pub fn remove(&self, path: &str) {
        fs::remove_file(self.root().join(path)).unwrap();
    }

    pub fn exists(&self, path: &str) -> bool {
        self.root().join(path).exists()
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub fn mode(&self, path: &str) -> u32 {
        fs::metadata(self.root().join(path)).unwrap().permissions().mode() & 0o7777
    }

    /// What the shims were called with since the last time.
    pub fn take_calls(&self) -> Vec<String> {
        let calls = self.read("var/shim/calls").lines().map(str::to_owned).collect();
        for name in ["calls", "count", "fail-at"] {
            let _ = fs::remove_file(self.root().join("var/shim").join(name));
        }
        calls
    }

    /// A command in the box; its process group is its own.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("setsid");
        command.args(["--wait", "unshare", "--mount", "--propagation", "private"]);
        if fs::metadata("/proc/self").unwrap().uid() != 0 {
            command.args(["--user", "--map-root-user"]);
        }
        command
            .args(["bash", "-c", ENTER, "enter"])
            .arg(self.folder.path())
            .args(words);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub fn spawn(&self, script: &str) -> Child {
        self.write("program", script);
        self.command(&["bash", "/program"]).spawn().unwrap()
    }

    /// Runs the program to its end.
    pub fn run(&self, script: &str) -> Output {
        self.spawn(script).wait_with_output().unwrap()
    }

    /// Every file, folder and link that the program could have made: kind and mode, content, and by which writing it got there.
    pub fn snapshot(&self) -> BTreeMap<String, Entry> {
        let mut found = BTreeMap::new();
        for folder in ["etc", "var/lib", "opt", "data"] {
            walk(&self.root().join(folder), &self.root(), &mut found);
        }
        walk(&self.folder.path().join("local"), self.folder.path(), &mut found);
        found.retain(|path, _| {
            !path.starts_with("etc/alternatives") && !path.starts_with("local/sbin/") || path.contains("tuist")
        });
        // What a run says about itself differs from run to run.
        for name in ["status", "log", "log.1", "lock"] {
            found.remove(&format!("var/lib/tuist/join/{name}"));
        }
        found
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub mode: u32,
    pub content: Vec<u8>,
    /// Changes when the file is written again, even if it says the same.
    pub writing: (u64, i64, i64),
}

impl Entry {
    /// What counts, however it came about.
    pub fn essence(&self) -> (u32, String) {
        (self.mode, String::from_utf8_lossy(&self.content).into_owned())
    }
}

fn walk(path: &Path, root: &Path, found: &mut BTreeMap<String, Entry>) {
    let meta = fs::symlink_metadata(path).unwrap();
    let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
    if meta.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            walk(&entry.unwrap().path(), root, found);
        }
    }
    let content = if meta.is_file() {
        fs::read(path).unwrap()
    } else {
        Vec::new()
    };
    let writing = if meta.is_file() {
        (meta.ino(), meta.mtime(), meta.mtime_nsec())
    } else {
        (0, 0, 0)
    };
    found.insert(
        name,
        Entry {
            mode: meta.mode(),
            content,
            writing,
        },
    );
}
