//! What a set-up needs from the rest of the provider. Each may be absent; then the job goes without it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use russet_api::apple_silicon_machine::GhActionsRunner;
use russet_api::values::{ServerId, Zone};
use russet_telemetry::Secret;

use crate::claims::Holder;

/// Something that is needed and cannot be had now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Problem {
    /// One word for the condition: constants of `russet_api::conditions::reasons`.
    pub reason: &'static str,
    /// A sentence that says what to do, without secrets.
    pub message: String,
    /// When to try again.
    pub retry: Duration,
}

/// The key a fleet's hosts let in.
#[derive(Clone, Debug)]
pub struct LoginKey {
    /// The private key, in OpenSSH form.
    pub private: Secret<String>,
    /// The public key, one line.
    pub public: String,
    /// Its id at Scaleway, once it is registered.
    pub id: Option<russet_scaleway::SshKeyId>,
    /// A password that the fleet's hosts share, if an operator gave one.
    pub sudo_password: Option<Secret<String>>,
}

/// The SSH keys of fleets.
pub trait FleetKeys: Send + Sync {
    /// The key of a fleet, made and registered if it was not. Before a host is claimed, since Scaleway puts keys on hosts only when
    /// they are installed.
    fn ensure<'a>(&'a self, fleet: &'a str) -> BoxFuture<'a, Result<LoginKey, Problem>>;
}

/// What Nodes join with.
pub trait Identities: Send + Sync {
    /// A bootstrap kubeconfig for this machine.
    fn issue<'a>(&'a self, machine: &'a Holder) -> BoxFuture<'a, Result<Secret<String>, Problem>>;

    /// Nothing of this machine can join any more.
    fn revoke<'a>(&'a self, machine: &'a Holder) -> BoxFuture<'a, Result<(), Problem>>;
}

/// The Services by which hosts are reached over the tailnet.
pub trait Egress: Send + Sync {
    /// Makes it as it should be.
    fn ensure<'a>(&'a self, machine: &'a Holder, fleet: Option<&'a str>) -> BoxFuture<'a, Result<(), Problem>>;

    /// Removes it.
    fn remove<'a>(&'a self, machine: &'a Holder) -> BoxFuture<'a, Result<(), Problem>>;
}

/// Registration tokens of GitHub runners.
pub trait RunnerTokens: Send + Sync {
    /// A token for this runner; its App Secret is in `namespace`.
    fn registration_token<'a>(
        &'a self,
        runner: &'a GhActionsRunner,
        namespace: &'a str,
    ) -> BoxFuture<'a, Result<Secret<String>, Problem>>;
}

/// Keys of the tailnet.
pub trait TailnetKeys: Send + Sync {
    /// What hosts join the tailnet with.
    fn key(&self) -> BoxFuture<'_, Result<Secret<String>, Problem>>;
}

/// The private network of caches.
pub trait Networks: Send + Sync {
    /// The VLAN on which a host reaches it; the host is put on it if it was not.
    fn vlan<'a>(&'a self, zone: &'a Zone, server: &'a ServerId) -> BoxFuture<'a, Result<u16, Problem>>;
}

/// All of them.
#[derive(Clone, Default)]
pub struct Services {
    /// SSH keys.
    pub keys: Option<Arc<dyn FleetKeys>>,
    /// Join credentials.
    pub identities: Option<Arc<dyn Identities>>,
    /// Egress Services.
    pub egress: Option<Arc<dyn Egress>>,
    /// GitHub runners.
    pub runners: Option<Arc<dyn RunnerTokens>>,
    /// The tailnet.
    pub tailnet: Option<Arc<dyn TailnetKeys>>,
    /// The private network.
    pub networks: Option<Arc<dyn Networks>>,
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Services")
            .field("keys", &self.keys.is_some())
            .field("identities", &self.identities.is_some())
            .field("egress", &self.egress.is_some())
            .field("runners", &self.runners.is_some())
            .field("tailnet", &self.tailnet.is_some())
            .field("networks", &self.networks.is_some())
            .finish()
    }
}
