//! How to reach GitHub.

use std::time::Duration;

use reqwest::Url;
pub use russet_rest::connection::Proxy;
use russet_rest::connection::{BadAddress, address};

/// Where the API is unless said otherwise.
pub const DEFAULT_URL: &str = "https://api.github.com";

/// How to reach the API.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the API is.
    pub url: Url,
    /// Longest time for one exchange.
    pub attempt_timeout: Duration,
    /// Rows asked for per page, at most 100.
    pub page_size: u32,
    /// Whether a proxy may be used.
    pub proxy: Proxy,
}

/// An address that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Invalid {
    /// The URL is not one.
    #[error("the GitHub API address is not a URL such as {DEFAULT_URL} or https://github.example.com/api/v3")]
    Url(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Tokens would travel in the clear.
    #[error(
        "the GitHub API address must begin with https://; plain http is accepted only for loopback and private addresses"
    )]
    InTheClear,
}

impl Config {
    /// The API at an address of one's own: that of a GitHub Enterprise Server ends in `/api/v3`.
    pub fn new(url: &str) -> Result<Self, Invalid> {
        Ok(Self {
            url: address(url.trim())?,
            attempt_timeout: Duration::from_secs(20),
            page_size: 100,
            proxy: Proxy::default(),
        })
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

    #[test]
    fn the_default_is_the_public_api() {
        assert_eq!(
            Config::new(DEFAULT_URL).unwrap().url.as_str(),
            "https://api.github.com/"
        );
    }

    #[test]
    fn an_enterprise_server_keeps_its_path() {
        let config = Config::new(" https://github.example.com/api/v3/\n").unwrap();
        assert_eq!(config.url.as_str(), "https://github.example.com/api/v3");
    }

    #[test]
    fn a_token_never_travels_in_the_clear_to_a_public_host() {
        assert!(matches!(Config::new("http://api.github.com"), Err(Invalid::InTheClear)));
        for near in [
            "http://127.0.0.1:8080",
            "http://[::1]:9",
            "http://localhost:1/",
            "http://10.0.0.7",
        ] {
            Config::new(near).unwrap();
        }
        assert!(matches!(Config::new("not a url"), Err(Invalid::Url(_))));
        assert!(matches!(Config::new("mailto:x@y"), Err(Invalid::Url(_))));
    }
}
