//! API groups, versions and the names under which the components know each other.

/// The Cluster API infrastructure group: machines, their templates and the cluster.
pub const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
/// The group of [`crate::KuraInstance`].
pub const KURA: &str = "kura.tuist.dev";
/// The group of [`crate::RunnerPool`].
pub const RUNNERS: &str = "tuist.dev";
/// The version of all our kinds.
pub const V1ALPHA1: &str = "v1alpha1";

/// Cluster API core's own group.
pub const CLUSTER_API: &str = "cluster.x-k8s.io";

/// Resource name under which a Node advertises the egress bandwidth that KuraInstances may reserve.
pub const RESOURCE_EGRESS_MBPS: &str = "tuist.dev/egress-mbps";
/// Resource name under which a Node advertises the memory that cache ceilings may add up to.
pub const RESOURCE_MEMORY_CEILING_MIB: &str = "tuist.dev/memory-ceiling-mib";

/// Lease of the infrastructure provider.
pub const LEASE_CAPI_PROVIDER: &str = "scaleway-applesilicon.infrastructure.cluster.x-k8s.io";
/// Lease of the kura-controller.
pub const LEASE_KURA_CONTROLLER: &str = "kura-controller.kura.tuist.dev";
/// Lease of the runners-controller.
pub const LEASE_RUNNERS_CONTROLLER: &str = "runners-controller.tuist.dev";

/// Type of the Secret that holds a Cluster API kubeconfig.
pub const SECRET_TYPE_CLUSTER_API: &str = "cluster.x-k8s.io/secret";
