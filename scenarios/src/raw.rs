//! What a naive implementation sends: plain HTTP to the emulated Scaleway. And our client of it, for the other half of a story.

use anyhow::{Result, ensure};
use russet_scaleway::config::Proxy;
use russet_scaleway::{Client, Config, Context};
use russet_sim_scaleway::{DEFAULT_ACCESS_KEY, DEFAULT_PROJECT, DEFAULT_SECRET_KEY, Sim};
use russet_telemetry::Secret;
use serde_json::Value;

/// An API key: its two halves.
#[derive(Clone, Copy)]
pub(super) struct Key {
    pub(super) access: &'static str,
    pub(super) secret: &'static str,
}

/// The one that every emulator starts with.
pub(super) const DEFAULT: Key = Key {
    access: DEFAULT_ACCESS_KEY,
    secret: DEFAULT_SECRET_KEY,
};

/// Calls by hand.
pub(super) struct Raw {
    http: reqwest::Client,
    key: Key,
}

impl Default for Raw {
    fn default() -> Self {
        Self::with(DEFAULT)
    }
}

impl Raw {
    pub(super) fn with(key: Key) -> Self {
        let http = reqwest::Client::new();
        Self { http, key }
    }

    /// Status and answer, whatever they are; null where there is no JSON.
    pub(super) async fn send(&self, method: &str, url: &str, body: Value) -> Result<(u16, Value)> {
        let mut request = self.http.request(method.parse()?, url);
        request = request.header("X-Auth-Token", self.key.secret);
        if !body.is_null() {
            request = request.json(&body);
        }
        let answer = request.send().await?;
        let status = answer.status().as_u16();
        Ok((
            status,
            serde_json::from_slice(&answer.bytes().await?).unwrap_or_default(),
        ))
    }

    /// The answer, which must say yes.
    pub(super) async fn call(&self, method: &str, url: &str, body: Value) -> Result<Value> {
        let (status, answer) = self.send(method, url, body).await?;
        ensure!(status < 300, "{method} {url} answered {status}: {answer}");
        Ok(answer)
    }
}

/// Our client, in the project that every emulator starts with.
pub(super) fn client(sim: &Sim, key: Key) -> Result<Client> {
    let mut config = Config::new(
        key.access,
        Secret::from(key.secret),
        DEFAULT_PROJECT.parse()?,
        sim.url(),
    )?;
    config.proxy = Proxy::Never;
    Ok(Client::new(&config, Context::default())?)
}
