//! Condition reasons, by the controller that writes them.

/// The condition holds and there is nothing to add.
pub const READY: &str = "Ready";
/// The condition does not hold and nothing better is known.
pub const NOT_READY: &str = "NotReady";
/// The object, or its Cluster, is paused.
pub const PAUSED: &str = "Paused";
/// The object is not paused.
pub const NOT_PAUSED: &str = "NotPaused";
/// The object is being deleted.
pub const DELETING: &str = "Deleting";
/// Work goes on.
pub const IN_PROGRESS: &str = "InProgress";
/// The work is done.
pub const SUCCEEDED: &str = "Succeeded";
/// Something broke on our side; it is tried again.
pub const INTERNAL_ERROR: &str = "InternalError";
/// The API server dropped fields we wrote: upgrade the CRD chart.
pub const FIELDS_PRUNED: &str = "FieldsPruned";
/// The spec cannot be worked with as it is; the message says why.
pub const INVALID_SPEC: &str = "InvalidSpec";
/// The owner is not known yet.
pub const WAITING_FOR_OWNER: &str = "WaitingForOwner";
/// The Cluster's infrastructure is not provisioned yet.
pub const WAITING_FOR_CLUSTER: &str = "WaitingForCluster";
/// The Machine has no bootstrap data yet.
pub const WAITING_FOR_BOOTSTRAP_DATA: &str = "WaitingForBootstrapData";

/// Reasons of a cluster.
pub mod cluster {
    /// The API server's address is neither given nor published.
    pub const ENDPOINT_UNKNOWN: &str = "EndpointUnknown";
    /// No token can be had for Cluster API: its ServiceAccount is missing, or the right to ask for tokens.
    pub const CREDENTIAL_UNAVAILABLE: &str = "CredentialUnavailable";
    /// The kubeconfig Secret lacks something that Cluster API needs.
    pub const KUBECONFIG_INCOMPLETE: &str = "KubeconfigIncomplete";
    /// The identity in the kubeconfig may not do everything that Cluster API does.
    pub const RIGHTS_MISSING: &str = "RightsMissing";
    /// The API server refuses the credential in the kubeconfig.
    pub const CREDENTIAL_REFUSED: &str = "CredentialRefused";
    /// Nobody answers at the address in the kubeconfig.
    pub const CONTROL_PLANE_UNREACHABLE: &str = "ControlPlaneUnreachable";
    /// The kubeconfig refers to files of another Pod, so it cannot be tried from here.
    pub const NOT_CHECKED: &str = "NotChecked";
}

/// Reasons of a Mac.
pub mod apple_silicon {
    /// No pool prefix in the spec and no default.
    pub const NO_ADOPT_POOL_PREFIX: &str = "NoAdoptPoolPrefix";
    /// `spec.os` names an image instead of a macOS family.
    pub const INVALID_OS_PIN: &str = "InvalidOSPin";
    /// The pool has no host of the wanted type, zone and macOS.
    pub const NO_AVAILABLE_HOST: &str = "NoAvailableHost";
    /// Claiming a host failed.
    pub const ADOPT_FAILED: &str = "ScalewayAdoptFailed";
    /// The host's credentials could not be stored.
    pub const CREDENTIALS_PERSIST_FAILED: &str = "CredentialsPersistFailed";
    /// The host went back to its pool after too many failures; another is being claimed.
    pub const HOST_RELEASED: &str = "HostReleased";
    /// The fleet's SSH key could not be read or registered.
    pub const SSH_KEY_UNAVAILABLE: &str = "SSHKeyUnavailable";
    /// The host's password could not be read again.
    pub const CREDENTIALS_REFRESH_FAILED: &str = "CredentialsRefreshFailed";
    /// Scaleway gives no administrator password for the host.
    pub const MISSING_SUDO_PASSWORD: &str = "MissingSudoPassword";
    /// The Node of a bootstrapped host is gone.
    pub const NODE_MISSING: &str = "NodeMissing";
    /// The node's own identity could not be made.
    pub const NODE_IDENTITY_UNAVAILABLE: &str = "NodeIdentityUnavailable";
    /// The node's kubeconfig could not be rendered.
    pub const KUBECONFIG_UNAVAILABLE: &str = "KubeconfigUnavailable";
    /// The tailnet key could not be read.
    pub const TAILSCALE_AUTH_KEY_UNAVAILABLE: &str = "TailscaleAuthKeyUnavailable";
    /// GitHub gave no registration token.
    pub const GH_RUNNER_REGISTRATION_TOKEN_UNAVAILABLE: &str = "GHRunnerRegistrationTokenUnavailable";
    /// The host is not on the cache's Private Network yet.
    pub const CACHE_PRIVATE_NETWORK_UNAVAILABLE: &str = "CachePrivateNetworkUnavailable";
    /// Bootstrap over SSH failed and is tried again.
    pub const BOOTSTRAP_FAILED: &str = "BootstrapFailed";
    /// Terminal, in `status.failureReason`: the agent could not be updated. Ends with a new configuration or with time.
    pub const UPDATE_EXCEEDED_RETRIES: &str = "TartKubeletUpdateExceededRetries";
}

/// Reasons of Elastic Metal servers and Instances.
pub mod linux {
    /// The fleet's SSH key could not be read or registered.
    pub const SSH_KEY_UNAVAILABLE: &str = "SSHKeyUnavailable";
    /// No installed server with the wanted name prefix is free.
    pub const NO_ADOPTABLE_SERVER: &str = "NoAdoptableServer";
    /// The server was ordered and is not delivered yet.
    pub const ORDERED: &str = "Ordered";
    /// The operating system is being installed.
    pub const INSTALLING: &str = "Installing";
    /// The Private Network is not attached yet.
    pub const PRIVATE_NETWORK_PENDING: &str = "PrivateNetworkPending";
    /// Bootstrap failed and is tried again.
    pub const BOOTSTRAP_FAILED: &str = "BootstrapFailed";
    /// `spec.zone` is not a zone. Terminal.
    pub const INVALID_ZONE: &str = "InvalidZone";
    /// The installation failed. Terminal.
    pub const INSTALL_FAILED: &str = "InstallFailed";
    /// The server is created but not running yet.
    pub const POWERING_ON: &str = "PoweringOn";
    /// The Node has not joined yet.
    pub const WAITING_FOR_NODE: &str = "WaitingForNode";
    /// Scaleway refused because of stock, quota or permission; the message says which.
    pub const PROVISIONING_REFUSED: &str = "ProvisioningRefused";
    /// Scaleway has no server of the wanted type left in the zone.
    pub const OUT_OF_STOCK: &str = "OutOfStock";
    /// The wanted type is not offered in the zone.
    pub const UNKNOWN_OFFER: &str = "UnknownOffer";
    /// The wanted image or operating system is not offered for the type in the zone.
    pub const IMAGE_UNAVAILABLE: &str = "ImageUnavailable";
    /// The Private Network is in another region than the server, or does not exist.
    pub const PRIVATE_NETWORK_ELSEWHERE: &str = "PrivateNetworkElsewhere";
    /// Several Private Networks have the wanted name.
    pub const PRIVATE_NETWORK_AMBIGUOUS: &str = "PrivateNetworkAmbiguous";
    /// The server runs without a public IPv4 address.
    pub const NO_PUBLIC_ADDRESS: &str = "NoPublicAddress";
    /// Scaleway locked the server.
    pub const SERVER_LOCKED: &str = "ServerLocked";
    /// Somebody switched the server off.
    pub const SERVER_STOPPED: &str = "ServerStopped";
    /// A Node of the machine's name belongs to another server.
    pub const NODE_TAKEN: &str = "NodeTaken";
    /// The Node of a server that had joined is gone.
    pub const NODE_MISSING: &str = "NodeMissing";
    /// IPAM does not know the server's private address yet.
    pub const WAITING_FOR_PRIVATE_ADDRESS: &str = "WaitingForPrivateAddress";
    /// The server did not join in time; the message says how far it got.
    pub const JOIN_TIMED_OUT: &str = "JoinTimedOut";
    /// The kubelet's configuration is being brought up to date.
    pub const UPDATING: &str = "Updating";
    /// Scaleway has been at something for longer than it should take.
    pub const TAKES_TOO_LONG: &str = "TakesTooLong";
    /// The server is being stopped, to be deleted.
    pub const STOPPING: &str = "Stopping";
    /// The server is being deleted.
    pub const DELETING_SERVER: &str = "DeletingServer";
}

/// Reasons of a cache.
pub mod kura {
    /// Not enough replicas are ready.
    pub const WAITING_FOR_REPLICAS: &str = "WaitingForReplicas";
    /// The primary's Node has no Private Network address yet.
    pub const WAITING_FOR_NODE_ADDRESS: &str = "WaitingForNodeAddress";
    /// Kubernetes has not allocated the NodePort yet.
    pub const WAITING_FOR_NODE_PORT: &str = "WaitingForNodePort";
    /// Volumes are being rebuilt.
    pub const STORAGE_REBUILDING: &str = "StorageRebuilding";
    /// Peer certificates could not be issued.
    pub const PEER_CERTIFICATE_UNAVAILABLE: &str = "PeerCertificateUnavailable";
}

/// Reasons of a runner pool.
pub mod runners {
    /// Fewer runners than wanted.
    pub const FILLING: &str = "Filling";
    /// More runners than wanted, some of them busy.
    pub const SHRINKING: &str = "Shrinking";
    /// No healthy Node takes more runners.
    pub const NO_CAPACITY: &str = "NoCapacity";
    /// Runners on the old image are being replaced.
    pub const ROLLING: &str = "Rolling";
    /// The server could not be asked for the demand; the pool keeps its size.
    pub const SIGNALS_UNAVAILABLE: &str = "SignalsUnavailable";
}
