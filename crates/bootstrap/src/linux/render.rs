//! From a Join to the program.

use std::fmt::Write as _;

use russet_telemetry::Secret;
use sha2::{Digest as _, Sha256};

use super::{Data, Form, Invalid, Join, NodeAddress, PrivateNet, Step, kubelet, steps, validate};
use crate::quote;

const GUARD: &str = include_str!("steps/_guard.sh");
const PRELUDE: &str = include_str!("steps/_prelude.sh");
const MAIN: &str = include_str!("steps/_main.sh");
/// Brings up the Private Network now and after each boot.
const PN0_UP: &str = include_str!("steps/_pn0-up.sh");
/// Written by root into the home of the DHCP client's decisions: it keeps the address and nothing else.
const PN0_LEASE: &str = include_str!("steps/_pn0-lease.sh");

/// A program, ready to be sent.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// The program; it holds the bootstrap token.
    pub script: Secret<String>,
    /// Digest of what is not per host, for `tuist.dev/kubelet-config-hash`: when it changes, nodes that joined by an
    /// older program want this one.
    pub config_hash: String,
}

/// Renders the program, if the Join is sound.
pub fn render(join: &Join) -> Result<Rendered, Invalid> {
    validate::check(join)?;
    let steps = steps(join);
    let config_hash = config_hash(join, &steps);
    let script = join.bootstrap_kubeconfig.map(|kubeconfig| {
        let mut text = GUARD.to_owned();
        for (name, value) in variables(join, kubeconfig, &config_hash) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name}={}", quote::word(&value));
        }
        text.push_str(&secret_array(kubeconfig));
        text.push_str(&program(&steps));
        text
    });
    Ok(Rendered { script, config_hash })
}

/// What is the same on every host of every fleet with these steps.
fn program(steps: &[Step]) -> String {
    let mut text = PRELUDE.to_owned();
    for step in steps {
        // Not indented: here-documents are taken as they stand.
        let _ = write!(text, "\n{}() {{\n{}}}\n", step.function(), step.body);
    }
    text.push_str("\nrun_steps() {\n");
    for step in steps {
        let _ = writeln!(text, "  run {} {}", step.name, step.function());
    }
    text.push_str("}\n\n");
    text.push_str(MAIN);
    text
}

/// What differs: assigned once, quoted, never exported.
fn variables(join: &Join, kubeconfig: &str, config_hash: &str) -> Vec<(&'static str, String)> {
    let mut variables = vec![
        ("CONFIG_HASH", config_hash.to_owned()),
        ("BOOTSTRAP_KUBECONFIG", kubeconfig.to_owned()),
        ("CLUSTER_CA", join.cluster_ca_pem.clone()),
        ("KUBERNETES_CHANNEL", join.kubernetes.to_string()),
        ("KUBELET_CONFIG", kubelet::config(join)),
        ("KUBELET_UNIT", kubelet::unit(join)),
        (
            "NODE_ADDRESS",
            match (join.node_address, &join.private_network) {
                (NodeAddress::DefaultRoute, _) | (NodeAddress::PrivateNetwork, PrivateNet::None) => "default-route",
                (NodeAddress::PrivateNetwork, _) => "private-network",
            }
            .to_owned(),
        ),
    ];
    match join.data {
        Data::None => variables.push(("DATA", String::new())),
        Data::Nvme { images_gib } => {
            variables.extend([("DATA", "/data".to_owned()), ("IMAGES_GIB", images_gib.to_string())]);
        }
    }
    let (mac, vlan, address) = match &join.private_network {
        PrivateNet::None => (String::new(), String::new(), None),
        PrivateNet::Nic { mac, address } => (mac.to_ascii_lowercase(), String::new(), address.clone()),
        PrivateNet::Vlan { id, address } => (String::new(), id.to_string(), address.clone()),
    };
    variables.extend([
        ("PN_MAC", mac),
        ("PN_VLAN", vlan),
        ("PN_ADDRESS", address.unwrap_or_default()),
    ]);
    if join.private_network != PrivateNet::None {
        variables.extend([("PN0_UP", PN0_UP.to_owned()), ("PN0_LEASE", PN0_LEASE.to_owned())]);
    }
    variables
}

fn secret_array(kubeconfig: &str) -> String {
    let words: Vec<_> = kubelet::secrets(kubeconfig)
        .iter()
        .map(|secret| quote::word(secret))
        .collect();
    format!("SECRETS=({})\n", words.join(" "))
}

/// Digest of the program with every per-host value blanked. A field of a Join is either blanked here or part of the digest;
/// the pattern has no `..`, so a new field has to choose.
fn config_hash(join: &Join, steps: &[Step]) -> String {
    let Join {
        node_name: _,
        provider_id: _,
        labels,
        taints,
        bootstrap_kubeconfig: _,
        cluster_ca_pem,
        cluster_dns,
        cluster_domain,
        kubernetes,
        private_network,
        node_address,
        data,
        form: _,
    } = join;
    let fleet = Join {
        node_name: String::new(),
        provider_id: String::new(),
        labels: labels.clone(),
        taints: taints.clone(),
        bootstrap_kubeconfig: Secret::default(),
        cluster_ca_pem: cluster_ca_pem.clone(),
        cluster_dns: cluster_dns.clone(),
        cluster_domain: cluster_domain.clone(),
        kubernetes: *kubernetes,
        private_network: match private_network {
            PrivateNet::None => PrivateNet::None,
            PrivateNet::Nic { .. } => PrivateNet::Nic {
                mac: String::new(),
                address: None,
            },
            PrivateNet::Vlan { .. } => PrivateNet::Vlan { id: 0, address: None },
        },
        node_address: *node_address,
        data: *data,
        form: Form::Ssh,
    };
    let mut digest = Sha256::new();
    for (name, value) in variables(&fleet, "", "") {
        digest.update(name);
        digest.update([0]);
        digest.update(value);
        digest.update([0]);
    }
    digest.update(GUARD);
    digest.update(program(steps));
    digest
        .finalize()
        .iter()
        .fold(String::with_capacity(64), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}
