//! What a client needs to know, validated.

use std::time::Duration;

use reqwest::Url;
pub use russet_rest::connection::Proxy;
use russet_rest::connection::{BadAddress, address};
use russet_telemetry::Secret;

use crate::ids::{InvalidId, ProjectId};
use crate::limiter::Rate;

/// Where the API is unless said otherwise.
pub const DEFAULT_URL: &str = "https://api.scaleway.com";
/// Name of the API key.
pub const ACCESS_KEY: &str = "SCW_ACCESS_KEY";
/// The secret of the API key.
pub const SECRET_KEY: &str = "SCW_SECRET_KEY";
/// Project everything is read from and made in.
pub const PROJECT_ID: &str = "SCW_DEFAULT_PROJECT_ID";
/// Another place for the API, such as an emulator.
pub const API_URL: &str = "SCW_API_URL";

/// How to reach the API, as whom, and how often.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the API is.
    pub url: Url,
    /// Name of the API key; not secret. Clients with the same key share a limiter.
    pub access_key: String,
    /// The secret of the API key.
    pub secret_key: Secret<String>,
    /// Project everything is read from and made in.
    pub project: ProjectId,
    /// How often we call. Scaleway publishes no limits for these products, so we set our own.
    pub rate: Rate,
    /// Longest time for one exchange.
    pub attempt_timeout: Duration,
    /// Longest time for a call, waits and repeats included.
    pub deadline: Duration,
    /// Rows asked for per page.
    pub page_size: u32,
    /// Whether a proxy may be used.
    pub proxy: Proxy,
}

/// A setting that is missing or wrong.
#[derive(Debug, thiserror::Error)]
pub enum Invalid {
    /// A setting is missing.
    #[error("{name} is not set: create an API key in the Scaleway console (IAM, API keys) and set {name}")]
    Missing {
        /// Its name.
        name: &'static str,
    },
    /// The project is not an id.
    #[error("{PROJECT_ID} is wrong: {0}")]
    Project(#[source] InvalidId),
    /// The URL is not one.
    #[error("{API_URL} is not a URL such as {DEFAULT_URL}")]
    Url(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The key would travel in the clear.
    #[error("{API_URL} must begin with https://; plain http is accepted only for loopback and private addresses")]
    InTheClear,
    /// The key cannot be sent.
    #[error("{SECRET_KEY} holds characters that cannot be sent in a header: copy it again, without line breaks")]
    Key,
}

impl Config {
    /// A client of this key in this project, with the defaults for everything else.
    pub fn new(access_key: &str, secret_key: Secret<String>, project: ProjectId, url: &str) -> Result<Self, Invalid> {
        let url = address(url)?;
        if secret_key.expose().is_empty() || !secret_key.expose().bytes().all(|c| c.is_ascii_graphic()) {
            return Err(Invalid::Key);
        }
        Ok(Self {
            url,
            access_key: access_key.to_owned(),
            secret_key,
            project,
            rate: Rate::default(),
            attempt_timeout: Duration::from_secs(20),
            deadline: Duration::from_mins(2),
            page_size: 100,
            proxy: Proxy::default(),
        })
    }

    /// Reads the settings by their well-known names. The caller decides where they come from.
    pub fn from_settings(get: impl Fn(&'static str) -> Option<String>) -> Result<Self, Invalid> {
        // Secrets that were pasted or mounted from a file often end in a line break.
        let get = |name| {
            get(name)
                .map(|value| value.trim().to_owned())
                .filter(|value| !value.is_empty())
        };
        let need = |name| get(name).ok_or(Invalid::Missing { name });
        let secret = Secret::new(need(SECRET_KEY)?);
        let project = need(PROJECT_ID)?.parse().map_err(Invalid::Project)?;
        let url = get(API_URL).unwrap_or_else(|| DEFAULT_URL.to_owned());
        Self::new(&need(ACCESS_KEY)?, secret, project, &url)
    }
}

impl From<BadAddress> for Invalid {
    fn from(bad: BadAddress) -> Self {
        match bad {
            BadAddress::Url(source) => Self::Url(source),
            BadAddress::InTheClear => Self::InTheClear,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(overrides: &[(&'static str, &str)]) -> Result<Config, Invalid> {
        Config::from_settings(|name| {
            let given = overrides
                .iter()
                .find(|(n, _)| *n == name)
                .map(|(_, value)| (*value).to_owned());
            given.or_else(|| {
                let default = match name {
                    ACCESS_KEY => "SCWXXXXXXXXXXXXXXXXX",
                    SECRET_KEY => "canary-secret\n",
                    PROJECT_ID => "11111111-2222-3333-4444-555555555555",
                    _ => return None,
                };
                Some(default.to_owned())
            })
        })
    }

    #[test]
    fn a_key_with_a_line_break_at_its_end_is_accepted_and_trimmed() {
        let config = with(&[]).unwrap();
        assert_eq!(config.secret_key.expose(), "canary-secret");
        assert_eq!(config.url.as_str(), "https://api.scaleway.com/");
        assert!(!format!("{config:?}").contains("canary"));
    }

    #[test]
    fn what_is_missing_is_named() {
        for name in [ACCESS_KEY, SECRET_KEY, PROJECT_ID] {
            let error = with(&[(name, " ")]).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn a_key_never_travels_in_the_clear_to_a_public_host() {
        assert!(matches!(
            with(&[(API_URL, "http://api.scaleway.com")]),
            Err(Invalid::InTheClear)
        ));
        assert!(matches!(
            with(&[(API_URL, "http://51.15.0.1")]),
            Err(Invalid::InTheClear)
        ));
        for near in [
            "http://127.0.0.1:8080",
            "http://[::1]:9",
            "http://localhost:1/",
            "http://10.0.0.7",
        ] {
            with(&[(API_URL, near)]).unwrap();
        }
        assert!(matches!(with(&[(API_URL, "not a url")]), Err(Invalid::Url(_))));
        assert!(matches!(with(&[(API_URL, "mailto:x@y")]), Err(Invalid::Url(_))));
    }

    #[test]
    fn a_key_that_would_break_the_header_is_refused_without_being_repeated() {
        let error = with(&[(SECRET_KEY, "canary\nsecond")]).unwrap_err();
        assert!(matches!(error, Invalid::Key));
        assert!(!error.to_string().contains("canary"));
    }
}
