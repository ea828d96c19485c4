//! Reasons of the Kubernetes events we write. People filter and alert on them, so they change only with care.

/// Events of a Mac.
pub mod apple_silicon {
    /// A pool host is being claimed.
    pub const ADOPTING: &str = "Adopting";
    /// A pool host was claimed.
    pub const ADOPTED: &str = "Adopted";
    /// The host is ours and its credentials are stored.
    pub const PROVISIONED: &str = "Provisioned";
    /// The host could not be claimed.
    pub const PROVISIONING_FAILED: &str = "ProvisioningFailed";
    /// The pool has no host of the wanted type, zone and macOS.
    pub const NO_AVAILABLE_HOST: &str = "NoAvailableHost";
    /// `spec.os` names an image instead of a macOS family.
    pub const INVALID_OS_PIN: &str = "InvalidOSPin";
    /// No pool prefix in the spec and no default.
    pub const NO_ADOPT_POOL_PREFIX: &str = "NoAdoptPoolPrefix";
    /// The host's password could not be read again.
    pub const CREDENTIALS_REFRESH_FAILED: &str = "CredentialsRefreshFailed";
    /// Lost credentials were rebuilt from the Scaleway API.
    pub const CREDENTIALS_RECLAIMED: &str = "CredentialsReclaimed";
    /// Scaleway gives no administrator password for the host.
    pub const MISSING_SUDO_PASSWORD: &str = "MissingSudoPassword";
    /// The Node of a bootstrapped host is gone.
    pub const NODE_MISSING: &str = "NodeMissing";
    /// Bootstrap over SSH began.
    pub const BOOTSTRAPPING: &str = "Bootstrapping";
    /// Bootstrap over SSH ended well.
    pub const BOOTSTRAPPED: &str = "Bootstrapped";
    /// Bootstrap over SSH failed and is tried again.
    pub const BOOTSTRAP_FAILED: &str = "BootstrapFailed";
    /// The host is rebooted because bootstrap keeps failing.
    pub const REBOOTING_FOR_RECOVERY: &str = "RebootingForRecovery";
    /// That reboot was refused.
    pub const REBOOT_FOR_RECOVERY_FAILED: &str = "RebootForRecoveryFailed";
    /// Bootstrap failed too often; the host goes back to its pool.
    pub const BOOTSTRAP_EXHAUSTED: &str = "BootstrapExhausted";
    /// The bootstrap Secret could not be deleted.
    pub const BOOTSTRAP_SECRET_DELETE_FAILED: &str = "BootstrapSecretDeleteFailed";
    /// A new tart-kubelet or configuration was pushed.
    pub const AGENT_ROLLED: &str = "AgentRolled";
    /// That push failed.
    pub const AGENT_ROLL_FAILED: &str = "AgentRollFailed";
    /// A push that had been given up is tried again.
    pub const AGENT_ROLL_RETRIED: &str = "AgentRollRetried";
    /// The egress Service could not be written.
    pub const EGRESS_SERVICE_FAILED: &str = "EgressServiceFailed";
    /// The host goes back to its pool.
    pub const RELEASING: &str = "Releasing";
    /// The host is back in its pool.
    pub const RELEASED: &str = "Released";
    /// The host was not returned because no pool is known.
    pub const RELEASE_SKIPPED: &str = "ReleaseSkipped";
    /// The host could not be returned.
    pub const RELEASE_FAILED: &str = "ReleaseFailed";
    /// Scaleway publishes no image of the wanted macOS family any more.
    pub const OS_PIN_UNAVAILABLE: &str = "OSPinUnavailable";
    /// Deletion failed and is tried again.
    pub const DELETE_FAILED: &str = "DeleteFailed";
}

/// Events of Elastic Metal servers and Instances.
pub mod linux {
    /// A server was ordered.
    pub const ORDERED: &str = "Ordered";
    /// Its operating system is being installed.
    pub const INSTALLING: &str = "Installing";
    /// The installation failed for good.
    pub const INSTALL_FAILED: &str = "InstallFailed";
    /// An Instance was created.
    pub const CREATED: &str = "Created";
    /// The server joined the cluster.
    pub const JOINED: &str = "Joined";
    /// The Node carries its Private Network address.
    pub const PRIVATE_ADDRESS_KNOWN: &str = "PrivateAddressKnown";
    /// The server is being given back.
    pub const DELETING: &str = "Deleting";
    /// The server is gone.
    pub const DELETED: &str = "Deleted";
    /// A volume was on the disk of a server that is gone; it and its claim are deleted.
    pub const LOCAL_VOLUME_LOST: &str = "LocalVolumeLost";
}

/// Events of a cache.
pub mod kura {
    /// The API server dropped fields we wrote: its CRD is older than this controller.
    pub const FIELDS_PRUNED: &str = "FieldsPruned";
    /// Another Pod became primary.
    pub const PRIMARY_CHANGED: &str = "PrimaryChanged";
    /// Volumes are rebuilt, because their class or size changed or their Node is gone.
    pub const STORAGE_REBUILDING: &str = "StorageRebuilding";
    /// A replica leaves a Node that is being evacuated.
    pub const EVACUATING: &str = "Evacuating";
}

/// Events of a runner pool.
pub mod runners {
    /// A runner Pod did not start in time and was replaced.
    pub const POD_START_TIMED_OUT: &str = "RunnerPodStartTimedOut";
    /// A runner Pod fits nowhere.
    pub const POD_UNSCHEDULABLE: &str = "RunnerPodUnschedulable";
    /// An idle runner Pod left a Node that is being drained.
    pub const POD_RETIRED_FOR_NODE_DRAIN: &str = "RunnerPodRetiredForNodeDrain";
}

/// Events every controller may write.
pub mod common {
    /// A kind this controller needs is not installed; it waits.
    pub const MISSING_CRD: &str = "MissingCRD";
    /// The API server dropped fields we wrote.
    pub const FIELDS_PRUNED: &str = "FieldsPruned";
}
