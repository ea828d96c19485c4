//! What hosts are set up with, from the flags.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use russet_bootstrap::mac::{
    Agent, Artifact, ArtifactError, Artifacts, Firewall, Fleet, LogShipping, Tailnet, desired,
};

use crate::bootstrap::{HostConfigHash, HostFacts};
use crate::config::HostArgs;

/// Configurations that are remembered: fleets differ by what their Nodes offer, and there are few such.
const REMEMBERED: usize = 32;

/// A flag that makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum BadHostFlag {
    /// A file that cannot be sent.
    #[error("{flag}: {source}")]
    File {
        /// Which flag.
        flag: &'static str,
        /// Why.
        source: ArtifactError,
    },
    /// One goes with the other.
    #[error("{flag} is set and {other} is not; set both or none")]
    Alone {
        /// The flag that is set.
        flag: &'static str,
        /// The one that is not.
        other: &'static str,
    },
    /// Not a range of IPv4 addresses: a rule of a firewall made of it would be no rule.
    #[error("{flag}: {text:?} is not a range of IPv4 addresses such as 10.0.0.0/16")]
    Cidr {
        /// Which flag.
        flag: &'static str,
        /// What it says.
        text: String,
    },
    /// Not an address.
    #[error("--vm-cluster-dns-ip: {0:?} is not an IPv4 address")]
    Dns(String),
    /// An OAuth secret makes devices that belong to tags.
    #[error("--tailscale-tags is empty; devices of hosts need tags, such as tag:mac")]
    NoTags,
}

/// What hosts are set up with. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Recipe(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    args: HostArgs,
    tags: Vec<String>,
    login_from: Vec<String>,
    dns: Option<Ipv4Addr>,
    artifacts: Artifacts,
    /// Files as they were at the start: one that is gone for a moment is no reason to roll.
    first: HashMap<PathBuf, Artifact>,
    known: Mutex<Vec<(Fleet, HostConfigHash)>>,
}

fn given(text: &str) -> Option<&str> {
    Some(text.trim()).filter(|text| !text.is_empty())
}

fn list(text: &str) -> Vec<String> {
    text.split(',').filter_map(given).map(ToOwned::to_owned).collect()
}

fn cidr(flag: &'static str, text: &str) -> Result<(), BadHostFlag> {
    let range = text.split_once('/').and_then(|(network, bits)| {
        network.parse::<Ipv4Addr>().ok()?;
        bits.parse::<u8>().ok().filter(|bits| *bits <= 32)
    });
    match range {
        Some(_) => Ok(()),
        None => Err(BadHostFlag::Cidr {
            flag,
            text: text.to_owned(),
        }),
    }
}

impl Recipe {
    /// Checks the flags and reads the files.
    pub fn new(args: HostArgs) -> Result<Self, BadHostFlag> {
        let login_from = list(&args.ssh_ingress_allow_cidrs);
        for (flag, text) in [
            ("--vm-kura-egress-cidr", given(&args.vm_kura_egress_cidr)),
            ("--vm-cache-pn-cidr", given(&args.vm_cache_pn_cidr)),
        ] {
            text.map_or(Ok(()), |text| cidr(flag, text))?;
        }
        for range in &login_from {
            cidr("--ssh-ingress-allow-cidrs", range)?;
        }
        let dns = match given(&args.vm_cluster_dns_ip) {
            Some(text) => match text.parse::<IpAddr>() {
                Ok(IpAddr::V4(address)) => Some(address),
                _ => return Err(BadHostFlag::Dns(text.to_owned())),
            },
            None => None,
        };
        let pair = |flag, one: &str, other_flag, other: &str| match (given(one), given(other)) {
            (Some(_), None) => Err(BadHostFlag::Alone {
                flag,
                other: other_flag,
            }),
            _ => Ok(()),
        };
        // Without the services a name server would be the one thing that is reached.
        pair(
            "--vm-cluster-dns-ip",
            &args.vm_cluster_dns_ip,
            "--vm-kura-egress-cidr",
            &args.vm_kura_egress_cidr,
        )?;
        pair(
            "--log-shipper-binary-path",
            &args.log_shipper_binary_path,
            "--log-ship-url",
            &args.log_ship_url,
        )?;
        let (binaries, key) = (&args.tailscale_binaries_path, &args.tailscale_auth_key_secret_name);
        let (binaries_flag, key_flag) = ("--tailscale-binaries-path", "--tailscale-auth-key-secret-name");
        pair(binaries_flag, binaries, key_flag, key)?;
        pair(key_flag, key, binaries_flag, binaries)?;
        let tags = list(&args.tailscale_tags);
        if given(key).is_some() && tags.is_empty() {
            return Err(BadHostFlag::NoTags);
        }
        let artifacts = Artifacts::default();
        let mut first = HashMap::new();
        let files = [
            ("--tartkubelet-binary-path", Some(args.tartkubelet_binary_path.clone())),
            ("--tart-tarball-path", given(&args.tart_tarball_path).map(PathBuf::from)),
            (binaries_flag, given(binaries).map(PathBuf::from)),
            (
                "--node-exporter-binary-path",
                given(&args.node_exporter_binary_path).map(PathBuf::from),
            ),
            (
                "--log-shipper-binary-path",
                given(&args.log_shipper_binary_path).map(PathBuf::from),
            ),
        ];
        for (flag, path) in files {
            let Some(path) = path else { continue };
            let artifact = artifacts
                .get(&path)
                .map_err(|source| BadHostFlag::File { flag, source })?;
            first.insert(path, artifact);
        }
        Ok(Self(Arc::new(Inner {
            args,
            tags,
            login_from,
            dns,
            artifacts,
            first,
            known: Mutex::default(),
        })))
    }

    /// How many files were read to the end so far.
    pub(super) fn hashed(&self) -> u64 {
        self.0.artifacts.hashed()
    }

    /// What a host with these facts is set up with. An error is a file that cannot be read now.
    pub(super) fn fleet(&self, facts: &HostFacts) -> Result<Fleet, ArtifactError> {
        self.0.fleet(facts, &|path| self.0.artifacts.get(path))
    }

    /// The hash of that. Cheap: files are read when they changed, and what was rendered once is remembered.
    pub(super) fn desired(&self, facts: &HostFacts) -> HostConfigHash {
        let inner = &self.0;
        let now = |path: &Path| match inner.artifacts.get(path) {
            Ok(artifact) => Ok(artifact),
            Err(error) => inner.first.get(path).cloned().ok_or(error),
        };
        let fleet = match inner.fleet(facts, &now) {
            Ok(fleet) => fleet,
            Err(error) => {
                tracing::warn!(%error, "what hosts should have is not known");
                return HostConfigHash::new("");
            }
        };
        let mut known = inner.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, hash)) = known.iter().find(|(seen, _)| *seen == fleet) {
            return hash.clone();
        }
        let hash = HostConfigHash::new(desired(&fleet).as_str());
        if known.len() >= REMEMBERED {
            known.remove(0);
        }
        known.push((fleet, hash.clone()));
        hash
    }
}

type Files<'a> = dyn Fn(&Path) -> Result<Artifact, ArtifactError> + 'a;

impl Inner {
    fn fleet(&self, facts: &HostFacts, files: &Files<'_>) -> Result<Fleet, ArtifactError> {
        let args = &self.args;
        let file = |text: &str| given(text).map(|path| files(Path::new(path))).transpose();
        let number =
            |given: Option<i64>, otherwise: u32| given.and_then(|n| u32::try_from(n).ok()).unwrap_or(otherwise);
        let tailnet = file(&args.tailscale_binaries_path)?.map(|archive| Tailnet {
            archive,
            tags: self.tags.clone(),
            accept_routes: args.tailscale_accept_routes,
            login_server: None,
        });
        let on_tailnet = tailnet.is_some();
        let text = |text: &str| given(text).map(ToOwned::to_owned);
        Ok(Fleet {
            agent: Agent {
                program: files(&args.tartkubelet_binary_path)?,
                cpu: number(facts.cpu, args.tartkubelet_host_cpu),
                memory_mb: number(facts.memory_mb, args.tartkubelet_host_memory_mb),
                max_pods: args.tartkubelet_max_pods,
                tailnet_only: on_tailnet,
                extra: self.extra(),
            },
            api_server: facts.api_server.clone(),
            tart: file(&args.tart_tarball_path)?,
            tailnet,
            // Both are for those on the tailnet.
            node_exporter: file(&args.node_exporter_binary_path)?.filter(|_| on_tailnet),
            login_from: on_tailnet.then(|| self.login_from.clone()),
            logs: file(&args.log_shipper_binary_path)?.map(|program| LogShipping {
                program,
                url: args.log_ship_url.trim().to_owned(),
                env: args.log_ship_env.trim().to_owned(),
            }),
            firewall: Firewall {
                services: text(&args.vm_kura_egress_cidr),
                dns: self.dns,
                cache_network: text(&args.vm_cache_pn_cidr),
            },
            cache_volume_gib: Some(args.runner_cache_volume_gib).filter(|gib| *gib > 0),
        })
    }

    fn extra(&self) -> Vec<String> {
        let args = &self.args;
        let mut extra = Vec::new();
        if args.runner_cache_volume_gib > 0 {
            if args.cache_volume_master_cap_gib > 0 {
                extra.push(format!("--cache-volume-cap-gib={}", args.cache_volume_master_cap_gib));
            }
            if args.cache_volume_cas_gib > 0 {
                extra.push(format!("--cache-volume-cas-gib={}", args.cache_volume_cas_gib));
            }
        }
        extra
    }
}

#[cfg(test)]
mod tests;
