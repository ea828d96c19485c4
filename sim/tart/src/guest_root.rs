//! The guest's file system: its own folders, the host's programs under them read-only, the shares where macOS mounts them.
//!
//! Programs that would reach the host are replaced: `shutdown` ends the guest, `sudo` just runs the rest. Those of macOS that a host
//! may lack are ours. What a script writes lands in the VM's folder.

use crate::host;
use crate::nc;
use crate::run_arguments::Share;
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount, mount_bind, mount_bind_recursive, mount_remount};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

/// Where macOS mounts the shares of the default tag.
const SHARES: &str = "Volumes/My Shared Files";

const FOLDERS: &[&str] = &[
    "Applications",
    "Library",
    SHARES,
    "Users/admin",
    "dev",
    "etc",
    "opt/homebrew/bin",
    "private/tmp",
    "proc",
    "run",
    "tmp",
    "usr/.host/bin",
    "usr/.host/sbin",
    "usr/bin",
    "usr/local/bin",
    "usr/sbin",
    "var/db",
    "var/log",
    "var/tmp",
];

const SHUTDOWN: &str = "#!/bin/sh\nkill -USR2 1\n";
const SUDO: &str = "#!/bin/sh
while :; do
  case \"$1\" in
    -u|-g|-p) shift 2 ;;
    --) shift; break ;;
    -*) shift ;;
    *) break ;;
  esac
done
exec \"$@\"
";
const SW_VERS: &str = "#!/bin/sh
case \"$1\" in
  -productVersion|--productVersion) echo 26.0 ;;
  *) printf 'ProductName:\\t\\tmacOS\\nProductVersion:\\t\\t26.0\\nBuildVersion:\\t\\t25A354\\n' ;;
esac
";
/// This program, as a guest has it beside those of the host.
const OURS: &str = "sim-tart";
const ZSH: &str = "#!/bin/sh\nexec bash \"$@\"\n";

pub(crate) fn build(root: &Path, shares: &[Share]) -> io::Result<()> {
    for folder in FOLDERS {
        std::fs::create_dir_all(root.join(folder))?;
    }
    std::fs::set_permissions(root.join("tmp"), std::fs::Permissions::from_mode(0o1777))?;
    host_programs(root)?;
    for name in ["lib", "lib32", "lib64", "libx32"] {
        let host = Path::new("/").join(name);
        match std::fs::read_link(&host) {
            Ok(target) => replace_link(&target, &root.join(name))?,
            Err(_) if host.is_dir() => host_folder(&host, &root.join(name))?,
            Err(_) => {}
        }
    }
    replace_link(Path::new("usr/bin"), &root.join("bin"))?;
    replace_link(Path::new("usr/sbin"), &root.join("sbin"))?;
    settings(root)?;
    devices(&root.join("dev"))?;
    if mount("proc", root.join("proc"), "proc", MountFlags::empty(), None).is_err() {
        // Inside other namespaces the kernel may refuse a fresh one; then the old one has to do.
        mount_bind_recursive("/proc", root.join("proc"))?;
    }
    for share in shares.iter().filter(|share| share.tag.is_none()) {
        let place = match &share.name {
            Some(name) => root.join(SHARES).join(name),
            None => root.join(SHARES),
        };
        std::fs::create_dir_all(&place)?;
        mount_bind_recursive(&share.path, &place)?;
        if share.read_only {
            read_only(&place)?;
        }
    }
    Ok(())
}

/// The devices that programs use, in a folder of the guest's own: what a script puts beside them must not land on the host.
///
/// The folder is its owner's alone. Where everybody may write, as in any fresh tmpfs, Linux lets nobody open for writing (with
/// `O_CREAT`, as every shell does) what belongs to neither the folder's owner nor the caller; and the devices of a host whose
/// root is not the guest's do.
fn devices(dev: &Path) -> io::Result<()> {
    mount("tmpfs", dev, "tmpfs", MountFlags::empty(), Some(c"mode=0755"))?;
    for name in ["full", "null", "random", "tty", "urandom", "zero"] {
        let host = Path::new("/dev").join(name);
        if host.exists() {
            std::fs::write(dev.join(name), "")?;
            mount_bind(&host, dev.join(name))?;
        }
    }
    let shm = Path::new("/dev/shm");
    if shm.is_dir() {
        std::fs::create_dir(dev.join("shm"))?;
        mount_bind_recursive(shm, dev.join("shm"))?;
    }
    // Terminals of its own: a multiplexer finds them only beside itself, so the host's cannot be lent.
    std::fs::create_dir(dev.join("pts"))?;
    let options = c"newinstance,ptmxmode=0666,mode=0620";
    mount(
        "devpts",
        dev.join("pts"),
        "devpts",
        MountFlags::NOSUID | MountFlags::NOEXEC,
        Some(options),
    )?;
    symlink("pts/ptmx", dev.join("ptmx"))?;
    for (name, target) in [("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")] {
        symlink(Path::new("/proc/self").join(target), dev.join(name))?;
    }
    Ok(())
}

/// `/usr` without its programs is the host's; the programs are links, so that some can be ours.
fn host_programs(root: &Path) -> io::Result<()> {
    let usr = host::linux("usr");
    for entry in std::fs::read_dir(&usr)?.flatten() {
        let name = entry.file_name();
        if ["bin", "sbin", "local"].iter().any(|ours| name == *ours)
            || !entry.path().is_dir()
            || entry.path().is_symlink()
        {
            continue;
        }
        host_folder(&entry.path(), &root.join("usr").join(&name))?;
    }
    let ours = root.join("usr/.host").join(OURS);
    std::fs::write(&ours, "")?;
    mount_bind("/proc/self/exe", &ours)?;
    let nc = format!("#!/bin/sh\nexec /usr/.host/{OURS} {} \"$@\"\n", nc::WORD);
    for folder in ["bin", "sbin"] {
        let host = usr.join(folder);
        host_folder(&host, &root.join("usr/.host").join(folder))?;
        let place = root.join("usr").join(folder);
        mount("tmpfs", &place, "tmpfs", MountFlags::empty(), None)?;
        for entry in std::fs::read_dir(&host)?.flatten() {
            symlink(
                Path::new("/usr/.host").join(folder).join(entry.file_name()),
                place.join(entry.file_name()),
            )?;
        }
        for (name, text) in [
            ("shutdown", SHUTDOWN),
            ("halt", SHUTDOWN),
            ("nc", &nc),
            ("sudo", SUDO),
            ("sw_vers", SW_VERS),
        ] {
            program(&place.join(name), text)?;
        }
        if !host.join("zsh").exists() {
            program(&place.join("zsh"), ZSH)?;
        }
    }
    Ok(())
}

fn program(path: &Path, text: &str) -> io::Result<()> {
    let _ = std::fs::remove_file(path);
    std::fs::write(path, text)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}

fn host_folder(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    mount_bind_recursive(from, to)?;
    // Without root the files are safe anyway.
    let _ = read_only(to);
    Ok(())
}

fn replace_link(target: &Path, link: &Path) -> io::Result<()> {
    let _ = std::fs::remove_file(link);
    symlink(target, link)
}

/// The few files that programs look for.
fn settings(root: &Path) -> io::Result<()> {
    for name in [
        "group",
        "hosts",
        "ld.so.cache",
        "ld.so.conf",
        "localtime",
        "nsswitch.conf",
        "passwd",
        "resolv.conf",
    ] {
        let (from, to) = (Path::new("/etc").join(name), root.join("etc").join(name));
        if from.is_file() && !to.exists() {
            std::fs::copy(from, to)?;
        }
    }
    for (from, name) in [
        (host::linux("etc/alternatives"), "alternatives"),
        ("/etc/ssl".into(), "ssl"),
    ] {
        if from.is_dir() {
            host_folder(&from, &root.join("etc").join(name))?;
        }
    }
    Ok(())
}

/// Remounts read-only. In a user namespace flags of the original may not be dropped, so they are tried, too.
fn read_only(place: &Path) -> io::Result<()> {
    let careful = MountFlags::NOSUID | MountFlags::NODEV;
    let mut last = Errno::PERM;
    for more in [
        MountFlags::empty(),
        careful,
        careful | MountFlags::NOEXEC,
        careful | MountFlags::NOATIME,
    ] {
        match mount_remount(place, MountFlags::BIND | MountFlags::RDONLY | more, "") {
            Ok(()) => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(last.into())
}
