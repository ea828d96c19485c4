//! The installation token, and what the installation explains about a refusal.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use russet_telemetry::{Scrubber, Secret};
use serde::Deserialize;

use super::Client;
use crate::answer::clean;
use crate::call::{Bearer, Call, Effect, Endpoint};
use crate::error::{Error, Kind, PERMISSION};
use crate::org::Org;

/// A token is not used in its last minutes, so that none ends between being taken and being used.
const SPARE: SignedDuration = SignedDuration::from_mins(5);

static MINT: Endpoint = Endpoint {
    name: "apps.create_installation_access_token",
    method: Method::POST,
    effect: Effect::Repeatable,
    bearer: Bearer::App,
    success: 201,
};
static INSTALLATION: Endpoint = Endpoint {
    name: "apps.get_installation",
    method: Method::GET,
    effect: Effect::Read,
    bearer: Bearer::App,
    success: 200,
};

/// An installation token.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Token {
    pub(super) token: Secret<String>,
    expires_at: Timestamp,
}

/// What an installation is, as far as a refusal can be explained by it.
#[derive(Debug, Deserialize)]
struct Installation {
    account: Option<Account>,
    #[serde(default)]
    permissions: BTreeMap<String, String>,
    suspended_at: Option<Timestamp>,
}

#[derive(Debug, Deserialize)]
struct Account {
    login: String,
}

impl Client {
    /// Says why a call about an organisation was refused, if the installation itself explains it.
    pub(crate) async fn explain(&self, org: &Org, refused: Error) -> Error {
        if !matches!(refused.kind, Kind::NotFound { .. } | Kind::PermissionDenied { .. }) {
            return refused;
        }
        let Ok(installation) = self.installation().await else {
            return refused;
        };
        let kind = match (installation.account, installation.suspended_at) {
            (_, Some(_)) => Kind::Suspended,
            (Some(account), None) if !org.is(&account.login) => Kind::WrongOrg {
                installed_on: clean(&account.login, &Scrubber::new()),
                asked: org.to_string(),
            },
            _ => refused.kind,
        };
        Error { kind, ..refused }
    }

    async fn installation(&self) -> Result<Installation, Error> {
        let path = format!("/app/installations/{}", self.0.credentials.installation);
        // Boxed because asking for a token may end here too.
        Box::pin(self.fetch(&Call::new(&INSTALLATION, path))).await
    }

    /// A token that is good for some minutes at least.
    pub(super) async fn token(&self) -> Result<Secret<String>, Error> {
        if let Some(token) = self.fresh() {
            return Ok(token);
        }
        let _minting = self.0.minting.lock().await;
        if let Some(token) = self.fresh() {
            return Ok(token);
        }
        let installation = self.0.credentials.installation;
        let path = format!("/app/installations/{installation}/access_tokens");
        let body = serde_json::json!({"permissions": {"organization_self_hosted_runners": "write"}});
        let call = Call::new(&MINT, path).body(body);
        let token: Token = match self.fetch(&call).await {
            Ok(token) => token,
            Err(refused) => return Err(self.explain_mint(refused).await),
        };
        tracing::debug!(expires_at = %token.expires_at, "a new installation token");
        let secret = token.token.clone();
        self.known().token = Some(token);
        Ok(secret)
    }

    fn fresh(&self) -> Option<Secret<String>> {
        let now = self.now();
        let known = self.known();
        let token = known.token.as_ref()?;
        (token.expires_at.duration_since(now) > SPARE).then(|| token.token.clone())
    }

    /// Says why no token was given.
    async fn explain_mint(&self, refused: Error) -> Error {
        let credentials = &self.0.credentials;
        let kind = match refused.kind {
            Kind::NotFound { .. } => Kind::NotInstalled {
                app: credentials.app.get(),
                installation: credentials.installation.get(),
            },
            // The one permission that was asked for is not granted.
            Kind::Invalid { .. } => Kind::PermissionDenied {
                what: PERMISSION.to_owned(),
            },
            Kind::PermissionDenied { what } => match self.installation().await {
                Ok(installation) if installation.suspended_at.is_some() => Kind::Suspended,
                Ok(installation) => {
                    tracing::debug!(granted = ?installation.permissions, "no token is given to this installation");
                    Kind::PermissionDenied { what }
                }
                Err(_) => Kind::PermissionDenied { what },
            },
            other => other,
        };
        Error { kind, ..refused }
    }
}
