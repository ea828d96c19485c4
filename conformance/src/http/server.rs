//! The server under test, as its clients know it: an address, a way to speak, and credentials.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use russet_telemetry::Secret;
use rustls::pki_types::{CertificateDer, ServerName};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::h2;
use super::tokens::Forge;
use super::wire::{Response, Wire};
use crate::not_applicable;

/// What tells that a write was done.
pub const STORED: &[u16] = &[200, 201, 204];

/// How requests travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Http1,
    /// HTTP/2 with prior knowledge, without TLS.
    H2c,
    TlsHttp1,
    TlsHttp2,
}

impl Transport {
    pub fn is_tls(self) -> bool {
        matches!(self, Self::TlsHttp1 | Self::TlsHttp2)
    }

    pub fn is_http2(self) -> bool {
        matches!(self, Self::H2c | Self::TlsHttp2)
    }
}

/// Which cache protocol the server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// All routes of the cache contract; blobs of neutral checks go to the Gradle route.
    Contract,
    /// Bazel's HTTP cache only: `/cas/{sha256}` and `/ac/{sha256}` below a prefix.
    Bazel,
}

/// Whom the suite can speak as. Without any of them the server is taken to be open to everyone.
#[derive(Debug, Default)]
pub struct Credentials {
    /// May read and write the tenant itself and [`Server::project`].
    pub writer: Option<Secret<String>>,
    /// May read [`Server::project`].
    pub reader: Option<Secret<String>>,
    /// May read and write another tenant's everything.
    pub stranger: Option<Secret<String>>,
    /// May read and write another project of the same tenant, in which the writer has no rights.
    pub victim: Option<Secret<String>>,
    /// Keys the server believes, to make tokens that it must not believe.
    pub forge: Option<Forge>,
}

/// A server under test.
#[derive(Debug)]
pub struct Server {
    pub host: String,
    pub port: u16,
    pub transport: Transport,
    pub dialect: Dialect,
    /// Before every path; for servers that live below one.
    pub prefix: String,
    pub tenant: String,
    pub project: String,
    /// The project of [`Credentials::victim`].
    pub victim_project: String,
    pub credentials: Credentials,
    /// Authorities of the TLS certificate.
    pub trust: Vec<CertificateDer<'static>>,
    /// Checks may empty the projects.
    pub may_clean: bool,
    /// How long the server may take to answer, or to cut off who stalls.
    pub patience: Duration,
    keys: AtomicU64,
    run: u64,
}

impl Server {
    /// A server at `http://` or `https://`; HTTP/1.1, open, with its own scratch names.
    pub fn new(url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once("://").with_context(|| format!("{url} is no URL"))?;
        let (tls, default) = match scheme {
            "http" => (false, 80),
            "https" => (true, 443),
            _ => bail!("{url}: only http:// and https:// are known here"),
        };
        let (authority, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().with_context(|| format!("{url}: bad port"))?)
            }
            _ => (authority, default),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
            transport: if tls { Transport::TlsHttp1 } else { Transport::Http1 },
            dialect: Dialect::Contract,
            prefix: match prefix.trim_matches('/') {
                "" => String::new(),
                prefix => format!("/{prefix}"),
            },
            tenant: "default".to_owned(),
            project: "conformance".to_owned(),
            victim_project: "conformance-victim".to_owned(),
            credentials: Credentials::default(),
            trust: Vec::new(),
            may_clean: false,
            patience: Duration::from_secs(90),
            keys: AtomicU64::new(0),
            run: u64::try_from(now.as_micros()).unwrap_or(u64::MAX),
        })
    }

    /// A key nobody used before, in this run or another.
    pub fn key(&self, name: &str) -> String {
        format!("{:x}-{}-{name}", self.run, self.keys.fetch_add(1, Ordering::Relaxed))
    }

    /// A body nobody used before, if it is long enough to be one: eight bytes are.
    pub fn body(&self, length: usize) -> Vec<u8> {
        let mut state = self.run ^ (self.keys.fetch_add(1, Ordering::Relaxed) << 40);
        let mut body = Vec::with_capacity(length + 8);
        while body.len() < length {
            state = mixed(state);
            body.extend_from_slice(&state.to_be_bytes());
        }
        body.truncate(length);
        body
    }

    /// Fails with "not applicable" on servers that speak only part of the contract.
    pub fn contract(&self) -> Result<()> {
        match self.dialect {
            Dialect::Contract => Ok(()),
            Dialect::Bazel => not_applicable("the server speaks Bazel's HTTP cache only"),
        }
    }

    /// Fails with "not applicable" on servers that let everybody in.
    pub fn guarded(&self) -> Result<()> {
        if self.credentials.writer.is_none() {
            return not_applicable("no credential was given: the server is taken to be open");
        }
        Ok(())
    }

    /// A target as an error may show it: tokens end in queries when a check puts them there.
    pub(super) fn shown(&self, target: &str) -> String {
        let Credentials {
            writer,
            reader,
            stranger,
            victim,
            ..
        } = &self.credentials;
        [writer, reader, stranger, victim]
            .into_iter()
            .flatten()
            .fold(target.to_owned(), |text, token| {
                text.replace(token.expose().as_str(), "[token]")
            })
    }

    /// The scope of [`Server::project`], as a query.
    pub fn scope(&self) -> String {
        self.scope_of(&self.project)
    }

    pub fn scope_of(&self, project: &str) -> String {
        format!("tenant_id={}&namespace_id={project}", self.tenant)
    }

    /// A target below `/api/cache` in [`Server::project`].
    pub fn api(&self, path: &str) -> String {
        self.api_of(&self.project, path)
    }

    pub fn api_of(&self, project: &str, path: &str) -> String {
        format!("/api/cache/{path}?{}", self.scope_of(project))
    }

    /// A target of the Gradle route in [`Server::project`].
    pub fn gradle(&self, key: &str) -> String {
        self.api(&format!("gradle/{key}"))
    }

    /// Where a blob with that body can be stored, whatever the dialect.
    pub fn blob(&self, body: &[u8]) -> String {
        match self.dialect {
            Dialect::Contract => self.gradle(&self.key("blob")),
            Dialect::Bazel => format!("/cas/{}", hex(&Sha256::digest(body))),
        }
    }

    /// A fresh body, and where it can be stored.
    pub fn fresh(&self, length: usize) -> (Vec<u8>, String) {
        let body = self.body(length);
        let target = self.blob(&body);
        (body, target)
    }

    /// The same, stored by the writer.
    pub async fn stored(&self, length: usize) -> Result<(Vec<u8>, String)> {
        let (body, target) = self.fresh(length);
        self.writer().store(&target, &body).await?;
        Ok((body, target))
    }

    pub fn writer(&self) -> Caller<'_> {
        self.caller(self.credentials.writer.as_ref())
    }

    pub fn anonymous(&self) -> Caller<'_> {
        self.caller(None)
    }

    pub fn reader(&self) -> Result<Caller<'_>> {
        self.need(self.credentials.reader.as_ref(), "no read-only credential was given")
    }

    pub fn stranger(&self) -> Result<Caller<'_>> {
        let stranger = self.credentials.stranger.as_ref();
        self.need(stranger, "no credential of another tenant was given")
    }

    /// The owner of [`Server::victim_project`].
    pub fn victim(&self) -> Result<Caller<'_>> {
        let victim = self.credentials.victim.as_ref();
        self.need(victim, "no credential of another project was given")
    }

    /// Someone with a token of their own making.
    pub fn bearer<'s>(&'s self, token: &'s str) -> Caller<'s> {
        Caller {
            server: self,
            token: Some(token),
        }
    }

    fn caller<'s>(&'s self, token: Option<&'s Secret<String>>) -> Caller<'s> {
        Caller {
            server: self,
            token: token.map(|token| token.expose().as_str()),
        }
    }

    fn need<'s>(&'s self, token: Option<&'s Secret<String>>, otherwise: &str) -> Result<Caller<'s>> {
        match token {
            Some(_) => Ok(self.caller(token)),
            None => not_applicable(otherwise),
        }
    }

    /// A connection on which raw HTTP/1.1 can be written; not applicable where HTTP/2 is spoken.
    pub async fn wire(&self) -> Result<Wire> {
        if self.transport.is_http2() {
            return not_applicable("about the bytes of HTTP/1.1; this run speaks HTTP/2");
        }
        self.connect().await
    }

    /// The same, with these bytes written.
    pub async fn told(&self, bytes: impl AsRef<[u8]>) -> Result<Wire> {
        let mut wire = self.wire().await?;
        wire.write(bytes).await;
        Ok(wire)
    }

    async fn connect(&self) -> Result<Wire> {
        let stream = self.dial().await?;
        if !self.transport.is_tls() {
            return Ok(Wire::new(stream, self.patience));
        }
        Ok(Wire::new(self.secure(stream, b"http/1.1").await?, self.patience))
    }

    pub(super) async fn dial(&self) -> Result<TcpStream> {
        let stream = TcpStream::connect((self.host.as_str(), self.port))
            .await
            .with_context(|| format!("failed to connect to {}:{}", self.host, self.port))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    pub(super) async fn secure(&self, stream: TcpStream, protocol: &[u8]) -> Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(self.host.clone()).context("not a name for TLS")?;
        let connected = tls(&self.trust, protocol)?.connect(name, stream).await;
        connected.context("the TLS handshake failed")
    }
}

/// Connections to servers with certificates of these authorities, in that protocol.
pub(crate) fn tls(trust: &[CertificateDer<'static>], protocol: &[u8]) -> Result<TlsConnector> {
    let mut roots = rustls::RootCertStore::empty();
    for authority in trust {
        roots.add(authority.clone()).context("failed to use a certificate")?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Someone who sends requests: one connection each, so that no check hangs on another's.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "it holds a token, which nothing prints")]
pub struct Caller<'s> {
    server: &'s Server,
    token: Option<&'s str>,
}

impl Caller<'_> {
    pub async fn get(&self, target: &str) -> Result<Response> {
        self.send("GET", target, &[], b"").await
    }

    pub async fn head(&self, target: &str) -> Result<Response> {
        self.send("HEAD", target, &[], b"").await
    }

    pub async fn put(&self, target: &str, body: &[u8]) -> Result<Response> {
        self.send("PUT", target, &[], body).await
    }

    pub async fn post(&self, target: &str, body: &[u8]) -> Result<Response> {
        self.send("POST", target, &[], body).await
    }

    pub async fn delete(&self, target: &str) -> Result<Response> {
        self.send("DELETE", target, &[], b"").await
    }

    /// Fails unless the entry is there with exactly this body.
    pub async fn hit(&self, target: &str, body: &[u8]) -> Result<()> {
        self.get(target).await?.expect(200)?.expect_body(body).map(drop)
    }

    /// Fails unless nothing is there.
    pub async fn miss(&self, target: &str) -> Result<()> {
        self.get(target).await?.expect(404).map(drop)
    }

    /// Fails unless a write is answered with this status.
    pub async fn puts(&self, target: &str, body: &[u8], status: u16) -> Result<()> {
        self.sends("PUT", target, &[], body, status).await
    }

    /// Fails unless the request is answered with this status.
    pub async fn sends(
        &self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        body: &[u8],
        status: u16,
    ) -> Result<()> {
        let answer = self.send(method, target, fields, body).await?;
        answer.expect(status).map(drop)
    }

    /// Stores a blob for a check that is about something else; 200, 201 and 204 all mean that it is there.
    pub async fn store(&self, target: &str, body: &[u8]) -> Result<()> {
        self.put(target, body).await?.expect_any(STORED).map(drop)
    }

    /// One request on a connection of its own.
    pub async fn send(&self, method: &str, target: &str, fields: &[(&str, &str)], body: &[u8]) -> Result<Response> {
        let mut asked = format!("{method} {target}");
        for (name, value) in fields {
            // A credential may be coded, so that it is not known by its text.
            if value.len() < 200 && !name.to_ascii_lowercase().contains("auth") {
                asked = format!("{asked} {name}: {value}");
            }
        }
        let asked = self.server.shown(&asked);
        let answer = self.ask(method, target, fields, body).await;
        Ok(Response {
            asked: asked.clone(),
            ..answer.context(asked)?
        })
    }

    async fn ask(&self, method: &str, target: &str, fields: &[(&str, &str)], body: &[u8]) -> Result<Response> {
        if self.server.transport.is_http2() {
            let value = self.token.map(bearer);
            let mut all = fields.to_vec();
            all.extend(value.as_deref().map(|value| ("authorization", value)));
            let target = format!("{}{target}", self.server.prefix);
            return h2::send(self.server, method, &target, &all, body).await;
        }
        let request = self.request(method, target, fields, body);
        self.server.connect().await?.exchange(method, &request).await
    }

    /// The bytes of a plain HTTP/1.1 request.
    pub fn request(&self, method: &str, target: &str, fields: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
        let length = body.len().to_string();
        let mut all = fields.to_vec();
        if !body.is_empty() {
            all.push(("Content-Length", &length));
        }
        let mut request = self.head_of(method, target, &all).into_bytes();
        request.extend_from_slice(body);
        request
    }

    /// A request head, with this caller's credential and the empty line.
    pub fn head_of(&self, method: &str, target: &str, fields: &[(&str, &str)]) -> String {
        use std::fmt::Write as _;
        let mut head = format!(
            "{method} {}{target} HTTP/1.1\r\nHost: {}\r\n",
            self.server.prefix, self.server.host
        );
        if let Some(token) = self.token {
            let _ = write!(head, "Authorization: {}\r\n", bearer(token));
        }
        for (name, value) in fields {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        head.push_str("\r\n");
        head
    }
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

/// One step of a generator that never gives the same twice before it has given all.
pub(crate) fn mixed(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

/// Every byte percent-encoded.
pub(super) fn escape(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "%{byte:02X}");
        text
    })
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        for (url, host, port, prefix) in [
            ("http://cache", "cache", 80, ""),
            ("https://cache/", "cache", 443, ""),
            ("http://127.0.0.1:4000/below/it/", "127.0.0.1", 4000, "/below/it"),
            ("http://[::1]:4000", "::1", 4000, ""),
        ] {
            let server = Server::new(url).unwrap();
            let seen = (server.host.as_str(), server.port, server.prefix.as_str());
            assert_eq!(seen, (host, port, prefix));
        }
        for url in ["cache:4000", "ftp://cache", "http://cache:x"] {
            assert!(Server::new(url).is_err(), "{url}");
        }
    }

    #[test]
    fn bodies_are_as_long_as_asked_and_never_the_same() {
        let server = Server::new("http://cache").unwrap();
        for length in [0, 1, 7, 4096] {
            assert_eq!(server.body(length).len(), length);
        }
        assert_ne!(server.body(100), server.body(100));
        assert_ne!(server.body(8), server.body(8));
    }
}
