//! The cache on the other side of the network, which may be away, lie or refuse.

use super::complain;
use super::disk::{Disk, Fetched, Id, hex, millis};
use anyhow::Context as _;
use aws_lc_rs::digest;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, StatusCode};
use russet_telemetry::Secret;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Semaphore;

/// Failures in a row after which a server is left alone.
const STRIKES: usize = 3;
/// Requests at a time, each way.
const PARALLEL: usize = 16;
const CONNECT: Duration = Duration::from_secs(2);

/// Where and how.
pub(super) struct Settings {
    pub(super) url: String,
    pub(super) token: Option<Secret<String>>,
    pub(super) read_only: bool,
    pub(super) timeout: Duration,
}

pub(super) struct Remote {
    client: Client,
    base: String,
    authorization: Option<HeaderValue>,
    timeout: Duration,
    reads: Gate,
    writes: Gate,
    uploaded: AtomicU64,
}

/// Whether, and how often at a time, something is done.
struct Gate {
    open: AtomicBool,
    places: Semaphore,
    strikes: AtomicUsize,
}

impl Gate {
    fn new(open: bool) -> Self {
        Self {
            open: AtomicBool::new(open),
            places: Semaphore::new(PARALLEL),
            strikes: AtomicUsize::new(0),
        }
    }

    fn succeeded(&self) {
        self.strikes.store(0, Ordering::Relaxed);
    }

    /// Counts a failure; whether it was one too many.
    fn failed(&self) -> bool {
        self.strikes.fetch_add(1, Ordering::Relaxed) + 1 >= STRIKES
    }

    fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }
}

/// Why a request brought nothing.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("it cannot be reached")]
    Away(#[source] reqwest::Error),
    #[error("it answers {0}")]
    Status(StatusCode),
    #[error("it sends bytes that are not what they should be")]
    Garbled,
    #[error("the local folder cannot be used")]
    Local(#[source] std::io::Error),
}

impl Remote {
    pub(super) fn new(settings: Settings) -> anyhow::Result<Self> {
        let url = reqwest::Url::parse(&settings.url).context("the URL of the cache is no URL")?;
        anyhow::ensure!(
            matches!(url.scheme(), "http" | "https"),
            "the URL of the cache must begin with http:// or https://"
        );
        anyhow::ensure!(
            url.username().is_empty() && url.password().is_none(),
            "the URL of the cache must not hold a password; put the token into KURA_CACHEPROG_TOKEN or a file"
        );
        let authorization = match settings.token {
            None => None,
            Some(token) => {
                let mut value = HeaderValue::try_from(format!("Bearer {}", token.expose()))
                    .map_err(|_| anyhow::anyhow!("the token holds characters no header can carry"))?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let client = Client::builder()
            .connect_timeout(CONNECT)
            .read_timeout(settings.timeout)
            .redirect(reqwest::redirect::Policy::none())
            .pool_max_idle_per_host(PARALLEL)
            .tcp_nodelay(true)
            .build()?;
        Ok(Self {
            client,
            base: settings.url.trim_end_matches('/').to_owned(),
            authorization,
            timeout: settings.timeout,
            reads: Gate::new(true),
            writes: Gate::new(!settings.read_only),
            uploaded: AtomicU64::new(0),
        })
    }

    pub(super) fn writes(&self) -> bool {
        self.writes.is_open()
    }

    pub(super) fn uploaded(&self) -> u64 {
        self.uploaded.load(Ordering::Relaxed)
    }

    fn url(&self, action: &Id) -> String {
        format!("{}/{}", self.base, hex(action))
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(value) = &self.authorization {
            headers.insert(reqwest::header::AUTHORIZATION, value.clone());
        }
        headers
    }

    /// What an action produced, if the cache has it and its bytes are right.
    pub(super) async fn get(&self, action: &Id, disk: &Disk) -> Option<Fetched> {
        if !self.reads.is_open() {
            return None;
        }
        let _place = self.reads.places.acquire().await.ok()?;
        // It may have turned out to be useless while we waited.
        if !self.reads.is_open() {
            return None;
        }
        match self.fetch(action, disk).await {
            Ok(fetched) => {
                self.reads.succeeded();
                fetched
            }
            Err(Fault::Status(status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN))) => {
                self.leave(&Fault::Status(status));
                None
            }
            Err(fault) => {
                self.strike(&self.reads, &fault);
                None
            }
        }
    }

    async fn fetch(&self, action: &Id, disk: &Disk) -> Result<Option<Fetched>, Fault> {
        let request = self.client.get(self.url(action)).headers(self.headers());
        let mut response = request.send().await.map_err(Fault::Away)?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Ok(None),
            status => return Err(Fault::Status(status)),
        }
        let field = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let claimed = field("x-kura-output-id").map(ToOwned::to_owned).ok_or(Fault::Garbled)?;
        let stored_ms = field("x-kura-stored-ms").and_then(|text| text.parse().ok());
        let draft = disk.draft();
        let mut file = tokio::fs::File::create(draft.path()).await.map_err(Fault::Local)?;
        let mut context = digest::Context::new(&digest::SHA256);
        let mut size = 0;
        while let Some(chunk) = response.chunk().await.map_err(Fault::Away)? {
            context.update(&chunk);
            size += chunk.len() as u64;
            file.write_all(&chunk).await.map_err(Fault::Local)?;
        }
        file.flush().await.map_err(Fault::Local)?;
        let mut output = [0; 32];
        output.copy_from_slice(context.finish().as_ref());
        if hex(&output) != claimed {
            return Err(Fault::Garbled);
        }
        Ok(Some(Fetched {
            output,
            size,
            stored_ms: stored_ms.unwrap_or_else(|| millis(SystemTime::now())),
            file: draft,
        }))
    }

    /// Offers an output to the cache. Whether it was taken is the cache's business.
    pub(super) async fn put(&self, action: &Id, output: &Id, path: &Path) {
        let Ok(_place) = self.writes.places.acquire().await else {
            return;
        };
        if !self.writes.is_open() {
            return;
        }
        match self.send(action, output, path).await {
            Ok(()) => {
                self.writes.succeeded();
                self.uploaded.fetch_add(1, Ordering::Relaxed);
            }
            // A token that may only read is an ordinary thing to have.
            Err(Fault::Status(StatusCode::FORBIDDEN)) => self.writes.open.store(false, Ordering::Relaxed),
            // What is wrong with one output need not be wrong with others.
            Err(Fault::Status(status)) if status.is_client_error() && status != StatusCode::UNAUTHORIZED => {}
            Err(Fault::Local(_)) => {}
            Err(fault) => self.strike(&self.writes, &fault),
        }
    }

    async fn send(&self, action: &Id, output: &Id, path: &Path) -> Result<(), Fault> {
        let body = tokio::fs::read(path).await.map_err(Fault::Local)?;
        let mut headers = self.headers();
        if let Ok(value) = HeaderValue::try_from(hex(output)) {
            headers.insert(HeaderName::from_static("x-kura-output-id"), value);
        }
        // A body may take long; a megabyte a second is slow enough to give up on.
        let patience = self.timeout + Duration::from_secs(body.len() as u64 / (1024 * 1024));
        let request = self
            .client
            .put(self.url(action))
            .headers(headers)
            .timeout(patience)
            .body(body);
        let response = request.send().await.map_err(Fault::Away)?;
        if response.status().is_success() {
            Ok(())
        } else {
            Err(Fault::Status(response.status()))
        }
    }

    /// Reads and writes are counted apart: a server that takes everything may still send garbage.
    fn strike(&self, gate: &Gate, fault: &Fault) {
        if gate.failed() {
            self.leave(fault);
        }
    }

    /// Leaves the server alone from now on, and says so once.
    fn leave(&self, fault: &Fault) {
        self.writes.open.store(false, Ordering::Relaxed);
        if self.reads.open.swap(false, Ordering::Relaxed) {
            complain(&format!("going on without the cache at {}: {fault}", self.base));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(url: &str, token: Option<&str>) -> anyhow::Result<Remote> {
        Remote::new(Settings {
            url: url.to_owned(),
            token: token.map(Secret::from),
            read_only: false,
            timeout: Duration::from_secs(1),
        })
    }

    #[test]
    fn urls_are_checked_and_never_hold_a_password() {
        let url = remote("http://h:1/go/p/", None).unwrap().url(&[0xab; 32]);
        assert_eq!(url, format!("http://h:1/go/p/{}", "ab".repeat(32)));
        for bad in ["", "cache:4000/go/p", "ftp://h/go/p", "http://u:p@h/go/p"] {
            let error = remote(bad, None).err().unwrap();
            assert!(!format!("{error:#}").contains("u:p"), "{error:#}");
        }
        let error = remote("http://h/go/p", Some("a\nb")).err().unwrap();
        assert!(!format!("{error:?}").contains("a\nb"));
    }

    #[test]
    fn three_failures_in_a_row_are_enough() {
        let remote = remote("http://h/go/p", None).unwrap();
        for _ in 0..2 {
            remote.strike(&remote.reads, &Fault::Garbled);
            remote.writes.succeeded();
        }
        assert!(remote.reads.is_open() && remote.writes());
        remote.strike(&remote.reads, &Fault::Garbled);
        assert!(!remote.reads.is_open() && !remote.writes());
    }
}
