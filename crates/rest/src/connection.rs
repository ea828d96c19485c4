//! How an API is reached, and why it was not.

use std::net::IpAddr;
use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Client, Url, redirect};

/// Whether the proxy settings of the process are obeyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Proxy {
    /// As `HTTPS_PROXY` and its friends say.
    #[default]
    FromEnvironment,
    /// Straight to the API.
    Never,
}

/// An address that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadAddress {
    /// It is no URL with a host.
    #[error("it is not the URL of a host")]
    Url(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Secrets would travel in the clear.
    #[error("it is neither https nor near")]
    InTheClear,
}

/// The address of an API: https, or plain http where secrets stay on this machine or in a network of ours.
pub fn address(text: &str) -> Result<Url, BadAddress> {
    let url: Url = text
        .trim_end_matches('/')
        .parse()
        .map_err(|error| BadAddress::Url(Box::new(error)))?;
    if url.cannot_be_a_base() || !url.has_host() {
        return Err(BadAddress::Url("it names no host".into()));
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_near(&url) => Ok(url),
        _ => Err(BadAddress::InTheClear),
    }
}

fn is_near(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        Ok(IpAddr::V6(ip)) => ip.is_loopback() || ip.is_unique_local(),
        Err(_) => host == "localhost",
    }
}

/// Connections to the API at this address, each exchange with these headers and at most this long.
pub fn http(url: &Url, headers: HeaderMap, timeout: Duration, proxy: Proxy) -> reqwest::Result<Client> {
    let mut http = Client::builder()
        .user_agent(concat!("russet/", env!("CARGO_PKG_VERSION")))
        .default_headers(headers)
        // A redirect would carry secrets to another host.
        .redirect(redirect::Policy::none())
        .referer(false)
        // Repeats are decided by the client of the API, nowhere else.
        .retry(reqwest::retry::never())
        .connect_timeout(timeout / 2)
        .timeout(timeout);
    if proxy == Proxy::Never {
        http = http.no_proxy();
    }
    // Without TLS nobody has to be vouched for, and the system's authorities take long to read.
    if url.scheme() == "http" {
        http = http.tls_certs_only([]);
    }
    http.build()
}

/// The URL of a call.
pub fn url(base: &Url, path: &str, query: &[(&'static str, String)]) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}{path}", base.path().trim_end_matches('/')));
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query);
    }
    url
}

/// Whether nothing went out.
pub fn is_unsent(error: &reqwest::Error) -> bool {
    error.is_connect() || error.is_builder()
}

/// Why there was no answer. The library's own text holds the whole URL; the innermost cause says enough.
pub fn why(error: &reqwest::Error, timeout: Duration) -> String {
    if error.is_timeout() {
        return format!("no answer within {} s", timeout.as_secs_f64());
    }
    let mut source: &dyn std::error::Error = error;
    while let Some(next) = source.source() {
        source = next;
    }
    source.to_string()
}
