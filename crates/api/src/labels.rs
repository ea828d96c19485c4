//! Label keys and values.
//!
//! A Mac's kubelet owns the whole `tuist.dev/` prefix on its own Node and removes keys it does not know, so a component
//! that wants to mark a Mac Node must use another prefix or teach the kubelet.

/// Groups hosts that share an SSH key and a purpose; Pods select a fleet by it.
pub const FLEET: &str = "tuist.dev/fleet";
/// On a child object: uid of the object it belongs to, by which children that are no longer wanted are found.
pub const OWNER_UID: &str = "tuist.dev/owner-uid";
/// Which runtime executes the Pods of a Node.
pub const RUNTIME: &str = "tuist.dev/runtime";
/// Value of [`RUNTIME`] on Macs.
pub const RUNTIME_TART: &str = "tart";
/// Private Network IPv4 address of a Linux Node; cache clients dial it.
pub const PN_IPV4: &str = "tuist.dev/pn-ipv4";
/// `tuist.dev/golden-<16 hex>=true`: this Mac holds the golden VM of that image.
pub const GOLDEN_PREFIX: &str = "tuist.dev/golden-";
/// `tuist.dev/cache-master-<account id>=true`: this Mac holds the master cache volume of that account.
pub const CACHE_MASTER_PREFIX: &str = "tuist.dev/cache-master-";

/// Who manages an object that lives outside the namespace of its owner.
pub const MANAGED_BY: &str = "tuist.dev/managed-by";
/// Value of [`MANAGED_BY`] and of [`APP_MANAGED_BY`] on objects of the infrastructure provider.
pub const MANAGED_BY_CAPI: &str = "capi-scaleway-applesilicon";
/// Name of the machine an object belongs to.
pub const MACHINE: &str = "tuist.dev/machine";
/// Marks the egress Service of a Mac; metrics scrapers discover by it.
pub const MACMINI_EGRESS: &str = "tuist.dev/macmini-egress";
/// Name of the machine behind an egress Service.
pub const MACMINI_MACHINE: &str = "tuist.dev/macmini-machine";

/// Marks a runner Pod.
pub const RUNNER: &str = "tuist.dev/runner";
/// Name of the RunnerPool a Pod or ServiceAccount belongs to.
pub const RUNNER_POOL: &str = "tuist.dev/runner-pool";
/// Set while a runner Pod works for an account; a Pod without it is idle.
pub const RUNNER_POOL_OWNER: &str = "tuist.dev/runner-pool-owner";
/// Account a runner Pod works for.
pub const RUNNER_ACCOUNT: &str = "tuist.dev/runner-account";
/// An idle runner Pod on an old image that may go as soon as it is asked to.
pub const DRAIN_ELIGIBLE: &str = "tuist.dev/drain-eligible";
/// Xcode version a pool offers, in dashes.
pub const XCODE_VERSION: &str = "tuist.dev/xcode-version";
/// `true` on the pool that serves jobs which name no Xcode version.
pub const XCODE_DEFAULT: &str = "tuist.dev/xcode-default";

/// Marks cache Pods and Services.
pub const KURA_CACHE: &str = "tuist.dev/kura-cache";
/// Account of a cache object.
pub const KURA_ACCOUNT: &str = "kura.tuist.dev/account";
/// Name of the KuraInstance an object belongs to.
pub const KURA_INSTANCE: &str = "kura.tuist.dev/instance";
/// Region of a cache object.
pub const KURA_REGION: &str = "kura.tuist.dev/region";

/// Node pool, carried from the Machine to the Node by Cluster API core.
pub const POOL: &str = "node.cluster.x-k8s.io/pool";
/// Value of [`POOL`] that a KuraInstance selects unless it names its own.
pub const POOL_KURA: &str = "kura";
/// Which provider made a Linux Node.
pub const INSTANCE_TYPE: &str = "node.cluster.x-k8s.io/instance-type";
/// Value of [`INSTANCE_TYPE`] on our Linux Nodes.
pub const INSTANCE_TYPE_SCALEWAY: &str = "scaleway";

/// Name of the application.
pub const APP_NAME: &str = "app.kubernetes.io/name";
/// Instance of the application.
pub const APP_INSTANCE: &str = "app.kubernetes.io/instance";
/// Part of the application.
pub const APP_COMPONENT: &str = "app.kubernetes.io/component";
/// Who manages the object.
pub const APP_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The application an object is part of.
pub const APP_PART_OF: &str = "app.kubernetes.io/part-of";
/// Version of the application.
pub const APP_VERSION: &str = "app.kubernetes.io/version";
/// Chart an object came from.
pub const HELM_CHART: &str = "helm.sh/chart";

/// [`APP_NAME`] of cache Pods.
pub const APP_NAME_KURA: &str = "kura";
/// [`APP_NAME`] of runner Pods and their ServiceAccounts.
pub const APP_NAME_RUNNER: &str = "tuist-runner";
/// [`APP_COMPONENT`] of a runner Pod.
pub const COMPONENT_RUNNER: &str = "runner";
/// [`APP_COMPONENT`] of a runner ServiceAccount.
pub const COMPONENT_RUNNER_SA: &str = "runner-sa";
/// [`APP_COMPONENT`] of node identities.
pub const COMPONENT_TART_KUBELET: &str = "tart-kubelet";
/// [`APP_COMPONENT`] of egress Services.
pub const COMPONENT_MACMINI_EGRESS: &str = "macmini-egress";

/// Operating system of a Node.
pub const OS: &str = "kubernetes.io/os";
/// Value of [`OS`] on a Mac.
pub const OS_DARWIN: &str = "darwin";
/// Value of [`OS`] on a Linux Node.
pub const OS_LINUX: &str = "linux";
/// Architecture of a Node.
pub const ARCH: &str = "kubernetes.io/arch";
/// Value of [`ARCH`] on a Mac.
pub const ARCH_ARM64: &str = "arm64";
/// Host name of a Node.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// Pod of a StatefulSet, by name.
pub const STATEFULSET_POD_NAME: &str = "statefulset.kubernetes.io/pod-name";

/// Labels of Cluster API core and clusterctl.
pub mod cluster_api {
    /// On a CRD: which of its versions follow the v1beta1 contract.
    pub const CONTRACT_V1BETA1: &str = "cluster.x-k8s.io/v1beta1";
    /// On a CRD: which of its versions follow the v1beta2 contract.
    pub const CONTRACT_V1BETA2: &str = "cluster.x-k8s.io/v1beta2";
    /// Cluster an object belongs to. A kubeconfig Secret without it is invisible to core.
    pub const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
    /// MachineDeployment a Machine came from.
    pub const DEPLOYMENT_NAME: &str = "cluster.x-k8s.io/deployment-name";
    /// MachineSet a Machine came from.
    pub const SET_NAME: &str = "cluster.x-k8s.io/set-name";
    /// Marks a control-plane Machine.
    pub const CONTROL_PLANE: &str = "cluster.x-k8s.io/control-plane";
    /// Set by core on Nodes of interruptible machines.
    pub const INTERRUPTIBLE: &str = "cluster.x-k8s.io/interruptible";
    /// On a Pod: how a drain treats it (`skip`, `wait-completed`).
    pub const DRAIN: &str = "cluster.x-k8s.io/drain";
    /// Provider an object belongs to.
    pub const PROVIDER: &str = "cluster.x-k8s.io/provider";
    /// Value of [`PROVIDER`] on everything that belongs to our provider.
    pub const PROVIDER_NAME: &str = "infrastructure-scaleway-applesilicon";
    /// On a ClusterRole: add its rules to core's own role.
    pub const AGGREGATE_TO_MANAGER: &str = "cluster.x-k8s.io/aggregate-to-manager";
    /// Which watch filter an object belongs to.
    pub const WATCH_FILTER: &str = "cluster.x-k8s.io/watch-filter";
    /// On objects and CRDs: `clusterctl move` takes them along.
    pub const MOVE: &str = "clusterctl.cluster.x-k8s.io/move";
    /// On objects and CRDs: `clusterctl move` takes them and what they own along.
    pub const MOVE_HIERARCHY: &str = "clusterctl.cluster.x-k8s.io/move-hierarchy";
    /// Set by clusterctl on everything it installs.
    pub const CLUSTERCTL: &str = "clusterctl.cluster.x-k8s.io";
}
