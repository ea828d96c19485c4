//! The settings as a person writes them (`KURA_AUTH_*`, `KURA_CONTROL_PLANE_*`), and how they become a [`Config`].
//!
//! Pure: the binary's `config.rs` reads flags and environment into [`Settings`]. Two rules differ from the server whose
//! variables these are, both because the old ones left a cache open that looked closed: a JWT key or a token file alone
//! switches checking on, and `KURA_AUTH_ENABLED=false` next to them is an error instead of being ignored.

use std::path::PathBuf;
use std::time::Duration;

use russet_api::values::AccountHandle;
use russet_telemetry::Secret;

use crate::config::{
    Anonymous, Client, Config, ControlPlane, Error, HmacAlgorithm, Jwt, JwtKeys, Memory, PemSource, SignedTokens,
    TokenSource,
};

/// What was set. Everything is optional, and empty text counts as not set.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// `KURA_TENANT_ID`
    pub tenant: Option<AccountHandle>,
    /// `KURA_AUTH_ENABLED`
    pub enabled: Option<bool>,
    /// `KURA_AUTH_ANONYMOUS`: `none`, `read`, `read-write`. Not set: `none` if anything checks credentials, else `read`.
    pub anonymous: Option<Anonymous>,
    /// `KURA_AUTH_TOKENS_FILE`
    pub tokens_file: Option<PathBuf>,
    /// `KURA_AUTH_JWT_PUBLIC_KEY`: PEM, one or several keys.
    pub jwt_public_key: Option<String>,
    /// `KURA_AUTH_JWT_PUBLIC_KEY_FILE`: the same in a file, read again when it changes.
    pub jwt_public_key_file: Option<PathBuf>,
    /// `KURA_AUTH_JWT_SECRET`
    pub jwt_secret: Option<Secret<String>>,
    /// `KURA_AUTH_JWT_ALGORITHM`: ES256, HS256 (default with a secret), HS384, HS512.
    pub jwt_algorithm: Option<String>,
    /// `KURA_AUTH_JWT_ISSUER`
    pub jwt_issuer: Option<String>,
    /// `KURA_AUTH_JWT_AUDIENCES`, split at commas.
    pub jwt_audiences: Vec<String>,
    /// `KURA_AUTH_JWT_INTROSPECT`: signed tokens must be active according to the control plane as well.
    pub jwt_introspect: bool,
    /// `KURA_AUTH_TUIST_URL`
    pub url: Option<String>,
    /// `KURA_AUTH_TUIST_CONNECT_TIMEOUT_MS`
    pub connect_timeout: Option<Duration>,
    /// `KURA_AUTH_TUIST_REQUEST_TIMEOUT_MS`
    pub request_timeout: Option<Duration>,
    /// `KURA_CONTROL_PLANE_CLIENT_ID`
    pub client_id: Option<String>,
    /// `KURA_CONTROL_PLANE_CLIENT_SECRET`
    pub client_secret: Option<Secret<String>>,
    /// `KURA_AUTH_CACHE_MAX_ENTRIES`
    pub cache_max_entries: Option<usize>,
}

impl Settings {
    /// The typed config, validated.
    pub fn into_config(self) -> Result<Config, Error> {
        let jwt = self.jwt()?;
        let control_plane = self.control_plane()?;
        let tokens = self.tokens_file.clone().map(TokenSource::File);
        let checks = jwt.is_some() || control_plane.is_some() || tokens.is_some();
        match self.enabled {
            Some(true) if !checks => return Err(Error::EnabledWithoutMeans),
            Some(false) if checks => return Err(Error::DisabledWithMeans),
            _ => {}
        }
        let config = Config {
            tenant: self.tenant,
            anonymous: self
                .anonymous
                .unwrap_or(if checks { Anonymous::Nothing } else { Anonymous::Read }),
            tokens,
            jwt,
            control_plane,
            memory: Memory {
                entries: self.cache_max_entries.unwrap_or(Memory::default().entries),
                ..Memory::default()
            },
        };
        config.validate()?;
        Ok(config)
    }

    fn jwt(&self) -> Result<Option<Jwt>, Error> {
        let secret = self.jwt_secret.as_ref().filter(|s| !s.expose().is_empty());
        let inline = set(self.jwt_public_key.as_deref()).map(|pem| PemSource::Inline(pem.to_owned()));
        let pem = inline.or(self.jwt_public_key_file.clone().map(PemSource::File));
        let algorithm = set(self.jwt_algorithm.as_deref());
        let keys = match (pem, secret) {
            (Some(_), Some(_)) => return Err(Error::SecretAndPublicKey),
            (Some(pem), None) if matches!(algorithm, None | Some("ES256")) => JwtKeys::Es256(pem),
            (None, Some(secret)) => JwtKeys::Hmac {
                algorithm: hmac_algorithm(algorithm.unwrap_or("HS256"))?,
                secret: secret.clone(),
            },
            (Some(_), None) => return Err(Error::Algorithm),
            (None, None) => return self.no_jwt(algorithm).map(|()| None),
        };
        Ok(Some(Jwt {
            issuer: set(self.jwt_issuer.as_deref()).map(str::to_owned),
            audiences: self
                .jwt_audiences
                .iter()
                .map(|a| a.trim().to_owned())
                .filter(|a| !a.is_empty())
                .collect(),
            signed_tokens: if self.jwt_introspect {
                SignedTokens::AlsoIntrospect
            } else {
                SignedTokens::TrustUntilExpiry
            },
            ..Jwt::new(keys)
        }))
    }

    /// A setting about signed tokens without a key is a key someone forgot.
    fn no_jwt(&self, algorithm: Option<&str>) -> Result<(), Error> {
        if algorithm.is_some() {
            return Err(Error::JwtWithoutKey("algorithm"));
        }
        if set(self.jwt_issuer.as_deref()).is_some() {
            return Err(Error::JwtWithoutKey("issuer"));
        }
        if self.jwt_audiences.iter().any(|a| !a.trim().is_empty()) {
            return Err(Error::JwtWithoutKey("audiences"));
        }
        if self.jwt_introspect {
            return Err(Error::JwtWithoutKey("introspect"));
        }
        Ok(())
    }

    fn control_plane(&self) -> Result<Option<ControlPlane>, Error> {
        let client = match (
            set(self.client_id.as_deref()),
            self.client_secret.as_ref().filter(|s| !s.expose().is_empty()),
        ) {
            (Some(id), Some(secret)) => Some(Client {
                id: id.to_owned(),
                secret: secret.clone(),
            }),
            (None, None) => None,
            _ => return Err(Error::HalfClient),
        };
        // Without a URL the client belongs to other duties of the node (usage, enrolment), not to authentication.
        let Some(url) = set(self.url.as_deref()) else {
            return Ok(None);
        };
        let base = ControlPlane::new(url)?;
        Ok(Some(ControlPlane {
            client,
            connect_timeout: self.connect_timeout.unwrap_or(base.connect_timeout),
            request_timeout: self.request_timeout.unwrap_or(base.request_timeout),
            ..base
        }))
    }
}

fn set(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|t| !t.is_empty())
}

fn hmac_algorithm(text: &str) -> Result<HmacAlgorithm, Error> {
    [HmacAlgorithm::Hs256, HmacAlgorithm::Hs384, HmacAlgorithm::Hs512]
        .into_iter()
        .find(|algorithm| algorithm.as_str() == text)
        .ok_or(Error::Algorithm)
}

#[cfg(test)]
mod tests;
