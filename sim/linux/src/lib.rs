//! Emulated Linux servers, the machines behind Instances and Elastic Metal of the emulated Scaleway API.
//!
//! A server is a set of namespaces with a disk of its own, in which the very join program of production runs: as user data at
//! the first boot, or over SSH. What can be real is real; what cannot is a stub that refuses everything it does not know.
//!
//! ```text
//!   sim/scaleway ──BoxFactory, or /_sim/box-events──▶ Fleet ── one Server per row
//!                                                       │ power: Holder (namespaces; they end with this process, however it ends)
//!   host's /usr, /etc ─ overlay ─ disk/ ────────────────┤ cables into the node network: ens2, and ens5 or a VLAN
//!                                                       ▼
//!                     manager inside: services, cloud-init ◀── stubs (systemctl, apt-get, ip, …) over a socket
//! ```
//!
//! | Part of a server | Here |
//! | --- | --- |
//! | network, mounts, processes, host name, IPC | real namespaces; the kernel takes all of it apart when the power goes |
//! | `/usr`, `/etc` | the host's, with the server's own changes over them; `/var`, `/opt`, `/home`, `/root` are its own |
//! | file systems beside the root's (`/data` of Elastic Metal) | real ones of 8 GiB, made at the first boot in files behind loop devices; `/etc/fstab` names the file |
//! | `/dev`, kernel, memory, processors, clock | the host's |
//! | sshd, sudo, bash, mount, iptables, nft, … | real: Debian's packages or the host's programs |
//! | host key, authorised keys, accounts | real, from the row; another generation has another key and nothing of the old disk |
//! | containerd, runc, CNI plugins, kubelet, kube-proxy | real; kube-proxy runs beside the kubelet, in production it is a DaemonSet |
//! | public address | set at boot as by the image's DHCP; reachable from the host and other servers, not from the world, and no way out |
//! | Private Network of an Instance | a card with the row's MAC on a bridge of that network; down until somebody configures it |
//! | Private Network of Elastic Metal | a cable of its own that `ip link add … type vlan` turns into the VLAN: not every kernel has 802.1q |
//! | DHCP | no packets: `dhclient` tells its script what the row says |
//! | metadata service | user data comes from the row, at the first boot of an installation only |
//! | cloud-init | `write_files` and `runcmd` as cloud-init does them, or a script; any other key is an error |
//! | systemd | services, drop-ins, enable, restart, notification; no targets, timers, sockets or cgroups per unit; journals are files |
//! | apt | two emulated mirrors with a handful of packages; Kubernetes only after its mirror and key were set up |
//! | curl | the key of the Kubernetes mirror; every other name does not resolve |
//! | `ip` | real, but cables look like cards (`ens5`, not `ens5@if7`); no batches |
//! | sysctl | `net.*` is set; all else is the host's and only written down (`/run/russet-box/sysctl`) |
//! | modprobe, swapoff | names are checked, nothing is done |
//! | XFS project quotas | where the kernel has none, the mount option and the limits are pretended (Elastic Metal only): nothing is limited |
//!
//! What a node needs to run here rather than on a server of its own (cgroups without systemd, images without a registry, a Pod
//! network) is put where operators put such things: `/etc/default/kubelet`, `/etc/containerd/conf.d`, `/etc/cni/net.d`.
//! The join program is not told.
//!
//! Without root there is no machine: [`Fleet::synthetic`] reads the join program in the user data and keeps a Node alive that says
//! so by the label `sim.russet.dev/synthetic` and a condition.

pub mod cli;
mod data;
mod disk;
mod error;
mod fleet;
mod habits;
mod image;
pub mod inside;
mod mounts;
mod row;
mod server;
mod synthetic;

pub use data::check as check_data;
pub use error::Error;
pub use fleet::{Fleet, Options, tools};
pub use inside::protocol::CloudInit;
pub use row::{Filesystem, Kind, Power, PrivateLeg, Row};
pub use server::{Phase, State};
pub use synthetic::{another_nodes_client, node_client};
