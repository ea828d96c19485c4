//! Condition types.

/// The object does what it is for. Cluster API core mirrors it, so on a machine it is about the host, all life long.
pub const READY: &str = "Ready";
/// The control plane can be used; read by Cluster API core on the cluster.
pub const AVAILABLE: &str = "Available";
/// The object is paused, with the reason.
pub const PAUSED: &str = "Paused";
/// The host exists and belongs to this machine.
pub const PROVISIONED: &str = "Provisioned";
/// The host was set up and its kubelet started.
pub const BOOTSTRAPPED: &str = "Bootstrapped";
/// The Node of the host is Ready.
pub const NODE_READY: &str = "NodeReady";
/// The operating system is installed.
pub const INSTALLED: &str = "Installed";
/// What runs on the host is what this release wants there.
pub const UP_TO_DATE: &str = "UpToDate";
/// The host is being returned or destroyed.
pub const DELETING: &str = "Deleting";
/// All fields we wrote are stored; False means that the installed CRD is older than the controller.
pub const FIELDS_STORED: &str = "FieldsStored";
/// The cache can be reached the way its spec asks for.
pub const EXPOSED: &str = "Exposed";
/// The cache replicates with its peers.
pub const MESHED: &str = "Meshed";
/// The runners the pool wants are there.
pub const SCALED: &str = "Scaled";
/// Set by providers of the v1beta1 contract on the Cluster, once a control plane answers.
pub const CONTROL_PLANE_INITIALIZED: &str = "ControlPlaneInitialized";
