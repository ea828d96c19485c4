//! Where a machine's `ghActionsRunner` gets its token: a GitHub App whose credentials are in a Secret beside the machine.
//!
//! The Secret is read at each call, so that a rotated key works at once. As long as it does not change, one client is kept for it, and
//! with it the installation token: a fleet that bootstraps asks GitHub for one installation token per hour.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::Api;
use russet_api::apple_silicon_machine::GhActionsRunner;
use russet_github::resolver::{Error, Resolver};
use russet_github::{Client, Config, Context, Credentials, Org};
use russet_telemetry::Secret;
use serde::Serialize;

/// Flags of the runner tokens; flatten them into the provider's own.
#[derive(clap::Args, Clone, Debug, Serialize)]
#[command(next_help_heading = "GitHub options")]
pub struct RunnerTokenArgs {
    /// Where the GitHub API is; that of an Enterprise Server ends in /api/v3.
    #[arg(long, value_name = "URL", env = "CAPI_GITHUB_API_URL", default_value = russet_github::config::DEFAULT_URL)]
    pub github_api_url: String,
}

impl RunnerTokenArgs {
    /// How to reach GitHub.
    pub fn config(&self) -> Result<Config, russet_github::config::Invalid> {
        Config::new(&self.github_api_url)
    }
}

/// Namespace and name of a Secret.
type Place = (String, String);

/// Mints registration tokens with the App named by the machine.
#[derive(Debug)]
pub struct RunnerTokens {
    kube: Kube,
    config: Config,
    context: Context,
    /// The client of each Secret, with the version of the Secret it was made from.
    clients: Mutex<BTreeMap<Place, (Option<String>, Client)>>,
}

/// The client has no `Debug`.
struct Kube(kube::Client);

impl std::fmt::Debug for Kube {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("kube::Client")
    }
}

impl RunnerTokens {
    /// Reads Secrets with this client and asks the GitHub of this config.
    pub fn new(kube: kube::Client, config: Config, context: Context) -> Self {
        Self {
            kube: Kube(kube),
            config,
            context,
            clients: Mutex::default(),
        }
    }

    async fn mint(&self, runner: GhActionsRunner, namespace: String) -> Result<Secret<String>, Error> {
        let name = runner.gh_app_secret_name.as_deref().map(str::trim).unwrap_or_default();
        if name.is_empty() {
            return Err(Error::NoSecretName);
        }
        let org: Org = runner.org_or_default().parse()?;
        let client = self.client((namespace, name.to_owned())).await?;
        Ok(client.registration_token(&org).await?.token)
    }

    async fn client(&self, place: Place) -> Result<Client, Error> {
        let (namespace, name) = place.clone();
        let found = Api::<KubeSecret>::namespaced(self.kube.0.clone(), &namespace)
            .get_opt(&name)
            .await;
        let secret = match found {
            Ok(Some(secret)) => secret,
            Ok(None) => {
                self.clients().remove(&place);
                return Err(Error::NoSecret { namespace, name });
            }
            Err(error) => {
                return Err(Error::Unreadable {
                    namespace,
                    name,
                    source: Box::new(error),
                });
            }
        };
        let version = secret.metadata.resource_version;
        if let Some((known, client)) = self.clients().get(&place)
            && version.is_some()
            && *known == version
        {
            return Ok(client.clone());
        }
        let data = secret.data.unwrap_or_default();
        let credentials =
            Credentials::read(|field| data.get(field).map(|bytes| bytes.0.as_slice())).map_err(|source| {
                Error::Credentials {
                    namespace,
                    name,
                    source,
                }
            })?;
        let client = Client::new(&self.config, credentials, self.context.clone())?;
        self.clients().insert(place, (version, client.clone()));
        Ok(client)
    }

    fn clients(&self) -> std::sync::MutexGuard<'_, BTreeMap<Place, (Option<String>, Client)>> {
        // A map that somebody panicked with is still a map; at worst a client is made again.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Resolver for RunnerTokens {
    fn registration_token(
        &self,
        runner: &GhActionsRunner,
        namespace: &str,
    ) -> BoxFuture<'_, Result<Secret<String>, Error>> {
        self.mint(runner.clone(), namespace.to_owned()).boxed()
    }
}
