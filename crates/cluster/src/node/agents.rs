//! What kubelet and kube-proxy are told. Pure values; paths are those inside the node.

use std::{collections::BTreeMap, net::Ipv4Addr};

use k8s_openapi::api::core::v1::Taint;
use serde_json::{Value, json};

use super::containerd;

/// Where the agents answer health checks, on the node's own address so that the machine can ask.
pub(super) const KUBELET_HEALTH: u16 = 10248;
pub(super) const PROXY_HEALTH: u16 = 10256;

/// A `KubeletConfiguration`.
///
/// - The cgroup root is the node's own: a kubelet removes pod cgroups it does not know.
/// - Eviction by disk is off, as in other clusters on one machine: the disk belongs to the developer, and a cluster
///   that empties itself because a build filled it helps nobody.
/// - Names are not resolved through the machine: there is no route to its resolver from here.
pub(super) fn kubelet(address: Ipv4Addr, cgroup: &str, taints: &[Taint]) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "healthzBindAddress": address,
        "healthzPort": KUBELET_HEALTH,
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true, "cacheTTL": "10s" },
            "x509": { "clientCAFile": "/var/lib/kubelet/ca.crt" },
        },
        "authorization": { "mode": "Webhook" },
        "rotateCertificates": true,
        "containerRuntimeEndpoint": format!("unix://{}", containerd::SOCKET),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{cgroup}"),
        "failCgroupV1": false,
        "enforceNodeAllocatable": [],
        "failSwapOn": false,
        "oomScoreAdj": 0,
        "evictionHard": { "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%" },
        "imageGCHighThresholdPercent": 100,
        "podLogsDir": "/var/log/pods",
        "volumePluginDir": "/var/lib/kubelet/volumeplugins",
        "resolvConf": "/dev/null",
        "registerWithTaints": taints,
        // How often the status is looked at; a node that comes back is Ready again that much sooner.
        "nodeStatusUpdateFrequency": "2s",
        // How often it is sent although nothing has changed. It would follow the line above, and every node would write 30
        // times a minute what nobody wants to know. This is what it is by default.
        "nodeStatusReportFrequency": "5m",
    })
}

/// A `KubeProxyConfiguration`. Connection tracking limits belong to the machine's kernel and may not be set from a
/// network namespace; zero leaves them alone.
pub(super) fn proxy(address: Ipv4Addr, node: &str) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "hostnameOverride": node,
        "bindAddress": address,
        "healthzBindAddress": format!("{address}:{PROXY_HEALTH}"),
        "metricsBindAddress": "127.0.0.1:10249",
        "clientConnection": { "kubeconfig": "/var/lib/kube-proxy/kubeconfig" },
        "detectLocalMode": "NodeCIDR",
        "oomScoreAdj": 0,
        "conntrack": { "maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s" },
    })
}

/// Labels split by who may set them: a kubelet those outside the Kubernetes domains and a few within
/// (it refuses to start with any other), an administrator the rest, such as `node-role.kubernetes.io/…`.
pub(super) fn split_labels(labels: &BTreeMap<String, String>) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    labels
        .iter()
        .map(|(key, value)| (key.clone(), value.clone()))
        .partition(|(key, _)| kubelet_may_set(key))
}

fn kubelet_may_set(key: &str) -> bool {
    const KNOWN: [&str; 8] = [
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "kubernetes.io/arch",
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    ];
    let Some((domain, _)) = key.split_once('/') else {
        return true;
    };
    let within = |parent: &str| domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'));
    if !within("kubernetes.io") && !within("k8s.io") {
        return true;
    }
    KNOWN.contains(&key) || within("kubelet.kubernetes.io") || within("node.kubernetes.io")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubelet_sets_only_the_labels_it_is_allowed_to() {
        for (key, allowed) in [
            ("plain", true),
            ("russet.dev/fleet", true),
            ("notkubernetes.io/x", true),
            ("node.kubernetes.io/instance-type", true),
            ("topology.kubernetes.io/zone", true),
            ("node-role.kubernetes.io/worker", false),
            ("node-restriction.kubernetes.io/x", false),
            ("kubernetes.io/other", false),
            ("x.k8s.io/y", false),
        ] {
            assert_eq!(kubelet_may_set(key), allowed, "{key}");
        }
    }
}
