//! Flags about what is put on hosts. They belong to the set-up over SSH; whoever reads one checks it.

use std::path::PathBuf;

use clap::{ArgAction, Args};
use serde::Serialize;

/// Flags about what is put on hosts.
#[derive(Args, Clone, Debug, Serialize)]
#[command(next_help_heading = "What is put on hosts")]
#[serde(rename_all = "camelCase")]
pub struct HostArgs {
    /// The tart-kubelet for Macs.
    #[arg(
        long,
        value_name = "FILE",
        env = "CAPI_TARTKUBELET_BINARY_PATH",
        default_value = "/opt/tart-kubelet/tart-kubelet-darwin-arm64"
    )]
    pub tartkubelet_binary_path: PathBuf,

    /// The Tart release for Macs. Empty: hosts bring their own.
    #[arg(
        long,
        value_name = "FILE",
        env = "CAPI_TART_TARBALL_PATH",
        default_value = "/opt/tart/tart.tar.gz"
    )]
    pub tart_tarball_path: String,

    /// tailscale and tailscaled for Macs, as a tar.gz. Empty: hosts are not on the tailnet.
    #[arg(long, value_name = "FILE", env = "CAPI_TAILSCALE_BINARIES_PATH", default_value = "")]
    pub tailscale_binaries_path: String,

    /// node_exporter for Macs. Empty: none.
    #[arg(
        long,
        value_name = "FILE",
        env = "CAPI_NODE_EXPORTER_BINARY_PATH",
        default_value = ""
    )]
    pub node_exporter_binary_path: String,

    /// The log shipper for Macs. Empty: none.
    #[arg(long, value_name = "FILE", env = "CAPI_LOG_SHIPPER_BINARY_PATH", default_value = "")]
    pub log_shipper_binary_path: String,

    /// Where hosts send their logs.
    #[arg(long, value_name = "URL", env = "CAPI_LOG_SHIP_URL", default_value = "")]
    pub log_ship_url: String,

    /// The environment their logs are labelled with.
    #[arg(long, value_name = "NAME", env = "CAPI_LOG_SHIP_ENV", default_value = "")]
    pub log_ship_env: String,

    /// Secret with the tailnet key, under auth-key. Empty: hosts are not on the tailnet.
    #[arg(
        long,
        value_name = "NAME",
        env = "CAPI_TAILSCALE_AUTH_KEY_SECRET_NAME",
        default_value = ""
    )]
    pub tailscale_auth_key_secret_name: String,

    /// Tags of hosts on the tailnet, separated by commas.
    #[arg(long, value_name = "TAGS", env = "CAPI_TAILSCALE_TAGS", default_value = "")]
    pub tailscale_tags: String,

    /// Whether hosts use routes that others advertise.
    #[arg(long, value_name = "BOOL", env = "CAPI_TAILSCALE_ACCEPT_ROUTES", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub tailscale_accept_routes: bool,

    /// Service addresses that virtual machines may reach, in CIDR form.
    #[arg(long, value_name = "CIDR", env = "CAPI_VM_KURA_EGRESS_CIDR", default_value = "")]
    pub vm_kura_egress_cidr: String,

    /// The cluster's DNS server for virtual machines.
    #[arg(long, value_name = "IP", env = "CAPI_VM_CLUSTER_DNS_IP", default_value = "")]
    pub vm_cluster_dns_ip: String,

    /// Private Network of the caches, by name.
    #[arg(long, value_name = "NAME", env = "CAPI_VM_CACHE_PN_NAME", default_value = "")]
    pub vm_cache_pn_name: String,

    /// Its addresses, in CIDR form.
    #[arg(long, value_name = "CIDR", env = "CAPI_VM_CACHE_PN_CIDR", default_value = "")]
    pub vm_cache_pn_cidr: String,

    /// From where SSH to hosts stays open, separated by commas.
    #[arg(long, value_name = "CIDRS", env = "CAPI_SSH_INGRESS_ALLOW_CIDRS", default_value = "")]
    pub ssh_ingress_allow_cidrs: String,

    /// Size of the cache volume on each host; 0 for none.
    #[arg(long, value_name = "GIB", default_value_t = 0)]
    pub runner_cache_volume_gib: u32,

    /// Most that one account's master may take of it; 0 for no limit.
    #[arg(long, value_name = "GIB", default_value_t = 0)]
    pub cache_volume_master_cap_gib: u32,

    /// What of it is for content-addressed data; 0 for none.
    #[arg(long, value_name = "GIB", default_value_t = 0)]
    pub cache_volume_cas_gib: u32,

    /// CPU cores a Node offers unless its machine says otherwise.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub tartkubelet_host_cpu: u32,

    /// Memory a Node offers unless its machine says otherwise.
    #[arg(long, value_name = "MB", default_value_t = 16384)]
    pub tartkubelet_host_memory_mb: u32,

    /// Pods a Node takes.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub tartkubelet_max_pods: u32,

    /// Deployment whose Pods are spread again when the fleet changes. Empty: none.
    #[arg(long, value_name = "NAME", env = "CAPI_FLEET_SPREAD_DEPLOYMENT", default_value = "")]
    pub fleet_spread_deployment: String,

    /// Its namespace; by default that of --secrets-namespace.
    #[arg(
        long,
        value_name = "NAMESPACE",
        env = "CAPI_FLEET_SPREAD_NAMESPACE",
        default_value = ""
    )]
    pub fleet_spread_namespace: String,
}
