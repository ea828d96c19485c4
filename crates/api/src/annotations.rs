//! Annotation keys.

/// IAM key id under which the key of a fleet Secret is registered.
pub const SSH_KEY_ID: &str = "scaleway.tuist.dev/ssh-key-id";
/// Hash of the kubelet configuration last pushed to a Linux Node.
pub const KUBELET_CONFIG_HASH: &str = "tuist.dev/kubelet-config-hash";
/// Hash of the configuration an object was rendered from.
pub const CONFIG_HASH: &str = "tuist.dev/config-hash";
/// On a Pod template: hash of the ready Nodes, so that a fleet change spreads the Pods again.
pub const FLEET_HASH: &str = "tuist.dev/fleet-hash";
/// On every object that a controller of ours applied: digest of what it applied, so that an unchanged object costs no write.
pub const APPLIED_HASH: &str = "tuist.dev/applied-hash";
/// On a Node: move cache replicas away from it, one at a time.
pub const KURA_EVACUATE: &str = "tuist.dev/kura-evacuate";
/// On a KuraInstance: revision of the manifest the server last applied.
pub const KURA_MANIFEST_REVISION: &str = "tuist.dev/kura-manifest-revision";
/// resourceVersion of the shared Secret the cache Pods were started with; a change rolls them.
pub const KURA_SHARED_SECRETS_VERSION: &str = "kura.tuist.dev/shared-secrets-resource-version";
/// Image for which unready Pods were already replaced, so that it happens once.
pub const KURA_UNREADY_PODS_REPLACED_FOR: &str = "kura.tuist.dev/unready-pods-replaced-for-image";
/// On a Node: an operator asked the runners of this host to leave.
pub const RUNNER_OPERATOR_DRAIN: &str = "tuist.dev/runner-operator-drain";
/// On a Mac Node: images that shall be there before a Pod asks for them, as `<ref>[,<ref>]`. The Node shows what is there in
/// `status.images` and by [`crate::labels::GOLDEN_PREFIX`].
pub const PREPULL: &str = "tuist.dev/prepull";
/// State of the VNC relay of a runner Pod.
pub const VNC_STATE: &str = "tuist.dev/vnc-state";
/// Id of the VNC session of a runner Pod.
pub const VNC_SESSION_ID: &str = "tuist.dev/vnc-session-id";
/// Hash of the token that opens the VNC relay.
pub const VNC_RELAY_TOKEN_HASH: &str = "tuist.dev/vnc-relay-token-hash";

/// Keeps an object when its Helm release is removed or no longer renders it.
pub const HELM_RESOURCE_POLICY: &str = "helm.sh/resource-policy";
/// Value of [`HELM_RESOURCE_POLICY`].
pub const HELM_RESOURCE_POLICY_KEEP: &str = "keep";

/// Whether metrics are scraped from a Pod.
pub const PROMETHEUS_SCRAPE: &str = "prometheus.io/scrape";
/// Port metrics are scraped from.
pub const PROMETHEUS_PORT: &str = "prometheus.io/port";
/// Path metrics are scraped from.
pub const PROMETHEUS_PATH: &str = "prometheus.io/path";
/// Egress limit of a Pod, such as `750M`; enforced by the network plugin.
pub const EGRESS_BANDWIDTH: &str = "kubernetes.io/egress-bandwidth";

/// Expose a Service on the tailnet.
pub const TAILSCALE_EXPOSE: &str = "tailscale.com/expose";
/// Host name of an exposed Service on the tailnet.
pub const TAILSCALE_HOSTNAME: &str = "tailscale.com/hostname";
/// Tags of an exposed Service.
pub const TAILSCALE_TAGS: &str = "tailscale.com/tags";
/// Tailnet name an egress Service leads to.
pub const TAILSCALE_TAILNET_FQDN: &str = "tailscale.com/tailnet-fqdn";
/// Proxy group that carries an egress Service.
pub const TAILSCALE_PROXY_GROUP: &str = "tailscale.com/proxy-group";

/// Annotations of Cluster API core and clusterctl.
pub mod cluster_api {
    /// With any value: leave this object alone, deletion included.
    pub const PAUSED: &str = "cluster.x-k8s.io/paused";
    /// Someone else manages this infrastructure cluster; its status is not ours to write.
    pub const MANAGED_BY: &str = "cluster.x-k8s.io/managed-by";
    /// Name of the template an object was cloned from.
    pub const CLONED_FROM_NAME: &str = "cluster.x-k8s.io/cloned-from-name";
    /// Kind and group of the template an object was cloned from.
    pub const CLONED_FROM_GROUP_KIND: &str = "cluster.x-k8s.io/cloned-from-groupkind";
    /// Delete this Machine first when its set shrinks.
    pub const DELETE_MACHINE: &str = "cluster.x-k8s.io/delete-machine";
    /// Remediate this Machine even though it looks healthy.
    pub const REMEDIATE_MACHINE: &str = "cluster.x-k8s.io/remediate-machine";
    /// Never remediate this Machine.
    pub const SKIP_REMEDIATION: &str = "cluster.x-k8s.io/skip-remediation";
    /// Delete the Machine without draining its Node.
    pub const EXCLUDE_NODE_DRAINING: &str = "machine.cluster.x-k8s.io/exclude-node-draining";
    /// Prefix of the hooks that hold a deletion before the drain.
    pub const PRE_DRAIN_HOOK_PREFIX: &str = "pre-drain.delete.hook.machine.cluster.x-k8s.io/";
    /// Prefix of the hooks that hold a deletion before the host is freed.
    pub const PRE_TERMINATE_HOOK_PREFIX: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/";
    /// `clusterctl move` copied this object and deletes the original; its host must stay.
    pub const DELETE_FOR_MOVE: &str = "clusterctl.cluster.x-k8s.io/delete-for-move";
    /// Holds a `clusterctl move` until it is gone.
    pub const BLOCK_MOVE: &str = "clusterctl.cluster.x-k8s.io/block-move";
    /// Name of the cluster, set by core on Nodes.
    pub const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
    /// Namespace of the cluster, set by core on Nodes.
    pub const CLUSTER_NAMESPACE: &str = "cluster.x-k8s.io/cluster-namespace";
    /// Name of the Machine, set by core on Nodes.
    pub const MACHINE: &str = "cluster.x-k8s.io/machine";
}
