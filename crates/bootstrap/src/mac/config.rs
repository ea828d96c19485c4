//! What a host is set up with.
//!
//! Two types and no third: what all hosts of a fleet share, and what is one host's own. Only the first is part of the hash that
//! tells whether a host is out of date.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use russet_telemetry::Secret;

use super::artifact::Artifact;
use crate::linux::Taint;

/// What all hosts of a fleet share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet {
    /// The agent that makes a Mac a Node.
    pub agent: Agent,
    /// Where Nodes find the API server: one that moved is a change of every host. None leaves it to what each joined with.
    pub api_server: Option<Arc<ApiServer>>,
    /// `tart` as its release has it: an archive with `tart.app` in it.
    pub tart: Option<Artifact>,
    /// The tailnet, if hosts are on one.
    pub tailnet: Option<Tailnet>,
    /// `node_exporter`, which listens on the tailnet only.
    pub node_exporter: Option<Artifact>,
    /// Where logs go.
    pub logs: Option<LogShipping>,
    /// What virtual machines may reach.
    pub firewall: Firewall,
    /// Who may log in from outside the tailnet; none is not to guard at all.
    pub login_from: Option<Vec<String>>,
    /// Size of the volume that keeps runners' caches, in GiB.
    pub cache_volume_gib: Option<u32>,
}

/// The agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// The program.
    pub program: Artifact,
    /// CPU cores the Node offers.
    pub cpu: u32,
    /// Memory the Node offers in MB.
    pub memory_mb: u32,
    /// Pods the Node takes.
    pub max_pods: u32,
    /// The Node's address is that on the tailnet, and there is no other.
    pub tailnet_only: bool,
    /// More arguments.
    pub extra: Vec<String>,
}

/// An API server as Macs dial it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiServer {
    /// Its address, such as `https://203.0.113.7:6443`.
    pub url: String,
    /// The certificates that vouch for it, PEM.
    pub ca_pem: String,
}

/// The tailnet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tailnet {
    /// An archive with `tailscale` and `tailscaled`.
    pub archive: Artifact,
    /// Tags of the device.
    pub tags: Vec<String>,
    /// Whether routes of others are taken.
    pub accept_routes: bool,
    /// Where to log in; none is Tailscale's own.
    pub login_server: Option<String>,
}

/// Log shipping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogShipping {
    /// The program.
    pub program: Artifact,
    /// Where to.
    pub url: String,
    /// Name of the environment.
    pub env: String,
}

/// What virtual machines may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Firewall {
    /// Services of the cluster, TCP 4000.
    pub services: Option<String>,
    /// The cluster's DNS.
    pub dns: Option<Ipv4Addr>,
    /// The private network of caches, node ports.
    pub cache_network: Option<String>,
}

/// What is one host's own.
#[derive(Clone, Debug)]
pub struct Host {
    /// Who we log in as, and whose session virtual machines run in.
    pub user: String,
    /// The password of that user, while it is known.
    pub password: Option<Secret<String>>,
    /// Name of the Node, and of the host.
    pub node_name: String,
    /// `spec.providerID` of the Node.
    pub provider_id: String,
    /// Labels of the Node.
    pub labels: BTreeMap<String, String>,
    /// Taints the Node registers with.
    pub taints: Vec<Taint>,
    /// Public keys that may log in, as lines of `authorized_keys`; with one of them here, passwords may not. None leaves SSH as
    /// it is: nobody locks themselves out.
    pub login_keys: Vec<String>,
    /// What the Node joins with.
    pub kubeconfig: Secret<String>,
    /// What the host joins the tailnet with.
    pub tailnet_key: Option<Secret<String>>,
    /// VLAN of the private network on the host's network card.
    pub vlan: Option<u16>,
    /// The GitHub runner of a builder.
    pub runner: Option<Runner>,
}

/// A GitHub Actions runner.
#[derive(Clone, Debug)]
pub struct Runner {
    /// Organisation.
    pub org: String,
    /// Labels, with commas.
    pub labels: String,
    /// Version of the runner.
    pub version: String,
    /// What it registers with.
    pub token: Secret<String>,
}

impl Host {
    /// What nobody may read in what the host says.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &Secret<String>> {
        let token = self.runner.as_ref().map(|runner| &runner.token);
        [
            Some(&self.kubeconfig),
            self.password.as_ref(),
            self.tailnet_key.as_ref(),
            token,
        ]
        .into_iter()
        .flatten()
    }

    /// Hosts without properties of their own, of each kind there is: with them the plan shows what belongs to the fleet.
    pub(super) fn blanks() -> [Self; 2] {
        let bare = Self {
            user: "user".to_owned(),
            password: None,
            node_name: "node".to_owned(),
            provider_id: "provider".to_owned(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            login_keys: Vec::new(),
            kubeconfig: Secret::new(String::new()),
            tailnet_key: None,
            vlan: None,
            runner: None,
        };
        let builder = Self {
            login_keys: vec!["key".to_owned()],
            password: Some(Secret::new("password".to_owned())),
            runner: Some(Runner {
                org: "org".to_owned(),
                labels: "labels".to_owned(),
                version: "0.0.0".to_owned(),
                token: Secret::new(String::new()),
            }),
            ..bare.clone()
        };
        [bare, builder]
    }
}
