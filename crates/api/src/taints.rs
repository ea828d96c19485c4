//! Taint keys and values.

/// Keeps ordinary Pods off Macs.
pub const MACOS: &str = "tuist.dev/macos";
/// Keeps ordinary Pods off the cache nodes, whose network card is what the tenants share.
pub const RUNNER_CACHE: &str = "tuist.dev/runner-cache";
/// Keeps trusted workloads off nodes that serve untrusted caches.
pub const RUNNER_CACHE_UNTRUSTED: &str = "tuist.dev/runner-cache-untrusted";
/// Which tier of runner a Linux Node is for.
pub const RUNNER_TIER: &str = "tuist.dev/runner-tier";
/// Value of the taints that are either there or not.
pub const TRUE: &str = "true";

/// Set at registration, removed by Cluster API core with the first label sync.
pub const UNINITIALIZED: &str = "node.cluster.x-k8s.io/uninitialized";
/// Set by Cluster API core on Nodes whose Machine is of an old revision.
pub const OUTDATED_REVISION: &str = "node.cluster.x-k8s.io/outdated-revision";

/// Pods that do not tolerate the taint are not scheduled.
pub const NO_SCHEDULE: &str = "NoSchedule";
/// Pods that do not tolerate the taint are scheduled elsewhere if possible.
pub const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";
/// Pods that do not tolerate the taint are evicted.
pub const NO_EXECUTE: &str = "NoExecute";
