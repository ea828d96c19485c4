//! A freshly installed macOS, as files.
//!
//! Only what scripts look at is there. What a fresh mini lacks is missing here too: /usr/local/bin, /etc/resolver, /opt/homebrew and
//! ~/Library/LaunchAgents. [facts 9]

use super::error::MacError;
use super::inside::INSTALLED;
use super::system::{DEVICES, TOOL, link, make_folder};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;

/// The parts that can be written to; everything else is the sealed system volume.
pub(super) const WRITABLE: &[&str] = &[
    "Applications",
    "Library",
    "System/Volumes/Data",
    "Users",
    "Volumes",
    "cores",
    "opt",
    "private",
    "usr/local",
];

/// Where the programs of Linux that go by several names are told apart.
pub(super) const ALTERNATIVES: &str = ".sim/linux/etc/alternatives";

pub(super) const UID: u32 = 501;
pub(super) const STAFF: u32 = 20;
pub(super) const ADMIN: u32 = 80;
/// staff, everyone, localaccounts, admin, access_ssh.
pub(super) const GROUPS: &[u32] = &[20, 12, 61, 80, 399];

/// Whose files they are, where there is more than one user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owners {
    /// The emulator runs as root and can give files away.
    pub(super) real: bool,
}

impl Owners {
    fn give(self, path: &Path, uid: u32, gid: u32) -> Result<(), MacError> {
        if self.real {
            chown(path, Some(uid), Some(gid)).map_err(MacError::io("give away", path))?;
        }
        Ok(())
    }
}

/// What differs between two installations.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fresh<'a> {
    pub(super) username: &'a str,
    pub(super) host_name: &'a str,
    pub(super) authorized_keys: &'a [String],
    /// Public halves, as `known_hosts` has them.
    pub(super) host_keys: &'a [(String, String)],
}

/// Writes a fresh installation. The folder must not exist.
pub(super) fn install(root: &Path, fresh: &Fresh<'_>, owners: Owners) -> Result<(), MacError> {
    folders(root, fresh, owners)?;
    for name in ["etc", "var", "tmp"] {
        link(&format!("private/{name}"), &root.join(name))?;
    }
    for name in ["lib", "lib64"] {
        let host = Path::new("/").join(name);
        if let Ok(target) = fs::read_link(&host) {
            link(&target.to_string_lossy(), &root.join(name))?;
        } else if host.is_dir() {
            make_folder(&root.join(name), 0o755)?;
        }
    }
    if Path::new("/usr/lib64").is_dir() {
        make_folder(&root.join("usr/lib64"), 0o755)?;
    }
    for device in DEVICES.iter().chain(["console"].iter()) {
        write(root, &format!("dev/{device}"), 0o600, "")?;
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        link(target, &root.join("dev").join(name))?;
    }
    for name in ["sim-mac", "zsh"] {
        write(root, &format!(".sim/{name}"), 0o755, "")?;
    }
    for (path, mode, content) in FILES {
        write(root, path, *mode, content)?;
    }
    configuration(root, fresh)?;
    for (kind, line) in fresh.host_keys {
        write(
            root,
            &format!("private/etc/ssh/ssh_host_{kind}_key.pub"),
            0o644,
            &format!("{line}\n"),
        )?;
    }
    // Keys of the project are written at delivery, into a file of their own. [facts 9]
    let home = format!("Users/{}", fresh.username);
    let keys: String = fresh.authorized_keys.iter().map(|key| format!("{key}\n")).collect();
    let scw = format!("{home}/.ssh/scw_authorized_keys");
    write(root, &scw, 0o600, &keys)?;
    owners.give(&root.join(&scw), UID, STAFF)?;
    homebrew(root, owners)
}

/// What the emulator keeps on the disk of every Mac, also of one that an earlier emulator installed: the tools that people install, the
/// places of what a boot mounts, and which addresses guests have.
pub(super) fn complete(root: &Path, guests: &str) -> Result<(), MacError> {
    for folder in ["dev/pts", ALTERNATIVES] {
        make_folder(&root.join(folder), 0o755)?;
    }
    let links = INSTALLED.iter().map(|name| (format!(".sim/bin/{name}"), TOOL));
    for (place, target) in links.chain([("dev/ptmx".to_owned(), "pts/ptmx")]) {
        let place = root.join(place);
        if !place.is_symlink() {
            link(target, &place)?;
        }
    }
    write(root, ".sim/guests", 0o644, &format!("{guests}\n"))
}

/// Homebrew is there from the start, though a fresh mini has none: nobody here can download it. [guess: facts 9]
fn homebrew(root: &Path, owners: Owners) -> Result<(), MacError> {
    for path in ["opt/homebrew", "opt/homebrew/bin", "opt/homebrew/Cellar"] {
        make_folder(&root.join(path), 0o755)?;
        owners.give(&root.join(path), UID, ADMIN)?;
    }
    write(root, "opt/homebrew/bin/brew", 0o755, "#!/.sim/bin/brew\n")?;
    owners.give(&root.join("opt/homebrew/bin/brew"), UID, ADMIN)
}

fn folders(root: &Path, fresh: &Fresh<'_>, owners: Owners) -> Result<(), MacError> {
    for (path, mode) in FOLDERS {
        make_folder(&root.join(path), *mode)?;
    }
    for path in ["Applications", "Library/Caches", "cores"] {
        owners.give(&root.join(path), 0, ADMIN)?;
    }
    let home = root.join("Users").join(fresh.username);
    for (path, mode) in [
        ("", 0o750),
        (".ssh", 0o700),
        ("Library", 0o700),
        ("Library/Preferences", 0o700),
        ("Library/Logs", 0o700),
        ("Library/Keychains", 0o700),
        ("Desktop", 0o700),
        ("Documents", 0o700),
        ("Downloads", 0o700),
    ] {
        let path = home.join(path);
        make_folder(&path, mode)?;
        owners.give(&path, UID, STAFF)?;
    }
    Ok(())
}

fn configuration(root: &Path, fresh: &Fresh<'_>) -> Result<(), MacError> {
    let user = fresh.username;
    write(
        root,
        "private/etc/passwd",
        0o644,
        &format!(
            "root:*:0:0:System Administrator:/var/root:/bin/sh\n\
             daemon:*:1:1:System Services:/var/root:/usr/bin/false\n\
             nobody:*:65534:65534:Unprivileged User:/var/empty:/usr/bin/false\n\
             {user}:*:{UID}:{STAFF}:{user}:/Users/{user}:/bin/zsh\n"
        ),
    )?;
    write(
        root,
        "private/etc/group",
        0o644,
        &format!(
            "wheel:*:0:root\ndaemon:*:1:root\nstaff:*:20:root,{user}\neveryone:*:12:\nlocalaccounts:*:61:\n\
             admin:*:80:root,{user}\ncom.apple.access_ssh:*:399:{user}\nnogroup:*:65534:\n"
        ),
    )?;
    write(
        root,
        "private/etc/hosts",
        0o644,
        "##\n# Host Database\n##\n127.0.0.1\tlocalhost\n255.255.255.255\tbroadcasthost\n::1             localhost\n",
    )?;
    let resolver = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    write(root, "private/etc/resolv.conf", 0o644, &resolver)?;
    write(root, "private/var/db/.host-name", 0o644, fresh.host_name)
}

fn write(root: &Path, path: &str, mode: u32, content: &str) -> Result<(), MacError> {
    let path = root.join(path);
    fs::write(&path, content)
        .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(mode)))
        .map_err(MacError::io("write", &path))
}

const FOLDERS: &[(&str, u32)] = &[
    ("", 0o755),
    (".sim", 0o755),
    (".sim/bin", 0o755),
    (".sim/linux", 0o755),
    (".sim/linux/usr", 0o755),
    (".sim/exec", 0o755),
    ("Applications", 0o775),
    ("Library", 0o755),
    ("Library/Application Support", 0o755),
    ("Library/Caches", 0o775),
    ("Library/LaunchAgents", 0o755),
    ("Library/LaunchDaemons", 0o755),
    ("Library/Logs", 0o755),
    ("Library/Preferences", 0o755),
    ("Library/Preferences/SystemConfiguration", 0o755),
    ("System", 0o755),
    ("System/Library", 0o755),
    ("System/Library/LaunchAgents", 0o755),
    ("System/Library/LaunchDaemons", 0o755),
    ("System/Library/CoreServices", 0o755),
    ("System/Volumes", 0o755),
    ("System/Volumes/Data", 0o755),
    ("Users", 0o755),
    ("Users/Shared", 0o1777),
    ("Volumes", 0o755),
    ("bin", 0o755),
    ("cores", 0o755),
    ("dev", 0o755),
    ("opt", 0o755),
    ("private", 0o755),
    ("private/etc", 0o755),
    ("private/etc/pam.d", 0o755),
    ("private/etc/pf.anchors", 0o755),
    ("private/etc/ssh", 0o755),
    ("private/etc/ssh/sshd_config.d", 0o755),
    ("private/etc/ssl", 0o755),
    ("private/etc/sudoers.d", 0o755),
    ("private/tmp", 0o1777),
    ("private/var", 0o755),
    ("private/var/db", 0o755),
    ("private/var/db/com.apple.backgroundtaskmanagement", 0o755),
    ("private/var/db/com.apple.xpc.launchd", 0o755),
    ("private/var/db/sudo", 0o700),
    ("private/var/empty", 0o755),
    ("private/var/log", 0o755),
    ("private/var/root", 0o750),
    ("private/var/run", 0o775),
    ("private/var/tmp", 0o1777),
    ("proc", 0o555),
    ("sbin", 0o755),
    ("usr", 0o755),
    ("usr/bin", 0o755),
    ("usr/lib", 0o755),
    ("usr/libexec", 0o755),
    ("usr/local", 0o755),
    ("usr/sbin", 0o755),
    ("usr/share", 0o755),
];

/// [facts 4 for pf, 5 for sshd, sudo and the shell]
const FILES: &[(&str, u32, &str)] = &[
    (
        "private/etc/nsswitch.conf",
        0o644,
        "passwd: files\ngroup: files\nhosts: files dns\n",
    ),
    (
        "private/etc/pf.conf",
        0o644,
        "#\n# Default PF configuration file.\n#\nscrub-anchor \"com.apple/*\"\nnat-anchor \"com.apple/*\"\nrdr-anchor \"com.apple/*\"\n\
         dummynet-anchor \"com.apple/*\"\nanchor \"com.apple/*\"\nload anchor \"com.apple\" from \"/etc/pf.anchors/com.apple\"\n",
    ),
    (
        "private/etc/pf.anchors/com.apple",
        0o644,
        "#\n# com.apple ruleset, referred to by the default /etc/pf.conf file.\n#\nanchor \"200.AirDrop/*\"\nanchor \"250.ApplicationFirewall/*\"\n",
    ),
    (
        "private/etc/ssh/sshd_config",
        0o644,
        "Include /etc/ssh/sshd_config.d/*\n\nAuthorizedKeysFile\t.ssh/authorized_keys .ssh/scw_authorized_keys\nSubsystem\tsftp\t/usr/libexec/sftp-server\n",
    ),
    (
        "private/etc/ssh/sshd_config.d/100-macos.conf",
        0o644,
        "UsePAM yes\nAcceptEnv LANG LC_*\nInclude /etc/ssh/crypto.conf\n",
    ),
    ("private/etc/ssh/crypto.conf", 0o644, "# crypto policy of macOS\n"),
    (
        "private/etc/pam.d/sudo",
        0o444,
        "auth       include        sudo_local\nauth       required       pam_opendirectory.so\n",
    ),
    (
        "private/etc/sudoers",
        0o440,
        "Defaults env_reset\nDefaults env_keep += \"HOME MAIL\"\nroot ALL = (ALL) ALL\n%admin ALL = (ALL) ALL\n\
         #includedir /private/etc/sudoers.d\n",
    ),
    (
        "private/etc/zprofile",
        0o444,
        "if [ -x /usr/libexec/path_helper ]; then\n\teval `/usr/libexec/path_helper -s`\nfi\n",
    ),
    ("private/etc/zshrc", 0o444, "PS1=\"%n@%m %1~ %# \"\n"),
    (
        "private/etc/paths",
        0o644,
        "/usr/local/bin\n/System/Cryptexes/App/usr/bin\n/usr/bin\n/bin\n/usr/sbin\n/sbin\n",
    ),
    (
        "private/etc/shells",
        0o644,
        "/bin/bash\n/bin/csh\n/bin/dash\n/bin/ksh\n/bin/sh\n/bin/tcsh\n/bin/zsh\n",
    ),
    ("private/var/log/system.log", 0o640, ""),
    (
        "System/Library/LaunchDaemons/ssh.plist",
        0o644,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \
         \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n<plist version=\"1.0\">\n<dict>\n\t<key>Label</key>\n\t\
         <string>com.openssh.sshd</string>\n\t<key>Program</key>\n\t<string>/usr/libexec/sshd-keygen-wrapper</string>\n\t\
         <key>ProgramArguments</key>\n\t<array>\n\t\t<string>sshd-keygen-wrapper</string>\n\t</array>\n\t\
         <key>Sockets</key>\n\t<dict>\n\t\t<key>Listeners</key>\n\t\t<dict>\n\t\t\t<key>SockServiceName</key>\n\t\t\t\
         <string>ssh</string>\n\t\t</dict>\n\t</dict>\n\t<key>inetdCompatibility</key>\n\t<dict>\n\t\t<key>Wait</key>\n\t\t\
         <false/>\n\t\t<key>Instances</key>\n\t\t<integer>42</integer>\n\t</dict>\n</dict>\n</plist>\n",
    ),
];
