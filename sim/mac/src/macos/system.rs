//! What all Macs of one emulator share and none can change: the programs of macOS, as links.
//!
//! A program that macOS has and Linux has with the same flags is the Linux one. A program that only macOS has, or whose flags
//! differ, is `sim-mac` itself under that name (see [`super::inside`]). What macOS does not have is not there: a script that calls
//! `timeout` or `realpath --relative-to` fails here as it does there. [facts 5, "No GNU flags"]

use super::error::MacError;
use super::orders::{Bind, Layout};
use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

/// Inside every Mac: the programs of Linux, the tool, the shell, the executables launchd runs.
pub(super) const LINUX: &str = "/.sim/linux/usr/bin";
pub(super) const TOOL: &str = "/.sim/sim-mac";
pub(super) const ZSH: &str = "/.sim/zsh";
pub(super) const EXECUTABLES: &str = "/.sim/exec";

/// Taken from Linux where Linux has them.
const BORROWED: &[(&str, &[&str])] = &[
    (
        "bin",
        &[
            "bash", "cat", "chmod", "cp", "csh", "dd", "df", "echo", "ed", "expr", "kill", "ksh", "ln", "ls", "mkdir",
            "mv", "ps", "pwd", "realpath", "rm", "rmdir", "sleep", "stty", "sync", "test", "[", "unlink",
        ],
    ),
    (
        "usr/bin",
        &[
            "awk",
            "basename",
            "bc",
            "bunzip2",
            "bzip2",
            "cksum",
            "cmp",
            "comm",
            "cpio",
            "curl",
            "cut",
            "diff",
            "dirname",
            "du",
            "env",
            "expand",
            "false",
            "file",
            "find",
            "fold",
            "getconf",
            "git",
            "grep",
            "egrep",
            "fgrep",
            "groups",
            "gunzip",
            "gzip",
            "head",
            "install",
            "join",
            "jq",
            "less",
            "logger",
            "make",
            "mkfifo",
            "mktemp",
            "more",
            "nice",
            "nl",
            "nohup",
            "od",
            "openssl",
            "paste",
            "patch",
            "perl",
            "pgrep",
            "pkill",
            "printenv",
            "printf",
            "python3",
            "readlink",
            "renice",
            "rev",
            "rsync",
            "seq",
            "sort",
            "split",
            "ssh",
            "ssh-keygen",
            "strings",
            "tail",
            "tar",
            "tee",
            "time",
            "touch",
            "tr",
            "true",
            "tty",
            "unexpand",
            "uniq",
            "unzip",
            "uptime",
            "uuidgen",
            "vi",
            "wc",
            "which",
            "who",
            "xargs",
            "xxd",
            "xz",
            "yes",
            "zcat",
            "zip",
        ],
    ),
    ("usr/sbin", &["chown", "chroot", "lsof"]),
    ("sbin", &["ping"]),
];

/// `sim-mac` under another name.
pub(super) const OURS: &[(&str, &[&str])] = &[
    ("bin", &["date", "hostname", "launchctl"]),
    (
        "usr/bin",
        &[
            "base64",
            "codesign",
            "csrutil",
            "defaults",
            "dscl",
            "id",
            "killall",
            "nc",
            "plutil",
            "pmset",
            "security",
            "sed",
            "sfltool",
            "shasum",
            "stat",
            "sudo",
            "sw_vers",
            "tccutil",
            "uname",
            "whoami",
            "xattr",
            "xcode-select",
            "xcodebuild",
            "xcrun",
        ],
    ),
    (
        "usr/sbin",
        &[
            "DevToolsSecurity",
            "diskutil",
            "dseditgroup",
            "ipconfig",
            "networksetup",
            "scutil",
            "softwareupdate",
            "spctl",
            "sshd",
            "sysadminctl",
            "sysctl",
            "system_profiler",
            "systemsetup",
            "visudo",
        ],
    ),
    (
        "sbin",
        &["ifconfig", "md5", "pfctl", "reboot", "route", "shutdown", "umount"],
    ),
    ("usr/libexec", &["PlistBuddy", "sshd-keygen-wrapper"]),
];

/// Those of Linux need the kernel to know more than one user.
pub(super) const OURS_WITHOUT_ROOT: &[(&str, &[&str])] = &[("bin", &["ls"]), ("usr/sbin", &["chown"])];

/// The shared folder, and what a boot mounts from it.
#[derive(Debug)]
pub(super) struct System {
    folder: PathBuf,
    binary: PathBuf,
    shell: PathBuf,
    /// Which shell `/bin/zsh` is.
    pub(super) shell_kind: Shell,
}

/// The login shell of the Macs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shell {
    /// As on a Mac.
    Zsh,
    /// No zsh was found; bash differs in word splitting, globs, arrays and redirections.
    Bash,
}

impl System {
    /// Makes the folder; an older one is replaced.
    pub(super) fn make(dir: &Path, binary: &Path, shell: Option<&Path>, as_root: bool) -> Result<Self, MacError> {
        let without_root = if as_root { &[] } else { OURS_WITHOUT_ROOT };
        let instead = |place: &str, name: &str| {
            let mut both = without_root.iter().filter(|(other, _)| *other == place);
            both.any(|(_, names)| names.contains(&name))
        };
        let folder = dir.join("system");
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(MacError::io("remove", &folder))?;
        }
        for (within, names) in BORROWED {
            let place = folder.join(within);
            make_folder(&place, 0o755)?;
            for name in names.iter().filter(|name| !instead(within, name)) {
                if let Some(source) = borrowed(name) {
                    link(&source, &place.join(name))?;
                }
            }
        }
        for (place, names) in OURS.iter().chain(without_root) {
            let place = folder.join(place);
            make_folder(&place, 0o755)?;
            for name in *names {
                link(TOOL, &place.join(name))?;
            }
        }
        link(ZSH, &folder.join("bin/zsh"))?;
        link(&format!("{LINUX}/bash"), &folder.join("bin/sh"))?;
        // What unshare starts as process 1 has to be called so.
        link(&binary.to_string_lossy(), &folder.join("launchd"))?;
        make_folder(&dir.join("exec"), 0o755)?;
        let (shell, shell_kind) = match shell {
            Some(path) => (path.to_owned(), Shell::Zsh),
            None => (PathBuf::from("/usr/bin/bash"), Shell::Bash),
        };
        Ok(Self {
            folder,
            binary: binary.to_owned(),
            shell,
            shell_kind,
        })
    }

    /// What is started as process 1.
    pub(super) fn launchd(&self) -> PathBuf {
        self.folder.join("launchd")
    }

    /// What every Mac mounts.
    pub(super) fn layout(&self, root: &Path) -> Layout {
        let fixed = |from: PathBuf, to: &str| Bind {
            from,
            to: PathBuf::from(to),
            read_only: true,
        };
        // First, since what is mounted below a folder disappears when the folder is mounted on itself.
        let mut binds: Vec<Bind> = super::image::WRITABLE
            .iter()
            .map(|place| Bind {
                from: root.join(place),
                to: PathBuf::from(place),
                read_only: false,
            })
            .collect();
        for place in ["bin", "sbin", "usr/bin", "usr/sbin", "usr/libexec"] {
            binds.push(fixed(self.folder.join(place), place));
        }
        binds.push(fixed("/usr".into(), ".sim/linux/usr"));
        binds.push(fixed(self.binary.clone(), ".sim/sim-mac"));
        binds.push(fixed(self.shell.clone(), ".sim/zsh"));
        if let Some(dir) = self.folder.parent() {
            binds.push(fixed(dir.join("exec"), ".sim/exec"));
        }
        binds.push(fixed("/usr/lib".into(), "usr/lib"));
        if Path::new("/usr/share").is_dir() {
            binds.push(fixed("/usr/share".into(), "usr/share"));
        }
        // Where the loader of Linux programs is; a link into /usr on most systems, which the image repeats.
        for name in ["lib", "lib64"] {
            let path = Path::new("/").join(name);
            if path.is_dir() && !path.is_symlink() {
                binds.push(fixed(path, name));
            }
        }
        if Path::new("/usr/lib64").is_dir() {
            binds.push(fixed("/usr/lib64".into(), "usr/lib64"));
        }
        if Path::new("/etc/ssl").is_dir() {
            binds.push(fixed("/etc/ssl".into(), "private/etc/ssl"));
        }
        if Path::new("/etc/alternatives").is_dir() {
            binds.push(fixed("/etc/alternatives".into(), super::image::ALTERNATIVES));
        }
        for device in DEVICES {
            binds.push(Bind {
                from: Path::new("/dev").join(device),
                to: Path::new("dev").join(device),
                read_only: false,
            });
        }
        Layout {
            root: root.to_owned(),
            binds,
        }
    }
}

/// Where a program of Linux is inside. Links are followed here: those of Debian lead through /etc, which is the Mac's own there.
fn borrowed(name: &str) -> Option<String> {
    ["/usr/bin", "/usr/sbin"].iter().find_map(|place| {
        let real = Path::new(place).join(name).canonicalize().ok()?;
        let rest = real.strip_prefix("/usr").ok()?;
        Some(format!("/.sim/linux/usr/{}", rest.display()))
    })
}

pub(super) const DEVICES: &[&str] = &["full", "null", "random", "tty", "urandom", "zero"];

pub(super) fn make_folder(path: &Path, mode: u32) -> Result<(), MacError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
        .map_err(MacError::io("make", path))
}

pub(super) fn link(target: &str, at: &Path) -> Result<(), MacError> {
    symlink(target, at).map_err(MacError::io("link", at))
}
