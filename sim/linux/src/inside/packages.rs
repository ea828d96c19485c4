//! `apt-get` and `apt-mark` over two emulated mirrors: the distribution's and that of Kubernetes.
//!
//! A package here is links to programs that lie ready. What is not in the list does not exist, as with a typing error, and
//! Kubernetes is there only after its mirror and key were set up and the lists were read again.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::protocol::FOLDER;
use super::reply::Reply;
use super::world::World;

/// Mirror of the kubelet; the channel follows.
const KUBERNETES: &str = "https://pkgs.k8s.io/core:/stable:/";
/// Which packages are there, one file each.
const INSTALLED: &str = "/var/lib/russet-box/packages";
const LISTS: &str = "/var/lib/apt/lists/russet-box";

/// A package: its name, its mirror, and its programs (name ready in the machine's folder, place).
struct Package {
    name: &'static str,
    kubernetes: bool,
    links: &'static [(&'static str, &'static str)],
    units: &'static [(&'static str, &'static str)],
    /// Whether its services start when it is installed, as Debian's do.
    starts: Option<&'static str>,
}

const CONTAINERD_UNIT: &str = "[Unit]
Description=containerd container runtime
After=network.target

[Service]
ExecStartPre=-/sbin/modprobe overlay
ExecStart=/usr/bin/containerd
ExecStartPost=-/usr/lib/russet-box/import-images
Type=notify
Delegate=yes
KillMode=process
Restart=always
RestartSec=5
LimitNPROC=infinity
LimitCORE=infinity
LimitNOFILE=infinity
TasksMax=infinity
OOMScoreAdjust=-999

[Install]
WantedBy=multi-user.target
";

const KUBELET_UNIT: &str = "[Unit]
Description=kubelet: The Kubernetes Node Agent
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=/usr/bin/kubelet
Restart=always
StartLimitInterval=0
RestartSec=10

[Install]
WantedBy=multi-user.target
";

const PACKAGES: [Package; 4] = [
    Package {
        name: "containerd",
        kubernetes: false,
        links: &[
            ("containerd", "/usr/bin/containerd"),
            ("ctr", "/usr/bin/ctr"),
            ("containerd-shim-runc-v2", "/usr/bin/containerd-shim-runc-v2"),
            ("runc", "/usr/sbin/runc"),
        ],
        units: &[("containerd.service", CONTAINERD_UNIT)],
        starts: Some("containerd.service"),
    },
    Package {
        name: "kubelet",
        kubernetes: true,
        // With the plugins, which the real package depends on.
        links: &[("kubelet", "/usr/bin/kubelet"), ("cni-plugins", "/opt/cni/bin")],
        units: &[("kubelet.service", KUBELET_UNIT)],
        starts: None,
    },
    Package {
        name: "isc-dhcp-client",
        kubernetes: false,
        links: &[("box", "/usr/sbin/dhclient")],
        units: &[],
        starts: None,
    },
    Package {
        name: "xfsprogs",
        kubernetes: false,
        links: &[("box", "/usr/sbin/xfs_quota")],
        units: &[],
        starts: None,
    },
];

/// Packages whose programs the machine has from the start.
const PRESENT: [&str; 15] = [
    "apt-transport-https",
    "bash",
    "ca-certificates",
    "coreutils",
    "curl",
    "gnupg",
    "gpg",
    "iproute2",
    "iptables",
    "kmod",
    "mount",
    "openssh-server",
    "procps",
    "sudo",
    "util-linux",
];

/// `apt-get ARGS`.
pub(super) async fn apt_get(world: &World, args: &[String]) -> Reply {
    let mut words = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "-o" => drop(args.next()),
            "-q"
            | "-qq"
            | "-y"
            | "-qy"
            | "-qqy"
            | "--yes"
            | "--quiet"
            | "--no-install-recommends"
            | "--allow-change-held-packages"
            | "--allow-downgrades" => {}
            flag if flag.starts_with('-') => {
                return Reply::failure(
                    100,
                    format!("E: the emulated server does not know the flag {flag} of apt-get"),
                );
            }
            other => words.push(other.to_owned()),
        }
    }
    let Some((verb, packages)) = words.split_first() else {
        return Reply::failure(100, "E: apt-get was told nothing to do".to_owned());
    };
    match verb.as_str() {
        "update" => update(world),
        "install" => install(world, packages).await,
        other => Reply::failure(100, format!("E: Invalid operation {other}")),
    }
}

/// Reads which mirrors are set up and may be trusted.
fn update(world: &World) -> Reply {
    let mut channels = BTreeSet::new();
    for entry in std::fs::read_dir("/etc/apt/sources.list.d")
        .into_iter()
        .flatten()
        .flatten()
    {
        let Ok(text) = std::fs::read_to_string(entry.path()) else {
            continue;
        };
        for line in text.lines().filter(|line| line.starts_with("deb ")) {
            if !line.contains(KUBERNETES) {
                continue;
            }
            match kubernetes_source(line, |key| {
                std::fs::read_to_string(key).is_ok_and(|key| key.contains(KEY_TITLE))
            }) {
                Ok(channel) => channels.insert(channel),
                Err(why) => return Reply::failure(100, format!("E: {}: {why}", entry.path().display())),
            };
        }
    }
    let known = channels.into_iter().collect::<Vec<_>>().join("\n");
    match std::fs::create_dir_all("/var/lib/apt/lists").and_then(|()| std::fs::write(LISTS, known)) {
        Ok(()) => Reply::printed(format!(
            "Reading package lists... (emulated, Kubernetes {})\n",
            world.kubernetes
        )),
        Err(error) => Reply::failure(100, format!("E: {LISTS}: {error}")),
    }
}

const KEY_TITLE: &str = "BEGIN PGP PUBLIC KEY BLOCK";

/// The channel of a source line, such as `v1.35`.
fn kubernetes_source(line: &str, trusted: impl Fn(&str) -> bool) -> Result<String, &'static str> {
    let (options, rest) = line
        .strip_prefix("deb [")
        .and_then(|rest| rest.split_once(']'))
        .ok_or("the repository is not signed by a key of its own")?;
    let key = options
        .split_whitespace()
        .find_map(|option| option.strip_prefix("signed-by="))
        .ok_or("the repository is not signed by a key of its own")?;
    if !trusted(key) {
        return Err("the public key is not available");
    }
    let channel = rest
        .trim()
        .strip_prefix(KUBERNETES)
        .and_then(|rest| rest.strip_suffix("/deb/ /"))
        .ok_or("the repository does not have a Release file")?;
    Ok(channel.to_owned())
}

async fn install(world: &World, wanted: &[String]) -> Reply {
    let mut chosen = Vec::new();
    for word in wanted {
        let (name, version) = word
            .split_once('=')
            .map_or((word.as_str(), None), |(n, v)| (n, Some(v)));
        let package = PACKAGES.iter().find(|package| package.name == name);
        if package.is_none() && !PRESENT.contains(&name) {
            return Reply::failure(100, format!("E: Unable to locate package {name}"));
        }
        let Some(package) = package else { continue };
        if package.kubernetes {
            let lists = std::fs::read_to_string(LISTS).unwrap_or_default();
            if !lists
                .lines()
                .any(|channel| world.kubernetes.starts_with(&format!("{channel}.")))
            {
                return Reply::failure(100, format!("E: Unable to locate package {name}"));
            }
        }
        let have = world.kubernetes.trim_start_matches('v');
        if version.is_some_and(|version| !(package.kubernetes && matches_version(version, have))) {
            return Reply::failure(
                100,
                format!(
                    "E: Version '{}' for '{name}' was not found",
                    version.unwrap_or_default()
                ),
            );
        }
        chosen.push(package);
    }
    let mut reply = Reply::success();
    for package in chosen {
        if let Err(error) = unpack(package) {
            return Reply::failure(100, format!("E: {}: {error}", package.name));
        }
        let _ = writeln!(reply.stdout, "Setting up {} (emulated) ...", package.name);
        if let Some(unit) = package.starts {
            let started = super::systemctl::systemctl(world, &["enable".into(), "--now".into(), unit.into()]).await;
            if started.status != 0 {
                return started;
            }
        }
    }
    reply
}

/// `1.35.*` is what apt calls a pattern.
fn matches_version(wanted: &str, have: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(prefix) => have.starts_with(prefix),
        None => wanted == have || wanted.starts_with(&format!("{have}-")),
    }
}

fn unpack(package: &Package) -> std::io::Result<()> {
    for (program, place) in package.links {
        let place = Path::new(place);
        if let Some(parent) = place.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let _ = std::fs::remove_file(place);
        std::os::unix::fs::symlink(Path::new(FOLDER).join(program), place)?;
    }
    for (unit, text) in package.units {
        let path = PathBuf::from("/usr/lib/systemd/system").join(unit);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, text)?;
    }
    std::fs::create_dir_all(INSTALLED)?;
    std::fs::write(Path::new(INSTALLED).join(package.name), "")
}

/// `apt-mark hold PACKAGE...`.
pub(super) fn apt_mark(args: &[String]) -> Reply {
    let Some((verb, packages)) = args
        .split_first()
        .filter(|(verb, _)| matches!(verb.as_str(), "hold" | "unhold"))
    else {
        return Reply::failure(
            100,
            "E: the emulated server knows hold and unhold of apt-mark".to_owned(),
        );
    };
    let mut reply = Reply::success();
    for package in packages {
        if !Path::new(INSTALLED).join(package).exists() && !PRESENT.contains(&package.as_str()) {
            return Reply::failure(100, format!("E: Can't select installed version of package {package}"));
        }
        let held = if verb == "hold" {
            "set on hold"
        } else {
            "no longer on hold"
        };
        let _ = writeln!(reply.stdout, "{package} {held}.");
    }
    reply
}

/// `curl` for the key of the Kubernetes mirror. Everything else is a name that does not resolve.
pub(super) fn curl(args: &[String]) -> Reply {
    let mut urls = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--proto" | "--retry" | "--max-time" | "--connect-timeout" => drop(args.next()),
            "--tlsv1.2" | "--fail" | "--silent" | "--show-error" | "--location" | "-fsSL" | "-sSL" | "-sSf"
            | "-fsS" => {}
            flag if flag.starts_with('-') => {
                return Reply::failure(2, format!("curl: the emulated server does not know the flag {flag}"));
            }
            url => urls.push(url),
        }
    }
    let [url] = urls.as_slice() else {
        return Reply::failure(2, "curl: no URL specified, or more than one".to_owned());
    };
    let is_key = url
        .strip_prefix(KUBERNETES)
        .and_then(|rest| rest.strip_suffix("/deb/Release.key"))
        .is_some_and(|channel| channel.starts_with("v1."));
    if is_key {
        return Reply::printed(format!(
            "-----{KEY_TITLE}-----\n\nZW11bGF0ZWQ=\n-----END PGP PUBLIC KEY BLOCK-----\n"
        ));
    }
    let host = url
        .split("://")
        .nth(1)
        .unwrap_or(url)
        .split('/')
        .next()
        .unwrap_or_default();
    Reply::failure(6, format!("curl: (6) Could not resolve host: {host}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_must_be_signed_by_a_key_that_is_there() {
        let line = "deb [signed-by=/k.asc] https://pkgs.k8s.io/core:/stable:/v1.35/deb/ /";
        assert_eq!(kubernetes_source(line, |key| key == "/k.asc").unwrap(), "v1.35");
        assert!(kubernetes_source(line, |_| false).is_err());
        assert!(kubernetes_source(&line.replace("[signed-by=/k.asc] ", ""), |_| true).is_err());
        assert!(kubernetes_source(&line.replace("/deb/ /", "/rpm/ /"), |_| true).is_err());
    }

    #[test]
    fn versions_are_exact_or_patterns() {
        assert!(matches_version("1.35.*", "1.35.4") && matches_version("1.35.4-1.1", "1.35.4"));
        assert!(!matches_version("1.3.*", "1.35.4") && !matches_version("1.35", "1.35.4"));
    }

    #[test]
    fn curl_fetches_the_key_and_nothing_else() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let key = curl(&words(
            "--fail --max-time 120 https://pkgs.k8s.io/core:/stable:/v1.35/deb/Release.key",
        ));
        assert!(key.status == 0 && key.stdout.contains(KEY_TITLE));
        let other = curl(&words("-fsSL https://example.org/x"));
        assert_eq!(
            (other.status, other.stderr.as_str()),
            (6, "curl: (6) Could not resolve host: example.org\n")
        );
        assert_eq!(curl(&words("--insecure https://a/")).status, 2);
    }
}
