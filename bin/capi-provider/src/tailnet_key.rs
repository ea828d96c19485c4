//! What hosts join the tailnet with: a key that an operator put into a Secret.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::{Api, Client};
use russet_api::conditions::reasons;
use russet_telemetry::Secret;

use crate::bootstrap::{self, Problem};

/// Where the key is in the Secret.
const KEY: &str = "auth-key";
const RETRY: Duration = Duration::from_mins(1);

/// Reads the key each time it is needed, so that a rotated one works at once.
pub struct TailnetKeys {
    client: Client,
    namespace: String,
    name: String,
}

impl std::fmt::Debug for TailnetKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TailnetKeys")
            .field("namespace", &self.namespace)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl TailnetKeys {
    /// The key in the Secret of this name; none where hosts are not on a tailnet.
    pub fn new(client: Client, namespace: &str, name: &str) -> Option<Self> {
        let name = name.trim();
        (!name.is_empty()).then(|| Self {
            client,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }

    async fn read(&self) -> Result<Secret<String>, Problem> {
        let place = format!("{}/{}", self.namespace, self.name);
        let problem = |message: String| Problem {
            reason: reasons::apple_silicon::BOOTSTRAP_FAILED,
            message,
            retry: RETRY,
        };
        let secrets: Api<KubeSecret> = Api::namespaced(self.client.clone(), &self.namespace);
        let found = secrets.get_opt(&self.name).await.map_err(|error| {
            problem(format!(
                "failed to read the Secret {place} with the tailnet key: {error}"
            ))
        })?;
        let Some(secret) = found else {
            return Err(problem(format!(
                "there is no Secret {place} with the tailnet key under {KEY}; make it, or see --tailscale-auth-key-secret-name"
            )));
        };
        let bytes = secret.data.as_ref().and_then(|data| data.get(KEY));
        let text = bytes.and_then(|bytes| str::from_utf8(&bytes.0).ok()).map(str::trim);
        match text {
            Some(key) if !key.is_empty() => Ok(Secret::new(key.to_owned())),
            _ => Err(problem(format!(
                "the Secret {place} has no key of a tailnet under {KEY}"
            ))),
        }
    }
}

impl bootstrap::TailnetKeys for TailnetKeys {
    fn key(&self) -> BoxFuture<'_, Result<Secret<String>, Problem>> {
        self.read().boxed()
    }
}
