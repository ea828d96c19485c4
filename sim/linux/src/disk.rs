//! The disk of a server: a folder whose parts lie over the host's files inside.
//!
//! ```text
//!   disk/etc, disk/usr           what differs from the image (upper layers of overlays)
//!   disk/{var,opt,root,home,…}   the server's own
//!   run/                         orders and sockets of this boot
//!   generation                   written last: a disk without it was never finished
//! ```

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use ssh_key::private::{Ed25519Keypair, PrivateKey};

use crate::data;
use crate::error::Error;
use crate::inside::protocol::{FOLDER, PROGRAM};
use crate::inside::shim::COMMANDS;
use crate::row::{Kind, Row, tag};

/// Folders of the root that are the server's own.
pub(crate) const OWN: [&str; 7] = ["home", "mnt", "opt", "root", "srv", "tmp", "var"];
/// The account of images whose account is not root.
const USER: u32 = 1000;

/// What a disk is made with, besides its row.
#[derive(Debug, Clone)]
pub(crate) struct Adaptation {
    /// Below which the kubelet keeps Pods.
    pub(crate) cgroup: String,
    /// Addresses of Pods.
    pub(crate) pods: Option<String>,
    /// With which kube-proxy runs beside the kubelet.
    pub(crate) proxy_kubeconfig: Option<PathBuf>,
}

/// The files of one server.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    pub(crate) folder: PathBuf,
}

impl Disk {
    pub(crate) fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    pub(crate) fn upper(&self, part: &str) -> PathBuf {
        self.folder.join("disk").join(part)
    }

    pub(crate) fn run(&self) -> PathBuf {
        self.folder.join("run")
    }

    fn mark(&self) -> PathBuf {
        self.folder.join("generation")
    }

    pub(crate) fn erase(&self) -> Result<(), Error> {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io("erase a disk", &self.folder)(error))
            }
            _ => Ok(()),
        }
    }

    /// Installs the server, unless this generation of it is installed.
    pub(crate) fn install(&self, row: &Row, adaptation: &Adaptation) -> Result<(), Error> {
        let installed = fs::read_to_string(self.mark()).ok();
        if installed.as_deref() == Some(row.generation.to_string().as_str()) {
            return Ok(());
        }
        self.erase()?;
        let host_key = host_key(row)?;
        self.skeleton(row)
            .and_then(|()| self.accounts(row))
            .and_then(|()| self.ssh(row, &host_key))
            .and_then(|()| self.programs(row))
            .and_then(|()| self.node(row, adaptation))
            .and_then(|()| fs::write(self.mark(), row.generation.to_string()))
            .map_err(Error::io("install a server", &self.folder))
    }

    fn skeleton(&self, row: &Row) -> std::io::Result<()> {
        for part in OWN.into_iter().chain(["etc", "usr", "etc.work", "usr.work"]) {
            fs::create_dir_all(self.upper(part))?;
        }
        for folder in ["cache", "lib", "local", "log", "spool", "tmp"] {
            fs::create_dir_all(self.upper("var").join(folder))?;
        }
        symlink("/run", self.upper("var").join("run"))?;
        symlink("/run/lock", self.upper("var").join("lock"))?;
        for folder in [self.upper("tmp"), self.upper("var").join("tmp")] {
            fs::set_permissions(folder, Permissions::from_mode(0o1777))?;
        }
        fs::set_permissions(self.upper("root"), Permissions::from_mode(0o700))?;
        fs::create_dir_all(self.folder.join("root"))?;
        let name = &row.hostname;
        self.etc("hostname", 0o644, &format!("{name}\n"))?;
        self.etc("hosts", 0o644, &format!("127.0.0.1 localhost\n127.0.1.1 {name}\n"))?;
        self.etc("resolv.conf", 0o644, "")?;
        self.etc("fstab", 0o644, &data::table(row))?;
        let id = tag(row).repeat(4);
        self.etc("machine-id", 0o444, &format!("{}\n", id.get(..32).unwrap_or(&id)))
    }

    /// The host's accounts, that of sshd, and that of the image.
    fn accounts(&self, row: &Row) -> std::io::Result<()> {
        let lines = |file: &str| fs::read_to_string(Path::new("/etc").join(file)).unwrap_or_default();
        let (mut passwd, mut group, mut shadow) = (lines("passwd"), lines("group"), lines("shadow"));
        let has = |text: &str, name: &str| text.lines().any(|line| line.starts_with(&format!("{name}:")));
        if !has(&passwd, "sshd") {
            passwd.push_str("sshd:x:980:65534::/run/sshd:/usr/sbin/nologin\n");
        }
        let user = &row.ssh_user;
        if user != "root" {
            let others = |text: String| -> String {
                let id = format!(":{USER}:");
                let keep = |line: &&str| !line.starts_with(&format!("{user}:")) && !line.contains(&id);
                text.lines().filter(keep).fold(String::new(), |mut out, line| {
                    let _ = writeln!(out, "{line}");
                    out
                })
            };
            passwd = others(passwd) + &format!("{user}:x:{USER}:{USER}::/home/{user}:/bin/bash\n");
            group = others(group) + &format!("{user}:x:{USER}:\n");
            shadow = others(shadow) + &format!("{user}:*:19000:0:99999:7:::\n");
            self.etc(
                "sudoers.d/90-cloud-init-users",
                0o440,
                &format!("{user} ALL=(ALL) NOPASSWD:ALL\n"),
            )?;
            self.etc(
                "sudoers",
                0o440,
                "Defaults env_reset\nroot ALL=(ALL:ALL) ALL\n@includedir /etc/sudoers.d\n",
            )?;
        }
        self.etc("passwd", 0o644, &passwd)?;
        self.etc("group", 0o644, &group)?;
        self.etc("shadow", 0o640, &shadow)
    }

    fn ssh(&self, row: &Row, host_key: &str) -> std::io::Result<()> {
        let config = format!(
            "Port {}\nHostKey /etc/ssh/ssh_host_ed25519_key\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nUsePAM no\nPidFile none\n\
             PrintMotd no\nSubsystem sftp /usr/lib/openssh/sftp-server\n",
            row.ssh_port
        );
        self.etc("ssh/sshd_config", 0o644, &config)?;
        self.etc("ssh/ssh_host_ed25519_key", 0o600, host_key)?;
        let (home, owner) = match row.ssh_user.as_str() {
            "root" => (self.upper("root"), 0),
            user => (self.upper("home").join(user), USER),
        };
        let folder = home.join(".ssh");
        fs::create_dir_all(&folder)?;
        let mut keys = String::new();
        for key in &row.authorized_keys {
            keys.push_str(key.trim());
            keys.push('\n');
        }
        let file = folder.join("authorized_keys");
        fs::write(&file, keys)?;
        for (path, mode) in [(&home, 0o750), (&folder, 0o700), (&file, 0o600)] {
            chown(path, Some(owner), Some(owner))?;
            fs::set_permissions(path, Permissions::from_mode(mode))?;
        }
        self.folder_file("units/ssh.service", 0o644, SSH_UNIT)
    }

    /// Places for the programs that are mounted at boot, and the stubs.
    fn programs(&self, row: &Row) -> std::io::Result<()> {
        self.folder_file("box", 0o755, "")?;
        self.folder_file("import-images", 0o755, IMPORT)?;
        for folder in ["real", "images", "cni-plugins"] {
            fs::create_dir_all(self.own_folder().join(folder))?;
        }
        for (command, place) in COMMANDS.into_iter().filter(|(_, place)| !place.is_empty()) {
            // Disks are special on Elastic Metal only; everywhere else the kubelet's mounts need no detour.
            if row.kind == Kind::Instance && matches!(command, "mount" | "findmnt") {
                continue;
            }
            let Some(below) = place.strip_prefix("usr/") else {
                continue;
            };
            let path = self.upper("usr").join(below);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            symlink(PROGRAM, path)?;
        }
        Ok(())
    }

    /// What a node needs to run on this machine rather than on a server of its own. The join script is not told: all of it
    /// is in places that belong to the operator of a server.
    fn node(&self, row: &Row, adaptation: &Adaptation) -> std::io::Result<()> {
        self.etc(
            "default/kubelet",
            0o644,
            "KUBELET_EXTRA_ARGS=--config-dir=/etc/russet-box/kubelet.conf.d\n",
        )?;
        let kubelet = kubelet_drop_in(&adaptation.cgroup).to_string();
        self.etc("russet-box/kubelet.conf.d/90-box.conf", 0o644, &kubelet)?;
        self.etc("containerd/conf.d/90-box.toml", 0o644, CONTAINERD)?;
        if let Some(pods) = &adaptation.pods {
            self.etc("cni/net.d/10-box.conflist", 0o644, &pod_network(pods).to_string())?;
        }
        let Some(kubeconfig) = &adaptation.proxy_kubeconfig else {
            return Ok(());
        };
        self.etc(
            "russet-box/kube-proxy.kubeconfig",
            0o600,
            &fs::read_to_string(kubeconfig)?,
        )?;
        self.etc(
            "russet-box/kube-proxy.conf",
            0o644,
            &kube_proxy(&row.hostname).to_string(),
        )?;
        self.folder_file("units/kube-proxy.service", 0o644, PROXY_UNIT)
    }

    fn own_folder(&self) -> PathBuf {
        let below = FOLDER.strip_prefix("/usr/").unwrap_or_default();
        self.upper("usr").join(below)
    }

    fn folder_file(&self, name: &str, mode: u32, content: &str) -> std::io::Result<()> {
        write(&self.own_folder().join(name), mode, content)
    }

    fn etc(&self, name: &str, mode: u32, content: &str) -> std::io::Result<()> {
        write(&self.upper("etc").join(name), mode, content)
    }
}

fn write(path: &Path, mode: u32, content: &str) -> std::io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, content)?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}

fn host_key(row: &Row) -> Result<String, Error> {
    let bad = || Error::HostKey { name: row.name.clone() };
    let seed = BASE64.decode(row.host_key.seed_base64()).map_err(|_| bad())?;
    let seed: [u8; 32] = seed.try_into().map_err(|_| bad())?;
    let key = PrivateKey::from(Ed25519Keypair::from_seed(&seed));
    let text = key.to_openssh(ssh_key::LineEnding::LF).map_err(|_| bad())?;
    Ok(text.to_string())
}

const SSH_UNIT: &str = "[Unit]
Description=OpenBSD Secure Shell server

[Service]
ExecStartPre=/usr/sbin/sshd -t
ExecStart=/usr/sbin/sshd -D -e
RuntimeDirectory=sshd
RuntimeDirectoryMode=0755
KillMode=process
Restart=on-failure
Type=notify
";

const PROXY_UNIT: &str = "[Unit]
Description=kube-proxy, which is a DaemonSet elsewhere

[Service]
ExecStart=/usr/lib/russet-box/kube-proxy --config=/etc/russet-box/kube-proxy.conf
Restart=always
RestartSec=1
";

/// Images that a registry would have. The socket is there: containerd has said that it is ready.
const IMPORT: &str = "#!/bin/sh
set -e
for archive in /usr/lib/russet-box/images/*.tar; do
  /usr/lib/russet-box/ctr --namespace k8s.io images import \"$archive\"
done
";

/// Replaces what the join script says about CRI. No systemd drives cgroups, the score of the out-of-memory killer cannot be
/// lowered without `CAP_SYS_RESOURCE`, AppArmor profiles would stay in the host's kernel, and no registry has the image.
const CONTAINERD: &str = r#"version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "/etc/containerd/certs.d"
"#;

/// The host's kernel may have cgroups of version 1 and memory of its own to think of; its disk belongs to a developer.
fn kubelet_drop_in(cgroup: &str) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{cgroup}"),
        "failCgroupV1": false,
        "enforceNodeAllocatable": ["none"],
        "failSwapOn": false,
        "oomScoreAdj": 0,
        "featureGates": { "MemoryQoS": false },
        "evictionHard": {
            "memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "2s",
        // Looks often, and writes as seldom as by default where nothing has changed: whoever sets the one has set the other.
        "nodeStatusReportFrequency": "5m",
    })
}

/// Each Pod on a link of its own, as for the nodes of `russet_cluster::node`.
fn pod_network(pods: &str) -> Value {
    json!({
        "cniVersion": "0.4.0",
        "name": "box",
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": false,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni/networks",
                    "ranges": [[{ "subnet": pods }]],
                    "routes": [{ "dst": "0.0.0.0/0" }],
                },
            },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    })
}

fn kube_proxy(node: &str) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "hostnameOverride": node,
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "clientConnection": { "kubeconfig": "/etc/russet-box/kube-proxy.kubeconfig" },
        "detectLocalMode": "InterfaceNamePrefix",
        "detectLocal": { "interfaceNamePrefix": "veth" },
        "oomScoreAdj": 0,
        "conntrack": { "maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s" },
    })
}
