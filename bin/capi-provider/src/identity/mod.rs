//! Join credentials: a short-lived bootstrap token per machine, with which its kubelet asks for a certificate of its own.
//!
//! ```text
//!   issue ──▶ Secret kube-system/bootstrap-token-<id> ──▶ kubeconfig on the host
//!                    group ...:tuist-applesilicon:<machine uid>     │ CertificateSigningRequest
//!                                                                   ▼
//!                          kcm signs ◀── approved ◀── approver: token of exactly this machine, or the node itself
//!                              │
//!                              ▼  system:node:<machine>, under the Node authorizer and NodeRestriction
//! ```
//!
//! The token is worth little: it may create signing requests and nothing else, and [`approver`] lets each token have a certificate
//! for its own machine only. What the node gets then may touch its own Node and what its own Pods mount, instead of all Secrets
//! of the cluster for ever, as the ServiceAccount tokens of earlier releases did.

mod approver;
mod error;
mod requests;
mod revoke;
mod token;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};
use russet_api::values::CidrBlock;
use russet_telemetry::Secret;
use serde::Serialize;
use tracing::info;

use crate::api_server::{self, ApiServer};
use crate::kubeconfig;
use crate::machine_ref::MachineRef;

pub use approver::{ServingNames, approver};
pub use error::Error;
pub use requests::Requests;
pub(crate) use revoke::tokens_of;
use token::{ATTEMPTS, Token};
pub use token::{BOOTSTRAP_GROUP, machine_group};

/// Where bootstrap tokens live; Kubernetes looks nowhere else.
const TOKEN_NAMESPACE: &str = "kube-system";

/// Name of the context, and beginning of user names, in a node's kubeconfig.
const CONTEXT: &str = "tart-kubelet";

/// How often to start over when others write at the same time.
const ROUNDS: u32 = 4;

/// Flags of the join credentials.
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[command(next_help_heading = "Join credentials")]
pub struct IdentityArgs {
    /// Address of the API server as the Macs dial it; without it, what ConfigMap kube-public/cluster-info says.
    #[arg(long, env = "CAPI_TARTKUBELET_API_SERVER_URL", value_name = "URL")]
    pub api_server_url: Option<String>,

    /// Accepted for compatibility and not used: a node's rights come from the Node authorizer, not from a ClusterRole.
    #[arg(
        long,
        env = "CAPI_NODE_IDENTITY_CLUSTER_ROLE",
        value_name = "NAME",
        default_value = "tart-kubelet"
    )]
    pub node_identity_cluster_role: String,

    /// What the tailnet gives out: the addresses that a node may claim for its serving certificate because it alone reports
    /// them (may be given more than once, or separated by commas).
    #[arg(
        long,
        env = "CAPI_TAILNET_CIDRS",
        value_name = "CIDR",
        value_delimiter = ',',
        default_value = "100.64.0.0/10,fd7a:115c:a1e0::/48"
    )]
    pub tailnet_cidr: Vec<CidrBlock>,
}

/// How credentials are made.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the API server is.
    pub server: api_server::Settings,
    /// Namespace in which earlier releases kept the ServiceAccounts of machines.
    pub secrets_namespace: String,
    /// How long a token is good for.
    pub lifetime: Duration,
    /// A token with less than this left is replaced.
    pub margin: Duration,
}

impl Settings {
    /// From the flags, with the defaults for everything else. An empty address is none.
    pub fn new(args: &IdentityArgs, secrets_namespace: String) -> Self {
        let url = args.api_server_url.clone().filter(|url| !url.trim().is_empty());
        Self {
            server: api_server::Settings { url, ca_pem: None },
            secrets_namespace,
            lifetime: Duration::from_hours(24),
            margin: Duration::from_hours(1),
        }
    }
}

/// What a host needs to join.
#[derive(Clone, Debug)]
pub struct JoinCredentials {
    /// A bootstrap kubeconfig: user `tart-kubelet-<machine>`, context `tart-kubelet`.
    pub kubeconfig: Secret<String>,
    /// When it stops working.
    pub expires: Timestamp,
}

/// Makes and revokes credentials. Cheap to clone.
#[derive(Clone)]
pub struct Identities {
    client: kube::Client,
    settings: Settings,
    requests: Requests,
}

impl std::fmt::Debug for Identities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identities")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Identities {
    /// Credentials for the cluster of this client.
    pub fn new(client: kube::Client, settings: Settings) -> Self {
        Self {
            client,
            settings,
            requests: Requests::default(),
        }
    }

    /// The signing requests that an approver of the same process sees, so that they are not read for each machine that goes.
    pub fn requests(&self) -> Requests {
        self.requests.clone()
    }

    /// Credentials for a machine: those it has, while they are good for long enough, else new ones.
    pub async fn issue(&self, machine: &MachineRef) -> Result<JoinCredentials, Error> {
        token::check(machine)?;
        let server = ApiServer::find(&self.client, &self.settings.server).await?;
        let token = self.token(machine).await?;
        let user = format!("{CONTEXT}-{}", machine.name);
        Ok(JoinCredentials {
            kubeconfig: kubeconfig::with_token(&server, CONTEXT, &user, &token.bearer()),
            expires: token.expires,
        })
    }

    fn tokens(&self) -> Api<KubeSecret> {
        Api::namespaced(self.client.clone(), TOKEN_NAMESPACE)
    }

    async fn token(&self, machine: &MachineRef) -> Result<Token, Error> {
        let failed = |verb| move |source| Error::token(verb, machine, source);
        let tokens = self.tokens();
        // Ids are short, so two machines may come to the same one; then the next is tried.
        for attempt in 0..ATTEMPTS {
            let id = token::id(&machine.uid, attempt);
            let name = token::secret_name(&id);
            for _ in 0..ROUNDS {
                let live = tokens.get_opt(&name).await.map_err(failed("read"))?;
                if let Some(live) = &live {
                    if !token::belongs(live, machine) {
                        break;
                    }
                    if let Some(token) = Token::read(live)
                        && token.lasts(self.settings.margin, Timestamp::now())
                    {
                        return Ok(token);
                    }
                }
                let token = Token::generate(&id, self.settings.lifetime, Timestamp::now());
                let mut secret = token.secret(machine);
                let written = match live {
                    None => tokens.create(&PostParams::default(), &secret).await,
                    Some(live) => {
                        secret.metadata.resource_version = live.resource_version();
                        tokens.replace(&name, &PostParams::default(), &secret).await
                    }
                };
                match written {
                    Ok(_) => {
                        info!(machine = %machine, id, expires = %token.expires, "made a bootstrap token");
                        return Ok(token);
                    }
                    // Somebody else made, renewed or removed it just now: theirs is as good.
                    Err(kube::Error::Api(status))
                        if status.is_already_exists() || status.is_conflict() || status.is_not_found() => {}
                    Err(error) => return Err(failed("write")(error)),
                }
            }
        }
        Err(Error::Contended {
            machine: machine.clone(),
        })
    }
}
