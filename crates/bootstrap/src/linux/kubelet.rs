//! The kubelet's configuration and unit. Pure text.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Data, Join, PrivateNet, Taint};

/// Written to `/var/lib/kubelet/config.yaml`.
///
/// - The kubelet's certificates come from signing requests, its serving certificate too: our provider approves it, and
///   the API server need not skip verification to read logs.
/// - What is reserved and when Pods are evicted is fixed: a node that runs its caches into the ground loses them all.
pub(super) fn config(join: &Join) -> String {
    let reserved = json!({ "cpu": "500m", "memory": "1Gi" });
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": "/var/lib/kubelet/ca.crt" },
        },
        "authorization": { "mode": "Webhook" },
        "cgroupDriver": "systemd",
        "clusterDNS": join.cluster_dns.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "clusterDomain": join.cluster_domain,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "evictionHard": {
            "memory.available": "5%",
            "nodefs.available": "10%",
            "nodefs.inodesFree": "5%",
            "imagefs.available": "15%",
            "imagefs.inodesFree": "5%",
        },
        "featureGates": { "MemoryQoS": true },
        "kubeReserved": reserved,
        "memoryThrottlingFactor": 1.0,
        "rotateCertificates": true,
        "runtimeRequestTimeout": "5m",
        "serverTLSBootstrap": true,
        "systemReserved": reserved,
    });
    // JSON is YAML too: should the printer ever refuse, the text is merely less pretty.
    serde_yaml_ng::to_string(&config).unwrap_or_else(|_| config.to_string())
}

/// Written to `/etc/systemd/system/kubelet.service`.
///
/// What only the running server knows (its address, its resolver) is in `/var/lib/tuist/kubelet.env`;
/// `/etc/default/kubelet` is the operator's, and comes last so that it wins. The values were checked to hold nothing that
/// systemd would expand.
pub(super) fn unit(join: &Join) -> String {
    let mut flags = vec![
        "--config=/var/lib/kubelet/config.yaml".to_owned(),
        "--bootstrap-kubeconfig=/var/lib/kubelet/bootstrap-kubeconfig".to_owned(),
        "--kubeconfig=/var/lib/kubelet/kubeconfig".to_owned(),
        format!("--hostname-override={}", join.node_name),
        format!("--provider-id={}", join.provider_id),
    ];
    if !join.labels.is_empty() {
        let labels: Vec<_> = join
            .labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        flags.push(format!("--node-labels={}", labels.join(",")));
    }
    if !join.taints.is_empty() {
        let taint = |Taint { key, value, effect }: &Taint| format!("{key}={value}:{effect}");
        let taints: Vec<_> = join.taints.iter().map(taint).collect();
        flags.push(format!("--register-with-taints={}", taints.join(",")));
    }

    let mut after = "containerd.service network-online.target".to_owned();
    if join.private_network != PrivateNet::None {
        after.push_str(" tuist-pn0.service");
    }
    let mut text = format!(
        "[Unit]\nDescription=kubelet of {}\nAfter={after}\nWants={after}\nStartLimitIntervalSec=0\n",
        join.node_name
    );
    if join.data != Data::None {
        // Better no node than one that has lost its volumes and begins anew on the root disk.
        text.push_str("RequiresMountsFor=/var/lib/kubelet /opt/local-path-provisioner\n");
    }
    text.push_str(
        "\n[Service]\nEnvironmentFile=-/var/lib/tuist/kubelet.env\nEnvironmentFile=-/etc/default/kubelet\nExecStart=/usr/bin/kubelet",
    );
    for flag in flags {
        // Writing to a String cannot fail.
        let _ = write!(text, " \\\n  {flag}");
    }
    text.push_str(" \\\n  $TUIST_KUBELET_ARGS $KUBELET_EXTRA_ARGS\nRestart=always\nRestartSec=5\n");
    text.push_str("\n[Install]\nWantedBy=multi-user.target\n");
    text
}

/// The secrets inside a kubeconfig, which the program strikes out of everything it writes down.
pub(super) fn secrets(kubeconfig: &str) -> Vec<String> {
    let parsed: Value = serde_yaml_ng::from_str(kubeconfig).unwrap_or_default();
    let users = parsed.get("users").and_then(Value::as_array).into_iter().flatten();
    users
        .filter_map(|user| user.get("user"))
        .flat_map(|user| ["token", "password", "client-key-data"].map(|key| user.get(key).and_then(Value::as_str)))
        .flatten()
        .filter(|secret| !secret.is_empty())
        .map(str::to_owned)
        .collect()
}
