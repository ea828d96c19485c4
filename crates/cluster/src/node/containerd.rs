//! What containerd and its network plugins are told. Pure text; paths are those inside the node.

use std::path::Path;

use serde_json::{Value, json};

use super::{Range, image};

/// Inside the node `/run` is private, so the usual place is free and short enough for a socket.
pub(super) const SOCKET: &str = "/run/containerd/containerd.sock";
/// Where CRI looks for the network of pods; empty until the node has its pod range.
pub(super) const CNI_CONFIG: &str = "/run/cni/net.d";

/// Which snapshotter works on the file system that holds the images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Snapshotter {
    Overlay,
    /// Copies each layer. Slow and large, but an overlay cannot lie on an overlay, as in CI that is itself a container.
    Native,
}

impl Snapshotter {
    pub(super) fn for_directory(directory: &Path) -> Self {
        const OVERLAY_MAGIC: i128 = 0x794c_7630;
        match rustix::fs::statfs(directory) {
            Ok(fs) if i128::from(fs.f_type) == OVERLAY_MAGIC => Self::Native,
            _ => Self::Overlay,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Overlay => "overlayfs",
            Self::Native => "native",
        }
    }
}

/// The configuration file, in the version that containerd 1.6 and 2.x both read.
///
/// - The score of the out-of-memory killer cannot be lowered without `CAP_SYS_RESOURCE`, which containers and small VMs
///   lack; restricting it keeps pods starting there.
/// - AppArmor profiles would be loaded into the host's kernel and stay after the node.
pub(super) fn config(runc: &Path, cni_plugins: &Path, snapshotter: Snapshotter) -> String {
    let snapshotter = snapshotter.name();
    let (runc, cni_plugins) = (toml_string(runc), toml_string(cni_plugins));
    let pause = image::PAUSE;
    format!(
        r#"version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0

[grpc]
  address = "{SOCKET}"

[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd-opt"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = {cni_plugins}
    conf_dir = "{CNI_CONFIG}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = {runc}
        SystemdCgroup = false
"#
    )
}

/// JSON's escapes are a subset of those of a TOML basic string.
fn toml_string(path: &Path) -> String {
    Value::from(path.to_string_lossy()).to_string()
}

/// The network of pods: each is routed on its own link, rather than bridged with its neighbours.
///
/// On a bridge two pods of one node answer each other directly, past the address translation of Services and past
/// network policies, unless the kernel passes bridged traffic through its firewall, which is a module that not every
/// machine has. On links of their own everything is routed and the question does not arise.
pub(super) fn pod_network(pods: Range) -> Value {
    json!({
        "cniVersion": "0.4.0",
        "name": "russet",
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": false,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni/networks",
                    "ranges": [[{ "subnet": pods.to_string() }]],
                    "routes": [{ "dst": "0.0.0.0/0" }],
                },
            },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_for_toml() {
        let config = config(Path::new("/a \"b\"/runc"), Path::new("/cni"), Snapshotter::Overlay);
        assert!(config.contains(r#"BinaryName = "/a \"b\"/runc""#), "{config}");
        assert!(config.contains(r#"bin_dir = "/cni""#), "{config}");
    }

    #[test]
    fn pods_get_their_addresses_from_the_range_of_the_node() {
        let network = pod_network("10.135.1.0/24".parse().unwrap());
        assert_eq!(network["plugins"][0]["ipam"]["ranges"][0][0]["subnet"], "10.135.1.0/24");
    }
}
