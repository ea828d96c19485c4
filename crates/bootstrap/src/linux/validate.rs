//! What a Join must be before it is rendered.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use russet_telemetry::Secret;
use serde_yaml_ng::Value;

use super::{Data, Invalid, Join, PrivateNet, Taint};

const IMAGES_GIB_MAX: u32 = 65_536;
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
/// Prefixes of Kubernetes under which a kubelet may label itself.
const KUBELET_PREFIXES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
/// Labels of Kubernetes that a kubelet may give itself.
const KUBELET_LABELS: [&str; 10] = [
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];

/// Fails on the first thing that is wrong.
pub(super) fn check(join: &Join) -> Result<(), Invalid> {
    let name = &join.node_name;
    if name.len() > 63 || !is_dns_name(name) {
        return Err(Invalid::NodeName { name: name.clone() });
    }
    if !is_provider_id(&join.provider_id) {
        return Err(Invalid::ProviderId {
            id: join.provider_id.clone(),
        });
    }
    for (key, value) in &join.labels {
        check_label(key, value)?;
        if is_reserved(key) {
            return Err(Invalid::ReservedLabel { key: key.clone() });
        }
    }
    check_taints(&join.taints)?;
    check_kubeconfig(&join.bootstrap_kubeconfig)?;
    check_ca(&join.cluster_ca_pem)?;
    if join.cluster_dns.is_empty() {
        return Err(Invalid::NoClusterDns);
    }
    for address in &join.cluster_dns {
        if address.is_unspecified() || address.is_loopback() || address.is_multicast() {
            return Err(Invalid::ClusterDns { address: *address });
        }
    }
    if !is_dns_name(&join.cluster_domain) {
        return Err(Invalid::ClusterDomain {
            domain: join.cluster_domain.clone(),
        });
    }
    check_network(&join.private_network)?;
    match join.data {
        Data::Nvme { images_gib } if images_gib > IMAGES_GIB_MAX => Err(Invalid::ImagesQuota { gib: images_gib }),
        Data::Nvme { .. } | Data::None => Ok(()),
    }
}

pub(crate) fn check_label(key: &str, value: &str) -> Result<(), Invalid> {
    let (prefix, name) = key
        .split_once('/')
        .map_or((None, key), |(prefix, name)| (Some(prefix), name));
    if name.is_empty() || !is_label_text(name) || !prefix.is_none_or(is_dns_name) {
        return Err(Invalid::LabelKey { key: key.to_owned() });
    }
    if !is_label_text(value) {
        return Err(Invalid::LabelValue {
            key: key.to_owned(),
            value: value.to_owned(),
        });
    }
    Ok(())
}

pub(crate) fn check_taints(taints: &[Taint]) -> Result<(), Invalid> {
    let mut seen = BTreeSet::new();
    for Taint { key, value, effect } in taints {
        check_label(key, value)?;
        let (key, effect) = (key.clone(), effect.clone());
        if !EFFECTS.contains(&effect.as_str()) {
            return Err(Invalid::TaintEffect { key, effect });
        }
        if !seen.insert((key.clone(), effect.clone())) {
            return Err(Invalid::TaintTwice { key, effect });
        }
    }
    Ok(())
}

/// A kubelet that is told to give itself such a label refuses to start.
fn is_reserved(key: &str) -> bool {
    let Some((prefix, _)) = key.split_once('/') else {
        return false;
    };
    let within = |domain: &str| prefix == domain || prefix.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    let of_kubernetes = within("kubernetes.io") || within("k8s.io");
    of_kubernetes && !KUBELET_PREFIXES.iter().any(|domain| within(domain)) && !KUBELET_LABELS.contains(&key)
}

fn check_kubeconfig(kubeconfig: &Secret<String>) -> Result<(), Invalid> {
    let problem = |problem| Err(Invalid::Kubeconfig { problem });
    let text = kubeconfig.expose();
    if text.contains('\0') {
        return problem("contains a NUL byte");
    }
    let Ok(parsed) = serde_yaml_ng::from_str::<Value>(text) else {
        return problem("is not YAML");
    };
    let filled = |key: &str| {
        parsed
            .get(key)
            .and_then(Value::as_sequence)
            .is_some_and(|list| !list.is_empty())
    };
    if !(filled("clusters") && filled("users") && filled("contexts")) {
        return problem("is incomplete");
    }
    Ok(())
}

fn check_ca(pem: &str) -> Result<(), Invalid> {
    let problem = |problem| Err(Invalid::ClusterCa { problem });
    let mut inside = false;
    let mut blocks = 0;
    for line in pem.lines().map(str::trim) {
        match (inside, line) {
            (false, "-----BEGIN CERTIFICATE-----") => (inside, blocks) = (true, blocks + 1),
            (true, "-----END CERTIFICATE-----") => inside = false,
            (false, line) if line.contains("PRIVATE KEY") => return problem("contains a private key"),
            (false, "") => {}
            (true, line) if line.bytes().all(|c| c.is_ascii_alphanumeric() || b"+/=".contains(&c)) => {}
            _ => return problem("contains something else"),
        }
    }
    match (inside, blocks) {
        (false, 1..) => Ok(()),
        (false, _) => problem("holds no certificate"),
        (true, _) => problem("is cut off"),
    }
}

fn check_network(network: &PrivateNet) -> Result<(), Invalid> {
    let address = match network {
        PrivateNet::None => return Ok(()),
        PrivateNet::Nic { mac, .. } if !is_mac(mac) => return Err(Invalid::Mac { mac: mac.clone() }),
        PrivateNet::Vlan { id, .. } if !(1..=4094).contains(id) => return Err(Invalid::Vlan { id: *id }),
        PrivateNet::Nic { address, .. } | PrivateNet::Vlan { address, .. } => address,
    };
    match address {
        Some(address) if !is_host_address(address) => Err(Invalid::PrivateAddress {
            address: address.clone(),
        }),
        _ => Ok(()),
    }
}

fn is_host_address(text: &str) -> bool {
    let Some((address, prefix)) = text.split_once('/') else {
        return false;
    };
    let digits = !prefix.is_empty() && prefix.len() <= 2 && prefix.bytes().all(|c| c.is_ascii_digit());
    let Some(prefix) = prefix
        .parse::<u32>()
        .ok()
        .filter(|prefix| digits && (8..=32).contains(prefix))
    else {
        return false;
    };
    let Ok(address) = address.parse::<Ipv4Addr>() else {
        return false;
    };
    let host_bits = u32::MAX.checked_shr(prefix).unwrap_or(0);
    let host = u32::from(address) & host_bits;
    // The first and the last address of a network are no host's, unless the network is too small to have any.
    let edge = prefix < 31 && (host == 0 || host == host_bits);
    !edge && !IpAddr::V4(address).is_loopback() && !address.is_unspecified() && !address.is_multicast()
}

fn is_mac(text: &str) -> bool {
    let pairs: Vec<_> = text.split(':').collect();
    pairs.len() == 6
        && pairs
            .iter()
            .all(|pair| pair.len() == 2 && pair.bytes().all(|c| c.is_ascii_hexdigit()))
}

pub(crate) fn is_provider_id(text: &str) -> bool {
    let Some((scheme, path)) = text.split_once("://") else {
        return false;
    };
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"._-".contains(&c);
    text.len() <= 256
        && !scheme.is_empty()
        && scheme
            .bytes()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
        && path.split('/').all(|part| !part.is_empty() && part.bytes().all(plain))
}

/// RFC 1123: dot-separated labels of lower-case letters, digits and inner dashes.
pub(crate) fn is_dns_name(text: &str) -> bool {
    let edge = |c: Option<&u8>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    text.len() <= 253
        && text.split('.').map(str::as_bytes).all(|label| {
            label.len() <= 63
                && edge(label.first())
                && edge(label.last())
                && label.iter().all(|c| edge(Some(c)) || *c == b'-')
        })
}

/// What values of labels, and names in their keys, consist of. May be empty.
fn is_label_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    let edge = |c: Option<&u8>| c.is_none_or(u8::is_ascii_alphanumeric);
    bytes.len() <= 63
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(c))
}
