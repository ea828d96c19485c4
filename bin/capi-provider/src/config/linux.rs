//! Flags of Linux machines.

use std::net::IpAddr;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use russet_bootstrap::linux::{KubernetesChannel, NodeAddress};
use russet_controller::duration;
use serde::Serialize;

use crate::linux::decide::Rules;
use crate::linux::script::ScriptSettings;

/// Which address the Node of a Linux machine publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinuxNodeAddress {
    /// That on the Private Network, if there is one.
    PrivateNetwork,
    /// That which leads to the world.
    DefaultRoute,
}

/// Flags of Linux machines.
#[derive(Args, Clone, Debug, Serialize)]
#[command(next_help_heading = "Linux machines")]
#[serde(rename_all = "camelCase")]
pub struct LinuxArgs {
    /// Minor release of the kubelets, such as v1.35; without it, that of the API server.
    #[arg(
        long,
        value_name = "VERSION",
        env = "CAPI_LINUX_KUBERNETES_VERSION",
        default_value = ""
    )]
    pub linux_kubernetes_version: String,

    /// Addresses of cluster DNS, separated by commas; without them, those of the Service kube-system/kube-dns.
    #[arg(long, value_name = "IPS", env = "CAPI_LINUX_CLUSTER_DNS", default_value = "")]
    pub linux_cluster_dns: String,

    /// Domain of the cluster.
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local")]
    pub linux_cluster_domain: String,

    /// Which address Nodes publish as their InternalIP.
    #[arg(long, value_enum, value_name = "WHICH", default_value_t = LinuxNodeAddress::PrivateNetwork)]
    pub linux_node_address: LinuxNodeAddress,

    /// Bare metal keeps images and volumes on a file system of its own at /data, with quotas.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = ArgAction::Set)]
    pub linux_local_data: bool,

    /// Port of the SSH servers of Linux machines.
    #[arg(long, value_name = "PORT", default_value_t = 22)]
    pub linux_ssh_port: u16,

    /// Within this time an installation that Scaleway took must show there.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse)]
    pub linux_install_grace: Duration,

    /// After this long a start, a stop or an attachment that does not end is reported.
    #[arg(long, value_name = "DURATION", default_value = "20m", value_parser = duration::parse)]
    pub linux_boot_deadline: Duration,

    /// After this long a delivery, an installation or a wipe that does not end is reported.
    #[arg(long, value_name = "DURATION", default_value = "3h", value_parser = duration::parse)]
    pub linux_install_deadline: Duration,

    /// After this long without a Node a server is asked over SSH how its join goes.
    #[arg(long, value_name = "DURATION", default_value = "3m", value_parser = duration::parse)]
    pub linux_inspect_after: Duration,

    /// After this long without a Node a join has failed, whatever the server says.
    #[arg(long, value_name = "DURATION", default_value = "20m", value_parser = duration::parse)]
    pub linux_join_deadline: Duration,

    /// Longest wait before something that Scaleway refused is asked for again.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    pub linux_refusal_retry: Duration,

    /// StorageClass of volumes on the machines' own disks: when a server is given up, its volumes of this class and their claims are
    /// deleted. Without it they stay.
    #[arg(
        long,
        value_name = "NAME",
        env = "CAPI_LINUX_LOCAL_STORAGE_CLASS",
        default_value = ""
    )]
    pub linux_local_storage_class: String,
}

/// What they say.
#[derive(Clone, Debug)]
pub struct LinuxSettings {
    /// How scripts are made.
    pub scripts: ScriptSettings,
    /// How patient to be.
    pub rules: Rules,
    /// Port of SSH servers.
    pub ssh_port: u16,
    /// Longest wait after a refusal.
    pub slowest_retry: Duration,
    /// StorageClass of volumes on the machines' own disks.
    pub local_class: Option<String>,
}

impl LinuxArgs {
    /// Validates them; the error names the flag.
    pub(super) fn settings(&self, calls: crate::rules::Rules) -> Result<LinuxSettings, super::Error> {
        let bad = |flag, why: String| super::Error::Linux { flag, why };
        let version = self.linux_kubernetes_version.trim();
        let kubernetes: Option<KubernetesChannel> = (!version.is_empty())
            .then(|| version.parse())
            .transpose()
            .map_err(|why: russet_bootstrap::linux::Invalid| bad("linux-kubernetes-version", why.to_string()))?;
        let dns = self
            .linux_cluster_dns
            .split(',')
            .map(str::trim)
            .filter(|ip| !ip.is_empty());
        let cluster_dns: Vec<IpAddr> = dns
            .map(|ip| {
                ip.parse()
                    .map_err(|_| bad("linux-cluster-dns", format!("{ip:?} is no address; write 10.96.0.10")))
            })
            .collect::<Result<_, _>>()?;
        let class = self.linux_local_storage_class.trim();
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        if !class.chars().all(allowed) {
            let why = format!("{class:?} is no name of a StorageClass; write scw-local-nvme");
            return Err(bad("linux-local-storage-class", why));
        }
        Ok(LinuxSettings {
            local_class: (!class.is_empty()).then(|| class.to_owned()),
            scripts: ScriptSettings {
                kubernetes,
                cluster_dns,
                cluster_domain: self.linux_cluster_domain.clone(),
                node_address: match self.linux_node_address {
                    LinuxNodeAddress::PrivateNetwork => NodeAddress::PrivateNetwork,
                    LinuxNodeAddress::DefaultRoute => NodeAddress::DefaultRoute,
                },
                local_data: self.linux_local_data,
            },
            rules: Rules {
                calls,
                install_begins: self.linux_install_grace,
                boot_deadline: self.linux_boot_deadline,
                install_deadline: self.linux_install_deadline,
                inspect_after: self.linux_inspect_after,
                join_deadline: self.linux_join_deadline,
                ..Rules::default()
            },
            ssh_port: self.linux_ssh_port,
            slowest_retry: self.linux_refusal_retry.max(Duration::from_millis(100)),
        })
    }
}
